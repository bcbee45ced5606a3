package remote_test

import (
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"

	"github.com/wattloop/wattloop/internal/httpfile"
	"github.com/wattloop/wattloop/store"
	"github.com/wattloop/wattloop/store/remote"
)

// expressions are what rules ask, with all that PromQL of the store has beyond
// Prometheus's.
var expressions = []string{
	`hw_energy_joules_total`,
	`sum by (node) (rate(hw_energy_joules_total[5m]))`,
	`covered_rate(hw_energy_joules_total[5m])`,
	`covered_rate(hw_energy_joules_total[2m] offset 90s)`,
	`covered_increase(hw_energy_joules_total[1m])`,
	`timestamp(hw_energy_joules_total)`,
	`ts_of_last_over_time(hw_energy_joules_total[10m])`,
	`max by (node) (hw_power_watts) or sum by (node) (covered_rate(hw_energy_joules_total[5m]))`,
	`count(hw_power_watts{node=~"n[01]",id!="b"})`,
	`absent(hw_power_watts{node="n9"})`,
	`changes(hw_power_watts[5m])`,
	`hw_power_watts == Inf`,
}

// fill writes a world of counters, resets, gaps, markers, NaN and late samples to
// each of the stores.
func fill(t *testing.T, to ...storage.Appendable) {
	rnd := rand.New(rand.NewPCG(1, 2))
	all := map[string][]sample{}
	for node := range 4 {
		for _, id := range []string{"a", "b", "c"} {
			var ss []sample
			v, every := 0.0, []float64{1, 5, 15, 60}[rnd.IntN(4)]
			for at := rnd.Float64() * 300; at < 1800; at += every {
				switch v += 100 * every; rnd.IntN(30) {
				case 0:
					v = 0 // a reset
				case 1:
					at += 400 * rnd.Float64()
				case 2:
					ss = append(ss, sample{at: at, v: stale})
					at += 200 * rnd.Float64()
					continue
				}
				ss = append(ss, sample{at: math.Floor(at*1000) / 1000, v: v})
			}
			all[labels.FromStrings("__name__", "hw_energy_joules_total", "node", "n"+string(rune('0'+node)), "id", id).String()] = ss
			for _, db := range to {
				put(t, db, labels.FromStrings("__name__", "hw_energy_joules_total", "node", "n"+string(rune('0'+node)), "id", id), ss...)
				power := labels.FromStrings("__name__", "hw_power_watts", "node", "n"+string(rune('0'+node)), "id", id, "unit", `"W\ é`)
				put(t, db, power, sample{at: 10, v: 1e-300}, sample{at: 100, v: math.NaN()}, sample{at: 101, v: math.Inf(1)}, sample{at: 102, v: -0.1}, sample{at: 1500 + float64(node), v: 99.7})
				put(t, db, power, sample{at: 50, v: 1.0 / 3}) // late
			}
		}
	}
}

// The same expressions over the same samples give the same bits, whichever way
// they are read (decisions: how a rate is read).
func TestSameAsEmbedded(t *testing.T) {
	for _, way := range []string{"remote read", "queries", "victoria"} {
		t.Run(way, func(t *testing.T) {
			server := newPrometheus(t)
			server.read, server.victoria = way == "remote read", way == "victoria"
			embedded := openStore(t, store.Options{OutOfOrder: time.Hour})
			fill(t, embedded, server.db)
			db, client := beside(t, remote.Options{}, server.URL)
			n := 0
			exprs := expressions
			if way == "victoria" { // which cannot hold a NaN that is no marker
				exprs = exprs[:8]
			}
			for at := 1.0; at < 2300; at += 97.3 {
				for _, expr := range exprs {
					want, werr := embedded.Instant(t.Context(), expr, second(at))
					got, err := db.Instant(t.Context(), expr, second(at))
					if (err == nil) != (werr == nil) {
						t.Fatalf("%s at %g: %v; want %v", expr, at, err, werr)
					}
					if err := same(got, want); err != nil {
						t.Fatalf("%s at %g: %v", expr, at, err)
					}
					n += len(want)
				}
				i, err := db.Interval(t.Context(), "hw_energy_joules_total", second(at))
				want, werr := embedded.Interval(t.Context(), "hw_energy_joules_total", second(at))
				if err != nil || werr != nil || i != want && way == "remote read" {
					t.Fatalf("interval at %g: %v, %v; want %v, %v", at, i, err, want, werr)
				}
			}
			if n < 500 {
				t.Fatalf("only %d values were compared", n)
			}
			wantWay := way
			if way == "victoria" {
				wantWay = "queries"
			}
			if st := client.Status(); st.Way != wantWay || !st.Answering || st.Failures > 0 {
				t.Errorf("status %+v", st)
			}
		})
	}
}

