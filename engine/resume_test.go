package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/wattloop/wattloop/actuate"
	"github.com/wattloop/wattloop/engine"
	"github.com/wattloop/wattloop/rules"
)

// A new engine over the same store and devices goes on without a write, and a
// condition has held for as long as before.
func TestResumeEngaged(t *testing.T) {
	w := newWorld(t, enforce)
	w.load(0, 60, 200, 160)
	w.want("node_power_budget", "engaged 120: 120 120")
	sets := w.link.sets
	w.restart(enforce)
	w.load(65, 80, 120, 160)
	w.want("node_power_budget", "engaged 120: 120 120")
	if w.link.sets != sets {
		t.Errorf("%d writes after the restart", w.link.sets-sets)
	}
}

// A state is taken up from what is this engine's own: what Recall does not answer,
// another one may have left where the rules read.
func TestResumeOwnState(t *testing.T) {
	w := newWorld(t, enforce)
	w.load(0, 10, 200, 160)
	w.recall = func(context.Context, string, int64) ([]rules.Sample, error) { return nil, nil }
	w.restart(enforce)
	w.load(15, 15, 200, 160)
	if c := control(t, w.eng.Report(), "node_power_budget"); c.Phase != engine.Idle {
		t.Errorf("at 15 s: %s; want idle: its condition holds since the restart alone", c.Phase)
	}
}

func TestResumeFor(t *testing.T) {
	w := newWorld(t, enforce)
	w.load(0, 10, 200, 160)
	w.restart(enforce)
	w.load(15, 15, 200, 160)
	w.want("node_power_budget", "engaged 120: 190 190")
	w.load(20, 60, 50, 160)
	w.restart(enforce)
	w.load(65, 75, 50, 160)
	if c := control(t, w.eng.Report(), "node_power_budget"); c.Phase != engine.Engaged {
		t.Errorf("at 75 s: %s; want engaged", c.Phase)
	}
	w.load(80, 80, 50, 160)
	if c := control(t, w.eng.Report(), "node_power_budget"); c.Phase != engine.Releasing {
		t.Errorf("at 80 s: %s; want releasing: 60 s have passed over the restart", c.Phase)
	}
}

// The last write before a restart counts for observe_after too.
func TestResumeWaitsForNewInput(t *testing.T) {
	w := newWorld(t, enforce)
	w.load(0, 15, 200, 160)
	w.want("node_power_budget", "engaged 120: 190 190")
	w.restart(enforce)
	w.steps(26, 36)
	w.want("node_power_budget", "engaged 120: 190 190")
	w.load(37, 37, 190, 160)
	w.want("node_power_budget", "engaged 120: 130 130")
}

// Without an input newer than the restart nothing is renewed, for all that the
// last one still counts as fresh: the lease runs out, and the state with it.
func TestResumeRenewsNothingOnOldInput(t *testing.T) {
	w := newWorld(t, enforce)
	w.load(0, 60, 200, 160)
	w.restart(enforce)
	all := w.link.all
	for s := 61.; s <= 90; s++ {
		w.step(s)
	}
	if w.link.all != all {
		t.Errorf("%d commands were sent", w.link.all-all)
	}
	c := control(t, w.eng.Report(), "node_power_budget")
	if c.Phase != engine.Engaged || !strings.Contains(c.Why, "waiting for an input that is newer") {
		t.Errorf("%s, why %q; want engaged, waiting", c.Phase, c.Why)
	}

	w = newWorld(t, enforce, "version: 1\ncontrols: {node_power_budget: {stale_after: 5m}}\n")
	w.load(0, 60, 200, 160)
	w.restart(enforce, "version: 1\ncontrols: {node_power_budget: {stale_after: 5m}}\n")
	all = w.link.all
	for s := 61.; s <= 96; s++ {
		w.step(s)
	}
	if c := control(t, w.eng.Report(), "node_power_budget"); c.Phase != engine.Idle || w.link.all != all {
		t.Errorf("%s, %d commands; want idle, none", c.Phase, w.link.all-all)
	}
}

// A state that is older than the lease is gone: the condition must hold anew.
func TestResumeNothingOlderThanTheLease(t *testing.T) {
	w := newWorld(t, enforce)
	w.load(0, 60, 200, 160)
	w.restart(enforce)
	w.load(91, 101, 200, 160)
	c := control(t, w.eng.Report(), "node_power_budget")
	if c.Phase != engine.Idle || c.Engage.Seconds() != 10 {
		t.Errorf("%s, engage held for %s; want idle, 10s", c.Phase, c.Engage)
	}
	w.load(106, 106, 200, 160)
	if c := control(t, w.eng.Report(), "node_power_budget"); c.Phase != engine.Engaged {
		t.Errorf("%s; want engaged", c.Phase)
	}
}

