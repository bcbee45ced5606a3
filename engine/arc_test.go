package engine_test

import (
	"strings"
	"testing"

	"github.com/wattloop/wattloop/engine"
)

// The whole arc of an efficiency control, on the shipped rules: it engages when
// the condition has held for 15 s, comes down by its slew and no further than
// its value, releases when the node has been under the budget for 60 s, rises by
// its slew, and gives the original back.
func TestArc(t *testing.T) {
	w := newWorld(t, enforce)
	w.load(0, 15, 100, 100)
	w.want("node_power_budget", "idle: 250 250")
	w.load(20, 30, 200, 160)
	w.want("node_power_budget", "idle: 250 250")
	w.load(35, 35, 200, 160)
	w.want("node_power_budget", "engaged 120: 190 190")
	w.load(40, 40, 190, 160)
	w.want("node_power_budget", "engaged 120: 190 190")
	w.load(45, 45, 190, 160)
	w.want("node_power_budget", "engaged 120: 130 130")
	w.load(50, 60, 130, 160)
	w.want("node_power_budget", "engaged 120: 120 120")

	w.load(65, 120, 50, 160)
	w.want("node_power_budget", "engaged 120: 120 120")
	w.load(125, 125, 50, 160)
	w.want("node_power_budget", "releasing: 135 135")
	w.load(130, 135, 50, 160)
	w.want("node_power_budget", "releasing: 150 150")
	w.load(140, 195, 50, 160)
	w.want("node_power_budget", "releasing: 240 240")
	w.load(200, 210, 50, 160)
	w.want("node_power_budget", "idle: 250 250")
	for _, d := range w.eng.Report().Devices {
		if d.Owner != "" || d.Current != d.Original {
			t.Errorf("%s: owner %q, holds %g of %g; want it given back", d.Name, d.Owner, d.Current, d.Original)
		}
	}
}

// A value outside the control's limits is brought into them.
func TestValueStaysWithinLimits(t *testing.T) {
	for _, tt := range []struct {
		gpu  float64
		want string
	}{
		{330, "engaged 60: 60 60"},     // (400 - 330) / 2 is 35
		{-200, "engaged 250: 250 250"}, // (400 + 200) / 2 is 300: within the dead band, nothing to write
	} {
		w := newWorld(t, enforce, "version: 1\ncontrols: {node_power_budget: {slew: {down: 250, every: 1s}}}\n")
		w.load(0, 25, 350, tt.gpu)
		w.want("node_power_budget", tt.want)
	}
}

// A condition that stops holding for one evaluation starts anew (`for` of the
// engage condition), and so does the release condition.
func TestForStartsAnew(t *testing.T) {
	w := newWorld(t, enforce)
	w.load(0, 10, 200, 160)
	w.load(15, 15, 50, 160)
	w.load(20, 30, 200, 160)
	w.want("node_power_budget", "idle: 250 250")
	w.load(35, 35, 200, 160)
	w.want("node_power_budget", "engaged 120: 190 190")
	w.load(40, 95, 50, 160)
	w.load(100, 100, 110, 180) // neither over the budget nor under the release
	w.load(105, 160, 50, 160)
	w.want("node_power_budget", "engaged 120: 120 120")
	w.load(165, 165, 50, 160)
	w.want("node_power_budget", "releasing: 135 135")
}

// A load that comes back during the release engages again from where the cap
// stands.
func TestEngageDuringRelease(t *testing.T) {
	w := newWorld(t, enforce)
	w.load(0, 40, 200, 160)
	w.load(45, 130, 50, 160)
	w.want("node_power_budget", "releasing: 165 165")
	w.load(135, 145, 200, 160)
	w.want("node_power_budget", "releasing: 195 195")
	w.load(150, 150, 200, 160)
	w.want("node_power_budget", "engaged 120: 135 135")
}

// Mode observe says what would be written and writes nothing.
func TestObserveWritesNothing(t *testing.T) {
	w := newWorld(t)
	w.load(0, 60, 200, 160)
	w.want("node_power_budget", "engaged 120: 250 250")
	c := control(t, w.eng.Report(), "node_power_budget")
	if c.Result != "blocked" || len(c.Outcomes) != 2 {
		t.Fatalf("result %s, %d outcomes; want blocked, 2", c.Result, len(c.Outcomes))
	}
	if o := c.Outcomes[0]; o.Reason != "observe" || o.Desired != 120 || o.Granted != 190 || o.Applied != 250 {
		t.Errorf("outcome %+v; want observe, desired 120, granted 190 (one step of the slew), applied 250", o)
	}
	w.load(65, 200, 50, 160)
	w.want("node_power_budget", "idle: 250 250")
	if w.link.all != 0 {
		t.Errorf("%d commands were sent", w.link.all)
	}
}

