package engine_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/wattloop/wattloop/engine"
	"github.com/wattloop/wattloop/rules"
)

// A reload that leaves what a control does as it is leaves its state: help and
// layout do not count.
func TestReloadUnchanged(t *testing.T) {
	for _, edit := range []string{
		``,
		`controls: {node_power_budget: {help: "in other words"}}`,
		`controls: {node_power_budget: {engage: {when: "node_power   > $budget"}, ttl: 30000ms}}`,
		`readings: {other: {key: [k8s_node_name], expr: max by (k8s_node_name) (other_watts)}}`,
		`params: {hysteresis: {help: "in other words"}}`,
	} {
		w := newWorld(t, enforce)
		w.load(0, 60, 200, 160)
		w.load(65, 100, 50, 160)
		sets := w.link.sets
		if err := w.eng.Reload(loadRules(t, enforce, "version: 1\n"+edit), false); err != nil {
			t.Fatal(err)
		}
		w.load(105, 120, 50, 160)
		w.want("node_power_budget", "engaged 120: 120 120")
		if w.link.sets != sets {
			t.Errorf("%s: %d writes", edit, w.link.sets-sets)
		}
		w.load(125, 125, 50, 160) // the release condition has held since 65
		w.want("node_power_budget", "releasing: 135 135")
	}
}

// edits change what the control does, each in one field or one thing that it
// reads.
var edits = map[string]string{
	"Mode":         `controls: {node_power_budget: {mode: observe}}`,
	"Purpose":      `controls: {node_power_budget: {purpose: protection, safe_cap: 100}}`,
	"Engage":       `controls: {node_power_budget: {engage: {for: 16s}}}`,
	"Engage.When":  `controls: {node_power_budget: {engage: {when: node_power > $budget + 1}}}`,
	"Release":      `controls: {node_power_budget: {release: {for: 61s}}}`,
	"Release.When": `controls: {node_power_budget: {release: {when: node_power < $budget * 0.9}}}`,
	"Value":        `controls: {node_power_budget: {value: "100"}}`,
	"Target":       `controls: {node_power_budget: {target: {hw_id: cpu0}}}`,
	"Limits":       `controls: {node_power_budget: {limits: {min: 61}}}`,
	"Slew":         `controls: {node_power_budget: {slew: {down: 61}}}`,
	"TTL":          `controls: {node_power_budget: {ttl: 31s}}`,
	"Interval":     `controls: {node_power_budget: {interval: 6s}}`,
	"StaleAfter":   `controls: {node_power_budget: {stale_after: 40s}}`,
	"SafeCap":      `controls: {node_power_budget: {purpose: protection, safe_cap: 90}}`,
	"ObserveAfter": `controls: {node_power_budget: {observe_after: false}}`,
	"OnStop":       `controls: {node_power_budget: {purpose: protection, safe_cap: 100, on_stop: hold}}`,
	"a parameter":  `params: {budget: {value: 401}}`,
	"a reading":    `readings: {cpu_power: {stale_after: 35s}}`,
	"with":         `controls: {node_power_budget: {with: {rate_window: 40s}}}`,
	"removed":      `controls: {node_power_budget: null}`,

	"TrustedChannels": `controls: {node_power_budget: {trusted_channels: [ch1]}}`,
}

// A control that a reload edits, removes or sets to observe gives back what it
// holds, by its slew; its successor takes nothing up from the store, and starts
// from the cap that it finds.
func TestReloadEdited(t *testing.T) {
	for name, edit := range edits {
		t.Run(name, func(t *testing.T) {
			quick := "version: 1\ncontrols: {node_power_budget: {slew: {down: 130, up: 70}}}\n"
			w := newWorld(t, enforce, quick)
			w.load(0, 15, 200, 160)
			w.want("node_power_budget", "engaged 120: 120 120")
			if err := w.eng.Reload(loadRules(t, enforce, quick, "version: 1\n"+edit), false); err != nil {
				t.Fatal(err)
			}
			w.load(20, 20, 50, 160)
			rep := w.eng.Report()
			for _, c := range rep.Controls {
				if c.Phase != engine.Idle || c.Engage >= 0 {
					t.Errorf("%s is %s, engage held for %s; want idle", c.Name, c.Phase, c.Engage)
				}
			}
			if got := rep.Devices[0].Current; got != 190 {
				t.Errorf("cpu0 holds %g after one step; want 190", got)
			}
			if got := w.samples(`wattloop_outcome{control="node_power_budget",device="cpu0"}`, 20); !strings.Contains(got, `k8s_node_name="a", reason="ramping", result="applied"`) {
				t.Errorf("the series of the outcome is %q; want the ramp of the old control", got)
			}
			w.load(25, 35, 50, 160)
			if d := w.eng.Report().Devices[0]; d.Current != 250 || d.Owner != "" {
				t.Errorf("cpu0 holds %g of %q; want 250, nobody's", d.Current, d.Owner)
			}
		})
	}
}

