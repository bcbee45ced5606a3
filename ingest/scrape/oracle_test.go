package scrape

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	promscrape "github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/storage"
)

// recorder is a store that keeps what each commit had, as text.
type recorder struct {
	mu      sync.Mutex
	refs    map[string]storage.SeriesRef
	from    int64 // what the times of the samples are given from; 0: they are not given
	commits [][]string
}

func (r *recorder) Appender(context.Context) storage.Appender { return &recording{r: r} }

func (r *recorder) taken() [][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.commits)
}

type recording struct {
	storage.Appender
	r     *recorder
	lines []string
}

func (a *recording) put(ls labels.Labels, t int64, what string) (storage.SeriesRef, error) {
	a.r.mu.Lock()
	defer a.r.mu.Unlock()
	if t%1000 == 777 { // a time of the page
		what += fmt.Sprintf(" at %d", t)
	}
	if a.r.from != 0 {
		what += fmt.Sprintf(" +%gs", float64(t-a.r.from)/1000)
	}
	if ls.Get(model.MetricNameLabel) != "scrape_duration_seconds" || strings.HasPrefix(what, "end") {
		a.lines = append(a.lines, ls.String()+" "+what)
	}
	key := ls.String()
	if a.r.refs[key] == 0 {
		a.r.refs[key] = storage.SeriesRef(len(a.r.refs) + 1)
	}
	return a.r.refs[key], nil
}

func (a *recording) Append(_ storage.SeriesRef, ls labels.Labels, t int64, v float64) (storage.SeriesRef, error) {
	if value.IsStaleNaN(v) {
		return a.put(ls, t, "end")
	}
	return a.put(ls, t, fmt.Sprintf("%g %x", v, math.Float64bits(v)))
}

func (a *recording) AppendHistogram(_ storage.SeriesRef, ls labels.Labels, t int64, h *histogram.Histogram, fh *histogram.FloatHistogram) (storage.SeriesRef, error) {
	return a.put(ls, t, fmt.Sprint(h, fh))
}

func (a *recording) AppendExemplar(ref storage.SeriesRef, ls labels.Labels, e exemplar.Exemplar) (storage.SeriesRef, error) {
	a.lines = append(a.lines, fmt.Sprintf("%s exemplar %s %g", ls, e.Labels, e.Value))
	return ref, nil
}

func (a *recording) SetOptions(*storage.AppendOptions) {}
func (a *recording) Rollback() error                   { return nil }
func (a *recording) Commit() error {
	a.r.mu.Lock()
	defer a.r.mu.Unlock()
	slices.Sort(a.lines)
	a.r.commits = append(a.r.commits, a.lines)
	return nil
}

// answer is what an exporter says at one scrape.
type answer struct {
	code              int
	contentType, body string
	// ends is a metric that this scrape ends here and not in Prometheus, which
	// after a broken page leaves the series before the break for one scrape more.
	// Here nothing of such a page counts (C46).
	ends string
}

const (
	text004 = "text/plain; version=0.0.4"
	open100 = "application/openmetrics-text; version=1.0.0"
)

// story is one exporter's life; NOW stands for a time near the scrape's.
var story = []answer{
	{200, text004, "# TYPE a counter\na{x=\"1\"} 1\na{x=\"2\"} 2\nb 3\n", ""},
	{200, text004, "a{x=\"1\"} 2\nb 4\n", ""}, // one is gone
	{200, text004, "b\na{x=\"1\"} 3\n", ""},   // broken: all are
	{200, text004, "a{x=\"1\"} 4\nb 5\n", ""}, // and back
	{200, text004, "a{x=\"1\"} 5\nb\n", "a"},  // broken behind a good line
	{200, text004, "a{x=\"1\"} 5\nb 6\n", ""},
	{500, text004, "a{x=\"1\"} 5\nb 6\n", ""},               // nothing ends twice
	{200, text004, "a{x=\"1\"} 6\nb 7\na{x=\"1\"} 8\n", ""}, // twice
	{200, text004, "a{x=\"1\"} 7 NOW\nb 8\n", ""},           // now with a time of its own
	{200, text004, "b 9\n", ""},                             // which has no end
	{200, text004, "b 9\nc 1 NOW\n", ""},
	{404, "text/html", "no", ""},
	{200, text004, "b NaN\nc +Inf\nd -Inf\n", ""},
	{200, text004, "", ""},
	{200, text004, "b{instance=\"mine\",job=\"mine too\",exported_job=\"x\",pod=\"\"} 1\nb{exported_instance=\"i\"} 2\n", ""},
	{200, open100, "# TYPE r counter\nr_total 5.0 # {trace_id=\"abc\"} 0.5\n# TYPE h histogram\nh_bucket{le=\"1.0\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_count 2\nh_sum 3.0\nh_created 1.0\n# EOF\n", ""},
	{200, open100, "# TYPE r counter\n", ""}, // breaks off: no EOF
	{200, "application/json", "{}", ""},
	{200, text004, "{x=\"1\"} 1\n", ""},
	{200, text004, "b 2\n", ""},
	{200, text004, "a 1\nb 2\nc 3\nd 4\ne 5\nf 6\ng 7\ni 8\nj 9\n", "b"}, // one over the limit
}

