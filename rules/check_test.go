package rules

import (
	"fmt"
	"strings"
	"testing"
)

// saidOf is what the loader says of one expression, beside the readings of
// expandBase: each message in short, one a line.
func saidOf(section, text string) string {
	_, messages := Load([]Source{{"base.yaml", []byte(expandBase)}, {"case.yaml", []byte("version: 1\n" + section + ":\n" + text)}}, Settings{})
	var short []string
	for _, m := range messages {
		short = append(short, m.Severity+": "+m.Text)
	}
	return strings.Join(short, "\n")
}

// S0-141: an `or` that drops series unseen, and those that do not.
func TestOrWithoutGuard(t *testing.T) {
	f := func(expr string, warns bool) {
		t.Helper()
		got := saidOf("readings", fmt.Sprintf("  it: {key: [n], expr: '%s'}\n", expr))
		if strings.Contains(got, "this `or` drops") != warns {
			t.Errorf("%s: %q; want a warning: %v", expr, got, warns)
		}
	}
	// Kepler's branches share their labels: without the guard a GPU node reads
	// its CPUs alone.
	f(`sum by (n) (rate(cpu_joules_total[5m]) or rate(gpu_joules_total[5m]))`, true)
	f(`sum by (n) (label_replace(rate(cpu_joules_total[5m]), "c", "cpu", "", "") or label_replace(rate(gpu_joules_total[5m]), "c", "gpu", "", ""))`, false)
	f(`sum by (n) (label_replace(rate(cpu_joules_total[5m]), "c", "cpu", "", "") or rate(gpu_joules_total[5m]))`, true)
	f(`sum by (n) (rate(cpu_joules_total[5m]) or on (n, id) rate(gpu_joules_total[5m]))`, false)
	f(`sum by (n) (rate(cpu_joules_total[5m]) or ignoring (job) rate(gpu_joules_total[5m]))`, false)
	// A fallback between whole answers; inside a sum it is the same trap again.
	f(`sum by (n) (rate(joules_total[5m])) or sum by (n) (watts)`, false)
	f(`sum by (n) (sum by (n) (rate(joules_total[5m])) or sum by (n) (watts))`, true)
	f(`sum or slow`, false)
	f(`max by (n) (sum or slow)`, true)
	f(`(sum > 5) or (slow > 5)`, false)
	f(`sum > 5 or slow > 5 or slow < 1`, false)
	f(`watts or other`, true)
	// The same series by two selectors, and a constant to fall back on.
	f(`sum by (n) (watts{a="b"} or watts{c=~"d|e"})`, false)
	f(`sum by (n) (rate(x_total{a="b"}[5m]) or rate(x_total{c="d"}[5m]))`, false)
	f(`sum by (n) (rate(x_total{a="b"}[5m]) or rate(x_total{c="d"}[1m]))`, true)
	f(`sum by (n) (watts{a="b"} or watts{c="d"} offset 5m)`, true)
	f(`sum by (n) (sum by (n) (watts{a="b"}) or sum by (n) (watts{c="d"}))`, true)
	f(`sum by (n) (watts or vector(0))`, false)
	f(`max by (n) (abs((watts or other)))`, true)
}

// S0-169: a counter whose height goes into the answer.
func TestCounterWithoutRate(t *testing.T) {
	f := func(expr string, warns bool) {
		t.Helper()
		got := saidOf("readings", fmt.Sprintf("  bare_counter: {key: [n], expr: joules_total}\n  same: {key: [n], expr: bare_counter}\n  it: {key: [n], expr: '%s'}\n", expr))
		if strings.Contains(got, "is a counter") != warns {
			t.Errorf("%s: %q; want a warning: %v", expr, got, warns)
		}
	}
	f(`sum by (n) (hw_energy_joules_total)`, true)
	f(`sum by (n) (rate(hw_energy_joules_total[5m]))`, false)
	f(`sum by (n) (rate(hw_energy_joules_total[5m]) + hw_energy_joules_total)`, true)
	f(`sum by (n) (increase(joules_total[5m]) / 300)`, false)
	f(`sum by (n) (irate(joules_total[5m]) + deriv(joules_total[5m]))`, false)
	f(`max by (n) (max_over_time(joules_total[5m]))`, true)
	f(`count by (n) (joules_total)`, false)
	f(`max by (n) (watts and joules_total)`, false)
	f(`max by (n) (watts unless joules_total)`, false)
	f(`max by (n) (joules_total and watts)`, true)
	f(`max by (n) (time() - timestamp(joules_total))`, false)
	f(`max by (n) (changes(joules_total[1h]))`, false)
	f(`max by (n) (max_over_time(rate(joules_total[5m])[1h:]))`, false)
	f(`max by (n) (max_over_time(joules_total[1h:1m]))`, true)
	f(`topk by (n) (1, joules_total)`, true)
	f(`max by (n) (bare_counter)`, true)
	f(`max by (n) (same)`, true)
	f(`max by (n) (rate(same[5m]))`, false)
	f(`max by (n) (sum)`, false)
}

