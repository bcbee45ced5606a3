package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/wattloop/wattloop/access"
	"github.com/wattloop/wattloop/engine"
	"github.com/wattloop/wattloop/twin"
)

const here = "127.0.0.1:9464"

// options are those of a healthy process that knows nothing yet.
func options() Options {
	body := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) })
	}
	empty := Answer{Data: []byte(`{"resultType":"vector","result":[]}`)}
	return Options{
		Report: func() *engine.Report { return &engine.Report{} },
		Facts:  func() Facts { return Facts{} },
		Query:  func(context.Context, string, int64, time.Duration) (Answer, error) { return empty, nil },
		QueryRange: func(context.Context, string, int64, int64, time.Duration, time.Duration) (Answer, error) {
			return empty, nil
		},
		QueryExemplars: func(context.Context, string, int64, int64) (Answer, error) { return Answer{Data: []byte("[]")}, nil },
		Reload:         func(bool) error { return nil },
		Ready:          func() error { return nil },
		Metrics:        body("metrics"), Ingest: body("ingest"),
		Channels: ChannelOps{
			List:     func() []Channel { return []Channel{{Name: "w1", Class: "workload"}} },
			Activate: func(context.Context, string, ChannelRequest) (Channel, bool, error) { return Channel{}, false, nil },
			End:      func(string) (Channel, error) { return Channel{}, nil },
			Prove:    func(string) (ChannelProof, error) { return ChannelProof{}, nil },
		},
		Nodes: NodeOps{
			Twin:       func(node string) (twin.Twin, bool) { return twin.Twin{}, node == "w1" },
			Hardware:   func(node string) (twin.Hardware, bool) { return twin.Hardware{}, node == "w1" },
			PutSpec:    func(string, []byte) (twin.Twin, error) { return twin.Twin{}, nil },
			DeleteSpec: func(string) (twin.Twin, error) { return twin.Twin{}, nil },
		},
		Telemetry: TelemetryOps{
			OTLP: func(_ context.Context, node string) ([]byte, bool, error) {
				return []byte(`{"resourceMetrics":[]}`), node == "w1", nil
			},
			Legacy: func(_ context.Context, node string) ([]byte, bool, error) {
				return []byte(`{"packagePowerWatts":350}`), node == "w1", nil
			},
		},
		Door:  access.Door{Open: access.Read},
		Clock: func() time.Time { return time.Unix(1760000000, 0) },
	}
}

// to sets the own end of the connection that a request came over.
func to(r *http.Request, local net.Addr) {
	*r = *r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, local))
}

// asRoot comes over the socket, where root may do everything.
func asRoot(r *http.Request) {
	r.Host = "wattloop"
	to(r, &access.PeerAddr{Addr: &net.UnixAddr{Name: "s", Net: "unix"}, Known: true})
}

// ask sends one request over the loopback and gives the whole answer.
func ask(h http.Handler, method, target string, change func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	r.Host = here
	to(r, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9464})
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// split parts a pattern of the mux into a request's method and path.
func split(pattern string) (method, path string) {
	method, path, _ = strings.Cut(pattern, " ")
	return method, strings.TrimSuffix(path, "{$}")
}

// named is a path with a name where the pattern has a place for one.
func named(path string) string {
	return strings.NewReplacer("{name}", "w1", "{node}", "w1").Replace(path)
}

// Every route answers, and docs/api.md has it.
func TestEveryRoute(t *testing.T) {
	page, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	h := Handler(options())
	all := map[string]bool{}
	for _, r := range (&api{options()}).routes() {
		all[r.pattern] = true
	}
	for _, r := range (&api{options()}).routes() {
		method, path := split(r.pattern)
		if !strings.Contains(string(page), path+"`") {
			t.Errorf("docs/api.md has no %s", path)
		}
		target := named(path)
		body := ""
		if method == "PUT" {
			body = `{"identity":{"actor_uid":"a"}}`
		}
		if strings.HasSuffix(path, "query_range") {
			target += "?query=x&start=0&end=60&step=30"
		}
		change := func(r *http.Request) { asRoot(r); r.Body = io.NopCloser(strings.NewReader(body)) }
		if w := ask(h, method, target, change); w.Code != http.StatusOK || w.Body.Len() == 0 {
			t.Errorf("%s %s: %d %q; want 200 and a body", method, path, w.Code, w.Body)
		}
		other := map[string]string{"GET": "DELETE", "POST": "PUT", "PUT": "POST", "DELETE": "POST"}[method]
		if all[other+" "+path] {
			continue
		}
		w := ask(h, other, named(path), nil)
		if allow := w.Header().Get("Allow"); w.Code != http.StatusMethodNotAllowed || !strings.Contains(allow, method) {
			t.Errorf("%s %s: %d, allowed %q; want 405 and %s", other, path, w.Code, allow, method)
		}
		isError(t, other+" "+path, w, "bad_data", other+" is not taken at "+named(path)+"; ")
	}
	w := ask(h, "GET", "/api/v1/labels", nil)
	if w.Code != http.StatusNotFound {
		t.Errorf("a route that is not there: %d; want 404", w.Code)
	}
	isError(t, "no route", w, "not_found", "/api/v1/labels")
}

// isError wants the JSON error that docs/api.md describes.
func isError(t *testing.T, what string, w *httptest.ResponseRecorder, word, text string) {
	t.Helper()
	var got promAnswer
	err := json.Unmarshal(w.Body.Bytes(), &got)
	if err != nil || got.Status != "error" || got.ErrorType != word || !strings.Contains(got.Error, text) || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%s: %s %q, %v; want a JSON error %s with %q", what, w.Header().Get("Content-Type"), w.Body, err, word, text)
	}
}

