package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wattloop/wattloop/engine"
)

// Two steps at one instant are two instants, a millisecond apart.
func TestTwoStepsAtOneInstant(t *testing.T) {
	w := newWorld(t, enforce)
	w.node(0, 100, 100)
	first := w.step(0)
	w.node(0.001, 200, 160)
	second := w.step(0)
	if first.TS != at(0) || second.TS != at(0.001) || second.Steps != first.Steps+1 {
		t.Errorf("steps %d at %g and %d at %g; want one at 0, one at 0.001", first.Steps, after(first.TS), second.Steps, after(second.TS))
	}
	if got, want := w.samples(`wattloop_reading{reading="node_power"}`, 0.001), `{__name__="wattloop_reading", k8s_node_name="a", reading="node_power"} 560`; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if third := w.step(-0.5); third.TS != at(0.002) {
		t.Errorf("a step half a second back is at %g; want 0.002", after(third.TS))
	}
}

// A clock that is set back does not stop the engine, and what has held counts
// from the new time on.
func TestClockSetBack(t *testing.T) {
	w := newWorld(t, enforce)
	w.load(0, 110, 100, 100)
	w.load(115, 120, 200, 160)
	w.load(60.5, 70.5, 200, 160)
	c := control(t, w.eng.Report(), "node_power_budget")
	if c.Phase != engine.Idle || c.Engage.Seconds() != 10 {
		t.Errorf("%s, engage held for %s; want idle, 10s", c.Phase, c.Engage)
	}
	w.load(75.5, 75.5, 200, 160)
	w.want("node_power_budget", "engaged 120: 190 190")
	if !strings.Contains(w.log.String(), "the clock was set back") {
		t.Errorf("not in the log:\n%s", &w.log)
	}
	if next := w.eng.NextDue(); next != at(80.5) {
		t.Errorf("the next timer comes at %g; want 80.5", after(next))
	}
	w.load(30.5, 40.5, 190, 160) // while engaged: the last write is not in the future
	w.want("node_power_budget", "engaged 120: 130 130")
}

// A step whose context is done decides nothing, and what was due is due still.
func TestCanceledStep(t *testing.T) {
	w := newWorld(t, enforce)
	w.load(0, 60, 200, 160)
	before, all := w.eng.Report(), w.link.all
	w.node(65, 50, 160)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	rep, err := w.eng.Step(ctx, at(65))
	if !errors.Is(err, context.Canceled) || rep != before || w.link.all != all {
		t.Errorf("Step: %v, the report is new: %t, %d commands; want canceled, the old one, none", err, rep != before, w.link.all-all)
	}
	rep = w.step(66)
	for _, r := range rep.Readings {
		if r.TS != at(66) {
			t.Errorf("%s was evaluated at %g; want 66", r.Name, after(r.TS))
		}
	}
}

// Whatever the order in which the samples of an instant arrive and are told,
// the step says the same.
func TestOrderOfArrivalDoesNotMatter(t *testing.T) {
	type sample struct {
		series string
		v      float64
	}
	play := func(t testing.TB, instants [][]sample) string {
		w := newWorld(t, enforce, breaker)
		var out strings.Builder
		script := engine.Transcript{W: &out, Start: at(0)}
		for i, samples := range instants {
			for _, s := range samples {
				w.add(s.series, float64(5*i), s.v)
			}
			rep := w.step(float64(5 * i))
			if err := script.Observe(rep); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(&out, w.samples(`{__name__=~"wattloop_.+"}`, float64(5*i)))
		}
		return out.String()
	}
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 0))
		var sorted, shuffled [][]sample
		for range 8 {
			var ss []sample
			for _, c := range []string{"cpu0", "cpu1", "gpu0", "gpu1"} {
				if r.IntN(10) > 0 {
					ss = append(ss, sample{power(c), float64(r.IntN(300))})
				}
			}
			sorted = append(sorted, ss)
			ss = slices.Clone(ss)
			r.Shuffle(len(ss), func(i, j int) { ss[i], ss[j] = ss[j], ss[i] })
			shuffled = append(shuffled, ss)
		}
		if d := cmp.Diff(play(t, sorted), play(t, shuffled)); d != "" {
			t.Fatalf("seed %d (-in order +shuffled):\n%s", seed, d)
		}
	}
}
