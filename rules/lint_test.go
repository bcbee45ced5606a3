package rules

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// controlOn is a control over a reading named it.
const controlOn = `controls:
  acts:
    key: [n]
    engage: {when: it > 5}
    release: {when: it < 1}
    action: rapl.set_power_cap_watts
    target: {hw_type: cpu}
    value: "100"
    limits: {min: 60, max: 250}
    ttl: 30s
    purpose: efficiency
`

// What makes an expression read the wrong number is an error where a control
// depends on it, through other readings too, and a warning elsewhere. It names
// the place and the way out.
func TestLintsAreErrorsWhereAControlDepends(t *testing.T) {
	f := func(id, expr, at, want string) {
		t.Helper()
		reading := fmt.Sprintf("version: 1\nreadings:\n  %%s:\n    key: [n]\n    expr: '%s'\n", expr)
		for _, c := range []struct {
			severity, file string
		}{
			{"warning", fmt.Sprintf(reading, "alone")},
			{"error", fmt.Sprintf(reading, "it") + controlOn},
			{"error", fmt.Sprintf(reading, "below") + "  it:\n    key: [n]\n    expr: below + 0\n" + controlOn},
		} {
			set, messages := Load([]Source{{"case.yaml", []byte(c.file)}}, Settings{})
			if len(messages) != 1 || (set == nil) != (c.severity == "error") {
				t.Errorf("%s: %s:\n%s", id, c.file, printed(messages))
				continue
			}
			m := messages[0]
			if m.Severity != c.severity || !strings.Contains(m.Text, want) || fmt.Sprintf("%s:%d:%d", m.File, m.Line, m.Col) != at {
				t.Errorf("%s: %s\nwant %s at %s with %q", id, m, c.severity, at, want)
			}
		}
	}
	f("S0-141", `sum by (n) (rate(a_joules_total[5m]) or rate(b_joules_total[5m]))`, "case.yaml:5:52", "add on (...), or label_replace()")
	f("S0-169", `sum by (n) (hw_energy_joules_total)`, "case.yaml:5:24", "read without rate()")
	f("S0-166", `sum by (n) (rate(hw_energy_joules_total[5m]) * on (job, instance) group_left (n) target_info)`, "case.yaml:5:93",
		"write max by (job, instance, n) (target_info)")
	f("S0-146", `sum by (n) (rate(hw_energy_joule_total[5m]))`, "case.yaml:5:29", "have it send unit J, and read hw_energy_joules_total")
	f("S0-146", `sum by (n) (rate({"hw.energy_joule_total"}[5m]))`, "case.yaml:5:29", "have it send unit J, and read hw.energy_joules_total")
	f("S0-146", `sum by (n) (hw_power_kilowatts)`, "case.yaml:5:24", "have it send unit W, and read hw_power_watts")
}

// A control's own expressions are what it depends on.
func TestLintsInAControl(t *testing.T) {
	_, messages := Load([]Source{{"case.yaml", []byte("version: 1\n" + strings.Replace(controlOn, "{when: it > 5}", "{when: sum by (n) (x_joules_total) > 5}", 1) +
		"readings:\n  it: {key: [n], expr: sum by (n) (watts)}\n")}}, Settings{})
	if len(messages) != 1 || messages[0].Severity != SeverityError || !strings.Contains(messages[0].Text, "read without rate()") {
		t.Error(printed(messages))
	}
}

// S0-166: which joins fail, and which do not.
func TestJoinOnTargetInfo(t *testing.T) {
	f := func(expr string, fails bool) {
		t.Helper()
		got := saidOf("readings", fmt.Sprintf("  it: {key: [n], expr: 'sum by (n) (%s)'}\n", expr))
		if strings.Contains(got, "this join fails") != fails {
			t.Errorf("%s: %q; want it told of: %v", expr, got, fails)
		}
	}
	f(`watts * on (job, instance) group_left (n) target_info`, true)
	f(`target_info * on (job, instance) group_right (n) watts`, true)
	f(`watts * on (job, instance) target_info`, true)
	f(`watts * on (job, instance) group_left (n) (target_info == 1)`, true)
	f(`watts * on (job, instance) group_left (n) label_replace(target_info{x="y"}, "n", "$1", "host", "(.*)")`, true)
	f(`watts * on (job, instance) group_left (n) (target_info and on (job, instance) watts)`, true)
	f(`watts * on (job, instance) group_left (n) max by (job, instance, n) (target_info)`, false)
	f(`watts * on (job, instance) group_left (n) max by (job, instance, n) (target_info and on (job, instance) watts)`, false)
	f(`watts and on (job, instance) target_info`, false)
	f(`watts unless on (job, instance) target_info{x="y"}`, false)
	f(`target_info * 2`, false)
}

