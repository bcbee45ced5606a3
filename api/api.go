// Package api answers over HTTP what the engine and the store know. It reads;
// what it changes is which rule files run, which channels are open and what target
// the rules of this machine read, and it never writes hardware.
package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/wattloop/wattloop/access"
	"github.com/wattloop/wattloop/engine"
)

// Options are what the API reads from. Every field is required but Ingest.
type Options struct {
	// Door is how requests come in, over TCP and over the socket. The zero Door
	// lets nobody in but to the health of the process.
	Door   access.Door
	Report func() *engine.Report
	Facts  func() Facts
	// Query and QueryRange answer with Prometheus's data object. An error is a
	// *QueryError, or counts as internal.
	Query      func(ctx context.Context, expr string, ts int64, timeout time.Duration) (Answer, error)
	QueryRange func(ctx context.Context, expr string, start, end int64, step, timeout time.Duration) (Answer, error)
	// QueryExemplars answers with Prometheus's data array.
	QueryExemplars func(ctx context.Context, expr string, start, end int64) (Answer, error)
	// Reload reads the rule files again: all of them or none. force ends caps
	// that a protection control holds.
	Reload  func(force bool) error
	Ready   func() error
	Metrics http.Handler
	Ingest  http.Handler // POST /api/v1/otlp/v1/metrics
	// RefuseIngest answers there who may not push, as OTLP does.
	RefuseIngest access.Refuse
	Channels     ChannelOps
	Nodes        NodeOps
	Telemetry    TelemetryOps
	Clock        func() time.Time
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
	return a.serve(a.routes())
}

func (a *api) serve(routes []route) http.Handler {
	mux := http.NewServeMux()
	for _, r := range routes {
		mux.Handle(r.pattern, a.Door.Need(r.role, r.handler, a.refuse))
	}
	return withHeaders(a.Door.HTTP(checkNames(answerUnmatched(mux)), a.refuse))
}

// Route is one route of the surface, as Go's mux writes it, and the role that it
// needs.
type Route struct {
	Pattern string
	Role    access.Role
}

// Routes are those that Handler serves with these options.
func Routes(o Options) []Route {
	var out []Route
	for _, r := range (&api{o}).routes() {
		out = append(out, Route{r.pattern, r.role})
	}
	return out
}

// withHeaders keeps a browser from taking an answer for a page.
func withHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		next.ServeHTTP(w, r)
	})
}

// refuse answers whom the door does not let in.
func (a *api) refuse(w http.ResponseWriter, r *http.Request, no *access.Refusal) {
	if strings.HasPrefix(r.URL.Path, ingestPath) && a.RefuseIngest != nil {
		a.RefuseIngest(w, r, no)
		return
	}
	code := http.StatusForbidden
	switch {
	case no.Later:
		w.Header().Set("Retry-After", "1")
		code = http.StatusTooManyRequests
	case no.Unauthenticated:
		code = http.StatusUnauthorized
	}
	http.Error(w, no.Error(), code)
}

type api struct{ Options }

type route struct {
	pattern string
	role    access.Role
	handler http.Handler
}

const ingestPath = "/api/v1/otlp/"

// routes is the whole surface, on one screen.
func (a *api) routes() []route {
	rs := []route{
		{"GET /{$}", access.Read, http.HandlerFunc(a.root)},
		{"GET /api/v1/query", access.Read, http.HandlerFunc(a.query)},
		{"POST /api/v1/query", access.Read, http.HandlerFunc(a.query)},
		{"GET /api/v1/query_range", access.Read, http.HandlerFunc(a.queryRange)},
		{"POST /api/v1/query_range", access.Read, http.HandlerFunc(a.queryRange)},
		{"GET /api/v1/query_exemplars", access.Read, http.HandlerFunc(a.queryExemplars)},
		{"POST /api/v1/query_exemplars", access.Read, http.HandlerFunc(a.queryExemplars)},
		{"GET /api/v1/status/wattloop", access.Read, http.HandlerFunc(a.status)},
		{"GET /api/v1/channels", access.Read, http.HandlerFunc(a.listChannels)},
		{"GET /api/v1/channels/{name}", access.Read, http.HandlerFunc(a.getChannel)},
		{"PUT /api/v1/channels/{name}", access.Admin, http.HandlerFunc(a.putChannel)},
		{"DELETE /api/v1/channels/{name}", access.Admin, http.HandlerFunc(a.deleteChannel)},
		{"POST /api/v1/channels/{name}/prove", access.Admin, http.HandlerFunc(a.proveChannel)},
		{"GET /api/v1/nodes/{node}/twin", access.Read, http.HandlerFunc(a.getTwin)},
		{"PUT /api/v1/nodes/{node}/twin/spec", access.Admin, http.HandlerFunc(a.putSpec)},
		{"DELETE /api/v1/nodes/{node}/twin/spec", access.Admin, http.HandlerFunc(a.deleteSpec)},
		{"GET /api/v1/nodes/{node}/hardware", access.Read, http.HandlerFunc(a.getHardware)},
		{"GET /otlp/telemetry/{node}", access.Read, http.HandlerFunc(a.getOTLP)},
		{"GET /telemetry/{node}", access.Read, http.HandlerFunc(a.getTelemetry)},
		{"GET /metrics", access.Read, a.Metrics},
		{"GET /-/healthy", access.Anyone, http.HandlerFunc(a.healthy)},
		{"GET /-/ready", access.Anyone, http.HandlerFunc(a.ready)},
		{"POST /-/reload", access.Admin, http.HandlerFunc(a.reload)},
	}
	if a.Ingest != nil {
		rs = append(rs, route{"POST " + ingestPath + "v1/metrics", access.Push, a.Ingest})
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
