package pull

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"

	"github.com/wattloop/wattloop/ingest"
	"github.com/wattloop/wattloop/store"
)

// rig is an endpoint that the test writes answers for, a poll of it, and a store.
type rig struct {
	t       *testing.T
	db      *store.DB
	now     time.Time
	said    strings.Builder
	serve   http.HandlerFunc
	wires   int
	grew    int
	asked   string
	gets    int
	m       *Manager
	p       *poll
	serving *httptest.Server
}

func newRig(t *testing.T, legacy bool, wants ...Want) *rig {
	t.Helper()
	db, err := store.Open(store.Options{Path: t.TempDir(), Durability: store.DurabilityOS, RetentionTime: 100 * 365 * 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &rig{t: t, db: db, now: time.Unix(1770000000, 0)}
	r.serving = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if r.asked = req.URL.EscapedPath(); req.Method == http.MethodGet {
			r.gets++
		}
		r.serve(w, req)
	}))
	t.Cleanup(r.serving.Close)
	r.m = NewManager(Options{
		Store: db, Sync: db.Sync, Clock: func() time.Time { return r.now }, Legacy: func() bool { return legacy },
		Export: func(context.Context, []byte) error { r.wires++; return nil },
		Watch: ingest.Watch{
			Gen: func() uint64 { return 1 }, Rules: func(labels.Labels) []int32 { return []int32{0} },
			Grew: func([]int32, int64) { r.grew++ },
		},
		Log: slog.New(slog.NewTextHandler(&r.said, nil)),
	})
	r.m.Apply([]Source{{Endpoint: r.serving.URL + "/otlp/telemetry/{node}", Node: "worker-01", Interval: time.Second, Timeout: 5 * time.Second, Wants: wants}})
	r.p = r.m.arrange()[0]
	return r
}

// answer polls once, 60 s later, with that body.
func (r *rig) answer(status int, body []byte) Status {
	r.now = r.now.Add(time.Minute)
	r.serve = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status); w.Write(body) }
	r.p.once(context.Background())
	return r.m.Status()[0]
}

// stored lists what the readings' series hold, "end" for a marker.
func (r *rig) stored() []string {
	r.t.Helper()
	q, err := r.db.Querier(0, math.MaxInt64)
	if err != nil {
		r.t.Fatal(err)
	}
	defer q.Close()
	var out []string
	set := q.Select(context.Background(), true, nil, labels.MustNewMatcher(labels.MatchEqual, "__name__", SeriesName))
	for set.Next() {
		it := set.At().Iterator(nil)
		out = append(out, set.At().Labels().Get("role")+" "+set.At().Labels().Get("scope"))
		for it.Next() != 0 {
			if _, v := it.At(); value.IsStaleNaN(v) {
				out = append(out, "end")
			} else {
				out = append(out, fmt.Sprint(v))
			}
		}
	}
	return out
}

