package engine_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/wattloop/wattloop/actuate"
	"github.com/wattloop/wattloop/engine"
	"github.com/wattloop/wattloop/rules"
)

// blind is the breaker that goes to its safe cap without input.
var blind = strings.Replace(breaker, "safe_cap: 80", "safe_cap: 80\n    safe_when_blind: true", 1)

// A second GPU counter, whose first sample makes the reading warming.
const newGPU = `hw_energy_joules_total{hw_type="gpu",hw_id="gpu1",k8s_node_name="a"}`

// lose takes the input of an engaged control away, each in its way, and says
// when the loss is seen first.
var losses = []struct {
	quality rules.Quality
	lose    func(w *world) (seconds float64)
}{
	{rules.Stale, func(w *world) float64 {
		w.steps(45, 70) // stale_after is 30 s
		return 75
	}},
	{rules.Missing, func(w *world) float64 {
		for _, c := range []string{"cpu0", "cpu1", "gpu0"} {
			w.end(power(c), 45)
		}
		return 45
	}},
	{rules.Warming, func(w *world) float64 {
		w.node(45, 200, 200)
		w.add(newGPU, 45, 1000)
		return 45
	}},
}

// Efficiency gives the original back at once on any doubt.
func TestEfficiencyRestoresOnDoubt(t *testing.T) {
	for _, loss := range losses {
		t.Run(string(loss.quality), func(t *testing.T) {
			w := newWorld(t, enforce)
			w.load(0, 40, 200, 200)
			if c := control(t, w.eng.Report(), "node_power_budget"); c.Phase != engine.Engaged || c.Quality != rules.Fresh {
				t.Fatalf("%s, %s; want engaged, fresh", c.Phase, c.Quality)
			}
			seen := loss.lose(w)
			w.step(seen)
			if c := control(t, w.eng.Report(), "node_power_budget"); c.Quality != loss.quality || c.Why == "" {
				t.Errorf("quality %s, why %q; want %s", c.Quality, c.Why, loss.quality)
			}
			w.want("node_power_budget", "idle: 250 250")
		})
	}
}

// Protection holds what stands on any doubt, and goes on from there when the
// input is back.
func TestProtectionHoldsOnDoubt(t *testing.T) {
	for _, loss := range losses {
		t.Run(string(loss.quality), func(t *testing.T) {
			w := newWorld(t, breaker)
			w.load(0, 40, 200, 200)
			w.want("breaker", "engaged 100: 100 100")
			sets := w.link.sets
			seen := loss.lose(w)
			w.step(seen)
			w.want("breaker", "holding 100: 100 100")
			if d := w.eng.Report().Devices[0]; d.State != actuate.StateHolding {
				t.Errorf("the device is %s; want holding", d.State)
			}
			w.steps(seen+5, seen+30)
			w.want("breaker", "holding 100: 100 100")
			if w.link.sets != sets {
				t.Errorf("%d sets while holding", w.link.sets-sets)
			}
			if !strings.Contains(w.log.String(), "level=ERROR msg=\"a control for protection has no input") && loss.quality != rules.Warming {
				t.Errorf("no alarm in the log:\n%s", &w.log)
			}
			if loss.quality == rules.Warming {
				w.add(newGPU, seen+35, 1001)
			}
			w.load(seen+35, seen+40, 50, 200)
			w.want("breaker", "engaged 100: 100 100")
			w.load(seen+45, seen+70, 50, 200)
			w.want("breaker", "idle: 250 250")
		})
	}
}

// A control that was not engaged when its input went writes nothing and raises
// an alarm, unless it is safe_when_blind.
func TestNotEngagedAndBlind(t *testing.T) {
	w := newWorld(t, breaker)
	w.load(0, 10, 100, 100)
	w.steps(15, 60)
	w.want("breaker", "idle: 250 250")
	if !strings.Contains(w.log.String(), "level=ERROR msg=\"a control for protection has no input") {
		t.Errorf("no alarm in the log:\n%s", &w.log)
	}
	if w.link.all != 0 {
		t.Errorf("%d commands were sent", w.link.all)
	}

	w = newWorld(t, blind)
	w.load(0, 10, 100, 100)
	w.want("breaker", "idle: 250 250")
	w.steps(15, 50)
	w.want("breaker", "holding 80: 80 80")
	if d := w.eng.Report().Devices[0]; d.State != actuate.StateHolding {
		t.Errorf("the device is %s; want holding", d.State)
	}
	w.load(55, 90, 100, 100) // fresh again, and under the release for 10 s
	w.want("breaker", "idle: 250 250")
}

