package rules

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

const cpuPower = `sum by (k8s_node_name) (max by (k8s_node_name, hw_type, hw_id) (rate(hw_energy_joules_total{hw_type="cpu"}[5m])) or on (k8s_node_name, hw_type, hw_id) max by (k8s_node_name, hw_type, hw_id) (hw_power_watts{hw_type="cpu"}))`

const cpuPackages = `count by (k8s_node_name) (count by (k8s_node_name, hw_id) (hw_energy_joules_total{hw_type="cpu"} or hw_power_watts{hw_type="cpu"}))`

// controlOf makes a control of expressions that name no readings, and the
// readings that they stand for.
func controlOf(t testing.TB, engage, release, value string, uses ...*Reading) *Control {
	t.Helper()
	key := "k8s_node_name"
	return &Control{
		Name: "c", Key: []string{key}, Uses: uses,
		engage:  mustPlan(t, RateCovered, engage, key),
		release: mustPlan(t, RateCovered, release, key),
		value:   mustPlan(t, RateCovered, value, key),
	}
}

// budget is the shipped control with its readings put in: cap the CPU packages
// so that the node stays under so many watts.
func budget(t testing.TB, watts float64) *Control {
	power, cpu, n := bracket(nodePower), bracket(cpuPower), bracket(cpuPackages)
	use := func(name, expr string) *Reading {
		r := reading(t, RateCovered, expr, "k8s_node_name")
		r.Name = name
		return r
	}
	return controlOf(t,
		fmt.Sprintf("%s > %g", power, watts),
		fmt.Sprintf("%s < %g - 25", power, watts),
		fmt.Sprintf("(%g - (%s - %s)) / %s", watts, power, cpu, n),
		use("node_power", nodePower), use("cpu_power", cpuPower), use("cpu_packages", cpuPackages))
}

func (w *world) control(c *Control, seconds float64) string {
	w.t.Helper()
	got, err := w.eval.Control(bg, c, at(seconds))
	if err != nil {
		return "error: " + err.Error()
	}
	lines := make([]string, len(got))
	for i, k := range got {
		lines[i] = k.Key.String()
		if k.Engage {
			lines[i] += " engage"
		}
		if k.Release {
			lines[i] += " release"
		}
		if k.ValueValid {
			lines[i] += fmt.Sprintf(" %.2f", k.Value)
		}
		lines[i] += " " + string(k.Quality)
		if k.Partial {
			lines[i] += " partial"
		}
		if k.Err != "" {
			lines[i] += " error"
		}
	}
	return strings.Join(lines, "\n")
}

func (w *world) wantControl(c *Control, seconds float64, want string) {
	w.t.Helper()
	if got := w.control(c, seconds); got != want {
		w.t.Errorf("at %g s:\ngot  %s\nwant %s", seconds, got, want)
		ks, _ := w.eval.Control(bg, c, at(seconds))
		for _, k := range ks {
			w.t.Logf("%s: why %q, err %q", k.Key, k.Why, k.Err)
		}
	}
}

func TestControl(t *testing.T) {
	w, _ := nodeWorld(t, 600, 600, 600)
	w.wantControl(budget(t, 400), 600, `{k8s_node_name="a"} engage 75.00 fresh`)
	w.wantControl(budget(t, 440), 600, `{k8s_node_name="a"} 95.00 fresh`) // neither: in the margin
	w.wantControl(budget(t, 500), 600, `{k8s_node_name="a"} release 125.00 fresh`)
	ks, err := w.eval.Control(bg, budget(t, 400), at(612))
	if err != nil || len(ks) != 1 {
		t.Fatal(ks, err)
	}
	if k := ks[0]; k.Age != 12*time.Second || k.Newest != at(600) {
		t.Errorf("age %s, newest %d; want 12s, %d", k.Age, k.Newest, at(600))
	}
}

// The worst quality of the used readings is the control's; the mark too.
func TestControlTakesTheWorstOfItsReadings(t *testing.T) {
	w, _ := nodeWorld(t, 600, 560, 2000)
	c := budget(t, 400)
	w.wantControl(c, 600, `{k8s_node_name="a"} engage 75.00 stale`)
	w.wantControl(c, 2000, `{k8s_node_name="a"} release missing partial`) // 250 W is all that is left
	ks, _ := w.eval.Control(bg, c, at(2000))
	if want := "cpu_power: "; !strings.HasPrefix(ks[0].Why, want) {
		t.Errorf("why = %q; want it to begin with %q", ks[0].Why, want)
	}
}

