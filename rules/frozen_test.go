package rules

import (
	"math"
	"strings"
	"testing"

	"github.com/wattloop/wattloop/presets/names"
)

// An energy counter of a package or a GPU that has samples and does not move at
// all has stopped counting. Its 0 W is no measurement, or a control would raise
// the cap of a component that it cannot see.
func TestFrozenCounterIsNotFresh(t *testing.T) {
	w, r := nodeWorld(t, 300, 900, 900)
	for s := 305.0; s <= 600; s += 5 {
		w.add(cpu0, s, 100*300+1000)
	}
	// It may have rested for so long, and then not: the mean falls, as after a real
	// fall, and no component did.
	w.want(r, 330, `{k8s_node_name="a"} 419.83 fresh`)
	w.want(r, 350, `{k8s_node_name="a"} 413.05 stale`)
	w.want(r, 400, `{k8s_node_name="a"} 396.10 stale`)
	w.want(r, 600, `{k8s_node_name="a"} 330.00 stale`)
	if k := w.one(r, 600); !strings.Contains(k.Why, "frozen counter") || !strings.Contains(k.Why, "cpu0") {
		t.Errorf("why = %q; want it to name a frozen counter and cpu0", k.Why)
	}
	// It counts again.
	w.add(cpu0, 605, 100*305+1000)
	w.want(r, 620, `{k8s_node_name="a"} 331.79 fresh`)
}

// A meter may measure as slowly as it likes: it is told by its own pace that it has
// stopped, at no instant before and at none after.
func TestStoppedIsToldByItsOwnPace(t *testing.T) {
	for _, measures := range []float64{1, 5, 20, 45, 60} {
		const read, stops = 5.0, 1800.0
		w := newWorld(t)
		r := reading(t, RateCovered, nodePower, "k8s_node_name")
		for s := 0.0; s <= 2400; s += read {
			w.add(cpu0, s, 1000+100*math.Floor(min(s, stops)/measures)*measures)
		}
		const whole = 15.0 // it is asked for so rarely
		stale := stops + max(30, 3*measures) + read + whole
		for s := 900.0; s <= 2400; s += read {
			got := w.one(r, s).Quality
			switch {
			case s < stops+30 && got != Fresh:
				t.Errorf("measured every %v s: %v at %v s: %s", measures, got, s, w.one(r, s).Why)
			case s > stale && got != Stale:
				t.Errorf("measured every %v s, stopped at %v s: %v at %v s", measures, stops, got, s)
			}
		}
	}
}

// Of what Kepler divides into active and idle either may rest, however it moved
// before.
func TestStoppedWithItsOther(t *testing.T) {
	w := newWorld(t)
	r := reading(t, RateCovered, `sum by (n) (rate(kepler_node_cpu_active_joules_total[5m]))`, "n")
	for s := 0.0; s <= 900; s += 5 {
		w.add(`kepler_node_cpu_active_joules_total{n="a"}`, s, 100*min(s, 600))
		w.add(`kepler_node_cpu_idle_joules_total{n="a"}`, s, 40*min(s, 780))
	}
	if k := w.one(r, 700); k.Quality != Fresh {
		t.Errorf("with idle going on: %s %s", k.Quality, k.Why)
	}
	if k := w.one(r, 850); k.Quality != Stale {
		t.Errorf("with both stopped: %s", k.Quality)
	}
}

