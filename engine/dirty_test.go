package engine_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/wattloop/wattloop/rules"
)

// An arrival has its own node evaluated, and no other; the rule's timer has all.
// What is read of a node evaluated alone is what the whole rule would say.
func TestArrivalEvaluatesItsOwnKey(t *testing.T) {
	w := newWorld(t)
	node := func(n int, s, watts float64) string {
		series := fmt.Sprintf(`hw_power_watts{hw_type="cpu",hw_id="cpu0",k8s_node_name="n%d"}`, n)
		w.add(series, s, watts)
		return series
	}
	for n := range 4 {
		node(n, 0, 100)
	}
	w.step(0)
	w.eng.Grew(w.eng.Touched(metric(t, node(2, 1, 130))), at(1))
	rep := w.step(1)
	for _, r := range rep.Readings {
		if r.Name != "node_power" {
			continue
		}
		name := r.Key.Get("k8s_node_name")
		value, when := 100.0, int64(at(0))
		if name == "n2" {
			value, when = 130, at(1)
		}
		if r.Value != value || r.TS != when || r.Quality != rules.Fresh {
			t.Errorf("%s: %g W, %s, evaluated at %g; want %g, fresh, at %g", name, r.Value, r.Quality, after(r.TS), value, after(when))
		}
	}
	// A node that is new has the whole rule evaluated; so have many at once, and
	// the timer.
	w.eng.Grew(w.eng.Touched(metric(t, node(9, 2, 70))), at(2))
	evaluatedAt := func(want float64) {
		t.Helper()
		for _, r := range w.eng.Report().Readings {
			if r.Name == "node_power" && after(r.TS) != want {
				t.Errorf("%s was evaluated at %g; want %g", r.Key, after(r.TS), want)
			}
		}
	}
	w.step(2)
	evaluatedAt(2)
	w.eng.Grew(w.eng.Touched(metric(t, node(1, 3, 90))), at(3))
	w.step(3)
	w.step(8)
	evaluatedAt(8)
}

// The numbers of two nodes differ, those of two series of one node are one, and a
// series without the label of the key stands for the whole rule.
func TestNumbersOfKeys(t *testing.T) {
	w := newWorld(t, selecting)
	of := func(series string) []int32 { return w.eng.Touched(metric(t, series)) }
	a, again := of(`m2{hw_id="cpu1",k8s_node_name="a"}`), of(`m2{hw_id="cpu1",hw_x="y",k8s_node_name="a"}`)
	if !slices.Equal(a, again) {
		t.Errorf("two series of one node: %v and %v; want the same", a, again)
	}
	for _, other := range [][]int32{of(`m2{hw_id="cpu1",k8s_node_name="b"}`), of(`m2{hw_id="cpu1"}`)} {
		for _, n := range other {
			if slices.Contains(a, n) {
				t.Errorf("%v and %v share %d", a, other, n)
			}
		}
		if !slices.Equal(w.eng.RulesOf(a), w.eng.RulesOf(other)) {
			t.Errorf("rules %v and %v; want the same", w.eng.RulesOf(a), w.eng.RulesOf(other))
		}
	}
}