// S0-146: the names of other units, and names that are like them.
func TestNamesOfOtherUnits(t *testing.T) {
	f := func(name, want string) {
		t.Helper()
		if _, got := misnamed(name); got != want {
			t.Errorf("misnamed(%s) = %q; want %q", name, got, want)
		}
	}
	f("hw_energy_joule_total", "hw_energy_joules_total")
	f("hw_energy_joules", "hw_energy_joules_total") // a gauge of joules
	f("hw_power_watt", "hw_power_watts")
	f("hw_host_energy_kilojoules_total", "hw_host_energy_joules_total")
	f("hw_host_ambient_temperature_degrees_celsius", "hw_host_ambient_temperature_celsius")
	f("hw.power_watt", "hw.power_watts")
	f("joulie_rack_energy_joule_total", "joulie_rack_energy_joules_total")
	f("hw_energy_joules_total", "")
	f("hw_energy", "")
	f("hw_power_limit_watts", "")
	f("hw_host_power_watts", "")
	f("my_energy_joule_total", "")
}

// The unit of a reading is OpenTelemetry's word.
func TestUnitWord(t *testing.T) {
	f := func(unit, want string) {
		t.Helper()
		got := saidOf("readings", fmt.Sprintf("  it: {key: [n], unit: '%s', expr: sum by (n) (things)}\n", unit))
		if got != want {
			t.Errorf("unit %s: %q; want %q", unit, got, want)
		}
	}
	f("Watts", "warning: unit Watts: units are written as OpenTelemetry writes them")
	f("joule", "warning: unit joule: units are written as OpenTelemetry writes them")
	for _, unit := range []string{"W", "J", "Cel", "Hz", "s", "1", "%", "By", "kW", "{packet}", ""} {
		f(unit, "")
	}
}

// No false alarm on other people's rules, read as ours: no join, no unit. Those
// that read a counter's height mean it, and are warned all the same; so is a
// recording that falls back from one rate to another by all labels.
func TestNoLintOnTheCorpus(t *testing.T) {
	root := filepath.Join(corpus(), "rules")
	if _, err := os.Stat(root); err != nil {
		t.Skipf("no rule files of others: %v", err)
	}
	read, told := 0, map[string]int{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" && filepath.Ext(path) != ".yml" {
			return err
		}
		for _, expr := range expressionsOf(t, path) {
			if e, err := dialect.ParseExpr(expr); err != nil || !isVector(e) {
				continue
			}
			read++
			source, err := yaml.Marshal(map[string]any{"version": 1, "readings": map[string]any{"it": map[string]any{"key": []string{"instance"}, "expr": expr}}})
			if err != nil {
				return err
			}
			_, messages := Load([]Source{{path, source}}, Settings{})
			for _, m := range messages {
				for _, lint := range []string{"this join fails", "comes of a producer", "read without rate()", "this `or` drops"} {
					if strings.Contains(m.Text, lint) {
						told[lint]++
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d expressions: %v", read, told)
	if read < 100 {
		t.Errorf("%d expressions were read; want 100", read)
	}
	if n := told["this join fails"] + told["comes of a producer"]; n > 0 {
		t.Errorf("%d false alarms: %v", n, told)
	}
	if told["this `or` drops"] > 8 || told["read without rate()"] > 12 {
		t.Errorf("told of %v; want 8 of `or` at most, and 12 of counters", told)
	}
}

// expressionsOf are the expr of a Prometheus rule file.
func expressionsOf(t *testing.T, path string) []string {
	t.Helper()
	var out []string
	for _, r := range recordings(t, path) {
		out = append(out, r.Expr)
	}
	return out
}

// corpus is the folder of other people's files.
func corpus() string { return cmp.Or(os.Getenv("WATTLOOP_CORPUS"), "../../shared/corpus") }