// An input that is older than the last write does not drive the next
// (observe_after): neither the control's own evaluation nor the steps that run
// for other rules move the device on.
func TestObserveAfter(t *testing.T) {
	w := newWorld(t, enforce)
	w.load(0, 15, 200, 160)
	w.want("node_power_budget", "engaged 120: 190 190")
	for s := 16.; s <= 30; s++ {
		w.step(s)
	}
	w.want("node_power_budget", "engaged 120: 190 190")
	if why := control(t, w.eng.Report(), "node_power_budget").Why; !strings.Contains(why, "newer than the last write") {
		t.Errorf("why = %q", why)
	}
	w.load(31, 31, 190, 160)
	w.want("node_power_budget", "engaged 120: 130 130")

	w = newWorld(t, enforce, "version: 1\ncontrols: {node_power_budget: {observe_after: false}}\n")
	w.load(0, 15, 200, 160)
	for s := 16.; s <= 30; s++ {
		w.step(s)
	}
	w.want("node_power_budget", "engaged 120: 130 130")
}

// The oldest component counts: a GPU's reading from before the write holds the
// packages' newer ones back.
func TestObserveAfterLooksAtTheOldest(t *testing.T) {
	w := newWorld(t, enforce)
	w.load(0, 15, 200, 160)
	for s := 20.; s <= 30; s += 5 {
		w.add(power("cpu0"), s, 190)
		w.add(power("cpu1"), s, 190)
		w.step(s)
	}
	w.want("node_power_budget", "engaged 120: 190 190")
	w.add(power("gpu0"), 31, 160)
	w.step(31)
	w.want("node_power_budget", "engaged 120: 130 130")
}

// A control whose target no device answers to says so, once.
func TestNoDevice(t *testing.T) {
	w := newWorld(t, enforce, "version: 1\ncontrols: {node_power_budget: {target: {hw_type: cpu, hw_id: cpu9}}}\n")
	w.load(0, 20, 200, 160)
	w.want("node_power_budget", "engaged 120: 250 250")
	c := control(t, w.eng.Report(), "node_power_budget")
	if c.Result != "blocked" || len(c.Outcomes) != 1 || c.Outcomes[0].Reason != "no_device" || c.Outcomes[0].Device != "" {
		t.Errorf("result %s, outcomes %+v; want one, blocked, no_device", c.Result, c.Outcomes)
	}
	if got, want := w.samples("wattloop_outcome", 20), `{__name__="wattloop_outcome", action="rapl.set_power_cap_watts", control="node_power_budget", k8s_node_name="a", reason="no_device", result="blocked"} 1`; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	w.load(25, 90, 50, 160)
	w.want("node_power_budget", "idle: 250 250")
}

// A key that no input names any more gives its devices back and goes.
func TestKeyDisappears(t *testing.T) {
	w := newWorld(t, enforce)
	w.load(0, 40, 200, 160)
	for _, c := range []string{"cpu0", "cpu1", "gpu0"} {
		w.end(power(c), 45)
	}
	w.step(45)
	w.want("node_power_budget", "idle: 250 250")
	w.add(`hw_power_watts{hw_type="cpu",hw_id="cpu0",k8s_node_name="b"}`, 3700, 100)
	rep := w.step(3700)
	for _, c := range rep.Controls {
		if c.Key.Get("k8s_node_name") == "a" {
			t.Errorf("the key is still there an hour later: %+v", c)
		}
	}
	if c := control(t, rep, "node_power_budget"); c.Phase != engine.Idle {
		t.Errorf("b is %s", c.Phase)
	}
}

// A value expression without an answer engages nothing, and keeps what stands.
func TestNoValueForTheKey(t *testing.T) {
	w := newWorld(t, enforce, "version: 1\ncontrols: {node_power_budget: {value: node_power - cpu_power > 100}}\n")
	w.load(0, 30, 230, 50)
	w.want("node_power_budget", "idle: 250 250")
	if why := control(t, w.eng.Report(), "node_power_budget").Why; !strings.Contains(why, "gives no number") {
		t.Errorf("why = %q", why)
	}
	w.load(35, 50, 150, 120)
	w.want("node_power_budget", "engaged 120: 130 130")
	w.load(55, 100, 230, 50)
	w.want("node_power_budget", "engaged 120: 130 130")
}

// A warden that does not answer is an error on the control, and the rules go on.
func TestWardenDoesNotAnswer(t *testing.T) {
	w := newWorld(t, enforce)
	w.link.mute = true
	w.load(0, 20, 200, 160)
	w.want("node_power_budget", "engaged 120: 250 250")
	c := control(t, w.eng.Report(), "node_power_budget")
	if c.Result != "error" || c.Outcomes[0].Reason != "no_answer" {
		t.Errorf("%s, %+v; want error, no_answer", c.Result, c.Outcomes)
	}
	if !strings.Contains(w.log.String(), "level=ERROR msg=outcome") {
		t.Errorf("not in the log:\n%s", &w.log)
	}
	w.link.mute = false
	w.load(25, 25, 200, 160)
	w.want("node_power_budget", "engaged 120: 190 190")
}

// A window that is shorter than two export intervals is widened, and said so.
func TestWidenedWindowIsSaid(t *testing.T) {
	w := newWorld(t, enforce)
	for s := 0.; s <= 100; s += 20 {
		w.add(`hw_energy_joules_total{hw_type="cpu",hw_id="cpu0",k8s_node_name="a"}`, s, 100*s)
		w.step(s)
	}
	if n := strings.Count(w.log.String(), `msg="window widened for a slow exporter" rule=node_power `); n == 0 {
		t.Errorf("not in the log:\n%s", &w.log)
	}
}
