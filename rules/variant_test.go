package rules

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// using loads the shipped rules with a preset and a scope as the configuration
// would choose them.
func using(t testing.TB, preset, scope string, more ...Source) *Set {
	t.Helper()
	return mustLoad(t, Settings{Use: choices(preset, scope)}, append(shipped(t), more...)...)
}

func choices(preset, scope string) map[string]Choice {
	power := Choice{Use: preset, Origin: "presets.node_power.use (variable NODE_POWER_PRESET) is " + preset}
	cpu := power
	if scope == "host" {
		power.Suffix, power.Origin = "-host", power.Origin+", presets.node_power.scope (variable NODE_POWER_SCOPE) is host"
	}
	return map[string]Choice{"node_power": power, "cpu_power": cpu}
}

// load appends the samples of a case, in promqltest's notation, step seconds
// apart and so many seconds late.
func (w *world) load(name string, step, late float64) {
	w.t.Helper()
	data, err := os.ReadFile(filepath.Join("../testdata/cases", name, "series.load"))
	if err != nil {
		w.t.Fatal(err)
	}
	p := parser.NewParser(parser.Options{})
	series := 0
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		series++
		ls, values, err := p.ParseSeriesDesc(line)
		if err != nil {
			w.t.Fatalf("%s: %v", line, err)
		}
		app := w.db.Appender(w.t.Context())
		for i, v := range values {
			if v.Omitted {
				continue
			}
			if _, err := app.Append(0, ls, at(float64(i)*step+late), v.Value); err != nil {
				w.t.Fatal(err)
			}
		}
		if err := app.Commit(); err != nil {
			w.t.Fatal(err)
		}
	}
	if series == 0 {
		w.t.Fatalf("%s has no series", name)
	}
}

// C23, S0-138 to S0-141: every package zone once, whatever other zones there
// are, active beside idle, the GPUs too.
func TestC23(t *testing.T) {
	w := newWorld(t)
	w.load("C23-preset-kepler-all-branches", 15, 0)
	set := using(t, "kepler", "components")
	w.want(set.Reading("node_power"), 300, `{node_name="edge-a"} 420.00 fresh`+"\n"+`{node_name="edge-b"} 80.00 fresh`)
	w.want(set.Reading("cpu_power"), 300, `{node_name="edge-a"} 120.00 fresh`+"\n"+`{node_name="edge-b"} 80.00 fresh`)
}

// C27: pushed points that are 12 s old read low by Prometheus's rate and right
// by covered_rate; the age shows.
func TestC27(t *testing.T) {
	w := newWorld(t)
	w.load("C27-preset-late-pushed-points", 10, -4)
	covered := mustLoad(t, Settings{}, shipped(t)...).Reading("node_power")
	w.want(covered, 316, `{k8s_node_name="edge-a"} 300.00 fresh`)
	w.want(covered, 328, `{k8s_node_name="edge-a"} 300.00 fresh`)
	if k := w.one(covered, 328); k.Age.Seconds() != 12 || k.Newest != at(316) {
		t.Errorf("age %s, newest %d; want 12s and %d", k.Age, k.Newest, at(316))
	}
	for window, want := range map[string]string{"30s": "230.00", "5m": "293.00"} {
		over := strings.ReplaceAll(nodePower, "[5m]", "["+window+"]")
		plain := reading(t, RatePrometheus, over, "k8s_node_name")
		w.want(plain, 328, `{k8s_node_name="edge-a"} `+want+" fresh")
		w.want(plain, 316, `{k8s_node_name="edge-a"} 300.00 fresh`)
	}
}

// C29, S0-136 and S0-137: active and idle add up across a wrap of the kernel's
// counter, which is not read.
func TestC29(t *testing.T) {
	w := newWorld(t)
	w.load("C29-preset-kepler-counter-wrap", 60, 0)
	for _, rate := range []string{RateCovered, RatePrometheus} {
		set := mustLoad(t, Settings{Rate: rate, Use: choices("kepler", "components")}, shipped(t)...)
		w.want(set.Reading("node_power"), 300, `{node_name="edge-a"} 200.00 fresh`)
		if q := set.Reading("node_power").Query; strings.Contains(q, "kepler_node_cpu_joules_total") {
			t.Errorf("S0-136: %s", q)
		}
	}
	wraps := reading(t, RatePrometheus, `sum by (node_name) (rate(kepler_node_cpu_joules_total[5m]))`, "node_name")
	w.want(wraps, 300, `{node_name="edge-a"} 150.42 fresh`)
}

