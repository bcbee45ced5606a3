package engine_test

import (
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"pgregory.net/rapid"

	"github.com/wattloop/wattloop/engine"
	"github.com/wattloop/wattloop/rules"
)

// selecting are readings whose selectors match in all ways there are.
const selecting = `
version: 1
readings:
  exact:     {key: [k8s_node_name], expr: 'max by (k8s_node_name) (m1{hw_type="cpu"})'}
  not_equal: {key: [k8s_node_name], expr: 'max by (k8s_node_name) (m1{hw_type!="cpu"})'}
  regex:     {key: [k8s_node_name], expr: 'max by (k8s_node_name) (m2{hw_type=~"c.+|gpu", hw_id!~"cpu[12]"})'}
  absent:    {key: [k8s_node_name], expr: 'max by (k8s_node_name) (m2{hw_id=""})'}
  any_name:  {key: [k8s_node_name], expr: 'max by (k8s_node_name) ({__name__=~"m.", hw_id="cpu1"})'}
  no_name:   {key: [k8s_node_name], expr: 'max by (k8s_node_name) ({hw_type="gpu"})'}
  not_m1:    {key: [k8s_node_name], expr: 'max by (k8s_node_name) ({__name__!="m1", hw_type="cpu"})'}
  twice:     {key: [k8s_node_name], expr: 'max by (k8s_node_name) (m1{hw_id="cpu1"} or m1{hw_type="cpu"} or {hw_id="cpu1"} or m2)'}
  through:   {key: [k8s_node_name], expr: 'exact + regex'}
`

func drawLabels(t *rapid.T) labels.Labels {
	b := labels.NewBuilder(labels.EmptyLabels())
	b.Set("__name__", rapid.SampledFrom([]string{"m1", "m2", "m3", "hw_power_watts", "hw_energy_joules_total", "wattloop_reading"}).Draw(t, "name"))
	b.Set("hw_type", rapid.SampledFrom([]string{"", "cpu", "gpu", "memory"}).Draw(t, "hw_type"))
	b.Set("hw_id", rapid.SampledFrom([]string{"", "cpu0", "cpu1", "cpu2"}).Draw(t, "hw_id"))
	b.Set("k8s_node_name", rapid.SampledFrom([]string{"", "a"}).Draw(t, "node"))
	return b.Labels()
}

// bruteForce asks every selector of every rule, in the order of the numbers.
func bruteForce(set *rules.Set, ls labels.Labels) []int32 {
	var names []string
	for _, r := range set.Readings {
		names = append(names, r.Name)
	}
	for _, c := range set.Controls {
		names = append(names, c.Name)
	}
	var out []int32
	for i, name := range names {
		if slices.ContainsFunc(set.Selectors(name), func(ms []*labels.Matcher) bool {
			return !slices.ContainsFunc(ms, func(m *labels.Matcher) bool { return !m.Matches(ls.Get(m.Name)) })
		}) {
			out = append(out, int32(i))
		}
	}
	return out
}

// The index gives the same answer as asking every selector.
func TestTouchedEqualsBruteForce(t *testing.T) {
	w := newWorld(t, selecting)
	set := loadRules(t, selecting)
	rapid.Check(t, func(t *rapid.T) {
		ls := drawLabels(t)
		if got, want := w.eng.RulesOf(w.eng.Touched(ls)), bruteForce(set, ls); !slices.Equal(got, want) {
			t.Fatalf("Touched(%s) = %v; want %v", ls, got, want)
		}
	})
}

