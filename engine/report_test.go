package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wattloop/wattloop/actuate"
	"github.com/wattloop/wattloop/engine"
	"github.com/wattloop/wattloop/rules"
)

// There is a report before the first step: the rules and the devices.
func TestReportBeforeTheFirstStep(t *testing.T) {
	rep := newWorld(t).eng.Report()
	var names []string
	for _, r := range rep.Rules {
		names = append(names, r.Kind+" "+r.Name)
	}
	want := []string{"reading cpu_packages", "reading cpu_power", "reading node_power", "reading node_power_host",
		"reading twin_spec_cpu_cap_watts", "reading twin_spec_gpu_cap_watts", "control node_power_budget", "control twin_spec_cpu_cap"}
	if rep.TS != 0 || rep.Steps != 0 || !slices.Equal(names, want) || len(rep.Devices) != 2 {
		t.Errorf("%d steps, %v, %d devices; want none, %v, 2", rep.Steps, names, len(rep.Devices), want)
	}
}

// A report never changes, whatever later steps do.
func TestReportIsImmutable(t *testing.T) {
	w := newWorld(t, enforce, breaker)
	var reps []*engine.Report
	var prints []string
	note := func() {
		rep := w.eng.Report()
		reps, prints = append(reps, rep), append(prints, printReport(rep))
	}
	for _, power := range []float64{100, 200, 200, 200, 200, 200, 200, 50, 50, 50, 50} {
		s := 5 * float64(len(reps))
		w.load(s, s, power, 200)
		note()
	}
	w.steps(60, 120)
	if err := w.eng.Reload(loadRules(t), true); err != nil {
		t.Fatal(err)
	}
	w.load(125, 150, 50, 50)
	for i, rep := range reps {
		if got := printReport(rep); got != prints[i] {
			t.Errorf("report %d was\n%s\nand is\n%s", i, prints[i], got)
		}
	}
}

func printReport(rep *engine.Report) string {
	b, err := json.Marshal(rep)
	if err != nil {
		return err.Error()
	}
	for _, r := range rep.Readings {
		b = fmt.Append(b, *r)
	}
	return string(b)
}

// What a rule's evaluation fails with stands with the rule, and what it had
// read before is gone: an old value is no answer (X4).
func TestReportAfterAFailure(t *testing.T) {
	w := newWorld(t)
	w.fail = errors.New("the disk is on fire")
	rep, err := w.eng.Step(context.Background(), at(0))
	if !errors.Is(err, w.fail) {
		t.Errorf("Step: %v; want the failure", err)
	}
	for _, r := range rep.Rules {
		if !strings.Contains(r.Err, "the disk is on fire") || !strings.Contains(r.Err, r.Name) {
			t.Errorf("%s: err %q", r.Name, r.Err)
		}
	}
	for _, r := range rep.Readings {
		if !r.Keyless || r.Quality != rules.Missing || !strings.Contains(r.Err, "the disk is on fire") {
			t.Errorf("%+v; want it missing, with the error", r)
		}
	}
	if c := control(t, rep, "node_power_budget"); len(rep.Controls) != 2 || !c.Keyless || !strings.Contains(c.Err, "the disk is on fire") {
		t.Errorf("controls %+v; want each without a key, with the error", rep.Controls)
	}
	w.fail = nil
	w.load(5, 5, 100, 100)
	for _, r := range w.eng.Report().Rules {
		if r.Err != "" {
			t.Errorf("%s: err %q after all is well", r.Name, r.Err)
		}
	}
}

// A report says how long the conditions have held, and -1 while they do not.
func TestReportHeld(t *testing.T) {
	w := newWorld(t)
	w.load(0, 0, 100, 100)
	w.load(5, 15, 200, 160)
	c := control(t, w.eng.Report(), "node_power_budget")
	if c.Engage != 10*time.Second || c.Release != -1 {
		t.Errorf("engage held for %s, release for %s; want 10s, -1ns", c.Engage, c.Release)
	}
}