// Subqueries and range queries read more than an instant: remote read has the
// markers in the middle of a range too.
func TestRanges(t *testing.T) {
	server := newPrometheus(t)
	embedded := openStore(t, store.Options{OutOfOrder: time.Hour})
	fill(t, embedded, server.db)
	db, _ := beside(t, remote.Options{}, server.URL)
	for _, expr := range []string{`max_over_time(hw_power_watts[30m:7s])`, `sum(count_over_time((covered_rate(hw_energy_joules_total[1m]))[20m:30s]))`} {
		for _, at := range []float64{900, 1800} {
			want, _ := embedded.Instant(t.Context(), expr, second(at))
			got, err := db.Instant(t.Context(), expr, second(at))
			if err != nil || len(want) == 0 {
				t.Fatal(err, want)
			}
			if err := same(got, want); err != nil {
				t.Errorf("%s at %g: %v", expr, at, err)
			}
		}
		want, err := embedded.QueryRangeJSON(t.Context(), expr, second(0), second(1800), 10*time.Second, 0)
		got, gerr := db.QueryRangeJSON(t.Context(), expr, second(0), second(1800), 10*time.Second, 0)
		if err != nil || gerr != nil || string(got.Data) != string(want.Data) {
			t.Errorf("range of %s: %v %v, %d and %d bytes", expr, err, gerr, len(got.Data), len(want.Data))
		}
	}
}

func TestHistograms(t *testing.T) {
	server := newPrometheus(t)
	embedded := openStore(t, store.Options{})
	ls := labels.FromStrings("__name__", "wait_seconds")
	for i, h := range tsdbutil.GenerateTestHistograms(300) {
		for _, db := range []storage.Appendable{embedded, server.db} {
			put(t, db, ls, sample{at: float64(i), h: h})
		}
	}
	last := &histogram.Histogram{Sum: stale}
	for _, db := range []storage.Appendable{embedded, server.db} {
		put(t, db, ls, sample{at: 300, h: last})
	}
	db, _ := beside(t, remote.Options{}, server.URL)
	for _, at := range []float64{1, 150, 299, 301} {
		for _, expr := range []string{`histogram_quantile(0.9, rate(wait_seconds[2m]))`, `histogram_sum(wait_seconds)`} {
			want, _ := embedded.Instant(t.Context(), expr, second(at))
			got, err := db.Instant(t.Context(), expr, second(at))
			if err != nil {
				t.Fatal(err)
			}
			if err := same(got, want); err != nil {
				t.Errorf("%s at %g: %v", expr, at, err)
			}
		}
	}
	server.read = false
	db, _ = beside(t, remote.Options{}, server.URL)
	if _, err := db.Instant(t.Context(), `wait_seconds`, second(100)); err == nil || !strings.Contains(err.Error(), "native histograms") {
		t.Errorf("without remote read: %v", err)
	}
}

// What is ours lies here, the rest there: one query reads both, and a series that
// is in both counts once.
func TestUnion(t *testing.T) {
	server := newPrometheus(t)
	db, _ := beside(t, remote.Options{}, server.URL)
	own := labels.FromStrings("__name__", "wattloop_reading", "reading", "node_power", "node", "n1")
	put(t, server.db, labels.FromStrings("__name__", "it_watts", "node", "n1"), floats(0, 60, 5, 1)...)
	put(t, db, own, floats(0, 60, 5, 2)...)
	put(t, server.db, own, floats(0, 30, 5, 2)...) // came there by remote write
	for expr, want := range map[string]float64{
		`it_watts + on (node) wattloop_reading`: 60 + 120,
		`sum(wattloop_reading)`:                 120,
		`count_over_time(wattloop_reading[1m])`: 12,
		`covered_rate(wattloop_reading[1m])`:    2,
	} {
		got, err := db.Instant(t.Context(), expr, second(60))
		if err != nil || len(got) != 1 || got[0].V != want {
			t.Errorf("%s = %v, %v; want %g", expr, got, err, want)
		}
	}
	if got, err := db.InstantOwn(t.Context(), `{__name__=~".+"}`, second(60)); err != nil || len(got) != 1 {
		t.Errorf("of our own: %v, %v", got, err)
	}
}

// One instant asks for a selector once, the next one again, and a server that is
// gone is asked once a second.
func TestHowOftenItAsks(t *testing.T) {
	server := newPrometheus(t)
	put(t, server.db, labels.FromStrings("__name__", "x"), floats(0, 300, 5, 1)...)
	now := time.UnixMilli(epoch)
	db, client := beside(t, remote.Options{Clock: func() time.Time { return now }}, server.URL)
	ask := func(at float64) error {
		_, err := db.Instant(t.Context(), `covered_rate(x[5m]) > 0 and timestamp(x) > 0 and rate(x[5m]) > 0`, second(at))
		return err
	}
	asked := func(want int64) {
		t.Helper()
		if got := server.asked.Swap(0); got != want {
			t.Errorf("asked %d times; want %d", got, want)
		}
	}
	for range 3 {
		if err := ask(200); err != nil {
			t.Fatal(err)
		}
	}
	asked(1)
	if err := ask(201); err != nil {
		t.Fatal(err)
	}
	asked(1)
	server.before = func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}
	for at := 202.0; at < 206; at++ {
		if err := ask(at); err == nil {
			t.Error("a dead server has an answer: what was read before")
		}
	}
	asked(1)
	if st := client.Status(); st.Answering || st.Error == "" || st.Failures != 1 || st.ErrorAt != now {
		t.Errorf("status %+v", st)
	}
	server.before, now = nil, now.Add(time.Second)
	if err := ask(206); err != nil || !client.Status().Answering {
		t.Errorf("afterwards: %v", err)
	}
}

