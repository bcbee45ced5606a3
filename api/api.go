// Package api answers over HTTP what the engine and the store know. It reads;
// what it changes is which rule files run and which channels are open, and it
// never writes hardware.
package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/wattloop/wattloop/engine"
)

// Options are what the API reads from. Every field is required but Ingest.
type Options struct {
	Report func() *engine.Report
	Facts  func() Facts
	// Query and QueryRange answer with Prometheus's data object. An error is a
	// *QueryError, or counts as internal.
	Query      func(ctx context.Context, expr string, ts int64, timeout time.Duration) (Answer, error)
	QueryRange func(ctx context.Context, expr string, start, end int64, step, timeout time.Duration) (Answer, error)
	// Reload reads the rule files again: all of them or none. force ends caps
	// that a protection control holds.
	Reload  func(force bool) error
	Ready   func() error
	Metrics http.Handler
	Ingest  http.Handler // POST /api/v1/otlp/v1/metrics
	// Channels begin and end over the socket alone.
	Channels ChannelOps
	Clock    func() time.Time
}

// Answer is a query's data object as JSON, and what the engine remarked on it.
type Answer struct {
	Data            []byte
	Warnings, Infos []string
}

// QueryError is an error with Prometheus's word for it: bad_data, execution,
// canceled, timeout, internal.
type QueryError struct {
	Type string
	Err  error
}

func (e *QueryError) Error() string { return e.Err.Error() }
func (e *QueryError) Unwrap() error { return e.Err }

// Handler serves every route of this version.
func Handler(o Options) http.Handler {
	a := &api{o}
	mux := http.NewServeMux()
	for _, r := range a.routes() {
		mux.Handle(r.pattern, r.handler)
	}
	return protect(checkChannelPath(mux))
}

type api struct{ Options }

type route struct {
	pattern string
	handler http.Handler
}

// routes is the whole surface, on one screen.
func (a *api) routes() []route {
	rs := []route{
		{"GET /{$}", http.HandlerFunc(a.root)},
		{"GET /api/v1/query", http.HandlerFunc(a.query)},
		{"POST /api/v1/query", http.HandlerFunc(a.query)},
		{"GET /api/v1/query_range", http.HandlerFunc(a.queryRange)},
		{"POST /api/v1/query_range", http.HandlerFunc(a.queryRange)},
		{"GET /api/v1/status/wattloop", http.HandlerFunc(a.status)},
		{"GET /api/v1/channels", http.HandlerFunc(a.listChannels)},
		{"GET /api/v1/channels/{name}", http.HandlerFunc(a.getChannel)},
		{"PUT /api/v1/channels/{name}", socketOnly(a.putChannel)},
		{"DELETE /api/v1/channels/{name}", socketOnly(a.deleteChannel)},
		{"POST /api/v1/channels/{name}/prove", socketOnly(a.proveChannel)},
		{"GET /metrics", a.Metrics},
		{"GET /-/healthy", http.HandlerFunc(a.healthy)},
		{"GET /-/ready", http.HandlerFunc(a.ready)},
		{"POST /-/reload", http.HandlerFunc(a.reload)},
	}
	if a.Ingest != nil {
		rs = append(rs, route{"POST /api/v1/otlp/v1/metrics", a.Ingest})
	}
	return rs
}

func (a *api) root(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintln(w, "wattloop")
	for _, r := range a.routes() {
		fmt.Fprintln(w, "  "+strings.TrimSuffix(r.pattern, "{$}"))
	}
}

func (a *api) healthy(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintln(w, "wattloop is healthy.")
}

func (a *api) ready(w http.ResponseWriter, _ *http.Request) {
	if err := a.Ready(); err != nil {
		http.Error(w, "wattloop is not ready: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "wattloop is ready.")
}

func (a *api) reload(w http.ResponseWriter, r *http.Request) {
	if err := a.Reload(r.URL.Query().Get("yes") == "1"); err != nil {
		code := http.StatusInternalServerError // Prometheus's for a file in error
		if errors.Is(err, engine.ErrEngaged) {
			code = http.StatusConflict
		}
		http.Error(w, err.Error(), code)
		return
	}
	fmt.Fprintln(w, "rules reloaded.")
}

func (a *api) status(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, NewStatus(a.Report(), a.Facts(), a.Clock()))
}