// C10 through the door: edge-a has a NaN, so no value and no cap; edge-b has
// 250.5 W, and a rule that acts on what is at or under a budget does so for it
// alone.
func TestC10(t *testing.T) {
	body, err := os.ReadFile("../testdata/cases/C10-otlp-json-nan-infinity/req1.json")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, strings.Join([]string{"version: 1\ncontrols:",
		condition("over", "> 200", "< 100"), condition("under", "<= 400", "> 500")}, ""))
	if _, err := w.receiver().ExportJSON(context.Background(), body); err != nil {
		t.Fatal(err)
	}
	rep := w.step(60)
	for _, r := range rep.Readings {
		node := r.Key.Get("k8s_node_name")
		if r.Name != "node_power" {
			continue
		}
		switch {
		case node == "edge-a" && (r.Valid || !strings.Contains(r.Err, "NaN")):
			t.Errorf("edge-a is %+v; want no value, and NaN named", r)
		case node == "edge-b" && (!r.Valid || r.Value != 250.5 || r.Quality != rules.Fresh):
			t.Errorf("edge-b is %+v; want 250.5 W, fresh", r)
		}
	}
	got := map[string]engine.Phase{}
	for _, c := range rep.Controls {
		got[c.Name+" "+c.Key.Get("k8s_node_name")] = c.Phase
	}
	for subject, want := range map[string]engine.Phase{
		"over edge-a": engine.Idle, "under edge-a": engine.Idle, "over edge-b": engine.Engaged, "under edge-b": engine.Engaged,
	} {
		if got[subject] != want {
			t.Errorf("%s is %q; want %s", subject, got[subject], want)
		}
	}
}

// condition is a control in mode observe that engages and releases as given.
func condition(name, engage, release string) string {
	return fmt.Sprintf(`
  %s:
    key: [k8s_node_name]
    engage: {when: node_power %s, for: 0s}
    release: {when: node_power %s, for: 0s}
    action: rapl.set_power_cap_watts
    target: {hw_type: cpu}
    value: 100
    limits: {min: 60, max: 250}
    ttl: 30s
    purpose: efficiency
`, name, engage, release)
}

// A rule that no series matches has a row that says so, and nothing of it is
// stored or printed: neither is it a zero.
func TestKeylessRows(t *testing.T) {
	w := bareWorld(t)
	w.restart(breaker)
	f := func(rep *engine.Report, why string) {
		t.Helper()
		for _, name := range []string{"cpu_packages", "cpu_power", "node_power", "node_power_host"} {
			i := slices.IndexFunc(rep.Readings, func(r *engine.ReadingReport) bool { return r.Name == name })
			if i < 0 {
				t.Errorf("%s has no row", name)
				continue
			}
			if r := rep.Readings[i]; !r.Keyless || !r.Key.IsEmpty() || r.Valid || r.Quality != rules.Missing || r.Why != why {
				t.Errorf("%s: %+v; want no key, missing, %q", name, r, why)
			}
		}
		c := control(t, rep, "breaker")
		if !c.Keyless || c.Phase != engine.Idle || c.Quality != rules.Missing || c.Why != why || c.Engage != -1 || c.Release != -1 || c.Mode == "" {
			t.Errorf("breaker: %+v; want no key, idle, missing, %q", c, why)
		}
	}
	f(w.eng.Report(), "not evaluated yet")
	rep := w.step(0)
	f(rep, "no series matches yet")
	var lines strings.Builder
	if err := (&engine.Transcript{W: &lines, Start: rep.TS}).Observe(rep); err != nil {
		t.Fatal(err)
	}
	if s := lines.String(); strings.Contains(s, "reading") || strings.Contains(s, "control") {
		t.Errorf("the transcript prints\n%s", s)
	}
	if got := w.samples(`{__name__=~"wattloop_(reading|control).*"}`, 0); got != "" {
		t.Errorf("stored:\n%s", got)
	}
	if log := w.log.String(); strings.Count(log, "no input that it can trust") != 1 || strings.Contains(log, "ERROR") {
		t.Errorf("want one warning for protection:\n%s", log)
	}

	w.load(5, 5, 100, 100)
	for _, r := range w.eng.Report().Readings {
		if r.Keyless != (r.Name == "node_power_host" || strings.HasPrefix(r.Name, "twin_spec_")) {
			t.Errorf("%+v", r)
		}
	}
	if c := control(t, w.eng.Report(), "breaker"); c.Keyless || len(w.eng.Report().Controls) != 3 {
		t.Errorf("%+v", w.eng.Report().Controls)
	}
}

