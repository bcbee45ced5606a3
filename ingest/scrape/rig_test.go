package scrape

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/wattloop/wattloop/store"
)

// base is T0 of the cases, in Unix milliseconds.
const base = 1760000000_000

// rig is one target, an exporter that the test writes pages for, and a real store.
type rig struct {
	t    *testing.T
	db   *store.DB
	now  int64
	said strings.Builder

	mu          sync.Mutex
	page        []byte
	contentType string
	serve       http.HandlerFunc // in place of page

	server *httptest.Server
	m      *Manager
	loops  map[string]*loop
}

func newRig(t *testing.T) *rig {
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
	r := &rig{t: t, db: db, now: base, contentType: "text/plain; version=0.0.4", loops: map[string]*loop{}}
	r.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.serve != nil {
			r.serve(w, req)
			return
		}
		w.Header().Set("Content-Type", r.contentType)
		w.Write(r.page)
	}))
	t.Cleanup(r.server.Close)
	r.m = NewManager(Options{
		Store: db, Sync: db.Sync, Agent: "wattloop/test", Clock: func() time.Time { return time.UnixMilli(r.now) },
		Log: slog.New(slog.NewTextHandler(&r.said, nil)),
		dial: func(ctx context.Context, network, _ string) (net.Conn, error) { // every address is the exporter's
			var d net.Dialer
			return d.DialContext(ctx, network, r.server.Listener.Addr().String())
		},
	})
	return r
}

// scrape reads the page once at offset, from the target.
func (r *rig) scrape(t Target, offset time.Duration, page string) Status {
	r.t.Helper()
	r.mu.Lock()
	r.page = []byte(page)
	r.mu.Unlock()
	r.now = base + offset.Milliseconds()
	l := r.loops[t.URL]
	if l == nil {
		if err := t.Check(); err != nil {
			r.t.Fatal(err)
		}
		l = r.m.newLoop(t.withDefaults(), nil)
		r.t.Cleanup(l.page.Close)
		r.loops[t.URL] = l
	}
	l.scrape(context.Background())
	return *l.status.Load()
}

// query is an instant query at offset, as "labels value" a line, sorted.
func (r *rig) query(expr string, offset time.Duration) []string {
	r.t.Helper()
	got, err := r.db.Instant(context.Background(), expr, base+offset.Milliseconds())
	if err != nil {
		r.t.Fatal(err)
	}
	var out []string
	for _, s := range got {
		out = append(out, fmt.Sprintf("%s %.10g", s.Metric, s.V))
	}
	slices.Sort(out)
	return out
}

// stored is all that the store has, by series: "t=v" in seconds since base, and
// "t=end" for the mark.
func (r *rig) stored(matchers ...*labels.Matcher) map[string]string {
	r.t.Helper()
	q, err := r.db.Querier(math.MinInt64, math.MaxInt64)
	if err != nil {
		r.t.Fatal(err)
	}
	defer q.Close()
	if len(matchers) == 0 {
		matchers = []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, model.MetricNameLabel, ".+")}
	}
	out := map[string]string{}
	set := q.Select(context.Background(), true, nil, matchers...)
	for set.Next() {
		var line []string
		it := set.At().Iterator(nil)
		for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
			at := float64(it.AtT()-base) / 1000
			if kind != chunkenc.ValFloat {
				line = append(line, fmt.Sprintf("%g=histogram", at))
			} else if _, v := it.At(); value.IsStaleNaN(v) {
				line = append(line, fmt.Sprintf("%g=end", at))
			} else {
				line = append(line, fmt.Sprintf("%g=%g", at, v))
			}
		}
		out[set.At().Labels().String()] = strings.Join(line, " ")
	}
	if set.Err() != nil {
		r.t.Fatal(set.Err())
	}
	return out
}

// of is stored for one metric, without the report.
func (r *rig) of(metric string) []string {
	var out []string
	for ls, line := range r.stored(labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, metric)) {
		out = append(out, ls+" "+line)
	}
	slices.Sort(out)
	return out
}

func wantLines(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// casePages are the pages of a folder of testdata, by the seconds since base.
func casePages(t *testing.T, dir string) map[time.Duration]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", dir, "*.prom"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: no pages: %v", dir, err)
	}
	out := map[time.Duration]string{}
	for _, f := range files {
		var at int64
		if _, err := fmt.Sscanf(filepath.Base(f), "%d.prom", &at); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		out[time.Duration(at-base/1000)*time.Second] = string(b)
	}
	return out
}