// Efficiency that is not engaged has nothing to give back.
func TestEfficiencyIdleAndBlind(t *testing.T) {
	w := newWorld(t, enforce)
	w.load(0, 10, 100, 100)
	w.steps(15, 60)
	w.want("node_power_budget", "idle: 250 250")
	if w.link.all != 0 {
		t.Errorf("%d commands were sent", w.link.all)
	}
}

// The input goes while a protection control releases: the cap stays where the
// release has come to.
func TestProtectionStopsItsReleaseOnDoubt(t *testing.T) {
	w := newWorld(t, breaker)
	w.load(0, 40, 200, 200)
	w.load(45, 60, 50, 200)
	w.want("breaker", "releasing: 200 200")
	for _, c := range []string{"cpu0", "cpu1", "gpu0"} {
		w.end(power(c), 65)
	}
	w.steps(65, 90)
	w.want("breaker", "holding 200: 200 200")
	if d := w.eng.Report().Devices[0]; d.State != actuate.StateHolding {
		t.Errorf("the device is %s; want holding", d.State)
	}
}

// whole is a node of which a GPU that was seen twenty minutes ago is absent.
func partialWorld(t *testing.T, dropIn string) *world {
	w := bareWorld(t)
	w.add(power("gpu1"), -1200, 50)
	w.restart(dropIn)
	return w
}

// A fresh partial reading may engage and tighten, never raise and never release.
func TestPartialTightensAndNeverLifts(t *testing.T) {
	for _, tt := range []struct{ name, dropIn, engaged string }{
		{"node_power_budget", enforce, "engaged 100: 100 100"},
		{"breaker", strings.Replace(breaker, "value: 100", "value: (400 - (node_power - cpu_power)) / 2", 1), "engaged 100: 100 100"},
	} {
		w := partialWorld(t, tt.dropIn)
		w.load(0, 60, 200, 200)
		w.want(tt.name, tt.engaged)
		if c := control(t, w.eng.Report(), tt.name); !c.Partial || c.Quality != rules.Fresh {
			t.Fatalf("%s is partial %t, %s; want partial, fresh", tt.name, c.Partial, c.Quality)
		}
		w.load(65, 95, 100, 240) // the value is 80 now
		w.want(tt.name, "engaged 80: 80 80")
		w.load(100, 130, 100, 180) // and 110, between engage and release of one
		if c := control(t, w.eng.Report(), tt.name); c.Value != 110 || w.eng.Report().Devices[0].Current != 80 {
			t.Errorf("asks for %g, the device holds %g; want 110, 80", c.Value, w.eng.Report().Devices[0].Current)
		}
		w.load(135, 300, 20, 100)
		if c := control(t, w.eng.Report(), tt.name); c.Phase != engine.Engaged || c.Release >= 0 || w.eng.Report().Devices[0].Current != 80 {
			t.Errorf("%s is %s at %g, release held for %s; want engaged at 80, never", tt.name, c.Phase, w.eng.Report().Devices[0].Current, c.Release)
		}
	}
}

// A component that goes during the release stops it where it has come to: the
// control is engaged again.
func TestPartialStopsTheRelease(t *testing.T) {
	w := newWorld(t, enforce, "version: 1\ncontrols: {node_power_budget: {stale_after: 10m, observe_after: false}}\n")
	w.add(power("gpu1"), 0, 10) // out of sight at 300
	w.load(0, 200, 200, 150)
	w.want("node_power_budget", "engaged 120: 120 120")
	w.load(205, 295, 50, 150)
	w.want("node_power_budget", "releasing: 180 180")
	w.load(300, 300, 50, 150)
	w.want("node_power_budget", "engaged 180: 180 180")
	if c := control(t, w.eng.Report(), "node_power_budget"); !c.Partial || c.Quality != rules.Fresh {
		t.Fatalf("partial %t, %s; want partial, fresh", c.Partial, c.Quality)
	}
	w.load(305, 340, 50, 150) // engaged, so that its value counts again
	w.want("node_power_budget", "engaged 125: 125 125")
}

