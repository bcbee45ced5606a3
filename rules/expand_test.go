package rules

import (
	"fmt"
	"strings"
	"testing"
)

// How readings and parameters go into an expression; the readings that the
// cases use stand in expandBase.
const expandBase = `version: 1
params:
  w: {value: 5m, help: h}
  n: {value: 3, help: h}
  minus: {value: -3, help: h}
readings:
  sum: {key: [n], expr: sum by (n) (watts)}
  bare: {key: [n], expr: 'metric{a="b"}'}
  scaled: {key: [n], expr: counter_ns / 1e9}
  twice: {key: [n], expr: 2 * scaled}
  negative: {key: [n], expr: metric * -1}
  alias: {key: [n], expr: bare}
  late: {key: [n], expr: metric offset 1m}
  slow: {key: [n], interval: 1m, expr: "max by (n) (rate(joules[$w]))"}
  as_it_stands: {key: [n], rate: prometheus, expr: "max by (n) (rate(joules[$w]))"}
`

func TestExpand(t *testing.T) {
	f := func(expr, want string) {
		t.Helper()
		set, messages := Load([]Source{
			{"base.yaml", []byte(expandBase)},
			{"case.yaml", fmt.Appendf(nil, "version: 1\nrate: prometheus\nreadings:\n  it:\n    key: [n]\n    expr: |\n      %s\n", expr)},
		}, Settings{Rate: RatePrometheus})
		if set == nil {
			t.Errorf("%s:\n%s", expr, printed(messages))
			return
		}
		r := set.Reading("it")
		if got := r.Explain().Queries[0].Words; got != want {
			t.Errorf("%s is read as\n  %s, want\n  %s", expr, got, want)
		}
		if got := onNodeChannels(t, want); r.Query != got {
			t.Errorf("%s runs\n  %s, want\n  %s", expr, r.Query, got)
		}
	}
	// By name, in brackets.
	f(`sum > 400`, `(sum by (n) (watts)) > 400`)
	f(`sum - 2 * sum`, `(sum by (n) (watts)) - 2 * (sum by (n) (watts))`)
	f(`max by (n) (bare)`, `max by (n) (metric{a="b"})`)
	f(`max by (n) (scaled)`, `max by (n) ((counter_ns / 1000000000))`)
	f(`max by (n) (alias)`, `max by (n) (metric{a="b"})`)
	f(`max by (n) (label_replace(sum, "sum", "sum", "", ""))`, `max by (n) (label_replace((sum by (n) (watts)), "sum", "sum", "", ""))`)
	f(`sum by (n) (watts)`, `sum by (n) (watts)`) // the aggregation, not the reading

	// A range over an expression is a subquery at its own interval.
	f(`max by (n) (max_over_time(sum[5m]))`, `max by (n) (max_over_time((sum by (n) (watts))[5m:5s]))`)
	f(`max by (n) (max_over_time(slow[$w]))`, `max by (n) (max_over_time((max by (n) (rate(joules[5m])))[5m:1m]))`)
	f(`max by (n) (max_over_time(sum[5m:30s] offset 1h))`, `max by (n) (max_over_time((sum by (n) (watts))[5m:30s] offset 1h))`)
	f(`max by (n) (max_over_time(sum[5m] offset 1h))`, `max by (n) (max_over_time((sum by (n) (watts))[5m:5s] offset 1h))`)

	// A range over a selector stays one; a constant goes around the call.
	f(`max by (n) (max_over_time(bare[5m]))`, `max by (n) (max_over_time(metric{a="b"}[5m]))`)
	f(`max by (n) (increase(scaled[2m]))`, `max by (n) ((increase(counter_ns[2m]) / 1000000000))`)
	f(`max by (n) (rate(twice[2m]))`, `max by (n) ((2 * (rate(counter_ns[2m]) / 1000000000)))`)
	f(`max by (n) (quantile_over_time(0.9, scaled[2m]))`, `max by (n) ((quantile_over_time(0.9, counter_ns[2m]) / 1000000000))`)
	f(`max by (n) (count_over_time(scaled[2m]))`, `max by (n) (count_over_time(counter_ns[2m]))`)
	f(`max by (n) (stdvar_over_time(scaled[2m]))`, `max by (n) (stdvar_over_time((counter_ns / 1000000000)[2m:5s]))`)
	f(`max by (n) (avg_over_time(negative[2m]))`, `max by (n) ((avg_over_time(metric[2m]) * -1))`)
	f(`max by (n) (max_over_time(negative[2m]))`, `max by (n) (max_over_time((metric * -1)[2m:5s]))`)

	// Matchers and modifiers on a bare reading go to its selector.
	f(`max by (n) (bare{c="d"} offset 5m)`, `max by (n) (metric{a="b",c="d"} offset 5m)`)
	f(`max by (n) (late offset 5m)`, `max by (n) (metric offset 6m)`)
	f(`max by (n) (rate(late[5m] @ 100))`, `max by (n) (rate(metric[5m] @ 100.000 offset 1m))`)
	f(`max by (n) (scaled{c="d"} @ end())`, `max by (n) ((counter_ns{c="d"} @ end() / 1000000000))`)
	// An offset on an expression moves all that it reads, once.
	f(`sum offset 5m`, `(sum by (n) (watts offset 5m))`)
	f(`slow offset -1m`, `(max by (n) (rate(joules[5m] offset -1m)))`)

	// Parameters, outside strings and comments alone.
	f(`max by (n) (rate(joules[$w]) > $n)`, `max by (n) (rate(joules[5m]) > 3)`)
	f(`max by (n) (watts offset $w - $minus)`, `max by (n) (watts offset 5m - (-3))`)
	f(`max by (n) (watts{a="$n",b='$1$',c=~"x$"} * $n) # $n`, `max by (n) (watts{a="$n",b="$1$",c=~"x$"} * 3)`)
	f("max by (n) (watts{a=`$n\\`} * $n)", `max by (n) (watts{a="$n\\"} * 3)`)
	f(`max by (n) (watts{a="\"$n"} * $n)`, `max by (n) (watts{a="\"$n"} * 3)`)
}