func TestControlPartial(t *testing.T) {
	w, _ := nodeWorld(t, 2000, 600, 2000)
	w.wantControl(budget(t, 300), 2000, `{k8s_node_name="a"} engage 50.00 fresh partial`)
}

func TestControlWarming(t *testing.T) {
	w := newWorld(t)
	w.add(cpu0, 0, 0)
	w.wantControl(budget(t, 300), 0, `{k8s_node_name="a"} warming`)
}

// StaleAfter of the control is that of its readings, for this control.
func TestControlStaleAfter(t *testing.T) {
	w, r := nodeWorld(t, 600, 600, 600)
	c := budget(t, 400)
	c.StaleAfter = 10 * time.Second
	w.wantControl(c, 611, `{k8s_node_name="a"} engage 75.00 stale`)
	w.want(r, 611, `{k8s_node_name="a"} 430.00 fresh`)
}

// A control on a dead node never goes in silence, restart or not.
func TestControlMissing(t *testing.T) {
	w, _ := nodeWorld(t, 600, 600, 600)
	c := budget(t, 400)
	w.wantControl(c, 1000, `{k8s_node_name="a"} missing partial`)
	w.wantControl(c, 4000, `{k8s_node_name="a"} missing partial`)
}

// A value that is NaN or Inf is none, and neither condition holds.
func TestControlValueNotFinite(t *testing.T) {
	w, r := nodeWorld(t, 600, 600, 600)
	c := controlOf(t, nodePower+" > 1", nodePower+" < 1", nodePower+" / 0", r)
	w.wantControl(c, 600, `{k8s_node_name="a"} fresh error`)
	w.wantControl(c, 601, `{k8s_node_name="a"} fresh error`)
	w.wantControl(c, 602, `{k8s_node_name="a"} stale error`)
}

func TestControlKeyTwice(t *testing.T) {
	w, r := nodeWorld(t, 600, 600, 600)
	c := controlOf(t, nodePower+" > 1", nodePower+" < 1", `hw_energy_joules_total`, r)
	w.wantControl(c, 600, `{k8s_node_name="a"} fresh error`)
}

func TestControlQueryError(t *testing.T) {
	w, _ := nodeWorld(t, 600, 600, 600)
	c := budget(t, 400)
	w.fail = errors.New("disk on fire")
	w.wantControl(c, 595, `error: disk on fire`)
	w.fail = nil
	w.wantControl(c, 600, `{k8s_node_name="a"} engage 75.00 fresh`)
	w.fail = errors.New("disk on fire")
	w.wantControl(c, 605, `{k8s_node_name="a"} fresh error`)
	w.wantControl(c, 606, `{k8s_node_name="a"} fresh error`)
	w.wantControl(c, 607, `{k8s_node_name="a"} stale error`)
	w.fail = nil
	w.wantControl(c, 608, `{k8s_node_name="a"} engage 75.00 fresh`)
}

// A number holds for every key; a condition that is a number holds unless it is 0.
func TestControlScalars(t *testing.T) {
	w, r := nodeWorld(t, 600, 600, 600)
	w.wantControl(controlOf(t, nodePower+" > 1", "0", "180", r), 600, `{k8s_node_name="a"} engage 180.00 fresh`)
	w.wantControl(controlOf(t, "1", nodePower+" < 1", "180", r), 600, `{k8s_node_name="a"} engage 180.00 fresh`)
}

// What a control selects itself, not by a reading, is judged like a reading's.
func TestControlJudgesItsOwnSelectors(t *testing.T) {
	w, r := nodeWorld(t, 600, 600, 560)
	raw := controlOf(t, `hw_power_watts > 100`, `hw_power_watts < 50`, "180")
	w.wantControl(raw, 560, `{k8s_node_name="a"} engage 180.00 fresh`)
	w.wantControl(raw, 600, `{k8s_node_name="a"} engage 180.00 stale`)
	w.wantControl(raw, 900, `{k8s_node_name="a"} 180.00 missing partial`)

	// Inputs of a condition that does not hold are judged all the same.
	w2, _ := nodeWorld(t, 600, 600, 560)
	both := controlOf(t, `(hw_power_watts > 1000) and (hw_energy_joules_total{hw_id="cpu0"} > 0)`, `hw_power_watts < 50`, "180")
	w2.wantControl(both, 560, `{k8s_node_name="a"} 180.00 fresh`)
	w2.wantControl(both, 600, `{k8s_node_name="a"} 180.00 stale`)

	// Beside a used reading, only what it does not read is judged again.
	c := controlOf(t, nodePower+" > 1", nodePower+` < 1`, `max by (k8s_node_name) (limit)`, r)
	w.wantControl(c, 560, `{k8s_node_name="a"} engage missing`)
	w.add(`limit{k8s_node_name="a"}`, 570, 120)
	w.wantControl(c, 575, `{k8s_node_name="a"} engage 120.00 fresh`)
	if got := len(c.unread()); got != 1 {
		t.Errorf("%d expressions are judged on their own; want 1", got)
	}
}

