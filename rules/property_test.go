package rules

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	promvalue "github.com/prometheus/prometheus/model/value"
	"pgregory.net/rapid"

	"github.com/wattloop/wattloop/store"
)

// source is one component of constant power as the property draws it: a counter
// that may start late, pause, go back to zero and end, or a gauge. Times are
// seconds after base.
type drawn struct {
	labels  labels.Labels
	counter bool
	watts   float64
	samples []drawnSample
}

type drawnSample struct {
	at, arrives float64
	v           float64
	marker      bool
}

func drawSource(t *rapid.T, i int) drawn {
	s := drawn{counter: rapid.Bool().Draw(t, "counter"), watts: float64(int(100) << i)}
	name, typ := "hw_power_watts", "gpu"
	if s.counter {
		name, typ = "hw_energy_joules_total", "cpu"
	}
	s.labels = labels.FromStrings("__name__", name, "hw_type", typ, "hw_id", fmt.Sprint(typ, i), "k8s_node_name", "a")
	step := rapid.SampledFrom([]float64{1, 5, 10}).Draw(t, "step")
	late := rapid.SampledFrom([]float64{0, 0, 1, 12}).Draw(t, "late")
	now := rapid.SampledFrom([]float64{0, 0, 100, 580, 595, 597}).Draw(t, "start") + rapid.Float64Range(0, 1).Draw(t, "phase")
	now = math.Round(now*1000) / 1000
	joules := rapid.SampledFrom([]float64{0, 1e6}).Draw(t, "joules")
	runs := rapid.IntRange(1, 3).Draw(t, "runs")
	for run := range runs {
		n := rapid.IntRange(1, 120).Draw(t, "samples")
		for range n {
			v := s.watts
			if s.counter {
				v = joules
			}
			s.samples = append(s.samples, drawnSample{at: now, arrives: now + late, v: v})
			now, joules = now+step, joules+s.watts*step
		}
		// A counter that goes from 0 to 0 does not show that it went back.
		again := joules > s.watts*step
		switch rapid.SampledFrom([]string{"gap", "gap", "reset", "marker"}).Draw(t, "end") {
		case "gap":
			gap := rapid.SampledFrom([]float64{20, 60, 245, 400}).Draw(t, "gap")
			now, joules = now+gap, joules+s.watts*gap
		case "reset":
			if again {
				joules = 0
			}
		case "marker":
			s.samples = append(s.samples, drawnSample{at: now, arrives: now + late, marker: true})
			if run == runs-1 {
				return s
			}
			now, joules = now+30, joules+s.watts*30
			if again {
				joules = 0
			}
		}
	}
	return s
}

// last is the time of the newest sample that has arrived, and whether a marker
// came after it.
func (s drawn) last(now float64) (at float64, ended, any bool) {
	for _, d := range s.samples {
		switch {
		case d.arrives > now || d.at > now:
		case d.marker:
			ended = true
		default:
			at, ended, any = d.at, false, true
		}
	}
	return at, ended, any
}

// play is one drawn history and the store that it goes into.
type play struct {
	db      *store.DB
	sources []drawn
	fed     float64
}

func newPlay(t *rapid.T, dir string) *play {
	path, err := os.MkdirTemp(dir, "play")
	if err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(store.Options{Path: path, Durability: "os"})
	if err != nil {
		t.Fatal(err)
	}
	p := &play{db: db, fed: -1}
	for i := range rapid.IntRange(1, 4).Draw(t, "sources") {
		p.sources = append(p.sources, drawSource(t, i))
	}
	return p
}