// up, the report, staleness, duplicates, label conflicts and what a broken page
// leaves are as in Prometheus, whose own scraper reads the same story. That one
// runs by the wall clock, and a scrape of it may time out where this machine is
// busy: then the story is told again.
func TestAsPrometheus(t *testing.T) {
	var diffs []string
	for range 3 {
		if diffs = compareStory(t); len(diffs) == 0 {
			return
		}
	}
	t.Error(strings.Join(diffs, "\n"))
}

func compareStory(t *testing.T) (diffs []string) {
	now := time.Now().Truncate(time.Second).Add(777 * time.Millisecond)
	var mu sync.Mutex
	next := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		a := story[min(next, len(story)-1)]
		next++
		w.Header().Set("Content-Type", a.contentType)
		w.WriteHeader(a.code)
		fmt.Fprint(w, strings.ReplaceAll(a.body, "NOW", fmt.Sprint(now.UnixMilli())))
	}))
	defer server.Close()
	address := server.Listener.Addr().String()
	theirs := recorder{refs: map[string]storage.SeriesRef{}}
	prometheusScrapes(t, address, &theirs)

	ours := recorder{refs: map[string]storage.SeriesRef{}}
	m := NewManager(Options{Store: &ours, Clock: func() time.Time { return now.Truncate(time.Second) }})
	l := m.newLoop(Target{URL: "http://" + address + "/metrics", SampleLimit: 8}.withDefaults(), nil)
	defer l.page.Close()
	mu.Lock()
	next = 0
	mu.Unlock()
	for range story {
		l.scrape(t.Context())
	}
	got, want := ours.taken(), theirs.taken()
	for i := range story {
		ours := slices.DeleteFunc(slices.Clone(got[i]), func(line string) bool {
			return story[i].ends != "" && strings.HasPrefix(line, `{__name__="`+story[i].ends+`"`) && strings.HasSuffix(line, " end")
		})
		if (len(ours) < len(got[i])) != (story[i].ends != "") {
			diffs = append(diffs, fmt.Sprintf("scrape %d: %s has not ended", i, story[i].ends))
		}
		if diff := cmp.Diff(want[i], ours); diff != "" {
			diffs = append(diffs, fmt.Sprintf("scrape %d of %q: Prometheus (-) and ours (+):\n%s", i, story[i].body, diff))
		}
	}
	return diffs
}

// prometheusScrapes lets Prometheus's own scraper read the story.
func prometheusScrapes(t *testing.T, address string, to *recorder) {
	t.Helper()
	cfg, err := config.Load(`
scrape_configs:
  - job_name: scrape
    scrape_interval: 100ms
    scrape_timeout: 100ms
    sample_limit: 8
`, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	m, err := promscrape.NewManager(&promscrape.Options{DiscoveryReloadOnStartup: true}, nil, nil, to, nil, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	if err := m.ApplyConfig(cfg); err != nil {
		t.Fatal(err)
	}
	sets := make(chan map[string][]*targetgroup.Group, 1)
	sets <- map[string][]*targetgroup.Group{"scrape": {{Targets: []model.LabelSet{{"__address__": model.LabelValue(address)}}}}}
	var running sync.WaitGroup
	running.Go(func() { m.Run(sets) })
	for len(to.taken()) < len(story) {
		time.Sleep(5 * time.Millisecond)
	}
	m.Stop()
	running.Wait()
}