// What a server may say instead of an answer, and what is said of it here.
func TestNoAnswer(t *testing.T) {
	big := strings.Repeat("x", 1<<20)
	f := func(name string, before func(w http.ResponseWriter, r *http.Request), read bool, want string) {
		t.Helper()
		server := newPrometheus(t)
		server.read = read
		server.before = func(w http.ResponseWriter, r *http.Request) bool {
			if !read && strings.HasSuffix(r.URL.Path, "/read") {
				return false
			}
			before(w, r)
			return true
		}
		db, _ := beside(t, remote.Options{MaxBytes: 1 << 19, Timeout: 2 * time.Second}, server.URL)
		_, err := db.Instant(t.Context(), "x", second(0))
		var q *store.QueryError
		if err == nil || !strings.Contains(err.Error(), want) || !errors.As(err, &q) || q.Kind != store.Unavailable {
			t.Errorf("%s: %v; want %s", name, err, want)
		}
	}
	text := func(code int, s string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code); io.WriteString(w, s) }
	}
	f("no credential", text(401, "who\nare you"), true, "HTTP 401 Unauthorized: who are you; credentials go into the HTTP file")
	f("moved", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://elsewhere/", http.StatusTemporaryRedirect)
	}, true, "name the address itself")
	f("torn", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse")
		w.Write([]byte{200, 1, 2})
	}, true, "cut short")
	f("changed", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse")
		w.Write([]byte{2, 1, 2, 3, 4, 5, 6})
	}, true, "not what was sent")
	f("too large a frame", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse")
		w.Write([]byte{255, 255, 255, 255, 127, 0})
	}, true, "the most is")
	f("no JSON", text(200, "<html>"), false, "no JSON of this API")
	f("large", text(200, `{"status":"success","error":"`+big+`"}`), false, "more than 524288 bytes")
	f("partial", text(200, `{"status":"success","isPartial":true,"data":{"result":[]}}`), false, "partial")
	f("warning", text(200, `{"status":"success","warnings":["a store is down"],"data":{"result":[]}}`), false, "a store is down")
	f("error", text(422, `{"status":"error","error":"too many samples"}`), false, "too many samples")
}

// A server that takes its time costs one timeout.
func TestSlow(t *testing.T) {
	server := newPrometheus(t)
	release := make(chan struct{})
	server.before = func(_ http.ResponseWriter, r *http.Request) bool {
		select {
		case <-release:
		case <-r.Context().Done():
		}
		return true
	}
	defer close(release)
	db, _ := beside(t, remote.Options{Timeout: 20 * time.Millisecond}, server.URL)
	if _, err := db.Instant(t.Context(), "x", second(0)); err == nil || !strings.Contains(err.Error(), "no answer within 20ms") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var q *store.QueryError
	if _, err := db.Instant(ctx, "x", second(5)); !errors.As(err, &q) || q.Kind != store.Canceled {
		t.Errorf("the caller went away: %v", err)
	}
}

// Credentials come from a file in Prometheus's words, and are in no message.
func TestHTTPFile(t *testing.T) {
	server := newPrometheus(t)
	put(t, server.db, labels.FromStrings("__name__", "x"), sample{v: 1})
	server.before = func(w http.ResponseWriter, r *http.Request) bool {
		user, pass, _ := r.BasicAuth()
		if user == "wattloop" && pass == "hunter2" && r.Header.Get("X-Scope-OrgID") == "hall" {
			return false
		}
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	dir := t.TempDir()
	file := func(text string) string {
		path := filepath.Join(dir, "http.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c, err := httpfile.New(file("basic_auth: {username: wattloop, password: hunter2}\nhttp_headers: {X-Scope-OrgID: {values: [hall]}}\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	db, _ := beside(t, remote.Options{HTTP: c}, server.URL)
	if got, err := db.Instant(t.Context(), "x", second(1)); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	c.CloseIdleConnections()
	for _, text := range []string{"basic_auth: {username: a, password: hunter2}\nauthorization: {credentials: hunter2}\n", "hunter2", "password: hunter2\n", "tls_config: hunter2\n", "basic_auth: [hunter2]\n", "basic_auth: {username: hunter2: hunter2}"} {
		if _, err := httpfile.New(file(text), nil); err == nil || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, s := range []string{"prometheus:9090", "ftp://x", "http://", "http://u:hunter2@x", "http://x?a=b", "http://x#a"} {
		if _, err := remote.ParseURL(s); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", s, err)
		}
	}
}
