package rules

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wattloop/wattloop/presets"
	rulesd "github.com/wattloop/wattloop/rules.d"
)

// shipped are the files inside the binary, in the order in which it loads them.
func shipped(t testing.TB) []Source {
	t.Helper()
	var all []Source
	for _, tree := range []struct {
		prefix string
		files  fs.FS
	}{{"presets", presets.Files}, {"rules.d", rulesd.Files}} {
		sources, err := Sources(tree.files, tree.prefix)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, sources...)
	}
	return all
}

func local(text string) Source { return Source{"/etc/wattloop/rules.d/60-local.yaml", []byte(text)} }

// mustLoad loads sources that give no message at all.
func mustLoad(t testing.TB, set Settings, sources ...Source) *Set {
	t.Helper()
	s, messages := Load(sources, set)
	if len(messages) > 0 {
		t.Fatalf("Load says\n%s", printed(messages))
	}
	return s
}

func TestShippedRulesLoad(t *testing.T) {
	s := mustLoad(t, Settings{}, shipped(t)...)
	var names []string
	for _, r := range s.Readings {
		names = append(names, r.Name)
	}
	if diff := cmp.Diff([]string{
		"cooling_zone_temperature", "cpu_packages", "cpu_power", "facility_ambient_temperature", "facility_cooling_power",
		"facility_it_power", "node_inlet_temperature", "node_power", "node_power_host", "rack_power",
		"twin_spec_cpu_cap_watts", "twin_spec_gpu_cap_watts",
	}, names); diff != "" {
		t.Errorf("readings (-want +got):\n%s", diff)
	}
	c := s.Control("node_power_budget")
	if c == nil {
		t.Fatal("no control node_power_budget")
	}
	if c.Mode != Observe || c.Purpose != Efficiency {
		t.Errorf("mode %s, purpose %s; want observe and efficiency", c.Mode, c.Purpose)
	}
	if c.Engage.For != 15*time.Second || c.Release.For != time.Minute || c.TTL != 30*time.Second {
		t.Errorf("engage for %s, release for %s, ttl %s; want 15s, 1m, 30s", c.Engage.For, c.Release.For, c.TTL)
	}
	if want := (Slew{Down: 60, Up: 15, Every: 10 * time.Second}); c.Slew != want {
		t.Errorf("slew %+v; want %+v", c.Slew, want)
	}
	if want := (Limits{Min: 60, Max: 250}); c.Limits != want {
		t.Errorf("limits %+v; want %+v", c.Limits, want)
	}
	if s.Reading("nobody") != nil || s.Control("nobody") != nil || s.Selectors("nobody") != nil {
		t.Error("a name that is not there is found")
	}
}

// The queries of the contract, byte for byte, under rate: prometheus and the
// default window. What runs differs in the matcher of the trusted channels.
func TestContractQueries(t *testing.T) {
	s := mustLoad(t, Settings{Rate: RatePrometheus}, shipped(t)...)
	for _, tt := range []struct{ id, reading, want string }{
		{"S0-116", "node_power", `sum by (k8s_node_name) (max by (k8s_node_name, hw_type, hw_id) (rate(hw_energy_joules_total{hw_type=~"cpu|gpu"}[5m])) or on (k8s_node_name, hw_type, hw_id) max by (k8s_node_name, hw_type, hw_id) (hw_power_watts{hw_type=~"cpu|gpu"}))`},
		{"S0-118", "node_power_host", `max by (k8s_node_name) (rate(hw_host_energy_joules_total[5m])) or on (k8s_node_name) max by (k8s_node_name) (hw_host_power_watts)`},
	} {
		t.Run(tt.id, func(t *testing.T) {
			r := s.Reading(tt.reading)
			if got := r.Explain().Queries[0].Words; got != tt.want {
				t.Errorf("%s has the words\n%s\nwant\n%s", tt.reading, got, tt.want)
			}
			if got := onNodeChannels(t, tt.want); r.Query != got {
				t.Errorf("%s runs\n%s\nwant\n%s", tt.reading, r.Query, got)
			}
		})
	}
}