// A release that was under way goes on.
func TestResumeRelease(t *testing.T) {
	for _, in := range []struct{ name, dropIn string }{{"node_power_budget", enforce}, {"breaker", breaker}} {
		w := newWorld(t, in.dropIn)
		w.load(0, 60, 200, 200)
		s := 65.
		for ; control(t, w.eng.Report(), in.name).Phase != engine.Releasing; s += 5 {
			w.load(s, s, 50, 200)
		}
		w.restart(in.dropIn)
		w.load(s, s, 50, 200)
		if c := control(t, w.eng.Report(), in.name); c.Phase != engine.Releasing {
			t.Errorf("%s is %s; want releasing", in.name, c.Phase)
		}
		w.load(s+5, s+120, 50, 200)
		w.want(in.name, "idle: 250 250")
	}
}

// A cap for protection that no series knows of is taken up from the device, and
// released when its condition says so: nobody else would give it back.
func TestResumeProtectionFromTheDevice(t *testing.T) {
	w := newWorld(t, breaker)
	w.load(0, 60, 200, 200)
	w.want("breaker", "engaged 100: 100 100")
	w.restart(breaker)
	sets := w.link.sets
	w.load(600, 605, 100, 260)
	w.want("breaker", "engaged 100: 100 100")
	if w.link.sets != sets {
		t.Errorf("%d writes after the restart", w.link.sets-sets)
	}
	w.load(610, 660, 50, 100)
	w.want("breaker", "idle: 250 250")
}

// A control that came back in mode observe gives back what it had written.
func TestResumeInModeObserve(t *testing.T) {
	w := newWorld(t, enforce)
	w.load(0, 60, 200, 160)
	w.restart()
	w.load(65, 200, 200, 160)
	w.want("node_power_budget", "engaged 120: 250 250")
}

// While the store does not answer nothing is taken up and nothing is decided;
// the next evaluation tries again.
func TestResumeAfterAFailedQuery(t *testing.T) {
	w := newWorld(t, enforce)
	w.load(0, 60, 200, 160)
	w.restart(enforce)
	w.fail = errors.New("the store is not there yet")
	w.node(65, 120, 160)
	w.step(65)
	w.fail = nil
	w.load(70, 70, 120, 160)
	w.want("node_power_budget", "engaged 120: 120 120")
}

// Each key takes up its own state, one whose labels are some of another's too.
func TestResumeKeysApart(t *testing.T) {
	dropIn := `
version: 1
readings:
  rack_power: {unit: W, key: [rack, device], expr: "max by (rack, device) (rack_watts)"}
controls:
  racks:
    mode: observe
    key: [rack, device]
    engage: {when: rack_power > 100, for: 0s}
    release: {when: rack_power < 50, for: 60s}
    action: rapl.set_power_cap_watts
    target: {hw_type: cpu}
    value: rack_power
    limits: {min: 60, max: 250}
    ttl: 30s
    purpose: efficiency
`
	w := newWorld(t, dropIn)
	feed := func(s float64) {
		w.add(`rack_watts{rack="1"}`, s, 40)
		w.add(`rack_watts{rack="1",device="left"}`, s, 200)
		w.step(s)
	}
	feed(0)
	feed(5)
	want := func() {
		t.Helper()
		got := ""
		for _, c := range w.eng.Report().Controls {
			if c.Name == "racks" {
				got += c.Key.String() + string(c.Phase) + " "
			}
		}
		if want := `{device="left", rack="1"}engaged {rack="1"}idle `; got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
	want()
	if got, want := w.samples(`wattloop_control_engaged{control="racks"}`, 5), `{__name__="wattloop_control_engaged", control="racks", exported_device="left", rack="1"} 1
{__name__="wattloop_control_engaged", control="racks", rack="1"} 0`; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	w.restart(dropIn)
	feed(10)
	want()
}

// Nothing is taken up from a device that belongs to somebody else.
func TestResumeLeavesOthersAlone(t *testing.T) {
	idle := enforce + "params: {budget: {value: 2000}}\n"
	w := newWorld(t, breaker, idle)
	w.load(0, 60, 200, 200)
	w.restart(breaker, idle)
	w.load(65, 65, 50, 200)
	w.want("node_power_budget", "idle: 100 100")
	if d := w.eng.Report().Devices[0]; d.Owner != "breaker" || d.State != actuate.StateApplied {
		t.Errorf("owner %s, %s; want breaker, applied", d.Owner, d.State)
	}
}

// An engine that comes back and finds no input newer than itself renews
// nothing, whatever is still fresh by its age: the lease runs out (P8). The
// first newer input renews it, without a write.
func TestResumeRenewsOnNewInputAlone(t *testing.T) {
	w := newWorld(t, enforce)
	w.load(0, 60, 200, 160)
	sets := w.link.sets
	w.restart(enforce)
	all := w.link.all
	w.steps(61, 68)
	if w.link.all != all {
		t.Errorf("%d commands without an input newer than the restart; want none", w.link.all-all)
	}
	if c := control(t, w.eng.Report(), "node_power_budget"); c.Quality != "fresh" || c.Phase != engine.Engaged {
		t.Errorf("%s, input %s; want engaged, fresh", c.Phase, c.Quality)
	}
	w.load(70, 70, 120, 160)
	if w.link.all == all || w.link.sets != sets {
		t.Errorf("%d commands, %d writes on a newer input; want a renewal and no write", w.link.all-all, w.link.sets-sets)
	}
}