func file(t *testing.T, name string) []byte {
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// S0-44, S0-45, S0-69, X4, C32: one GET a poll is one document, for both readers; each gap ends the series at once, and no 0 is stored.
func TestPollStoresC32(t *testing.T) {
	r := newRig(t, true, Want{Role: Agent}, Want{Role: Controller})
	for i := range 8 {
		st := r.answer(200, file(t, fmt.Sprintf("C32/poll%d.json", i+1)))
		if want := []Quality{Warming, Fresh}[i%2]; st.Quality != want || st.Err != "" {
			t.Errorf("poll %d: %+v; want %s", i+1, st, want)
		}
	}
	if got, want := fmt.Sprint(r.stored()), "[agent components 250 end 250 end 250 end 250 controller components 250 end 250 end 250 end 250]"; got != want {
		t.Errorf("stored %s; want %s", got, want)
	}
	if r.gets != 8 || r.wires != 8 || r.grew != 14 || r.asked != "/otlp/telemetry/worker-01" {
		t.Errorf("%d GETs, %d documents stored, rules told %d times, asked for %s", r.gets, r.wires, r.grew, r.asked)
	}
}

// S0-51, S0-52, S0-7: a poll that fails ends the reading, and says why without
// the body; the next good one begins it again.
func TestPollFails(t *testing.T) {
	good := doc("", gauge("1760000060", "250"))
	long := append(append([]byte{}, good...), make([]byte, MaxAnswer)...)
	for i := range long[len(good):] {
		long[len(good)+i] = ' '
	}
	f := func(status int, body []byte, want string) {
		t.Helper()
		r := newRig(t, true, Want{Role: Controller})
		r.answer(200, good)
		st := r.answer(status, body)
		if !strings.Contains(st.Err, want) || st.Watts != 0 {
			t.Errorf("%d: %+v; want %s", status, st, want)
		}
		r.answer(200, doc("", gauge("1760000120", "251")))
		if got := fmt.Sprint(r.stored()); got != "[controller components 250 end 251]" {
			t.Errorf("%d: stored %s", status, got)
		}
		if said := r.said.String(); strings.Contains(said, "secret") || strings.Count(said, "level=WARN") != 1 {
			t.Errorf("%d: said %s", status, said)
		}
	}
	f(200, long, "the answer has more than 8388608 bytes")
	f(500, []byte("secret"), "answers 500 Internal Server Error")
	f(302, []byte("secret"), "answers 302 Found")
	f(200, []byte("secret"), "no JSON object: byte 1")
	f(200, []byte(`{"resourceMetrics": "secret"}`), "json: byte ")
	if got := long[:MaxAnswer]; newRig(t, true, Want{Role: Agent}).answer(200, got).Quality != Fresh {
		t.Error("an answer of 8 MiB is not read")
	}
}

// S0-31, S0-32, S0-50: one warning a process; an error once legacy_json is false.
func TestPollLegacy(t *testing.T) {
	r := newRig(t, true, Want{Role: Agent}, Want{Role: Controller, Host: true})
	for range 3 {
		r.answer(200, file(t, "C35/2.json"))
	}
	if got := fmt.Sprint(r.stored()); got != "[agent producer-defined 245.3 245.3 245.3 controller producer-defined 245.3 245.3 245.3]" {
		t.Errorf("stored %s", got)
	}
	if n := strings.Count(r.said.String(), "deprecated"); n != 1 || r.wires != 0 {
		t.Errorf("%d warnings, %d documents stored", n, r.wires)
	}
	r = newRig(t, false, Want{Role: Agent})
	if st := r.answer(200, file(t, "C35/2.json")); !strings.Contains(st.Err, "legacy_json is false") || len(r.stored()) != 0 {
		t.Errorf("%+v, %v", st, r.stored())
	}
}

// The document before it again adds nothing: the reading grows old.
func TestPollUnchanged(t *testing.T) {
	r := newRig(t, true, Want{Role: Agent})
	for range 3 {
		r.answer(200, doc("", gauge("1760000060", "250")))
	}
	if got := fmt.Sprint(r.stored()); got != "[agent components 250]" {
		t.Errorf("stored %s", got)
	}
	r.p.end(context.Background())
	if got := fmt.Sprint(r.stored()); got != "[agent components 250 end]" {
		t.Errorf("stored %s", got)
	}
}

func TestEndpoint(t *testing.T) {
	for text, want := range map[string]string{
		"http://a/t/{node}": "http://a/t/w%2F1", "https://a/{node}?n={node}&x": "https://a/w%2F1?n=w%2F1&x", "http://a:1/t": "http://a:1/t",
	} {
		if err := CheckEndpoint(text); err != nil || expand(text, "w/1") != want {
			t.Errorf("%s: %v, %s; want %s", text, err, expand(text, "w/1"), want)
		}
	}
	for _, text := range []string{"", "a/t", "ftp://a/", "http://u:p@a/", "http:///t", "http://a/#{node}", "http://a/%zz"} {
		if CheckEndpoint(text) == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