// S0-133, S0-134, S0-142: both modes are summed, and the reading says what that
// means under a cap.
func TestKeplerLegacy(t *testing.T) {
	w := newWorld(t)
	for mode, watts := range map[string]float64{"idle": 60, "dynamic": 30} {
		w.counter(`kepler_node_package_joules_total{exported_instance="edge-a",instance="x:1",mode="`+mode+`"}`, watts, 0, 300, 15)
		w.counter(`kepler_node_gpu_joules_total{exported_instance="edge-a",instance="x:1",mode="`+mode+`"}`, watts/2, 0, 300, 15)
		w.counter(`kepler_node_platform_joules_total{exported_instance="edge-a",instance="x:1",mode="`+mode+`"}`, 2*watts, 0, 300, 15)
	}
	set := using(t, "kepler-legacy", "components")
	w.want(set.Reading("node_power"), 300, `{exported_instance="edge-a"} 135.00 fresh`)
	w.want(set.Reading("cpu_power"), 300, `{exported_instance="edge-a"} 90.00 fresh`)
	if note := set.Reading("node_power").Note; !strings.Contains(note, "more than the packages draw") {
		t.Errorf("S0-142: note %q", note)
	}
	w.want(using(t, "kepler-legacy", "host").Reading("node_power"), 300, `{exported_instance="edge-a"} 180.00 fresh`)
}

// A control that knows nodes by k8s_node_name reads whichever variant is used,
// each node by its own components.
func TestControlOverAVariantOfAnotherKey(t *testing.T) {
	control := local(quiet)
	w := newWorld(t)
	w.load("C23-preset-kepler-all-branches", 15, 0)
	c := using(t, "kepler", "components", control).Control("quiet")
	w.wantControl(c, 300, `{k8s_node_name="edge-a"} engage 100.00 fresh`+"\n"+`{k8s_node_name="edge-b"} release 400.00 fresh`)
	// The packages of edge-b go on, all else is late: only edge-a is stale.
	for s := 315.0; s <= 345; s += 15 {
		for zone, watts := range map[string][2]float64{"0": {30, 10}, "1": {25, 15}} {
			w.add(`kepler_node_cpu_active_joules_total{node_name="edge-b",zone="package-0-die-`+zone+`"}`, s, 1000+watts[0]*s)
			w.add(`kepler_node_cpu_idle_joules_total{node_name="edge-b",zone="package-0-die-`+zone+`"}`, s, 1000+watts[1]*s)
		}
	}
	w.wantControl(c, 346, `{k8s_node_name="edge-a"} engage 100.00 stale`+"\n"+`{k8s_node_name="edge-b"} release 400.00 fresh`)
}

// A reading over one whose key differs by variant, and a range over a variant
// that is a bare selector.
func TestReadingOverAVariantOfAnotherKey(t *testing.T) {
	over := local(`version: 1
readings:
  gpus:
    key: [k8s_node_name]
    expr: node_power - cpu_power
  temp:
    key: [k8s_node_name, hw_id]
    use: dcgm
    variants:
      dcgm: {key: [Hostname, gpu], expr: DCGM_FI_DEV_GPU_TEMP}
  peak:
    key: [k8s_node_name]
    expr: max by (k8s_node_name) (max_over_time(temp{hw_id="1"}[1m]) * 1)
`)
	set := using(t, "kepler", "components", over)
	w := newWorld(t)
	w.load("C23-preset-kepler-all-branches", 15, 0)
	w.gauge(`DCGM_FI_DEV_GPU_TEMP{Hostname="edge-a",gpu="1"}`, 70, 0, 300, 15)
	w.gauge(`DCGM_FI_DEV_GPU_TEMP{Hostname="edge-a",gpu="2"}`, 90, 0, 300, 15)
	w.want(set.Reading("gpus"), 300, `{k8s_node_name="edge-a"} 300.00 fresh`+"\n"+`{k8s_node_name="edge-b"} 0.00 fresh`)
	w.want(set.Reading("temp"), 300, `{Hostname="edge-a", gpu="1"} 70.00 fresh`+"\n"+`{Hostname="edge-a", gpu="2"} 90.00 fresh`)
	w.want(set.Reading("peak"), 300, `{k8s_node_name="edge-a"} 70.00 fresh`)
	if q := set.Reading("peak").Query; !strings.Contains(q, `max_over_time(DCGM_FI_DEV_GPU_TEMP{channel="",gpu="1"}[1m])`) {
		t.Errorf("peak runs %s", q)
	}
}