// Every field of a control is looked at by a reload. A new one must be added to
// the comparison and to the edits above.
func TestReloadKnowsEveryField(t *testing.T) {
	words := map[string]bool{"Name": true, "Help": true, "File": true, "Line": true}
	other := map[string]string{
		"Key":           "its expressions change with it",
		"Action":        "the language has one so far",
		"SafeWhenBlind": "TestReloadProtection",
		"Uses":          "a reading",
	}
	for f := range reflect.TypeFor[rules.Control]().Fields() {
		if f.IsExported() && !words[f.Name] && edits[f.Name] == "" && other[f.Name] == "" {
			t.Errorf("no edit changes Control.%s", f.Name)
		}
	}
	var got []string
	for f := range reflect.TypeFor[rules.Reading]().Fields() {
		if f.IsExported() {
			got = append(got, f.Name)
		}
	}
	want := []string{"Name", "Help", "Unit", "Key", "As", "Variant", "Variants", "Note", "Expr", "Query", "Rate", "Interval", "ForgetAfter", "StaleAfter", "File", "Line"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("Reading has other fields than those that were weighed (-want +got):\n%s", d)
	}
}

// A successor whose condition holds goes on from where the cap has come to.
func TestReloadStartsFromTheCapOnTheDevice(t *testing.T) {
	w := newWorld(t, enforce)
	w.load(0, 60, 200, 160)
	if err := w.eng.Reload(loadRules(t, enforce, "version: 1\nparams: {budget: {value: 380}}"), false); err != nil {
		t.Fatal(err)
	}
	w.load(65, 75, 120, 160)
	w.want("node_power_budget", "idle: 150 150")
	w.load(80, 80, 150, 160) // over the new budget since 65
	w.want("node_power_budget", "engaged 110: 110 110")
}

// A reload that would end a cap for protection is refused as a whole, unless it
// is forced.
func TestReloadProtection(t *testing.T) {
	edited := strings.Replace(breaker, "safe_cap: 80", "safe_cap: 80\n    safe_when_blind: true", 1)
	w := newWorld(t, breaker)
	w.load(0, 60, 200, 200)
	for _, dropIn := range []string{edited, "version: 1\n", strings.Replace(breaker, "mode: enforce", "mode: observe", 1)} {
		gen := w.eng.Generation()
		err := w.eng.Reload(loadRules(t, dropIn), false)
		if !errors.Is(err, engine.ErrEngaged) || !strings.Contains(err.Error(), "control breaker") {
			t.Fatalf("reload: %v; want ErrEngaged, for breaker", err)
		}
		if w.eng.Generation() != gen {
			t.Error("half a reload: the generation changed")
		}
		if got := w.metric("wattloop_config_last_reload_successful"); got != 0 {
			t.Errorf("wattloop_config_last_reload_successful = %g; want 0", got)
		}
	}
	w.load(65, 70, 200, 200)
	w.want("breaker", "engaged 100: 100 100")
	if err := w.eng.Reload(loadRules(t, breaker, enforce), false); err != nil {
		t.Errorf("a reload that leaves the control alone: %v", err)
	}
	w.load(75, 75, 200, 200)
	if err := w.eng.Reload(loadRules(t, "version: 1\n"), true); err != nil {
		t.Fatalf("a forced reload: %v", err)
	}
	if got := w.metric("wattloop_config_last_reload_successful"); got != 1 {
		t.Errorf("wattloop_config_last_reload_successful = %g; want 1", got)
	}
	w.load(80, 120, 200, 200)
	if d := w.eng.Report().Devices[0]; d.Current != 250 || d.Owner != "" {
		t.Errorf("cpu0 holds %g of %q; want 250, nobody's", d.Current, d.Owner)
	}
}

// What holds no cap refuses no reload: idle, releasing, or observing.
func TestReloadProtectionThatHoldsNothing(t *testing.T) {
	for name, prepare := range map[string]func(w *world){
		"idle":      func(w *world) { w.load(0, 60, 50, 200) },
		"releasing": func(w *world) { w.load(0, 40, 200, 200); w.load(45, 60, 50, 200) },
	} {
		w := newWorld(t, breaker)
		prepare(w)
		if err := w.eng.Reload(loadRules(t, "version: 1\n"), false); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	w := newWorld(t, strings.Replace(breaker, "mode: enforce", "mode: observe", 1))
	w.load(0, 60, 200, 200)
	if err := w.eng.Reload(loadRules(t, "version: 1\n"), false); err != nil {
		t.Errorf("observing: %v", err)
	}
}

func TestReloadRefused(t *testing.T) {
	w := newWorld(t)
	w.eng.ReloadRefused()
	if got := w.metric("wattloop_config_last_reload_successful"); got != 0 {
		t.Errorf("wattloop_config_last_reload_successful = %g; want 0", got)
	}
}

// A rule that is gone leaves no metric behind, and its series end.
func TestReloadForgets(t *testing.T) {
	other := "version: 1\nreadings: {other: {key: [k8s_node_name], expr: max by (k8s_node_name) (other_watts)}}\n"
	w := newWorld(t, other)
	w.add(`other_watts{k8s_node_name="a"}`, 0, 7)
	w.step(0)
	if got, want := w.samples("wattloop_reading", 0), `{__name__="wattloop_reading", k8s_node_name="a", reading="other"} 7`; got != want {
		t.Fatalf("got %s\nwant %s", got, want)
	}
	before := testutil.CollectAndCount(w.reg, "wattloop_eval_seconds")
	if err := w.eng.Reload(loadRules(t), false); err != nil {
		t.Fatal(err)
	}
	w.step(1)
	if after := testutil.CollectAndCount(w.reg, "wattloop_eval_seconds"); after != before-1 {
		t.Errorf("wattloop_eval_seconds has %d rules, before %d; want one less", after, before)
	}
	if got := w.samples("wattloop_reading", 1); got != "" {
		t.Errorf("the reading did not end: %s", got)
	}
}