// What the answers' labels say about the key.
func TestKey(t *testing.T) {
	f := func(expr, want string) {
		t.Helper()
		if got := saidOf("readings", fmt.Sprintf("  it: {key: [n], expr: '%s'}\n", expr)); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", expr, got, want)
		}
	}
	const (
		unknown = "warning: cannot tell that there is one answer for each n: end in an aggregation by (n)"
		missing = "error: the answers have no label n, which is in the key"
		also    = "warning: the answers also differ by id, which is not in the key: a key that comes back twice is an error"
	)
	f(`sum by (n) (watts)`, "")
	f(`-sum by (n) (watts)`, "")
	f(`sum(watts)`, missing)
	f(`sum by (id) (watts)`, missing)
	f(`sum by (n, id) (watts)`, also)
	f(`sum without (id) (watts)`, unknown)
	f(`abs(watts)`, unknown)
	f(`clamp_max(sum by (n) (watts), 5)`, "")
	f(`topk(1, sum by (n) (watts))`, "")
	f(`count_values by (n) ("value", watts)`, unknown)
	f(`quantile by (n) (0.9, watts)`, "")
	f(`sum by (n) (watts) * 2`, "")
	f(`2 * sum by (n, id) (watts)`, also)
	f(`sum by (n) (watts) + sum by (n) (watts)`, "")
	f(`sum by (n, id) (watts) + on (n) sum by (n) (watts)`, "")
	f(`sum by (n, id) (watts) + ignoring (id) sum by (n) (watts)`, "")
	f(`sum by (n) (watts) * on (n) group_left (id) sum by (n, id) (watts)`, also)
	f(`sum by (id) (watts) * on (id) group_right (x) sum by (n, id) (watts)`, strings.Replace(also, "id", "id, x", 1))
	f(`sum by (n) (watts) and max by (n, id) (watts)`, "")
	f(`sum by (n) (watts) or sum by (n) (other)`, "")
	f(`sum by (n) (watts) or sum by (n, id) (other)`, unknown)
	f(`label_replace(sum by (id) (watts), "n", "$1", "id", "(.*)")`, also)
	f(`histogram_quantile(0.9, sum by (n, le) (rate(x_bucket[5m])))`, "")
	f(`max_over_time(sum by (n) (watts)[5m:])`, "")
	f(`absent(watts)`, unknown)
	f(`sum`, "") // a reading answers by its key
	f(`max_over_time(sum[5m]) + slow`, "")
	f(`metric{a="b"} * 2`, "") // stays a selector, for ranges
}

// A `when` selects by a comparison; the rest holds whenever there is an answer.
func TestCondition(t *testing.T) {
	f := func(when, want string) {
		t.Helper()
		got := saidOf("controls", fmt.Sprintf(`  it:
    key: [n]
    engage: {when: '%s'}
    release: {when: slow < 1}
    action: rapl.set_power_cap_watts
    target: {hw_type: cpu}
    value: "100"
    limits: {min: 60, max: 250}
    ttl: 30s
    purpose: efficiency
`, when))
		if got != want {
			t.Errorf("%s:\n%q\nwant\n%q", when, got, want)
		}
	}
	const (
		always = "error: when has no comparison, so it holds whenever there is an answer"
		half   = "error: when has a comparison, but holds without it whenever there is an answer"
		zero   = "error: bool answers 0 or 1 for every key, so when always holds: leave the word out"
	)
	f(`sum > 5`, "")
	f(`5 < sum`, "")
	f(`sum > slow`, "")
	f(`(sum > 5) and slow`, "")
	f(`slow and sum > 5`, "")
	f(`sum > 5 or slow > 5`, "")
	f(`sum > 5 unless slow`, "")
	f(`-(sum > 5)`, "")
	f(`(sum > 5) * 2`, "")
	f(`sum by (n) (watts > 5)`, "")
	f(`abs(sum > 5)`, "")
	f(`max_over_time((sum > 5)[5m:])`, "")
	f(`sum`, always)
	f(`sum + slow`, always)
	f(`sum > 5 or slow`, half)
	f(`slow unless sum > 5`, half)
	f(`sum > bool 5`, zero)
	f(`sum == bool slow`, zero)
	f(`1 + 1`, "error: when is a scalar: it compares a reading, as node_power > 400 does")
}

// Where the thresholds of engage and release can be told apart.
func TestFlapping(t *testing.T) {
	f := func(engage, release, want string) {
		t.Helper()
		got := saidOf("controls", fmt.Sprintf(`  it:
    key: [n]
    engage: {when: '%s'}
    release: {when: '%s'}
    action: rapl.set_power_cap_watts
    target: {hw_type: cpu}
    value: "100"
    limits: {min: 60, max: 250}
    ttl: 30s
    purpose: efficiency
`, engage, release))
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s, %s: %q; want %q", engage, release, got, want)
		}
	}
	const overlap, near = "release can hold while engage does", "noise alone"
	f(`sum > 100`, `sum < 95`, "")
	f(`sum > 100`, `sum < 100 * (1 - 0.05)`, "")
	f(`sum > 10 ^ 2 + 10 - 5 * 2`, `190 / 2 >= sum`, "")
	f(`sum > 100`, `sum < 99`, near)
	f(`sum > 100`, `sum < 98`, "")
	f(`sum > 100`, `sum < 101`, overlap)
	f(`sum > 100`, `sum < 100`, near)
	f(`sum >= 100`, `sum <= 100`, overlap)
	f(`sum > 100`, `sum > 50`, overlap)
	f(`sum < 100`, `sum > 105`, "")
	f(`sum < 100`, `sum > 101`, near)
	f(`sum < 100`, `sum > 99`, overlap)
	f(`sum < -100`, `sum > -95`, "")
	f(`sum > 0`, `sum < 0`, "")
	f(`sum > 7 % 4`, `sum < 2`, "")
	f(`sum > 100`, `slow < 200`, "")
	f(`sum > slow`, `sum < slow`, "")
	f(`sum > 100 and slow > 1`, `sum < 200`, "")
	f(`sum == 100`, `sum < 200`, "")
}