// Parts that read rate( differently each run as they mean it.
func TestExpandMixedRates(t *testing.T) {
	set := mustLoad(t, Settings{}, Source{"base.yaml", []byte(expandBase)},
		local("version: 1\nreadings:\n  it: {key: [n], expr: \"slow + as_it_stands + max by (n) (increase(joules[$n1]))\"}\nparams: {n1: {value: 1h, help: h}}\n"))
	want := onNodeChannels(t, `(max by (n) (covered_rate(joules[5m]))) + (max by (n) (rate(joules[5m]))) + max by (n) (covered_increase(joules[1h]))`)
	if got := set.Reading("it").Query; got != want {
		t.Errorf("runs\n  %s, want\n  %s", got, want)
	}
}

const control = `
    engage: {when: p > $high}
    release: {when: p < $low}
    action: rapl.set_power_cap_watts
    target: {hw_type: cpu}
    value: p / q
    limits: {min: 60, max: 250}
    ttl: $lease
    purpose: efficiency
`

// A control's own parameters hold in its expressions, in its fields, and in
// instances of its own of the readings that read them.
func TestWith(t *testing.T) {
	set := mustLoad(t, Settings{Rate: RatePrometheus}, Source{"a.yaml", []byte(`version: 1
params:
  w: {value: 5m, help: h}
  high: {value: 400, help: h}
  low: {value: 300, help: h}
  lease: {value: 30s, help: h}
readings:
  p: {key: [n], expr: sum by (n) (inner)}
  inner: {key: [n], expr: "max by (n) (rate(joules[$w]))"}
  q: {key: [n], expr: count by (n) (joules)}
controls:
  plain:
    key: [n]` + control + `
  own:
    key: [n]
    with: {w: 1m, high: 500, lease: 45s}` + control)})
	plain, own := set.Control("plain"), set.Control("own")
	if plain.TTL.Seconds() != 30 || own.TTL.Seconds() != 45 {
		t.Errorf("ttl %s and %s; want 30s and 45s", plain.TTL, own.TTL)
	}
	if got := own.Explain().Queries[0].Expr; got != `(sum by (n) ((max by (n) (rate(joules{channel=""}[1m]))))) > 500` {
		t.Errorf("own engages on %s", got)
	}
	if len(plain.Uses) != 2 || plain.Uses[0] != set.Reading("p") || plain.Uses[1] != set.Reading("q") {
		t.Errorf("plain uses %v; want the readings of the set", plain.Uses)
	}
	if len(own.Uses) != 2 || own.Uses[0] == set.Reading("p") || own.Uses[1] != set.Reading("q") {
		t.Errorf("own uses %v; want an instance of p, and q of the set", own.Uses)
	}
	if got := own.Uses[0].Query; !strings.Contains(got, "[1m]") {
		t.Errorf("own's p runs %s", got)
	}
	if got := set.Reading("p").Query; !strings.Contains(got, "[5m]") {
		t.Errorf("p runs %s", got)
	}
}

// S0-116's selectors, and those of a control through the readings that it uses.
func TestSelectors(t *testing.T) {
	set := mustLoad(t, Settings{}, shipped(t)...)
	f := func(rule string, want ...string) {
		t.Helper()
		seen := map[string]bool{}
		for _, matchers := range set.Selectors(rule) {
			for _, m := range matchers {
				if m.Name == "__name__" {
					seen[m.Value] = true
				}
			}
		}
		for _, name := range want {
			if !seen[name] {
				t.Errorf("%s does not select %s", rule, name)
			}
			delete(seen, name)
		}
		if len(seen) > 0 {
			t.Errorf("%s also selects %v", rule, seen)
		}
	}
	f("node_power", "hw_energy_joules_total", "hw_power_watts")
	f("node_power_host", "hw_host_energy_joules_total", "hw_host_power_watts")
	f("node_power_budget", "hw_energy_joules_total", "hw_power_watts")
}