// feed appends what arrives up to an instant.
func (p *play) feed(t *rapid.T, now float64) {
	app := p.db.Appender(context.Background())
	for _, s := range p.sources {
		for _, d := range s.samples {
			if d.arrives <= p.fed || d.arrives > now {
				continue
			}
			v := d.v
			if d.marker {
				v = math.Float64frombits(promvalue.StaleNaN)
			}
			if _, err := app.Append(0, s.labels, at(d.at), v); err != nil {
				app.Rollback()
				t.Fatal(err)
			}
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	p.fed = now
}

func (p *play) evaluator(interval bool) *Evaluator {
	e := &Evaluator{Query: func(ctx context.Context, expr string, ts int64) ([]Sample, error) {
		got, err := p.db.Instant(ctx, expr, ts)
		out := make([]Sample, len(got))
		for i, s := range got {
			out[i] = Sample(s)
		}
		return out, err
	}}
	if interval {
		e.Interval = p.db.Interval
	}
	return e
}

func instants(t *rapid.T) []float64 {
	var out []float64
	now := rapid.IntRange(0, 600).Draw(t, "from")
	for range rapid.IntRange(1, 30).Draw(t, "instants") {
		out = append(out, float64(now))
		now += rapid.SampledFrom([]int{1, 1, 1, 1, 5, 5, 16, 31, 120}).Draw(t, "step")
	}
	return out
}

// A young, late, gappy or reset counter of constant power never reads low under
// covered: a fresh and whole reading is the sum of all components that are
// there. And no reading is fresh and whole while a component that no marker
// ended is older than stale_after.
func TestPropertyNeverLowNeverFreshOnOldInput(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		p := newPlay(t, dir)
		defer p.db.Close()
		e := p.evaluator(rapid.Bool().Draw(t, "measured"))
		r := reading2(t, rapid.SampledFrom([]string{"5m", "1m", "30s"}).Draw(t, "window"))
		r.StaleAfter = rapid.SampledFrom([]time.Duration{30 * time.Second, 10 * time.Second}).Draw(t, "stale_after")
		for _, now := range instants(t) {
			p.feed(t, now)
			got, err := e.Reading(context.Background(), r, at(now))
			if err != nil {
				t.Fatal(err)
			}
			want, there := 0.0, 0
			var oldest float64
			for _, s := range p.sources {
				last, ended, any := s.last(now)
				if !any || ended {
					continue
				}
				there++
				want += s.watts
				oldest = max(oldest, now-last)
			}
			for _, k := range got {
				if k.Quality != Fresh || k.Partial {
					continue
				}
				if k.Valid && k.Value < want-1e-6*want {
					t.Fatalf("at %g: %s = %g; want not less than %g", now, k.Key, k.Value, want)
				}
				if oldest > r.StaleAfter.Seconds() {
					t.Fatalf("at %g: fresh although a component is %g s old (says %s)", now, oldest, k.Age)
				}
			}
			if there > 0 && len(got) == 0 {
				t.Fatalf("at %g: no key, and %d components are there", now, there)
			}
		}
	})
}

// The short way says what the whole query says.
func TestPropertyShortIsWhole(t *testing.T) {
	dir := t.TempDir()
	asked, proven := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p := newPlay(t, dir)
		defer p.db.Close()
		short, whole := p.evaluator(false), p.evaluator(false)
		ask, alone := short.Query, false
		short.Query = func(ctx context.Context, expr string, ts int64) ([]Sample, error) {
			if strings.Contains(expr, coveredNewest) {
				asked, alone = asked+1, true
			} else {
				alone = false
			}
			return ask(ctx, expr, ts)
		}
		window := rapid.SampledFrom([]string{"5m", "1m", "30s"}).Draw(t, "window")
		r := reading2(t, window)
		if rapid.IntRange(0, 2).Draw(t, "moved") == 0 {
			r = read(t, strings.ReplaceAll(r.plan.text, "["+window+"])", "["+window+"] offset 7s) * 2"))
		}
		for _, now := range instants(t) {
			p.feed(t, now)
			for _, tr := range whole.trackers {
				tr.compiled.short = nil
			}
			alone = false
			a, errA := short.Reading(context.Background(), r, at(now))
			if alone {
				proven++
			}
			b, errB := whole.Reading(context.Background(), r, at(now))
			if errA != nil || errB != nil {
				t.Fatal(errA, errB)
			}
			if fmt.Sprintf("%+v", a) != fmt.Sprintf("%+v", b) {
				t.Fatalf("at %g:\nshort %+v\nwhole %+v", now, a, b)
			}
		}
	})
	t.Logf("the short query was asked %d times, and was enough %d times", asked, proven)
	if proven == 0 {
		t.Error("the short query was never enough")
	}
}

func reading2(t *rapid.T, window string) *Reading {
	expr := `sum by (k8s_node_name) (max by (k8s_node_name, hw_type, hw_id) (rate(hw_energy_joules_total[` + window + `])) or on (k8s_node_name, hw_type, hw_id) max by (k8s_node_name, hw_type, hw_id) (hw_power_watts))`
	if rapid.Bool().Draw(t, "bare") {
		expr = `sum by (k8s_node_name) (rate(hw_energy_joules_total[` + window + `]) or hw_power_watts)`
	}
	return read(t, expr)
}

func read(t *rapid.T, expr string) *Reading {
	tree, err := dialect.ParseExpr(expr)
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPlan(tree, []string{"k8s_node_name"}, true)
	if err != nil {
		t.Fatal(err)
	}
	return &Reading{Name: "r", Key: p.key, plan: p}
}
