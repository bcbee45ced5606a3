package scrape

import (
	"bytes"
	"compress/gzip"
	"context"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

const someTarget = "http://127.0.0.1:9100/metrics"

// A target that fails in any way has up 0 and stores nothing; the error says what
// to do about it.
func TestTargetsThatFail(t *testing.T) {
	zeros := func(n int64) []byte {
		var b bytes.Buffer
		z, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed)
		chunk := make([]byte, 1<<20)
		for ; n > 0; n -= int64(len(chunk)) {
			z.Write(chunk)
		}
		z.Close()
		return b.Bytes()
	}
	bomb := zeros(24 << 20)
	gzipped := func(b []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Header().Set("Content-Type", "text/plain; version=0.0.4")
			w.Write(b)
		}
	}
	text := func(s string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; version=0.0.4")
			w.Write([]byte(s))
		}
	}
	cut := func(chunked bool) http.HandlerFunc { // the exporter dies in the middle of its page
		return func(w http.ResponseWriter, _ *http.Request) {
			if !chunked {
				w.Header().Set("Content-Length", "1000")
			}
			w.Header().Set("Content-Type", "text/plain; version=0.0.4")
			w.Write([]byte("a 1\nb 2\n"))
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
	}
	many := "m{" + strings.Repeat("x", 129) + "=\"1\"} 1\n"
	for _, c := range []struct {
		name  string
		serve http.HandlerFunc
		want  string
	}{
		{"gzip bomb", gzipped(bomb), "the answer has more than 20971520 bytes (body_size_limit)"},
		{"too large", text(strings.Repeat("# padding\n", 21<<17)), "body_size_limit"},
		{"gzip that is none", gzipped([]byte("a 1\n")), "the answer says gzip: "},
		{"gzip cut off", gzipped(zeros(1 << 20)[:500]), "the answer broke off after "},
		{"killed, with a length", cut(false), "the answer broke off after 8 bytes"},
		{"killed, chunked", cut(true), "the answer broke off after 8 bytes"},
		{"redirect", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) }, "answers 302 Found to /elsewhere, and redirects are not followed; give that address"},
		{"error", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, "answers 503 Service Unavailable"},
		{"a login page", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.Write([]byte("<html>"))
		}, "answers text/html, which is no page of metrics; is the path right?"},
		{"zstd", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "zstd")
			w.Write([]byte("x"))
		}, "the answer is in the encoding zstd; gzip and none are read"},
		{"sample limit", text(strings.Repeat("a 1\n", 50_001)), "page: 50001 samples, at most are 50000 (sample_limit)"},
		{"long label name", text("ok 1\n" + many), "page: sample 2: m: label xxx"},
		{"long label value", text("m{a=\"" + strings.Repeat("v", 1025) + "\"} 1\n"), "label a: the value has 1025 bytes, at most are 1024"},
		{"many labels", text("m{" + labelsOf(63) + "} 1\n"), "m: has 65 labels, at most are 64"},
		{"long name", text(strings.Repeat("n", 257) + " 1\n"), "the name has 257 bytes, at most are 256"},
		{"label twice", text("m{a=\"1\",a=\"2\"} 1\n"), "m: label a comes twice"},
		{"not UTF-8", text("m{a=\"\xff\"} 1\n"), "page: sample 1: "},
		{"no name", text("{a=\"1\"} 1\n"), "page: sample 1: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			target := Target{URL: someTarget}
			r.scrape(target, 0, "before 1\n")
			r.serve = c.serve
			var was, is runtime.MemStats
			runtime.ReadMemStats(&was)
			st := r.scrape(target, 15*second, "")
			runtime.ReadMemStats(&is)
			if st.Up || !strings.Contains(st.Err, c.want) {
				t.Errorf("up %v: %q; want %q", st.Up, st.Err, c.want)
			}
			if grown := is.TotalAlloc - was.TotalAlloc; grown > 200<<20 {
				t.Errorf("allocated %d MiB", grown>>20)
			}
			wantLines(t, "up", r.query("up", 15*second), `{__name__="up", instance="127.0.0.1:9100", job="scrape"} 0`)
			wantLines(t, "what was there", r.of("before"), `{__name__="before", instance="127.0.0.1:9100", job="scrape"} 0=1 15=end`)
			if got := len(r.stored()); got != numReports+1 {
				t.Errorf("%d series; want %d", got, numReports+1)
			}
		})
	}
}

func labelsOf(n int) string {
	var all []string
	for i := range n {
		all = append(all, "l"+strings.Repeat("x", i)+"=\"v\"")
	}
	return strings.Join(all, ",")
}

// A page in gzip, in two members, and one without a type.
func TestPagesThatAreRead(t *testing.T) {
	var b bytes.Buffer
	for _, part := range []string{"a 1\n", "b 2\n"} {
		z := gzip.NewWriter(&b)
		z.Write([]byte(part))
		z.Close()
	}
	r := newRig(t)
	var asked http.Header
	r.serve = func(w http.ResponseWriter, req *http.Request) {
		asked = req.Header
		w.Header().Set("Content-Encoding", "gzip")
		w.Header()["Content-Type"] = []string{"application/octet-stream"}
		w.Write(b.Bytes())
	}
	if st := r.scrape(Target{URL: someTarget}, 0, ""); !st.Up || st.Stored != 2 {
		t.Errorf("%+v", st)
	}
	for key, want := range map[string]string{"User-Agent": "wattloop/test", "Accept-Encoding": "gzip", "X-Prometheus-Scrape-Timeout-Seconds": "10", "Accept": accepts} {
		if got := asked.Get(key); got != want {
			t.Errorf("%s: %q; want %q", key, got, want)
		}
	}
}

// A target that does not answer in time is down with its timeout.
func TestSlowTarget(t *testing.T) {
	r := newRig(t)
	release := make(chan struct{})
	r.serve = func(w http.ResponseWriter, req *http.Request) {
		w.(http.Flusher).Flush()
		<-release
	}
	defer close(release)
	st := r.scrape(Target{URL: someTarget, Interval: time.Second, Timeout: 20 * time.Millisecond}, 0, "")
	if st.Up || st.Err != "no whole answer within 20ms" {
		t.Errorf("%+v", st)
	}
	// The end of the process is no failure of the target.
	r2 := newRig(t)
	l := r2.m.newLoop(Target{URL: someTarget}.withDefaults(), nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l.scrape(ctx)
	if got := r2.stored(); len(got) != 0 || !l.status.Load().LastScrape.IsZero() {
		t.Errorf("stored %v", got)
	}
}
