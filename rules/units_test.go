package rules

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// S0-146: a reading's own unit is that of what it reads. Both sides: what is told
// of, with the way out, and what is not.
func TestUnitOfAReading(t *testing.T) {
	const others = `
  counter: {key: [n], expr: x_joules_total}
  draws: {key: [n], unit: W, expr: sum by (n) (things)}
  plain: {key: [n], expr: 'sum by (n) (rate(x_joules_total[5m]))'}
`
	f := func(unit, expr, want string) {
		t.Helper()
		got := saidOf("readings", fmt.Sprintf("  it: {key: [n], unit: '%s', expr: '%s'}%s", unit, expr, others))
		if want != "" {
			want = "warning: unit " + unit + ", but " + want
		}
		if got != want {
			t.Errorf("unit %s: %s\ngot  %s\nwant %s", unit, expr, got, want)
		}
	}
	f("kW", "sum by (n) (x_watts)", "x_watts is in W: divide it by 1000, or write unit: W")
	f("kW", "sum by (n) (x_watts) / 1000", "")
	f("kW", "sum by (n) (rate(x_joules_total[5m]))", "rate() of x_joules_total is in W: divide it by 1000, or write unit: W")
	f("kW", "1e-3 * sum by (n) (rate(x_joules_total[5m]))", "")
	f("W", "sum by (n) (rate(x_joules_total[5m]))", "")
	f("W", "sum by (n) (rate(hw_energy_joules_total[5m]) or on (n) hw_power_watts)", "")
	f("W", "x_joules_total", "x_joules_total is in J: read it with rate(), or write unit: J")
	f("J", "x_joules_total", "")
	f("W", "sum by (n) (increase(x_joules_total[5m]))", "x_joules_total is in J: write unit: J")
	f("W", "sum by (n) (increase(x_joules_total[5m])) / 300", "")
	f("J", "sum by (n) (increase(x_joules_total[5m]))", "")
	f("J", "sum by (n) (rate(x_joules_total[5m]))", "rate() of x_joules_total is in W: write unit: W, or read a counter with increase()")
	f("Cel", "max by (n) (hw_power_watts)", "hw_power_watts is in W: write unit: W")
	f("Cel", `max by (n) ({"hw.temperature_celsius"})`, "")
	f("W", `max by (n) ({"hw.temperature_celsius"})`, "hw.temperature_celsius is in Cel: write unit: Cel")
	f("W", `max by (n) (hw_temperature)`, "hw_temperature is in Cel: write unit: Cel")
	f("K", "max by (n) (x_celsius)", "x_celsius is in Cel: write unit: Cel")
	f("K", "max by (n) (x_celsius) + 273.15", "")
	f("Cel", "max by (n) (x_celsius - 2)", "")
	f("%", "avg by (n) (x_ratio)", "x_ratio is a ratio: multiply it by 100, or write unit: \"1\"")
	f("%", "100 * avg by (n) (x_ratio)", "")
	f("1", "avg by (n) (x_percent)", "x_percent is in %: divide it by 100, or write unit: \"%\"")
	f("1", "sum by (n) (x_bytes) / sum by (n) (y_bytes)", "")
	f("%", "sum by (n) (x_bytes) / sum by (n) (y_bytes)", "x_bytes by y_bytes is a ratio: multiply it by 100, or write unit: \"1\"")
	f("W", "sum by (n) (x_watts) / sum by (n) (y_watts)", "x_watts by y_watts is a ratio: write unit: \"1\"")
	f("W", "sum by (n) (x_joules) / sum by (n) (y_seconds)", "")
	f("1", "sum by (n) (rate(cpu_seconds_total[5m]))", "")
	f("s", "sum by (n) (rate(cpu_seconds_total[5m]))", "rate() of cpu_seconds_total is a ratio: write unit: \"1\"")
	f("MHz", "avg by (n) (hw_cpu_speed_hertz)", "hw_cpu_speed_hertz is in Hz: divide it by 1e+06, or write unit: Hz")
	f("Hz", "avg by (n) (x_mhz)", "x_mhz is in MHz: multiply it by 1e+06, or write unit: MHz")
	f("ms", "max by (n) (rate(x_seconds_sum[5m]) / rate(x_seconds_count[5m]))", "")
	f("GiBy", "sum by (n) (x_bytes)", "x_bytes is in By: divide it by 1.07374e+09, or write unit: By")
	// Through other readings, by what they say or by what they read.
	f("kW", "sum by (n) (draws)", "draws is in W: divide it by 1000, or write unit: W")
	f("kW", "sum by (n) (plain)", "rate() of x_joules_total is in W: divide it by 1000, or write unit: W")
	f("kW", "sum by (n) (rate(counter[5m]))", "rate() of x_joules_total is in W: divide it by 1000, or write unit: W")
	f("W", "max by (n) (max_over_time(draws[10m]))", "")
	// Either side of an or, a sum or a difference goes into the answer.
	f("W", "sum by (n) (x_watts) or on (n) sum by (n) (y_kilowatts)", "y_kilowatts is in kW: multiply it by 1000, or write unit: kW")
	f("W", "sum by (n) (x_watts) - sum by (n) (y_celsius)", "y_celsius is in Cel: write unit: Cel")
	f("W", "sum by (n) (x_watts and on (n) y_celsius > 80)", "")
	f("Cel", "max by (n) (x_celsius > 80)", "")
	f("1", "max by (n) (x_celsius > bool 80)", "")
	// The labels of something, kept as a metric, change no unit.
	f("kW", "sum by (n) (x_watts * on (job, instance) group_left (n) max by (job, instance, n) (target_info))", "x_watts is in W: divide it by 1000, or write unit: W")
	f("W", "sum by (n) (x_watts * on (job, instance) group_left (n) max by (job, instance, n) (target_info))", "")
	f("kW", "sum by (n) (x_watts * on (n) group_left () factor)", "")
	// What has no unit that is known says nothing.
	for _, expr := range []string{"sum by (n) (things)", "count by (n) (x_watts)", "max by (n) (timestamp(x_watts))", "sum by (n) (x_watts) ^ 2", "stdvar by (n) (x_watts)", "sum by (n) (sum_over_time(x_watts[5m]))"} {
		f("Cel", expr, "")
	}
	for _, unit := range []string{"{gpu}", "", "degF"} {
		f(unit, "sum by (n) (x_watts)", "")
	}
}

