package rules

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"pgregory.net/rapid"
)

// onNodeChannels is an expression with the matcher channel="" on each selector,
// put in by its text.
func onNodeChannels(t *testing.T, expr string) string {
	t.Helper()
	tree, err := dialect.ParseExpr(expr)
	if err != nil {
		t.Fatal(err)
	}
	for ends := selectorEnds(tree); len(ends) > 0; ends = ends[:len(ends)-1] {
		end := ends[len(ends)-1]
		matcher := `{channel=""}`
		if expr[end-1] == '}' {
			end, matcher = end-1, `,channel=""`
		}
		expr = expr[:end] + matcher + expr[end:]
	}
	tree, err = dialect.ParseExpr(expr)
	if err != nil {
		t.Fatal(err)
	}
	return tree.String() // in the printer's order of matchers
}

// selectorEnds are the positions behind the selectors, the first first.
func selectorEnds(tree parser.Expr) []int {
	var ends []int
	text := tree.String()
	parser.Inspect(tree, func(n parser.Node, path []parser.Node) error {
		vs, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		bare := selectorText(vs)
		from := 0
		if len(ends) > 0 {
			from = ends[len(ends)-1]
		}
		ends = append(ends, from+strings.Index(text[from:], bare)+len(bare))
		return nil
	})
	return ends
}

const trusting = `version: 1
readings:
  load: {key: [n], expr: sum by (n) (watts)}
controls:
  cap:
    key: [n]
    engage: {when: load > 100}
    release: {when: load < 50}
    action: rapl.set_power_cap_watts
    target: {hw_type: cpu}
    value: 200 - max by (n) (own)
    limits: {min: 60, max: 250}
    ttl: 30s
    purpose: efficiency
`

// A control reads the channels that it trusts, through its readings too, while
// the readings themselves go on reading node channels alone.
func TestTrustedChannels(t *testing.T) {
	f := func(list, matcher string) {
		t.Helper()
		set := mustLoad(t, Settings{}, local(strings.Replace(trusting, "    key: [n]\n", "    key: [n]\n"+list, 1)))
		c := set.Control("cap")
		want := []string{
			"(sum by (n) (watts{" + matcher + "})) > 100", "(sum by (n) (watts{" + matcher + "})) < 50", "200 - max by (n) (own{" + matcher + "})",
		}
		for i, q := range c.Explain().Queries {
			if q.Expr != want[i] {
				t.Errorf("%s: %s runs %s; want %s", list, q.Name, q.Expr, want[i])
			}
		}
		if got, want := c.Uses[0].Query, "sum by (n) (watts{"+matcher+"})"; got != want {
			t.Errorf("%s: the reading as the control uses it runs %s; want %s", list, got, want)
		}
		if got := set.Reading("load").Query; got != `sum by (n) (watts{channel=""})` {
			t.Errorf("%s: the reading itself runs %s", list, got)
		}
		for _, ms := range set.Selectors("cap") {
			if last := ms[len(ms)-1].String(); last != matcher {
				t.Errorf("%s: a selector of the control ends in %s", list, last)
			}
		}
	}
	f("", `channel=""`)
	f("    trusted_channels: []\n", `channel=""`)
	f("    trusted_channels: [ch7]\n", `channel=~"|ch7"`)
	f("    trusted_channels: [b.x, a-1]\n", `channel=~"|a-1|b\\.x"`) // a dot is a dot
}

// Property (reliability.md, rule of thumb): whatever series workload channels
// have in the store, under whatever names and labels, every shipped reading and
// every expression of the shipped control answers as it does without them.
func TestWorkloadMovesNothing(t *testing.T) {
	set := mustLoad(t, Settings{}, shipped(t)...)
	queries := map[string]string{}
	for _, r := range set.Readings {
		queries[r.Name] = r.Query
	}
	for _, q := range set.Control("node_power_budget").Explain().Queries {
		queries["node_power_budget "+q.Name] = q.Expr
	}
	cases, floor := 0, 10_000
	if testing.Short() {
		floor = 1000
	}
	for last := -1; cases < floor && cases > last && !t.Failed(); {
		last = cases
		cases += moveNothing(t, queries)
	}
	t.Logf("%d series of workload channels", cases)
	if cases < floor {
		t.Errorf("%d cases; want %d", cases, floor)
	}
}