// What a page may have sent is refused on every route, before any role is asked
// for. The matrix of roles is cmd/wattloop's.
func TestRefusals(t *testing.T) {
	set := func(pairs ...string) func(*http.Request) {
		return func(r *http.Request) {
			for i := 0; i < len(pairs); i += 2 {
				if pairs[i] == "Host" {
					r.Host = pairs[i+1]
					continue
				}
				r.Header.Set(pairs[i], pairs[i+1])
			}
		}
	}
	cases := []struct {
		name    string
		change  func(*http.Request)
		refused bool
	}{
		{"plain", nil, false},
		{"localhost", set("Host", "localhost:9464"), false},
		{"LocalHost", set("Host", "LocalHost:9464"), false},
		{"no port", set("Host", "127.0.0.1"), false},
		{"127/8", set("Host", "127.9.9.9:1"), false},
		{"ipv6", set("Host", "[::1]:9464"), false},
		{"ipv6 without a port", set("Host", "[::1]"), false},
		{"unix socket", asRoot, false},
		{"own page", set("Origin", "http://"+here, "Sec-Fetch-Site", "same-origin"), false},
		{"address bar", set("Sec-Fetch-Site", "none"), false},

		{"rebound name", set("Host", "evil.example:9464"), true},
		{"name of this machine", set("Host", "worker-01:9464"), true},
		{"socket's host over TCP", set("Host", "wattloop"), true},
		{"looks local", set("Host", "localhost.evil.example"), true},
		{"number that looks local", set("Host", "127.0.0.1.evil.example"), true},
		{"wide address", set("Host", "192.0.2.7:9464"), true},
		{"any address", set("Host", "0.0.0.0:9464"), true},
		{"no host", set("Host", ""), true},
		{"foreign origin", set("Origin", "http://evil.example"), true},
		{"foreign port", set("Origin", "http://127.0.0.1:8080"), true},
		{"null origin", set("Origin", "null"), true},
		{"foreign origin, same site said", set("Origin", "http://evil.example", "Sec-Fetch-Site", "same-origin"), true},
		{"cross-site", set("Sec-Fetch-Site", "cross-site"), true},
		{"same-site", set("Sec-Fetch-Site", "same-site"), true},
		{"cross-site over the socket", func(r *http.Request) { asRoot(r); r.Header.Set("Sec-Fetch-Site", "cross-site") }, true},
	}
	reached := false
	o := options()
	o.Reload = func(bool) error { reached = true; return nil }
	o.Channels.End = func(string) (Channel, error) { reached = true; return Channel{}, nil }
	o.Channels.Prove = func(string) (ChannelProof, error) { reached = true; return ChannelProof{}, nil }
	o.Channels.Activate = func(context.Context, string, ChannelRequest) (Channel, bool, error) {
		reached = true
		return Channel{}, true, nil
	}
	o.Nodes.PutSpec = func(string, []byte) (twin.Twin, error) { reached = true; return twin.Twin{}, nil }
	o.Nodes.DeleteSpec = func(string) (twin.Twin, error) { reached = true; return twin.Twin{}, nil }
	h := Handler(o)
	for _, r := range (&api{o}).routes() {
		method, path := split(r.pattern)
		for _, c := range cases {
			reached = false
			w := ask(h, method, named(path), c.change)
			if refused := w.Code == http.StatusForbidden; refused != c.refused || refused && reached {
				t.Errorf("%s %s, %s: %d, reached %v; want refused %v", method, path, c.name, w.Code, reached, c.refused)
			}
		}
	}
}

func TestHeadersOfAnswers(t *testing.T) {
	w := ask(Handler(options()), "GET", "/api/v1/status/wattloop", nil)
	for name, want := range map[string]string{
		"X-Content-Type-Options": "nosniff", "Content-Type": "application/json",
		"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
	} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s: %q; want %q", name, got, want)
		}
	}
	w = ask(Handler(options()), "GET", "/", func(r *http.Request) { r.Host = "<script>\x00" + strings.Repeat("x", 200) })
	if got := w.Body.String(); len(got) > 200 || strings.Contains(got, "\x00") {
		t.Errorf("a refused host is echoed as %q", got)
	}
}

func TestReadyAndReload(t *testing.T) {
	o := options()
	broken := errors.New("disk full")
	o.Ready = func() error { return broken }
	if w := ask(Handler(o), "GET", "/-/ready", nil); w.Code != 503 || !strings.Contains(w.Body.String(), "disk full") {
		t.Errorf("not ready: %d %q", w.Code, w.Body)
	}
	f := func(target string, err error, code int, body string, force bool) {
		t.Helper()
		forced := false
		o.Reload = func(f bool) error { forced = f; return err }
		w := ask(Handler(o), "POST", target, asRoot)
		if w.Code != code || w.Body.String() != body || forced != force {
			t.Errorf("%s with %v: %d %q force %v; want %d %q force %v", target, err, w.Code, w.Body, forced, code, body, force)
		}
	}
	f("/-/reload", nil, 200, "rules reloaded.\n", false)
	f("/-/reload?yes=1", nil, 200, "rules reloaded.\n", true)
	f("/-/reload?yes=no", errors.New("rules: 1 error"), 500, "rules: 1 error\n", false)
	f("/-/reload", errors.Join(engine.ErrEngaged), 409, engine.ErrEngaged.Error()+"\n", false)
}