// What the configuration chooses is refused where the files do not have it, with
// the name of the setting.
func TestChoiceThatIsNotThere(t *testing.T) {
	f := func(preset, scope, want string) {
		t.Helper()
		_, messages := Load(shipped(t), Settings{Use: choices(preset, scope)})
		if len(messages) != 1 || !strings.HasPrefix(messages[0].String(), want) {
			t.Errorf("%s, %s: says\n%s\nwant\n%s", preset, scope, printed(messages), want)
		}
	}
	f("kepler", "host", "settings: error: presets.node_power.use (variable NODE_POWER_PRESET) is kepler, presets.node_power.scope (variable NODE_POWER_SCOPE) is host: there is no variant kepler-host; there are http, http-host, kepler, kepler-legacy, kepler-legacy-host, none, none-host, otel, otel-host")
	// A reading that a drop-in has replaced has nothing to choose among.
	_, messages := Load(append(shipped(t), local("version: 1\nreadings:\n  node_power: {replace: true, key: [k8s_node_name], expr: sum by (k8s_node_name) (watts)}\n")), Settings{Use: choices("kepler", "")})
	if HasErrors(messages) || !strings.Contains(printed(messages), "is kepler, but the reading has no variants here") {
		t.Errorf("says\n%s", printed(messages))
	}
}

// S0-80: what is off does not run, and who reads it is told how to turn it on.
func TestOff(t *testing.T) {
	off := Settings{Off: map[string]string{"presets/facility/preset.yaml": "off: turn it on"}}
	set := mustLoad(t, off, shipped(t)...)
	if set.Reading("rack_power") != nil || set.Reading("node_power") == nil {
		t.Error("rack_power runs, or node_power does not")
	}
	f := func(text, want string) {
		t.Helper()
		_, messages := Load(append(shipped(t), local("version: 1\nreadings:\n"+text)), off)
		if got := printed(messages); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("says\n%s\nwant\n%s", got, want)
		}
	}
	f("  r: {key: [joulie_rack_name], expr: max by (joulie_rack_name) (rack_power)}\n", "60-local.yaml:3:65: error: rack_power: off: turn it on")
	f("  rack_power: {stale_after: 1m}\n", "60-local.yaml:3:3: error: off: turn it on")
	f("  rack_power: {key: [rack], expr: max by (rack) (rack_watts)}\n", "") // the name is free
}

// Explain shows the variant that runs, where each word of it stands, and who chose.
func TestExplainVariant(t *testing.T) {
	text := using(t, "kepler-legacy", "host").Reading("node_power").Explain().String()
	for _, want := range []string{
		"variant kepler-legacy-host, of http, http-host, kepler, kepler-legacy, kepler-legacy-host, none, none-host, otel, otel-host\n",
		"note: the whole platform by its own meter; ",
		"presets/kepler-legacy/preset.yaml:", "settings", "variants.kepler-legacy-host.expr",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("explain lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "variants.otel") {
		t.Errorf("explain has another variant:\n%s", text)
	}
}

// C30: two exporters behind one scraper, each node by its own name.
func TestC30(t *testing.T) {
	w := newWorld(t)
	pages, err := filepath.Glob("../ingest/scrape/testdata/C30/*/*.prom")
	if err != nil || len(pages) != 12 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	for _, page := range pages {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		second, err := strconv.ParseInt(strings.TrimSuffix(filepath.Base(page), ".prom"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			ls, values, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(line)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			// As the scraper does (ingest/scrape, TestC30ExportedInstance).
			ls = labels.NewBuilder(ls).Set("exported_instance", ls.Get("instance")).Set("instance", filepath.Dir(page)).Labels()
			app := w.db.Appender(t.Context())
			if _, err := app.Append(0, ls, second*1000, values[0].Value); err != nil {
				t.Fatal(err)
			}
			if err := app.Commit(); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.want(using(t, "kepler-legacy", "components").Reading("node_power"), 300, `{exported_instance="edge-a"} 180.00 fresh`+"\n"+`{exported_instance="edge-b"} 150.00 fresh`)
}
