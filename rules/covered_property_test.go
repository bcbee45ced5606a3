package rules

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	promvalue "github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"

	"github.com/wattloop/wattloop/store"
)

const (
	// leastCases is the floor that the property's own count must reach.
	leastCases = 10_000
	// closeEnough is how far a reading may be from the true power.
	closeEnough = 0.001
)

// nothing is said of a node before its first sample; that is no case.
const nothing = "nothing yet"

// nodesABatch are the nodes that one query reads, each with a history of its
// own; instantsABatch the instants at which it is asked.
const (
	nodesABatch    = 50
	instantsABatch = 10
	batches        = 26
)

// What a node draws, read by covered from a real store, is within 0.1 % of the
// true power, or is not fresh, or is partial: over phase, export interval 1 to
// 60 s with the jitter of a timer, lag up to the window, window 30 s to 15 m,
// resets, gaps, a component that dies, one that begins late, one that two
// producers report. A case is one history read at one instant.
//
// Two things that no reader can see are left out: a counter that begins anew and
// has, at its next sample, passed the height it had before; and a component of
// which no instant yet had a sample in sight.
func TestPropertyCoveredIsTrueOrNotTrusted(t *testing.T) {
	db := openStore(t)
	counts := map[string]int{}
	for batch := range batches {
		b := drawBatch(rand.New(rand.NewPCG(0x5eed, uint64(batch))), batch)
		b.db = db
		b.run(t, counts)
	}
	cases := -counts[nothing]
	for _, n := range counts {
		cases += n
	}
	t.Logf("%d cases of %d histories: %v", cases, batches*nodesABatch, counts)
	if cases < leastCases {
		t.Errorf("%d cases; want at least %d", cases, leastCases)
	}
	// A property that trusts nothing is true of everything.
	if trusted := counts["trusted"]; trusted < cases/4 {
		t.Errorf("%d of %d cases are fresh and whole; want a quarter at least", trusted, cases)
	}
}

// batch is what one query reads.
type batch struct {
	db     *store.DB
	id     int
	window time.Duration
	nodes  []*history
	at     []float64 // instants, seconds after base
}

// history is one node: its components, each as its producers report it.
type history struct {
	id      string
	story   string
	streams []*stream
	seen    map[string]bool // components that had a sample in sight
}

// stream is one series: samples in the order of their times.
type stream struct {
	labels labels.Labels
	watts  float64
	lag    float64
	ref    storage.SeriesRef
	fed    int
	points []drawnSample
}

func drawBatch(r *rand.Rand, id int) *batch {
	b := &batch{id: id}
	windows := []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 15 * time.Minute}
	b.window = windows[r.IntN(len(windows))]
	// A batch of one interval has its window widened for that alone; in a mixed
	// one the slowest exporter widens it for all.
	common := 0.0
	if r.IntN(3) > 0 {
		common = seconds(1 + 59*r.Float64())
	}
	now := 700 + 300*r.Float64()
	for range instantsABatch {
		now = seconds(now)
		b.at = append(b.at, now)
		now += []float64{1, 5, 5, 13, 31, 67}[r.IntN(6)] + r.Float64()
	}
	for n := range nodesABatch {
		interval := cmp.Or(common, seconds(1+59*r.Float64()))
		b.nodes = append(b.nodes, drawHistory(r, b, n, interval, now))
	}
	return b
}

func seconds(s float64) float64 { return math.Round(s*1000) / 1000 }

func drawHistory(r *rand.Rand, b *batch, n int, interval, until float64) *history {
	h := &history{id: fmt.Sprintf("b%d-n%d", b.id, n), seen: map[string]bool{}}
	lag := 0.0
	switch r.IntN(4) {
	case 0:
		lag = r.Float64() * min(1, interval/5)
	case 1:
		lag = r.Float64() * b.window.Seconds()
	}
	jitter := []float64{0, 0.01, 0.1, 0.3}[r.IntN(4)]
	h.story = fmt.Sprintf("window %s, interval %.3f s, jitter %g, lag %.3f s", b.window, interval, jitter, lag)
	for i := range 1 + r.IntN(4) {
		typ, watts := []string{"cpu", "gpu"}[i%2], seconds(5+500*r.Float64())
		name := "hw_energy_joules_total"
		if r.IntN(5) == 0 {
			name = "hw_power_watts"
		}
		for producer := range 1 + r.IntN(4)/3 {
			ls := labels.FromStrings("__name__", name, "batch", fmt.Sprint(b.id), "k8s_node_name", h.id,
				"hw_type", typ, "hw_id", fmt.Sprint(typ, i), "job", fmt.Sprint("job", producer))
			s := &stream{labels: ls, watts: watts, lag: lag}
			s.draw(r, name == "hw_energy_joules_total", interval, jitter, until)
			h.streams = append(h.streams, s)
		}
	}
	return h
}

