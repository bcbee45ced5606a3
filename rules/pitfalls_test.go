package rules

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// pushed is a counter of constant power, exported every so often by a producer
// whose points arrive late, and what is read of it at an instant.
type pushed struct {
	watts, interval, lag float64
	from                 float64 // of its first sample, seconds after base
	window               time.Duration
}

// read appends what has arrived by an instant and reads it, the words as they
// stand or as covered.
func (p pushed) read(t *testing.T, now float64) (prometheus, covered float64) {
	t.Helper()
	w := newWorld(t)
	for s := p.from; s+p.lag <= now+1e-9; s += p.interval {
		w.add(cpu0, seconds(s), 1e6+p.watts*(s-p.from))
	}
	of := func(rate string) float64 {
		r := reading(t, rate, strings.ReplaceAll(nodePower, "[5m]", "["+p.window.String()+"]"), "k8s_node_name")
		got, err := w.eval.Query(bg, r.Query, at(now))
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 1 {
			return math.NaN()
		}
		return got[0].V
	}
	return of(RatePrometheus), of(RateCovered)
}

// S0-155, S0-156: a series younger than its window reads low under plain rate.
// covered is true at once.
func TestYoungSeriesReadsLow(t *testing.T) {
	f := func(name string, p pushed, now, prometheus float64) {
		t.Helper()
		plain, covered := p.read(t, now)
		if math.Abs(plain-prometheus) > 0.005 {
			t.Errorf("%s: rate: prometheus reads %.3f W; want %.2f", name, plain, prometheus)
		}
		if math.Abs(covered-p.watts) > 1e-6 {
			t.Errorf("%s: covered reads %.6f W; want %g", name, covered, p.watts)
		}
	}
	const window = 5 * time.Minute
	f("S0-155", pushed{350, 30, 1, 600, window}, 841, 298.67)
	f("S0-155, exported every 60 s", pushed{350, 60, 1, 600, window}, 841, 350)
	f("S0-156", pushed{400, 30, 0, 600, window}, 720, 180)
	f("C25 at 180 s", pushed{250, 60, 0, 60, window}, 180, 250*(120+30)/300.)
}

// S0-158 to S0-161: a counter whose points arrive late reads low under plain
// rate once the newest is older than 1.1 intervals; covered does not. lowest is
// the least share of the truth over all phases.
func TestLatePointsReadLow(t *testing.T) {
	f := func(name string, interval, lag float64, window time.Duration, lowest float64) {
		t.Helper()
		w := newWorld(t)
		const now, phases = 4000.0, 40
		for phase := range phases + 1 {
			newest := lag + interval*float64(phase)/phases // its age; at most just before the next arrives
			if phase == phases {
				newest -= 0.001
			}
			node := fmt.Sprintf(`hw_energy_joules_total{hw_type="cpu",hw_id="cpu0",k8s_node_name="%d"}`, phase)
			for back := math.Floor(2 * window.Seconds() / interval); back >= 0; back-- {
				s := seconds(now - newest - back*interval)
				w.add(node, s, 1e6+100*s)
			}
		}
		least, worst := math.Inf(1), math.Inf(1)
		expr := strings.ReplaceAll(nodePower, "[5m]", "["+window.String()+"]")
		for rate, to := range map[string]*float64{RatePrometheus: &least, RateCovered: &worst} {
			got, err := w.eval.Query(bg, reading(t, rate, expr, "k8s_node_name").Query, at(now))
			if err != nil || len(got) != phases+1 {
				t.Fatal(len(got), err)
			}
			for _, s := range got {
				*to = min(*to, s.V/100)
			}
		}
		if math.Abs(least-lowest) > 0.0025 {
			t.Errorf("%s: rate: prometheus reads %.4f of the truth at worst; want %.3f", name, least, lowest)
		}
		if math.Abs(worst-1) > 1e-9 {
			t.Errorf("%s: covered reads %.9f of the truth at worst; want 1", name, worst)
		}
		if bound := 1 - (lag+interval/2)/window.Seconds(); least < bound-1e-9 {
			t.Errorf("%s: rate: prometheus reads %.4f of the truth, below 1 - (lag + interval/2) / window = %.4f (S0-159)", name, least, bound)
		}
	}
	const min5 = 5 * time.Minute
	f("S0-160", 60, 0, min5, 1)
	f("S0-160", 60, 6, min5, 1)
	f("S0-160, S0-158", 60, 6.5, min5, 1-(6.5+30)/300)
	f("S0-159", 10, 12, min5, 1-(12+5)/300.)
	f("S0-161", 5, 0.6, 30*time.Second, 1-(0.6+2.5)/30)
	f("S0-161", 5, 0.9, 30*time.Second, 1-(0.9+2.5)/30)
	f("no later than a tenth", 5, 0.5, 30*time.Second, 1)
}