// rate() and increase() read counters; by name, by the contract's table, and
// through readings.
func TestRateOfAGauge(t *testing.T) {
	const others = `
  draws: {key: [n], unit: W, expr: sum by (n) (things)}
  hot: {key: [n], expr: x_celsius}
  errors: {key: [n], unit: "1", expr: sum by (n) (things)}
  counter: {key: [n], expr: x_joules_total}
`
	f := func(expr, want string) {
		t.Helper()
		got := saidOf("readings", fmt.Sprintf("  it: {key: [n], expr: '%s'}%s", expr, others))
		if want != "" && !strings.Contains(got, want) || want == "" && strings.Contains(got, "is a gauge") {
			t.Errorf("%s\ngot  %s\nwant %s", expr, got, want)
		}
	}
	f("sum by (n) (rate(x_watts[5m]))", "x_watts is a gauge, and rate() takes each fall of a gauge for a counter that restarts: read it as it is or by avg_over_time(), or deriv() for its change")
	f("sum by (n) (increase(x_celsius[5m]))", "x_celsius is a gauge, and increase() takes each fall of a gauge for a counter that restarts: read it as it is or by avg_over_time(), or delta() for its change")
	for _, gauge := range []string{"x_ratio", "x_percent", "hw_power", "hw_host_ambient_temperature", "hw_gpu_memory_usage_bytes", "hw_cpu_speed_hertz", "draws", "hot"} {
		f("sum by (n) (rate("+gauge+"[5m]))", gauge+" is a gauge")
		f("sum by (n) (irate("+gauge+"[5m]))", gauge+" is a gauge")
	}
	f(`sum by (n) (rate({"hw.power_watts"}[5m]))`, "hw.power_watts is a gauge")
	f("sum by (n) (rate(x_watts[5m:10s]))", "x_watts is a gauge")
	for _, counter := range []string{"x_watts_total", "x_total", "hw_energy", "hw_errors_total", "x_seconds", "x_bytes", "x_ratio_sum", "x_ratio_count", "x_celsius_bucket", "errors", "counter", "things"} {
		f("sum by (n) (rate("+counter+"[5m]))", "")
	}
	f("sum by (n) (deriv(x_watts[5m]))", "")
	f("sum by (n) (delta(x_watts[5m]))", "")
	f("max by (n) (avg_over_time(x_watts[5m]))", "")
	f("histogram_quantile(0.9, sum by (n) (rate(x_ratio[5m])))", "") // a native histogram
}

