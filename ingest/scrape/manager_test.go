package scrape

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/storage"
)

// world is a Manager in a bubble of its own time, with exporters that answer over
// pipes.
type world struct {
	t   *testing.T
	m   *Manager
	rec recorder
	reg *prometheus.Registry

	mu    sync.Mutex
	pages map[string]string // by path; an absent one is 404
	conns chan net.Conn
	end   func()
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, pages: map[string]string{}, conns: make(chan net.Conn), reg: prometheus.NewRegistry()}
	w.rec.refs = map[string]storage.SeriesRef{}
	w.rec.from = time.Now().UnixMilli()
	w.m = NewManager(Options{Store: &w.rec, Clock: time.Now, Registerer: w.reg,
		dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			select {
			case w.conns <- theirs:
				return ours, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}})
	server := &http.Server{Handler: w}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { server.Serve(pipes{w.conns, ctx.Done()}) })
	running.Go(func() { w.m.Run(ctx) })
	w.end = func() {
		cancel()
		server.Close()
		running.Wait()
	}
	return w
}

func (w *world) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	page, ok := w.pages[r.URL.Path]
	w.mu.Unlock()
	if !ok {
		rw.WriteHeader(404)
		return
	}
	rw.Header().Set("Content-Type", text004)
	fmt.Fprint(rw, page)
}

func (w *world) page(path, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pages[path] = text
}

// pipes is a listener.
type pipes struct {
	conns <-chan net.Conn
	done  <-chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.IPAddr{} }

// lines are those of one metric, "value +time" in seconds.
func (w *world) lines(metric string) []string {
	var out []string
	for _, c := range w.rec.taken() {
		for _, line := range c {
			if _, rest, ok := strings.Cut(line, "} "); ok && strings.HasPrefix(line, `{__name__="`+metric+`"`) {
				out = append(out, regexp.MustCompile(` [0-9a-f]+ \+`).ReplaceAllString(rest, " +"))
			}
		}
	}
	return out
}

func seconds(line string) float64 {
	_, at, _ := strings.Cut(line, "+")
	s, _ := strconv.ParseFloat(strings.TrimSuffix(at, "s"), 64)
	return s
}

// A target is scraped at once and then at its own phase; two targets have two.
func TestIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.page("/metrics", "a 1\n")
		w.m.Apply([]Target{{URL: "http://one/metrics"}, {URL: "http://two/metrics", Interval: 5 * second}})
		time.Sleep(61 * second)
		w.end()
		counts := map[string][]float64{}
		for _, c := range w.rec.taken() {
			for _, line := range c {
				if strings.HasPrefix(line, `{__name__="up"`) {
					instance := regexp.MustCompile(`instance="(\w+)"`).FindStringSubmatch(line)[1]
					counts[instance] = append(counts[instance], seconds(line))
				}
			}
		}
		phase := map[string]float64{}
		for instance, every := range map[string]float64{"one": 15, "two": 5} {
			at := counts[instance]
			if len(at) < int(60/every) || at[0] != 0 || at[1] < every/2 || at[1] > every*3/2 {
				t.Fatalf("%s: %v", instance, at)
			}
			for i := 2; i < len(at); i++ {
				if d := at[i] - at[i-1]; d < every-0.002 || d > every+0.002 {
					t.Errorf("%s: %v", instance, at)
				}
			}
			phase[instance] = at[1]
		}
		if phase["one"] == phase["two"] {
			t.Errorf("one phase for both: %v", phase)
		}
		st := w.m.Status()
		if len(st) != 2 || !st[0].Up || st[0].URL != "http://one/metrics" || st[1].Instance != "two" || st[1].Stored != 1 {
			t.Errorf("%+v", st)
		}
	})
}

// The series of a target that is taken out end at its next scrape's time, written
// two intervals later, its report with them. What stays is not disturbed, and at
// the end of the process nothing ends.
func TestTargetGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.page("/a", "a 1\n")
		w.page("/b", "b 1\n")
		one, two := Target{URL: "http://one/a", Interval: 10 * second}, Target{URL: "http://two/b", Interval: 10 * second}
		w.m.Apply([]Target{one, two})
		time.Sleep(30 * second)
		w.m.Apply([]Target{two})
		synctest.Wait()
		if st := w.m.Status(); len(st) != 1 || st[0].Instance != "two" {
			t.Errorf("%+v", st)
		}
		before := w.lines("a")
		time.Sleep(20 * second) // not yet: somebody may bring it back
		if got := w.lines("a"); len(got) != len(before) {
			t.Errorf("ended early: %v", got)
		}
		time.Sleep(20 * second)
		w.end()
		got := w.lines("a")
		last := got[len(got)-1]
		if len(got) != len(before)+1 || !strings.HasPrefix(last, "end +") || seconds(last)-seconds(before[len(before)-1]) > 10.01 {
			t.Errorf("a: %v", got)
		}
		for _, metric := range reportNames {
			n := 0
			for _, line := range w.lines(metric) {
				if strings.HasPrefix(line, "end +") {
					n++
				}
			}
			if n != 1 {
				t.Errorf("%s ends %d times: %v", metric, n, w.lines(metric))
			}
		}
		for _, line := range w.lines("b") {
			if strings.HasPrefix(line, "end") {
				t.Errorf("b: %v", w.lines("b"))
			}
		}
		families, err := w.reg.Gather()
		if err != nil || strings.Contains(fmt.Sprint(families), "http://one/a") {
			t.Errorf("the metrics still have the target that is gone: %v", err)
		}
	})
}

// A target that comes back, or whose address or interval changes, goes on with its
// series: only what its page has no more ends.
func TestTargetChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.page("/old", "a 1\nb 1\n")
		w.page("/new", "a 2\n")
		at := func(path string) []Target {
			return []Target{{URL: "http://one" + path, Node: "n", Interval: 10 * second}}
		}
		w.m.Apply(at("/old"))
		time.Sleep(25 * second)
		w.m.Apply(at("/new"))
		time.Sleep(25 * second)
		w.m.Apply(nil)
		time.Sleep(12 * second)
		w.m.Apply(at("/new"))
		time.Sleep(60 * second)
		w.end()
		for _, line := range w.lines("a") {
			if strings.HasPrefix(line, "end") {
				t.Errorf("a: %v", w.lines("a"))
			}
		}
		b := w.lines("b")
		if n := len(b); n < 2 || !strings.HasPrefix(b[n-1], "end +25") || strings.Count(strings.Join(b, " "), "end") != 1 {
			t.Errorf("b: %v", b)
		}
	})
}

// A scrape that takes longer than its timeout fails by the bubble's clock, and the
// end of the process cuts one off without a trace.
func TestHangingTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		hung := make(chan struct{})
		w.m.o.dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			select {
			case <-ctx.Done():
			case <-hung:
			}
			return nil, ctx.Err()
		}
		w.m.Apply([]Target{{URL: "http://one", Timeout: 4 * second}})
		time.Sleep(5 * second)
		if st := w.m.Status(); st[0].Err != "no whole answer within 4s" || st[0].Took != 4*second {
			t.Errorf("%+v", st)
		}
		time.Sleep(second)
		before := len(w.rec.taken())
		w.end()
		if diff := cmp.Diff(before, len(w.rec.taken())); diff != "" {
			t.Error(diff)
		}
	})
}