// A series in another spelling feeds the rules that are written in the default's,
// by labels and by target_info; target_info itself feeds none of them.
func TestTouchedUnderEveryNaming(t *testing.T) {
	w := newWorld(t)
	for naming, metric := range map[string]labels.Labels{
		"UnderscoreEscapingWithSuffixes":    labels.FromStrings("__name__", "hw_energy_joules_total", "hw_type", "cpu"),
		"UnderscoreEscapingWithoutSuffixes": labels.FromStrings("__name__", "hw_energy", "hw_type", "cpu"),
		"NoUTF8EscapingWithSuffixes":        labels.FromStrings("__name__", "hw.energy_joules_total", "hw.type", "cpu"),
		"NoTranslation":                     labels.FromStrings("__name__", "hw.energy", "hw.type", "cpu"),
	} {
		for _, attributes := range []string{rules.AttributesLabels, rules.AttributesTargetInfo, rules.AttributesAuto} {
			set := loadRulesAs(t, rules.Settings{Naming: naming, Attributes: attributes})
			eng := engine.New(engine.Options{Rules: set, Governor: w.gov})
			var got []string
			for _, i := range eng.Touched(metric) {
				if int(i) < len(set.Readings) {
					got = append(got, set.Readings[i].Name)
				} else {
					got = append(got, set.Controls[int(i)-len(set.Readings)].Name)
				}
			}
			if want := []string{"cpu_packages", "cpu_power", "node_power", "node_power_budget"}; !slices.Equal(got, want) {
				t.Errorf("%s, %s: %s touches %v; want %v", naming, attributes, metric, got, want)
			}
			if got := eng.Touched(labels.FromStrings("__name__", "target_info", "job", "j")); len(got) > 0 {
				t.Errorf("%s, %s: target_info touches %v", naming, attributes, got)
			}
		}
	}
}

// Numbers of an earlier generation are known as such: they have every rule
// evaluated, never the wrong one alone.
func TestNumbersOfAnEarlierGeneration(t *testing.T) {
	w := newWorld(t, selecting)
	cpu := metric(t, power("cpu0"))
	old, gen := w.eng.Touched(cpu), w.eng.Generation()
	w.node(0, 100, 100)
	w.step(0)
	if err := w.eng.Reload(loadRules(t), false); err != nil {
		t.Fatal(err)
	}
	if w.eng.Generation() <= gen {
		t.Errorf("generation %d after %d", w.eng.Generation(), gen)
	}
	now := w.eng.Touched(cpu)
	for _, n := range now {
		if slices.Contains(old, n) {
			t.Errorf("number %d is of both generations: %v, then %v", n, old, now)
		}
	}
	w.step(1) // every rule of the new set, whose timers rest until 6
	w.node(2, 150, 100)
	w.step(2)
	w.node(3, 200, 100)
	w.eng.Grew(old, at(3))
	rep := w.step(3)
	for _, r := range rep.Readings {
		if r.TS != at(3) {
			t.Errorf("%s was evaluated at %g; want 3", r.Name, after(r.TS))
		}
	}
}

// A sample has those rules evaluated that select it, and no others before their
// own timer.
func TestOnlyWhatGrewIsEvaluated(t *testing.T) {
	w := newWorld(t, selecting)
	w.node(0, 100, 100)
	w.add(`m1{hw_type="cpu",k8s_node_name="a"}`, 0, 1)
	w.step(0)
	w.add(`m1{hw_type="cpu",k8s_node_name="a"}`, 2, 2)
	rep := w.step(2)
	got := map[string]float64{}
	for _, r := range rep.Readings {
		if r.Key.Get("k8s_node_name") == "a" {
			got[r.Name] = after(r.TS)
		}
	}
	for name, want := range map[string]float64{"node_power": 0, "exact": 2, "twice": 2} {
		if got[name] != want {
			t.Errorf("%s was evaluated at %g; want %g", name, got[name], want)
		}
	}
	w.step(5)
	for _, r := range w.eng.Report().Readings {
		if r.Name == "node_power" && r.TS != at(5) {
			t.Errorf("node_power was evaluated at %g; want 5, by its timer", after(r.TS))
		}
	}
}

// Grew without a rule is nothing.
func TestGrewOfNothing(t *testing.T) {
	w := newWorld(t)
	w.step(0)
	w.eng.Grew(nil, at(1))
	if rep := w.step(1); rep.TS != at(1) || !rep.Readings[0].Keyless {
		t.Errorf("%+v", rep)
	}
}