// C27: points every 10 s, the newest 12 s old. The stock values are reproduced,
// covered is true, and the reading carries the age of its newest sample.
func TestC27LatePushedPoints(t *testing.T) {
	w := newWorld(t)
	for i := 0.0; i <= 32; i++ {
		w.add(cpu0, -4+10*i, 500_000+3000*i)
	}
	f := func(rate, window string, now, want float64) {
		t.Helper()
		r := reading(t, rate, strings.ReplaceAll(nodePower, "[5m]", window), "k8s_node_name")
		got, err := w.eval.Query(bg, r.Query, at(now))
		if err != nil || len(got) != 1 || math.Abs(got[0].V-want) > 0.005 {
			t.Errorf("%s %s at %g: %v, %v; want %.2f", rate, window, now, got, err, want)
		}
	}
	f(RatePrometheus, "[30s]", 328, 230)
	f(RatePrometheus, "[5m]", 328, 293)
	f(RatePrometheus, "[30s]", 316, 300)
	f(RatePrometheus, "[5m]", 316, 300)
	for _, window := range []string{"[30s]", "[5m]"} {
		for _, now := range []float64{316, 328} {
			f(RateCovered, window, now, 300)
		}
	}
	k := w.one(reading(t, RateCovered, nodePower, "k8s_node_name"), 328)
	if k.Age != 12*time.Second || k.Quality != Fresh {
		t.Errorf("age %s, %s; want 12s, fresh", k.Age, k.Quality)
	}
}

// S0-157, X25: under rate: prometheus nothing is trusted until the series spans
// one window; under covered from the second sample on.
func TestWarmingUntilOneWindow(t *testing.T) {
	for _, c := range []struct {
		rate  string
		fresh float64 // from then on
	}{{RatePrometheus, 300}, {RateCovered, 30}} {
		w := newWorld(t)
		r := reading(t, c.rate, nodePower, "k8s_node_name")
		for now := 0.0; now <= 420; now += 15 {
			if math.Mod(now, 30) == 0 {
				w.add(cpu0, now, 1e6+350*now)
			}
			want := `{k8s_node_name="a"} - warming`
			if now >= c.fresh {
				want = `{k8s_node_name="a"} 350.00 fresh`
			}
			if got := w.read(r, now); got != want {
				t.Errorf("%s at %g s: %s; want %s", c.rate, now, got, want)
			}
		}
	}
}

// S0-114, X18: a counter that goes back, by a little, is taken for one that began at
// zero: plain rate reads all that it holds as a spike. covered leaves the interval
// out. Neither reads negative power, at any instant while the step is in the window.
func TestCounterThatGoesBack(t *testing.T) {
	w := newWorld(t)
	for s := 0.; s <= 1200; s += 5 {
		v := 1e6 + 100*s
		if s >= 600 {
			v -= 3000
		}
		w.add(cpu0, s, v)
	}
	spike := 0.0
	for now := 400.; now <= 1200; now += 50 {
		for _, rate := range []string{RatePrometheus, RateCovered} {
			got := w.one(reading(t, rate, nodePower, "k8s_node_name"), now)
			switch {
			case !got.Valid || got.Value < 0:
				t.Errorf("rate: %s at %g: %+v", rate, now, got)
			case rate == RateCovered && math.Abs(got.Value-100) > 1e-6:
				t.Errorf("covered at %g reads %g W; want 100", now, got.Value)
			case rate == RatePrometheus && (now < 600 || now >= 900) && math.Abs(got.Value-100) > 1e-6:
				t.Errorf("rate: prometheus at %g reads %g W; want 100", now, got.Value)
			case rate == RatePrometheus:
				spike = max(spike, got.Value)
			}
		}
	}
	if spike < 1000 {
		t.Errorf("rate: prometheus reads %g W at most: no spike", spike)
	}
}