// Both are errors where a control depends on the reading, at the place that is
// wrong, and warnings elsewhere.
func TestUnitsAreErrorsWhereAControlDepends(t *testing.T) {
	f := func(reading, at, want string) {
		t.Helper()
		for severity, control := range map[string]string{SeverityWarning: "", SeverityError: controlOn} {
			_, messages := Load([]Source{{"case.yaml", []byte("version: 1\nreadings:\n  it:\n    key: [n]\n" + reading + control)}}, Settings{})
			if len(messages) != 1 {
				t.Errorf("%s:\n%s", reading, printed(messages))
				continue
			}
			m := messages[0]
			if m.Severity != severity || !strings.Contains(m.Text, want) || fmt.Sprintf("%s:%d:%d", m.File, m.Line, m.Col) != at {
				t.Errorf("%s: %s\nwant %s at %s with %q", reading, m, severity, at, want)
			}
		}
	}
	f("    unit: kW\n    expr: sum by (n) (hw_power_watts)\n", "case.yaml:5:11", "divide it by 1000, or write unit: W")
	f("    expr: sum by (n) (rate(hw_power_watts[5m]))\n", "case.yaml:5:28", "hw_power_watts is a gauge")
	f("    use: a\n    unit: W\n    variants:\n      a: {expr: sum by (n) (x_watts)}\n      b: {expr: sum by (n) (y_celsius)}\n", "case.yaml:6:11", "y_celsius is in Cel: write unit: Cel")
}

// No false alarm on other people's rules: a recording's own name says its unit, and
// what it records has that unit, or none that is known.
func TestNoUnitLintOnTheCorpus(t *testing.T) {
	root := filepath.Join(corpus(), "rules")
	if _, err := os.Stat(root); err != nil {
		t.Skipf("no rule files of others: %v", err)
	}
	read, named, known, told := 0, 0, 0, []string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" && filepath.Ext(path) != ".yml" {
			return err
		}
		for _, rule := range recordings(t, path) {
			e, err := dialect.ParseExpr(rule.Expr)
			if err != nil || !isVector(e) {
				continue
			}
			read++
			it := map[string]any{"key": []string{"instance"}, "expr": rule.Expr}
			name := rule.Record[strings.LastIndex(rule.Record, ":")+1:]
			if rule.Record != "" && !strings.HasSuffix(name, "_total") && unitEndings[lastWord(name)] != "" {
				named++
				it["unit"] = unitEndings[lastWord(name)]
				if (&loader{}).measures(e, 0) != nil {
					known++
				}
			}
			source, err := yaml.Marshal(map[string]any{"version": 1, "readings": map[string]any{"it": it}})
			if err != nil {
				return err
			}
			_, messages := Load([]Source{{path, source}}, Settings{})
			for _, m := range messages {
				if strings.HasPrefix(m.Text, "unit ") && strings.Contains(m.Text, ", but ") || strings.Contains(m.Text, "is a gauge, and") {
					told = append(told, rule.Record+" = "+rule.Expr+"\n\t"+m.Text)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d expressions, %d with a unit in their name, of %d the unit is known", read, named, known)
	if read < 100 || len(told) > 0 {
		t.Errorf("%d expressions; told of:\n%s", read, strings.Join(told, "\n"))
	}
}

// recording is a rule of a Prometheus rule file.
type recording struct {
	Record, Expr string
}

func recordings(t *testing.T, path string) []recording {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []recording
	var walk func(n *yaml.Node)
	walk = func(n *yaml.Node) {
		var r recording
		if n.Kind == yaml.MappingNode && n.Decode(&r) == nil && r.Expr != "" {
			out = append(out, r)
		}
		for _, c := range n.Content {
			walk(c)
		}
	}
	var doc yaml.Node
	if yaml.Unmarshal(b, &doc) == nil {
		walk(&doc)
	}
	return out
}