// moveNothing fills one store with honest series, then with those of workloads,
// and counts these.
func moveNothing(t *testing.T, queries map[string]string) (cases int) {
	db := openStore(t)
	r := recorded{t, db}
	r.energy(100, "a", "cpu", "cpu0", "host")
	r.power(80, "a", "cpu", "cpu1", "host")
	r.power(250, "a", "gpu", "gpu0", "host")
	r.energy(40, "b", "cpu", "cpu0", "host")
	r.series("hw_host_energy_joules_total", true, 500, "k8s_node_name", "a")
	r.series("hw_host_power_watts", false, 60, "k8s_node_name", "b")
	answer := func() map[string]string {
		all := map[string]string{}
		for name, q := range queries {
			samples, err := db.Instant(t.Context(), q, recordedFrom+600_000)
			if err != nil {
				t.Fatalf("%s: %v", q, err)
			}
			all[name] = fmt.Sprint(samples)
		}
		return all
	}
	before := answer()
	if before["node_power"] == "[]" || before["node_power_host"] == "[]" || before["node_power_budget engage"] == "[]" {
		t.Fatalf("nothing answers without workloads: %v", before)
	}
	names := []string{
		"hw_energy_joules_total", "hw_power_watts", "hw_host_energy_joules_total", "hw_host_power_watts", "wattloop_reading", "up",
	}
	rapid.Check(t, func(rt *rapid.T) {
		app := db.Appender(t.Context())
		for range rapid.IntRange(1, 40).Draw(rt, "series") {
			cases++
			metric := labels.FromStrings(
				"__name__", rapid.SampledFrom(names).Draw(rt, "name"),
				"channel", rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._-]{0,5}`).Draw(rt, "channel"),
				"k8s_node_name", rapid.SampledFrom([]string{"a", "b", "", "evil"}).Draw(rt, "node"),
				"hw_type", rapid.SampledFrom([]string{"cpu", "gpu", "", "cpu|gpu"}).Draw(rt, "type"),
				"hw_id", rapid.SampledFrom([]string{"cpu0", "cpu1", "gpu0", "", "x"}).Draw(rt, "id"),
			)
			value, slope := rapid.Float64().Draw(rt, "value"), rapid.Float64Range(0, 1e9).Draw(rt, "slope")
			for _, s := range []int64{400, 590, 600} {
				if _, err := app.Append(0, metric, recordedFrom+s*1000, value+slope*float64(s)); err != nil {
					break // this series has a sample there already
				}
			}
		}
		if err := app.Commit(); err != nil {
			rt.Fatal(err)
		}
		after := answer()
		for name := range before {
			if before[name] != after[name] {
				rt.Fatalf("%s answers %s, without workloads %s", name, after[name], before[name])
			}
		}
	})
	return cases
}

// A control that trusts a channel is moved by it, and by no other: the property
// above does not hold of itself.
func TestTrustReachesTheStore(t *testing.T) {
	w := newWorld(t)
	set := mustLoad(t, Settings{}, local(strings.Replace(trusting, "    key: [n]\n", "    key: [n]\n    trusted_channels: [ch7]\n", 1)))
	for _, channel := range []string{"", "ch7", "ch8", "ch77", "xch7"} {
		app := w.db.Appender(t.Context())
		if _, err := app.Append(0, labels.FromStrings("__name__", "watts", "n", "a", "channel", channel), at(10), 60); err != nil {
			t.Fatal(err)
		}
		if err := app.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]float64{
		set.Reading("load").Query: 60, set.Control("cap").Uses[0].Query: 120,
	} {
		samples, err := w.db.Instant(t.Context(), name, at(10)+time.Second.Milliseconds())
		if err != nil || len(samples) != 1 || samples[0].V != want {
			t.Errorf("%s answers %v, %v; want %g", name, samples, err, want)
		}
	}
}
