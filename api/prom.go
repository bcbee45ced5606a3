package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"time"
)

// Prometheus's HTTP API: https://prometheus.io/docs/prometheus/latest/querying/api/

const defaultTimeout = 30 * time.Second

// maxPoints is Prometheus's bound on one series of a range answer.
const maxPoints = 11000

type promAnswer struct {
	Status    string          `json:"status"`
	Data      json.RawMessage `json:"data,omitempty"`
	ErrorType string          `json:"errorType,omitempty"`
	Error     string          `json:"error,omitempty"`
	Warnings  []string        `json:"warnings,omitempty"`
	Infos     []string        `json:"infos,omitempty"`
}

func (a *api) query(w http.ResponseWriter, r *http.Request) {
	var p params
	p.parse(w, r)
	ts := p.time("time", a.Clock().UnixMilli())
	timeout := p.duration("timeout", defaultTimeout)
	if p.err != nil {
		fail(w, p.err)
		return
	}
	ans, err := a.Query(r.Context(), r.Form.Get("query"), ts, timeout)
	respond(w, ans, err)
}

func (a *api) queryRange(w http.ResponseWriter, r *http.Request) {
	var p params
	p.parse(w, r)
	start, end := p.required("start"), p.required("end")
	step := p.duration("step", 0)
	timeout := p.duration("timeout", defaultTimeout)
	switch {
	case p.err != nil:
	case end < start:
		p.bad("end", "end timestamp must not be before start time")
	case step < time.Millisecond:
		p.bad("step", "zero or negative query resolution step widths are not accepted. Try a positive integer")
	case (end-start)/step.Milliseconds() > maxPoints:
		p.err = &QueryError{"bad_data", fmt.Errorf("more than %d points a series; widen the step or shorten the range", maxPoints)}
	}
	if p.err != nil {
		fail(w, p.err)
		return
	}
	ans, err := a.QueryRange(r.Context(), r.Form.Get("query"), start, end, step, timeout)
	respond(w, ans, err)
}

// queryExemplars is a range without a step; without start or end it has no bound
// on that side.
func (a *api) queryExemplars(w http.ResponseWriter, r *http.Request) {
	var p params
	p.parse(w, r)
	start, end := p.time("start", math.MinInt64), p.time("end", math.MaxInt64)
	if p.err == nil && end < start {
		p.bad("end", "end timestamp must not be before start timestamp")
	}
	if p.err != nil {
		fail(w, p.err)
		return
	}
	ans, err := a.QueryExemplars(r.Context(), r.Form.Get("query"), start, end)
	respond(w, ans, err)
}

func respond(w http.ResponseWriter, ans Answer, err error) {
	if err != nil {
		fail(w, err)
		return
	}
	writeJSON(w, http.StatusOK, promAnswer{Status: "success", Data: ans.Data, Warnings: ans.Warnings, Infos: ans.Infos})
}

func fail(w http.ResponseWriter, err error) {
	typ := "internal"
	var q *QueryError
	if errors.As(err, &q) {
		typ = q.Type
	}
	code := map[string]int{
		"bad_data": http.StatusBadRequest, "execution": http.StatusUnprocessableEntity,
		"timeout": http.StatusServiceUnavailable, "canceled": 499, "unavailable": http.StatusServiceUnavailable,
	}[typ]
	if code == 0 {
		code = http.StatusInternalServerError
	}
	writeJSON(w, code, promAnswer{Status: "error", ErrorType: typ, Error: err.Error()})
}

// params reads form values and keeps the first error.
type params struct {
	r   *http.Request
	err error
}

const maxForm = 1 << 20

func (p *params) parse(w http.ResponseWriter, r *http.Request) {
	p.r = r
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		p.err = &QueryError{"bad_data", fmt.Errorf("error parsing form values: %w", err)}
		r.Form = map[string][]string{}
	}
}

func (p *params) bad(name, why string) {
	if p.err == nil {
		p.err = &QueryError{"bad_data", fmt.Errorf("invalid parameter %q: %s", name, why)}
	}
}

func (p *params) required(name string) int64 {
	if p.r.Form.Get(name) == "" {
		p.bad(name, "missing; give Unix seconds or RFC 3339")
		return 0
	}
	return p.time(name, 0)
}

// time reads Unix seconds with a fraction, or RFC 3339, as milliseconds.
func (p *params) time(name string, otherwise int64) int64 {
	s := p.r.Form.Get(name)
	if s == "" {
		return otherwise
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		if ms := f * 1000; math.Abs(ms) < 1<<62 {
			return int64(math.Round(ms))
		}
	}
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return t.UnixMilli()
	}
	p.bad(name, fmt.Sprintf("cannot parse %q to a valid timestamp", s))
	return 0
}

func (p *params) duration(name string, otherwise time.Duration) time.Duration {
	s := p.r.Form.Get(name)
	if s == "" {
		return otherwise
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil && math.Abs(f) < 1e9 {
		return time.Duration(f * float64(time.Second))
	}
	if d, ok := parseDuration(s); ok {
		return d
	}
	p.bad(name, fmt.Sprintf("cannot parse %q to a valid duration", s))
	return otherwise
}

// promDuration is a duration as PromQL writes it: whole numbers of falling
// units, each once.
var promDuration = regexp.MustCompile(`^(?:(\d+)y)?(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?$`)

func parseDuration(s string) (time.Duration, bool) {
	m := promDuration.FindStringSubmatch(s)
	if m == nil || s == "" {
		return 0, false
	}
	const day = 24 * time.Hour
	var sum time.Duration
	for i, unit := range []time.Duration{365 * day, 7 * day, day, time.Hour, time.Minute, time.Second, time.Millisecond} {
		if m[i+1] == "" {
			continue
		}
		n, err := strconv.ParseInt(m[i+1], 10, 64)
		if err != nil || n > int64((math.MaxInt64-sum)/unit) {
			return 0, false
		}
		sum += time.Duration(n) * unit
	}
	return sum, true
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // labels as they are; the content type is not HTML
	if err := enc.Encode(v); err != nil {
		code = http.StatusInternalServerError
		b.Reset()
		b.WriteString(`{"status":"error","errorType":"internal","error":"the answer has no JSON form"}` + "\n")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	w.Write(b.Bytes()) // who has gone away needs no answer
}