// A query that fails, and a value that is no number, keep the cap for two
// rounds; the third in a row makes the reading stale (C10: NaN never acts).
func TestThreeErrorsInARow(t *testing.T) {
	for _, tt := range []struct {
		name  string
		wrong func(w *world, seconds float64)
	}{
		{"query", func(w *world, _ float64) { w.fail = errors.New("the disk is on fire") }},
		{"C10 NaN", func(w *world, s float64) {
			w.node(s, 200, 200)
			w.add(power("gpu0"), s+0.001, math.NaN())
		}},
		{"C10 +Inf", func(w *world, s float64) {
			w.node(s, 200, 200)
			w.add(power("gpu0"), s+0.001, math.Inf(1))
		}},
	} {
		for _, in := range []struct{ control, dropIn, kept, third string }{
			{"node_power_budget", enforce, "engaged 100: 100 100", "idle: 250 250"},
			{"breaker", breaker, "engaged 100: 100 100", "holding 100: 100 100"},
		} {
			t.Run(tt.name+" "+in.control, func(t *testing.T) {
				w := newWorld(t, in.dropIn)
				w.load(0, 50, 200, 200)
				w.want(in.control, in.kept)
				sets := w.link.sets
				for i, want := range []string{in.kept, in.kept, in.third} {
					s := 55 + 5*float64(i)
					tt.wrong(w, s)
					w.step(s + 0.001)
					w.want(in.control, want)
					if c := control(t, w.eng.Report(), in.control); c.Err == "" || c.Why == "" {
						t.Errorf("at %g: err %q, why %q; want both said", s, c.Err, c.Why)
					}
				}
				if w.link.sets != sets {
					t.Errorf("%d sets", w.link.sets-sets)
				}
				w.fail = nil
				w.load(75, 75, 200, 200)
				if c := control(t, w.eng.Report(), in.control); c.Err != "" || c.Quality != rules.Fresh {
					t.Errorf("after the errors: err %q, %s", c.Err, c.Quality)
				}
			})
		}
	}
}

// NaN never engages (C10): a control that is idle stays so however long, and a
// single error does not take back how long the condition has held, but makes a
// release wait anew.
func TestErrorsNeverAct(t *testing.T) {
	w := newWorld(t, enforce)
	for s := 0.; s < 100; s += 5 {
		w.node(s, 200, math.NaN())
		w.step(s)
	}
	w.want("node_power_budget", "idle: 250 250")
	for _, r := range w.eng.Report().Readings {
		if r.Name == "node_power" && (r.Valid || r.Err == "") {
			t.Errorf("node_power is %+v; want no value and an error", r)
		}
	}
	if got := w.samples(`wattloop_reading{reading="node_power"}`, 95); got != "" {
		t.Errorf("X4: a reading without a value was stored: %s", got)
	}

	w = newWorld(t, enforce)
	w.load(0, 5, 200, 160)
	w.fail = errors.New("one failure")
	w.step(10)
	w.fail = nil
	w.load(15, 15, 200, 160)
	w.want("node_power_budget", "engaged 120: 190 190")
	w.load(20, 60, 50, 160)
	w.fail = errors.New("one failure")
	w.step(65)
	w.fail = nil
	w.load(70, 125, 50, 160)
	if c := control(t, w.eng.Report(), "node_power_budget"); c.Phase != engine.Engaged {
		t.Errorf("at 125 s: %s; want engaged", c.Phase)
	}
	w.load(130, 130, 50, 160)
	if c := control(t, w.eng.Report(), "node_power_budget"); c.Phase != engine.Releasing {
		t.Errorf("at 130 s: %s; want releasing", c.Phase)
	}
}

// The lease of a control whose rule gets no input any more is not renewed for
// ever: its own timer evaluates it, whatever else steps the engine.
func TestLeaseEndsWithoutInput(t *testing.T) {
	w := newWorld(t, enforce, `
version: 1
readings:
  other: {key: [k8s_node_name], unit: W, expr: max by (k8s_node_name) (other_watts)}
`)
	w.load(0, 40, 200, 160)
	for s := 41.; s <= 75; s++ { // another rule's series grows every second
		w.add(`other_watts{k8s_node_name="a"}`, s, 1)
		w.step(s)
	}
	w.want("node_power_budget", "idle: 250 250")
}

// A process that slept for longer than the lease begins anew: nothing has held
// for the time that nobody looked.
func TestSleepBeginsAnew(t *testing.T) {
	w := newWorld(t, enforce)
	w.load(0, 5, 200, 160)
	w.load(100, 110, 200, 160)
	w.want("node_power_budget", "idle: 250 250")
	w.load(115, 115, 200, 160)
	w.want("node_power_budget", "engaged 120: 190 190")

	w = newWorld(t, breaker)
	w.load(0, 40, 200, 200)
	w.load(3600, 3600, 200, 200)
	w.want("breaker", "engaged 100: 100 100")
}