// draw fills the series up to an instant: phase, late begin, gaps, resets, death.
func (s *stream) draw(r *rand.Rand, counter bool, interval, jitter, until float64) {
	begin := until - (r.Float64()*r.Float64())*900 - 2*interval
	if r.IntN(4) == 0 {
		begin = until - r.Float64()*(400+interval)
	}
	begin = max(0, begin)
	death := math.Inf(1)
	if r.IntN(6) == 0 {
		death = until - r.Float64()*600
	}
	ended := death < math.Inf(1) && r.IntN(3) == 0
	offset, reset := []float64{0, 1e3, 1e6}[r.IntN(3)], begin
	last := math.Inf(-1)
	for tick := begin + r.Float64()*interval; tick < until && tick < death; tick += interval {
		at := seconds(tick + jitter*interval*r.Float64())
		if at <= last {
			continue
		}
		switch r.IntN(60) {
		case 0: // a gap
			tick += interval * r.Float64() * 12
			continue
		case 1: // begins anew, where that can be seen
			if n := len(s.points); n > 0 && s.points[n-1].v > s.watts*interval {
				reset, offset = at-interval*r.Float64(), 0
			}
		}
		v := s.watts
		if counter {
			v = offset + s.watts*(at-reset)
		}
		s.points = append(s.points, drawnSample{at: at, arrives: at + s.lag, v: v})
		last = at
	}
	if ended && last > 0 {
		s.points = append(s.points, drawnSample{at: seconds(last + 1), arrives: last + 1 + s.lag, marker: true})
	}
}

func (b *batch) run(t *testing.T, counts map[string]int) {
	t.Helper()
	eval := (&play{db: b.db}).evaluator(true)
	expr := strings.ReplaceAll(nodePower, `hw_type=~"cpu|gpu"`, fmt.Sprintf(`batch="%d",hw_type=~"cpu|gpu"`, b.id))
	r := reading(t, RateCovered, strings.ReplaceAll(expr, "[5m]", "["+b.window.String()+"]"), "k8s_node_name")
	r.ForgetAfter = 20 * time.Minute // all of a history, and less to look through
	for _, now := range b.at {
		b.feed(t, now)
		got, err := eval.Reading(context.Background(), r, at(now))
		if err != nil {
			t.Fatalf("batch %d at %g: %v", b.id, now, err)
		}
		byNode := map[string]KeyReading{}
		for _, k := range got {
			byNode[k.Key.Get("k8s_node_name")] = k
		}
		for _, h := range b.nodes {
			k, ok := byNode[h.id]
			counts[h.verdict(t, k, ok, now, b.window.Seconds())]++
		}
	}
}

// verdict holds a reading against the truth, and says of what kind it is.
func (h *history) verdict(t *testing.T, k KeyReading, there bool, now, window float64) string {
	t.Helper()
	inSight := h.look(now, window)
	low, high := h.truth(now)
	switch {
	case !there && inSight:
		t.Errorf("%s at %g: no key, and a component has a sample (%s)", h.id, now, h.story)
		return "no key"
	case !there:
		return nothing
	case k.Partial:
		return "partial"
	case k.Quality != Fresh:
		return string(k.Quality)
	case !k.Valid || k.Err != "":
		t.Errorf("%s at %g: %s; fresh and whole, and no value (%s)", h.id, now, say(k), h.story)
	case k.Value < low*(1-closeEnough) || k.Value > high*(1+closeEnough):
		t.Errorf("%s at %g: %s; the true power is %g to %g W (%s)", h.id, now, say(k), low, high, h.story)
	}
	return "trusted"
}

// truth is the power of the components that are there. One whose last sign, of
// any producer, is a marker may still be counted for as long as the samples
// before it are not stale.
func (h *history) truth(now float64) (low, high float64) {
	type known struct {
		watts, last float64
		ended       bool
	}
	components := map[string]known{}
	for _, s := range h.streams {
		for _, p := range s.points {
			id := s.labels.Get("hw_id")
			if c, ok := components[id]; p.arrives <= now && p.at <= now && (!ok || p.at >= c.last) {
				components[id] = known{s.watts, p.at, p.marker}
			}
		}
	}
	for id, c := range components {
		high += c.watts
		if !c.ended && h.seen[id] {
			low += c.watts
		}
	}
	return low, high
}

// look notes which components have a sample that every selector sees, and says
// whether any has.
func (h *history) look(now, window float64) (any bool) {
	for _, s := range h.streams {
		inSight := false
		for _, p := range s.points {
			if p.arrives <= now && p.at <= now && p.at > now-min(window, lookback.Seconds()) {
				inSight = !p.marker
			}
		}
		if inSight {
			any, h.seen[s.labels.Get("hw_id")] = true, true
		}
	}
	return any
}

// feed appends what has arrived, each series in its order.
func (b *batch) feed(t *testing.T, now float64) {
	t.Helper()
	app := b.db.Appender(context.Background())
	for _, h := range b.nodes {
		for _, s := range h.streams {
			for ; s.fed < len(s.points) && s.points[s.fed].arrives <= now; s.fed++ {
				p := s.points[s.fed]
				v := p.v
				if p.marker {
					v = math.Float64frombits(promvalue.StaleNaN)
				}
				ref, err := app.Append(s.ref, s.labels, at(p.at), v)
				if err != nil {
					t.Fatal(err)
				}
				s.ref = ref
			}
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
}