// By default every rate( of a preset is read as covered_rate(, and nothing else
// of the words changes.
func TestCoveredIsTheDefault(t *testing.T) {
	covered := mustLoad(t, Settings{}, shipped(t)...)
	plain := mustLoad(t, Settings{Rate: RatePrometheus}, shipped(t)...)
	for i, r := range covered.Readings {
		want := strings.ReplaceAll(plain.Readings[i].Query, "(rate(", "(covered_rate(")
		if r.Query != want || r.Rate != RateCovered {
			t.Errorf("%s runs\n%s\nwant\n%s", r.Name, r.Query, want)
		}
	}
}

// S0-125: the setting replaces the window in every rate of every preset, and
// leaves what a control sets for itself.
func TestRateWindowSetting(t *testing.T) {
	s := mustLoad(t, Settings{RateWindow: 2 * time.Minute}, shipped(t)...)
	for _, r := range s.Readings {
		if strings.Contains(r.Query, "[5m]") {
			t.Errorf("%s still reads [5m]: %s", r.Name, r.Query)
		}
	}
	if q := s.Reading("node_power").Query; !strings.Contains(q, "[2m]") {
		t.Errorf("node_power runs %s", q)
	}
	if q := s.Control("node_power_budget").Explain().Queries[0].Expr; !strings.Contains(q, "[30s]") {
		t.Errorf("the control runs %s; want its own window of 30s", q)
	}
	_, messages := Load(shipped(t), Settings{RateWindow: 5 * time.Second})
	want := "settings: error: rate_window is 5s, below its minimum 30s (presets/otel/preset.yaml:14)\n  in parameter rate_window\n"
	if got := printed(messages); got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// A file larger than 1 MiB, more than 500 rules, and more errors than anyone reads.
func TestBounds(t *testing.T) {
	var many strings.Builder
	many.WriteString("version: 1\nreadings:\n")
	for i := range 501 {
		fmt.Fprintf(&many, "  r%d: {key: [n], expr: sum by (n) (up)}\n", i)
	}
	f := func(data, want string) {
		t.Helper()
		set, messages := Load([]Source{local(data)}, Settings{})
		if set != nil || len(messages) == 0 || !strings.Contains(messages[0].Text, want) {
			t.Errorf("Load = %v, %.200q; want %q", set, printed(messages), want)
		}
		if len(messages) > maxMessages {
			t.Errorf("%d messages", len(messages))
		}
	}
	f("version: 1\n#"+strings.Repeat("x", 1<<20), "larger than 1 MiB")
	f(many.String(), "more than 500 readings and controls")
	f("version: 1\n"+strings.Repeat("x", 200)+": 1\n", "unknown key")
	var keys strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&keys, "x%d: 1, ", i)
	}
	f("version: 1\nreadings: {r: {"+keys.String()+"key: [n]}}", "unknown key x0")
	f("version: 1\nreadings: {r: {"+strings.Repeat("x: 1, ", 1000)+"key: [n]}}", "x is already defined at line 2")
	f("version: 1\nreadings: {r: {key: [n], expr: "+strings.Repeat("(", 20000)+"}}", "longer than 16384 bytes")

	// Each reading uses the one before twice.
	var doubling strings.Builder
	doubling.WriteString("version: 1\nreadings:\n  r0: {key: [n], expr: sum by (n) (up)}\n")
	for i := range 60 {
		fmt.Fprintf(&doubling, "  r%d: {key: [n], expr: r%d + r%d}\n", i+1, i, i)
	}
	f(doubling.String(), "more than 2000 parts")
}