// A reading of another key counts for every key that agrees with it.
func TestControlReadsReadingsOfOtherKeys(t *testing.T) {
	w, r := nodeWorld(t, 600, 600, 600)
	limit := reading(t, RateCovered, "max(limit)")
	limit.Name = "limit"
	gpu := reading(t, RateCovered, `max by (k8s_node_name, hw_id) (hw_power_watts)`, "k8s_node_name", "hw_id")
	gpu.Name = "gpu"
	c := controlOf(t, nodePower+" > on () group_left () max(limit)", nodePower+" < 1", "100", r, limit, gpu)
	w.wantControl(c, 600, `{k8s_node_name="a"} 100.00 missing`)
	w.add("limit", 600, 400)
	w.wantControl(c, 600, `{k8s_node_name="a"} engage 100.00 fresh`)
	w.end(gpu0, 605)
	w.wantControl(c, 606, `{k8s_node_name="a"} 100.00 missing`)
}

// Between two Begins what several rules read is asked for once.
func TestBeginSharesWhatIsReadAtAnInstant(t *testing.T) {
	w, r := nodeWorld(t, 600, 600, 600)
	c := controlOf(t, nodePower+" > 1", nodePower+" < 1", "180", r)
	w.read(r, 590)
	w.control(c, 590)
	count := func() int {
		w.queries = 0
		w.read(r, 600)
		w.control(c, 600)
		w.control(c, 600)
		return w.queries
	}
	if got := count(); got != 5 {
		t.Errorf("without Begin: %d queries; want 1 for the reading and 2 for each control", got)
	}
	w.eval.Begin()
	if got := count(); got != 3 {
		t.Errorf("after Begin: %d queries; want 1 for the reading and 1 for each control", got)
	}
	w.eval.Begin()
	if got := count(); got != 3 {
		t.Errorf("after the next Begin: %d queries; want 3", got)
	}
}

// A canceled evaluation proves nothing of the rule.
func TestCanceledEvaluationChangesNothing(t *testing.T) {
	w, r := nodeWorld(t, 600, 600, 600)
	c := budget(t, 400)
	w.read(r, 590)
	w.control(c, 590)
	stopped, cancel := withCancel()
	cancel()
	for range 3 {
		if ks, err := w.eval.Reading(stopped, r, at(600)); err == nil || ks != nil {
			t.Errorf("Reading = %v, %v; want an error alone", ks, err)
		}
		if ks, err := w.eval.Control(stopped, c, at(600)); err == nil || ks != nil {
			t.Errorf("Control = %v, %v; want an error alone", ks, err)
		}
	}
	w.want(r, 600, `{k8s_node_name="a"} 430.00 fresh`)
}

// A reload keeps what is known of the readings that stay.
func TestKeep(t *testing.T) {
	w, r := nodeWorld(t, 600, 600, 600)
	other := reading(t, RateCovered, "sum by (k8s_node_name) (hw_power_watts)", "k8s_node_name")
	c := budget(t, 400)
	w.read(r, 600)
	w.read(other, 600)
	w.control(c, 600)
	again := reading(t, RateCovered, nodePower, "k8s_node_name")
	w.eval.Keep(&Set{Readings: []*Reading{again}})
	if len(w.eval.trackers) != 1 || len(w.eval.controls) != 0 {
		t.Errorf("%d trackers and %d controls are kept; want 1 and 0", len(w.eval.trackers), len(w.eval.controls))
	}
	w.queries = 0
	w.want(again, 601, `{k8s_node_name="a"} 430.00 fresh`)
	if w.queries != 1 {
		t.Errorf("%d queries after Keep; want 1: nothing is looked up again", w.queries)
	}
}