// What may be 0, and what is never called frozen.
func TestZeroThatIsNotFrozen(t *testing.T) {
	f := func(name, want string, fill func(w *world)) {
		t.Helper()
		w := newWorld(t)
		fill(w)
		r := reading(t, RateCovered, nodePower, "k8s_node_name")
		if got := w.read(r, 600); got != want {
			t.Errorf("%s: %s; want %s", name, got, want)
		}
	}
	still := func(series string, from, step float64) func(*world) {
		return func(w *world) { w.gauge(series, 5e6, from, 600, step) }
	}
	const energy = `hw_energy_joules_total{hw_type="gpu",hw_id="gpu0",k8s_node_name="a"}`
	f("a counter", `{k8s_node_name="a"} 0.00 stale`, still(energy, 0, 5))
	f("a gauge of 0", `{k8s_node_name="a"} 0.00 fresh`, func(w *world) { w.gauge(gpu0, 0, 0, 600, 5) })
	f("one sample", `{k8s_node_name="a"} - warming`, still(energy, 600, 5))
	f("two samples", `{k8s_node_name="a"} 0.00 stale`, still(energy, 595, 5))
	f("a GPU that idles at 1 mW", `{k8s_node_name="a"} 0.00 fresh`, func(w *world) { w.counter(energy, 0.001, 0, 600, 5) })
	// One producer hangs, another counts on: max by reads that one.
	f("one of two producers", `{k8s_node_name="a"} 250.00 fresh`, func(w *world) {
		still(`hw_energy_joules_total{hw_type="gpu",hw_id="gpu0",k8s_node_name="a",job="x"}`, 0, 5)(w)
		w.counter(`hw_energy_joules_total{hw_type="gpu",hw_id="gpu0",k8s_node_name="a",job="y"}`, 250, 0, 600, 5)
	})
	f("another node", `{k8s_node_name="a"} 0.00 stale`+"\n"+`{k8s_node_name="b"} 80.00 fresh`, func(w *world) {
		still(energy, 0, 5)(w)
		w.counter(strings.ReplaceAll(cpu1, `"a"`, `"b"`), 80, 0, 600, 5)
	})

	// Other counters may rest, and so may the energy of what is no package and no
	// GPU: a fan, or a battery.
	g := func(expr, series, want string) {
		t.Helper()
		w := newWorld(t)
		still(series, 0, 5)(w)
		if got := w.read(reading(t, RateCovered, expr, "n"), 600); got != `{n="a"} 0.00 `+want {
			t.Errorf("%s: %s; want %s", expr, got, want)
		}
	}
	g(`sum by (n) (rate(throttled_seconds_total[5m]))`, `throttled_seconds_total{n="a"}`, "fresh")
	g(`sum by (n) (rate(kepler_node_cpu_active_joules_total[5m]))`, `kepler_node_cpu_active_joules_total{n="a"}`, "fresh")
	g(`sum by (n) (rate(hw_energy_joules_total[5m]))`, `hw_energy_joules_total{n="a",hw_type="fan"}`, "fresh")
	g(`sum by (n) (rate(hw_energy_joules_total[5m]))`, `hw_energy_joules_total{n="a",hw_type="cpu"}`, "stale")
	g(`max by (n) (rate(hw_host_energy_joules_total[5m]))`, `hw_host_energy_joules_total{n="a"}`, "stale")
	g(`sum by (n) (increase(hw_energy_joules_total[5m]))`, `hw_energy_joules_total{n="a",hw_type="cpu"}`, "fresh")
	g(`max by (n) (max_over_time(rate(hw_energy_joules_total[1m])[5m:1m]))`, `hw_energy_joules_total{n="a",hw_type="cpu"}`, "fresh")
	energyName, _ := names.Lookup("hw.energy")
	for _, s := range names.Strategies() {
		g(`sum by (n) (rate({"`+energyName.Stored(s)+`"}[5m]))`, `{"`+energyName.Stored(s)+`",n="a","`+hwType(s)+`"="cpu"}`, "stale")
	}
}

// The mark stands between two whole queries, and goes with the next one.
func TestFrozenBetweenWholeQueries(t *testing.T) {
	w := newWorld(t)
	r := reading(t, RateCovered, strings.ReplaceAll(nodePower, "5m", "30s"), "k8s_node_name")
	w.gauge(cpu0, 5e6, 0, 600, 5)
	for s := 580.0; s <= 600; s++ {
		w.want(r, s, `{k8s_node_name="a"} 0.00 stale`)
	}
	w.counter(cpu0, 1e4, 605, 660, 5)
	for s := 636.0; s <= 660; s++ {
		w.want(r, s, `{k8s_node_name="a"} 10000.00 fresh`)
	}
}

// Kepler divides the energy of a zone into active and idle, and its older line into
// modes: either may rest while the other counts. Where both stand still it has
// stopped counting.
func TestFrozenKepler(t *testing.T) {
	f := func(expr, key, want string, rest, stop float64, series ...string) {
		t.Helper()
		w := newWorld(t)
		for i, s := range series {
			for at := 0.0; at <= 600; at += 5 {
				moved := at
				if i == 1 {
					moved = min(at, rest)
				}
				w.add(s, at, 50*min(moved, stop)+1000)
			}
		}
		r := reading(t, RateCovered, expr, key)
		got := w.read(r, 600)
		if got != want {
			t.Errorf("%s: %s; want %s", series, got, want)
		}
		if k := w.one(r, 600); strings.HasSuffix(want, "stale") && !strings.Contains(k.Why, "frozen counter") {
			t.Errorf("why %q; want a frozen counter", k.Why)
		}
	}
	const (
		kepler = `sum by (node_name) (label_replace(rate(kepler_node_cpu_active_joules_total{zone=~"package"}[1m]), "joulie_component", "cpu_active", "", "") or label_replace(rate(kepler_node_cpu_idle_joules_total{zone=~"package"}[1m]), "joulie_component", "cpu_idle", "", ""))`
		active = `kepler_node_cpu_active_joules_total{zone="package",node_name="a"}`
		idle   = `kepler_node_cpu_idle_joules_total{zone="package",node_name="a"}`
		legacy = `sum by (exported_instance) (label_replace(rate(kepler_node_package_joules_total[1m]), "joulie_component", "cpu", "", ""))`
		modeA  = `kepler_node_package_joules_total{mode="idle",exported_instance="a"}`
		modeB  = `kepler_node_package_joules_total{mode="dynamic",exported_instance="a"}`
	)
	f(kepler, "node_name", `{node_name="a"} 100.00 fresh`, 600, 600, active, idle)
	f(kepler, "node_name", `{node_name="a"} 50.00 fresh`, 100, 600, active, idle)
	f(kepler, "node_name", `{node_name="a"} 50.00 fresh`, 100, 600, idle, active)
	f(kepler, "node_name", `{node_name="a"} 0.00 stale`, 600, 400, active, idle)
	f(legacy, "exported_instance", `{exported_instance="a"} 100.00 fresh`, 600, 600, modeA, modeB)
	f(legacy, "exported_instance", `{exported_instance="a"} 50.00 fresh`, 100, 600, modeA, modeB)
	f(legacy, "exported_instance", `{exported_instance="a"} 0.00 stale`, 600, 400, modeA, modeB)
}