// One file that cannot be read brings no complaint about the names it may hold.
func TestBrokenFileHidesNothingElse(t *testing.T) {
	_, messages := Load([]Source{
		{"10-broken.yaml", []byte("version: 1\nparams: {a: {value: 1]}\n")},
		{"60-local.yaml", []byte("version: 1\nparams: {b: {value: 2}}\nreadings:\n" +
			"  r: {key: [n], expr: sum by (n) (x) + $a}\n  s: {help: later}\n  t: {key: [n], expr: sum by (n) (x) + }\n")},
	}, Settings{})
	var got []string
	for _, m := range messages {
		got = append(got, fmt.Sprintf("%s:%d %s", m.File, m.Line, m.Text))
	}
	want := []string{
		"10-broken.yaml:2 did not find expected ',' or '}'; inside {} and [], an expression with brackets, braces or commas stands in quotes",
		"60-local.yaml:6 unexpected end of input",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

func TestSources(t *testing.T) {
	tree := fstest.MapFS{
		"60-local.yaml":        {Data: []byte("b")},
		"10-vendor.yml":        {Data: []byte("a")},
		"README.md":            {Data: []byte("no rules")},
		".60-local.yaml.swp":   {},
		".hidden.yaml":         {},
		"..2026_11/local.yaml": {},
		"sub/deep.yaml":        {Data: []byte("c")},
	}
	sources, err := Sources(tree, "/etc/wattloop/rules.d")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range sources {
		names = append(names, s.Name+"="+string(s.Data))
	}
	want := []string{
		"/etc/wattloop/rules.d/10-vendor.yml=a",
		"/etc/wattloop/rules.d/60-local.yaml=b",
		"/etc/wattloop/rules.d/sub/deep.yaml=c",
	}
	if !slices.Equal(names, want) {
		t.Errorf("Sources = %q; want %q", names, want)
	}
}

// Loading is a function of its input: the same files give the same messages and
// the same queries, whatever the order of Go's maps.
func TestLoadIsDeterministic(t *testing.T) {
	sources := append(shipped(t), local("version: 1\nparams: {x: {value: 1}, y: {value: 2}}\nreadings:\n"+
		"  a: {key: [n], expr: sum by (n) (hw_energy_joules_total)}\n  b: {key: [n], expr: c}\n  c: {key: [n], expr: b}\n"))
	_, first := Load(sources, Settings{})
	for range 20 {
		if _, again := Load(sources, Settings{}); !slices.Equal(first, again) {
			t.Fatalf("first\n%s\nthen\n%s", printed(first), printed(again))
		}
	}
}

// What a file says for all its rules is wrong once, not once a rule; so is a
// setting.
func TestFileWideKeys(t *testing.T) {
	f := func(set Settings, text, want string) {
		t.Helper()
		_, messages := Load([]Source{{"f", []byte("version: 1\n" + text + `
readings:
  a: {key: [n], expr: sum by (n) (x)}
  b: {key: [n], expr: sum by (n) (x)}
`)}}, set)
		got := ""
		for _, m := range messages {
			got += fmt.Sprintf("%s:%d:%d %s\n", m.File, m.Line, m.Col, m.Text)
		}
		if got != want {
			t.Errorf("%s: got\n%swant\n%s", text, got, want)
		}
	}
	f(Settings{}, "interval: 500ms", "f:2:11 interval is 500ms: it must be at least 1s\n")
	f(Settings{}, "interval: 5", "f:2:11 interval: invalid duration \"5\", write it as 30s, 5m or 1h30m\n")
	f(Settings{}, "rate: cover", "f:2:7 rate takes covered or prometheus\n")
	f(Settings{}, "rate: [covered]", "f:2:7 rate takes a single value, this is a list\n")
	f(Settings{Rate: "plain"}, "", "settings:0:0 rate is \"plain\": it is covered or prometheus\n")
}

// The same bytes a second time change nothing: a checkout's rules.d beside the
// shipped rules in the binary.
func TestSameFileTwice(t *testing.T) {
	sources := shipped(t)
	again := Source{"./rules.d/node_power_budget.yaml", sources[len(sources)-1].Data}
	set := mustLoad(t, Settings{}, append(sources, again)...)
	if got := set.Control("node_power_budget").File; got != "rules.d/node_power_budget.yaml" {
		t.Errorf("the control stands in %s", got)
	}
}
