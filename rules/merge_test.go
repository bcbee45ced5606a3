package rules

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The file that an operator writes to tune a shipped control.
func TestDropIn(t *testing.T) {
	set := mustLoad(t, Settings{}, append(shipped(t), local(`version: 1
params:
  budget: {value: 650}
controls:
  node_power_budget: {mode: enforce, engage: {for: 20s}, slew: null, limits: {max: 300}}
readings:
  cpu_power: {help: ours}
`))...)
	c := set.Control("node_power_budget")
	if c.Mode != Enforce || c.Engage.For != 20*time.Second || c.Engage.When != "node_power > $budget" {
		t.Errorf("mode %s, engage %+v", c.Mode, c.Engage)
	}
	if c.Slew != (Slew{}) {
		t.Errorf("slew %+v; want it removed", c.Slew)
	}
	if want := (Limits{Min: 60, Max: 300}); c.Limits != want {
		t.Errorf("limits %+v; want %+v", c.Limits, want)
	}
	if c.File != "rules.d/node_power_budget.yaml" {
		t.Errorf("the control is at home in %s", c.File)
	}
	if r := set.Reading("cpu_power"); r.Help != "ours" || r.Unit != "W" || r.File != "presets/otel/preset.yaml" {
		t.Errorf("cpu_power has help %q, unit %s and is at home in %s", r.Help, r.Unit, r.File)
	}
	var budget Param
	for _, p := range set.Params {
		if p.Name == "budget" {
			budget = p
		}
	}
	want := Param{
		Name: "budget", Value: "650", Unit: "W", File: "/etc/wattloop/rules.d/60-local.yaml", Line: 3,
		Help: "power that the CPU packages and GPUs of a node may draw together",
	}
	if diff := cmp.Diff(want, budget); diff != "" {
		t.Errorf("budget (-want +got):\n%s", diff)
	}
}

// Every field keeps the file it came from, and defaults say that they are.
func TestOrigins(t *testing.T) {
	set := mustLoad(t, Settings{RateWindow: 2 * time.Minute}, append(shipped(t), local(`version: 1
interval: 10s
controls:
  node_power_budget: {mode: enforce, limits: {max: 300}}
  second:
    key: [k8s_node_name]
    engage: {when: cpu_power > 500}
    release: {when: cpu_power < 400}
    action: rapl.set_power_cap_watts
    target: {hw_type: cpu}
    value: "200"
    limits: {min: 60, max: 250}
    ttl: 30s
    purpose: efficiency
`))...)
	f := func(rule string, fields []Field, name, value, origin string) {
		t.Helper()
		for _, field := range fields {
			if field.Name == name {
				if field.Value != value || field.Origin() != origin {
					t.Errorf("%s: %s is %q from %s; want %q from %s", rule, name, field.Value, field.Origin(), value, origin)
				}
				return
			}
		}
		t.Errorf("%s: no field %s", rule, name)
	}
	const mine = "/etc/wattloop/rules.d/60-local.yaml"
	x := set.Control("node_power_budget").Explain()
	f("budget", x.Fields, "mode", "enforce", mine+":4")
	f("budget", x.Fields, "limits.max", "300", mine+":4")
	f("budget", x.Fields, "limits.min", "60", "rules.d/node_power_budget.yaml:25")
	f("budget", x.Fields, "interval", "5s", "default") // its home says nothing
	f("budget", x.Fields, "on_stop", "restore", "default")
	f("budget", x.Params, "rate_window", "30s", "rules.d/node_power_budget.yaml:19")
	f("second", set.Control("second").Explain().Fields, "interval", "10s", mine+":2")
	f("second", set.Control("second").Explain().Params, "rate_window", "2m", "settings")
	f("node_power", set.Reading("node_power").Explain().Fields, "rate", "covered", "default")
}

// What a later file may do besides changing: replace a rule whole, and remove it.
func TestReplaceAndRemove(t *testing.T) {
	set := mustLoad(t, Settings{}, append(shipped(t), local(`version: 1
rate: prometheus
interval: 30s
readings:
  cpu_power: {replace: true, key: [node], expr: sum by (node) (watts)}
  node_power_host: null
controls:
  node_power_budget: null
`))...)
	r := set.Reading("cpu_power")
	if r.Help != "" || r.Unit != "" || r.Interval != 30*time.Second || r.Rate != RatePrometheus || r.Line != 5 {
		t.Errorf("cpu_power is %+v; want nothing of the one before", r)
	}
	if set.Reading("node_power_host") != nil || set.Control("node_power_budget") != nil {
		t.Error("what null removes is still there")
	}
	if got := set.Reading("node_power").Rate; got != RateCovered {
		t.Errorf("node_power is read as %s: a file's rate holds for what it defines", got)
	}
}

// What no key says, and what a protection carries.
func TestDefaultsAndProtection(t *testing.T) {
	set := mustLoad(t, Settings{}, Source{"a.yaml", []byte(`version: 1
readings:
  p: {key: [n], expr: sum by (n) (watts)}
controls:
  cap:
    key: [n]
    engage: {when: p > 100}
    release: {when: p < 90}
    action: rapl.set_power_cap_watts
    target: {hw_type: cpu}
    value: 80
    limits: {min: 60, max: 250}
    ttl: 30s
    purpose: efficiency
  breaker:
    help: h
    key: [n]
    interval: 2s
    stale_after: 45s
    engage: {when: p > 100, for: 0s}
    release: {when: p < 90, for: 5m}
    action: rapl.set_power_cap_watts
    target: {hw_type: cpu, hw_id: 0}
    value: p
    limits: {min: 60, max: 250}
    ttl: 6s
    purpose: protection
    safe_cap: 70.5
    safe_when_blind: true
    observe_after: false
    on_stop: hold
    mode: enforce
`)})
	r, c, b := set.Reading("p"), set.Control("cap"), set.Control("breaker")
	if r.Interval != 5*time.Second || r.ForgetAfter != time.Hour || r.StaleAfter != 0 || r.Rate != RateCovered {
		t.Errorf("p has interval %s, forget_after %s, stale_after %s, rate %s", r.Interval, r.ForgetAfter, r.StaleAfter, r.Rate)
	}
	if c.Mode != Observe || c.Engage.For != 15*time.Second || c.Release.For != time.Minute || c.Interval != 5*time.Second ||
		!c.ObserveAfter || c.SafeWhenBlind || c.OnStop != "" || c.StaleAfter != 0 || c.SafeCap != 0 || c.Value != "80" {
		t.Errorf("cap is %+v", c)
	}
	if b.Mode != Enforce || b.Engage.For != 0 || b.Release.For != 5*time.Minute || b.Interval != 2*time.Second ||
		b.ObserveAfter || !b.SafeWhenBlind || b.OnStop != "hold" || b.StaleAfter != 45*time.Second || b.SafeCap != 70.5 ||
		b.Purpose != Protection || b.TTL != 6*time.Second {
		t.Errorf("breaker is %+v", b)
	}
	if diff := cmp.Diff(map[string]string{"hw_type": "cpu", "hw_id": "0"}, b.Target); diff != "" {
		t.Errorf("target (-want +got):\n%s", diff)
	}
}
