package relay

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/status"

	"github.com/wattloop/wattloop/ingest"
)

// receiver is an OTLP/HTTP endpoint that answers as it is told, then 200.
type receiver struct {
	*httptest.Server
	mu      sync.Mutex
	answers []func(http.ResponseWriter)
	tries   int
	got     []string
}

func newReceiver(t *testing.T, answers ...func(http.ResponseWriter)) *receiver {
	r := &receiver{answers: answers}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		b, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.tries++
		if len(r.answers) > 0 {
			r.answers[0](w)
			r.answers = r.answers[1:]
			return
		}
		if req.Header.Get("Content-Type") == "application/x-protobuf" && req.URL.Path == "/api/v1/otlp/v1/metrics" {
			r.got = append(r.got, string(b))
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) post(t *testing.T) *Post {
	u, err := url.Parse(r.URL + "/api/v1/otlp/v1/metrics")
	if err != nil {
		t.Fatal(err)
	}
	return &Post{u, r.Client()}
}

// Over HTTP requests arrive byte for byte and in order, after answers that may be
// repeated too; who waits for it is told of each.
func TestPost(t *testing.T) {
	code := func(c int, retry string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			if retry != "" {
				w.Header().Set("Retry-After", retry)
			}
			w.WriteHeader(c)
		}
	}
	// Each with a Retry-After of no time, so that the test does not wait.
	up := newReceiver(t, code(503, "0"), code(429, "0"), code(502, "0"), code(504, "0"), code(400, ""), code(301, ""))
	reg := prometheus.NewRegistry()
	sent := make(chan ingest.Signal, 100)
	r := openRelay(t, Options{Post: up.post(t), Name: "remote_otlp", Registerer: reg, Sent: func(s ingest.Signal) { sent <- s }})
	for _, wire := range []string{"dropped", "redirected", "one", "two\x00\xff", strings.Repeat("z", 1<<20)} {
		mustForward(t, r, ingest.PlanePlatform, ingest.SignalMetrics, wire)
	}
	for range 3 {
		<-sent
	}
	up.mu.Lock()
	defer up.mu.Unlock()
	if len(up.got) != 3 || up.got[0] != "one" || up.got[1] != "two\x00\xff" || len(up.got[2]) != 1<<20 {
		t.Errorf("%d requests arrived: %.100q", len(up.got), up.got)
	}
	st := r.Status()[0]
	if up.tries != 9 || st.Sent != 3 || st.Dropped != 2 || !st.Answering {
		t.Errorf("%d tries, status %+v", up.tries, st)
	}
	if n := testutil.CollectAndCount(reg, "wattloop_remote_otlp_requests_total"); n == 0 {
		t.Error("no metric under the relay's own name")
	}
}

// What an answer says is told, but no more of it than is safe.
func TestPostAnswers(t *testing.T) {
	for want, answer := range map[string]func(http.ResponseWriter){
		"unauthenticated: HTTP 401 Unauthorized: who are you": func(w http.ResponseWriter) { http.Error(w, "who are you", http.StatusUnauthorized) },
		"unimplemented: HTTP 404 Not Found: no page":          func(w http.ResponseWriter) { http.Error(w, "no page", http.StatusNotFound) },
		"unavailable: HTTP 503 Service Unavailable: ":         func(w http.ResponseWriter) { w.WriteHeader(503) },
		"invalid_argument: HTTP 400 Bad Request: bad delta": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/x-protobuf")
			w.WriteHeader(400)
			io.WriteString(w, "\x08\x03\x12\tbad delta") // google.rpc.Status
		},
	} {
		up := newReceiver(t, answer)
		_, reached, err := up.post(t).send(t.Context(), ingest.SignalMetrics, nil)
		if got := errorText(err); !reached || strings.TrimSpace(got) != strings.TrimSpace(want) {
			t.Errorf("%q, reached %v; want %q", got, reached, want)
		}
	}
	up := newReceiver(t)
	post := up.post(t)
	up.Close()
	_, reached, err := post.send(t.Context(), ingest.SignalMetrics, nil)
	if v := judge(err); reached || !v.retry || strings.Contains(status.Convert(err).Message(), "http://") {
		t.Errorf("nobody there: %v, reached %v, retry %v", err, reached, v.retry)
	}
}