// A value outside of what a device grants is said to be clamped, and to what,
// in the log and in the report, also when nothing changes any more.
func TestClampIsShown(t *testing.T) {
	w := bareWorld(t)
	var ds []actuate.Description
	for _, d := range w.link.Devices() {
		d.Description.Min = 82
		ds = append(ds, d.Description)
	}
	w.link = &tap{Dry: actuate.NewDry(ds, nil)}
	w.restart(strings.Replace(breaker, "value: 100", "value: 65", 1))
	w.load(0, 60, 200, 200)
	rep := w.eng.Report()
	c := control(t, rep, "breaker")
	if len(c.Outcomes) != 2 {
		t.Fatalf("outcomes %+v; want two", c.Outcomes)
	}
	for _, o := range c.Outcomes {
		if limit, ok := rep.ClampedTo(o); !ok || limit != 82 || o.Desired != 65 {
			t.Errorf("%s: clamped to %g, %t, of %g; want 82, of 65", o.Name, limit, ok, o.Desired)
		}
	}
	for _, d := range rep.Devices {
		if o, ok := rep.Standing(d); !ok || o.Control != "breaker" {
			t.Errorf("%s: %+v, %t stands; want the outcome of breaker", d.Name, o, ok)
		}
	}
	if !strings.Contains(w.log.String(), "desired=65 applied=82 result=applied reason=\"\" message=\"\" clamped_to=82") {
		t.Errorf("the log does not say the limit:\n%s", &w.log)
	}
	w.load(65, 200, 50, 50)
	for _, d := range w.eng.Report().Devices {
		if o, ok := w.eng.Report().Standing(d); ok {
			t.Errorf("%s: %+v stands on it after the release", d.Name, o)
		}
	}
}

// The log has a value while a control asks for one: a gap is no 0.
func TestLogHasNoValueWithoutOne(t *testing.T) {
	w := newWorld(t, breaker)
	w.load(0, 40, 200, 200)
	w.load(45, 120, 50, 50)
	w.want("breaker", "idle: 250 250")
	for _, want := range []string{"phase=engaged value=100 why", "phase=releasing why", "phase=idle why"} {
		if !strings.Contains(w.log.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, &w.log)
		}
	}
	if strings.Contains(w.log.String(), "value=0") {
		t.Errorf("the log has a value of 0:\n%s", &w.log)
	}
}

// S0-84, S0-88, S0-174: each evaluation of a reading is told once with what it has
// read, an error among it.
func TestEvaluatedIsTold(t *testing.T) {
	w := bareWorld(t)
	var told []string
	w.gov = newGovernor(w)
	w.eng = engine.New(engine.Options{
		Rules: loadRules(t, "version: 1\nreadings:\n  node_power: {replace: true, unit: W, key: [k8s_node_name], expr: hw_power_watts}\n"),
		Query: w.query, Interval: w.db.Interval, Store: w.db, Governor: w.gov, Clock: w.clock,
		Evaluated: func(reading string, ts int64, keys []rules.KeyReading, err error) {
			if reading != "node_power" {
				return
			}
			said := "no key"
			for _, k := range keys {
				said = k.Key.Get("k8s_node_name") + " " + k.Err
			}
			if err != nil {
				said = err.Error()
			}
			told = append(told, said)
		},
	})
	w.load(0, 5, 100, 100) // two packages and a GPU: one node comes back more than once
	w.failWith(errors.New("the disk is on fire"))
	w.eng.Step(context.Background(), at(100))
	if len(told) < 2 || !strings.Contains(strings.Join(told, "\n"), "comes back ") || told[0] == told[len(told)-1] {
		t.Errorf("told %q", told)
	}
	steps := len(told)
	if got := w.eng.Report().Steps; uint64(steps) != got {
		t.Errorf("told %d times in %d steps, each of which evaluates it", steps, got)
	}
}
