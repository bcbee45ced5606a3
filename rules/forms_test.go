package rules

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wattloop/wattloop/presets/names"
)

var strategies = names.Strategies()

const (
	infoForm     = ` * on (job, instance) group_left (k8s_node_name) max by (job, instance, k8s_node_name) (target_info and on (job, instance) `
	energyLeaf   = `rate(hw_energy_joules_total{hw_type=~"cpu|gpu"}[5m])`
	powerLeaf    = `hw_power_watts{hw_type=~"cpu|gpu"}`
	powerPlain   = `sum by (k8s_node_name) (max by (k8s_node_name, hw_type, hw_id) (` + energyLeaf + `) or on (k8s_node_name, hw_type, hw_id) max by (k8s_node_name, hw_type, hw_id) (` + powerLeaf + `))`
	powerByInfo  = `sum by (k8s_node_name) (max by (k8s_node_name, hw_type, hw_id) (` + energyLeaf + infoForm + energyLeaf + `)) or on (k8s_node_name, hw_type, hw_id) max by (k8s_node_name, hw_type, hw_id) (` + powerLeaf + infoForm + powerLeaf + `)))`
	packageZones = `{zone=~"package(-[0-9]+-die-[0-9]+)?"}`
	inletByBoth  = `max by (k8s_node_name) (hw_host_ambient_temperature_celsius{k8s_node_name!=""} or hw_host_ambient_temperature_celsius{k8s_node_name=""} * on (job, instance) group_left (k8s_node_name) max by (job, instance, k8s_node_name) (target_info and on (job, instance) hw_host_ambient_temperature_celsius{k8s_node_name=""}))`
)

// contract are the queries of the source document, byte for byte, at the default
// window and naming.
var contract = []struct{ id, preset, scope, attributes, reading, want string }{
	{"S0-116", "otel", "components", AttributesLabels, "node_power", powerPlain},
	{"S0-117", "otel", "components", AttributesTargetInfo, "node_power", powerByInfo},
	{"S0-118", "otel", "host", AttributesLabels, "node_power", `max by (k8s_node_name) (rate(hw_host_energy_joules_total[5m])) or on (k8s_node_name) max by (k8s_node_name) (hw_host_power_watts)`},
	{"S0-119", "otel", "", AttributesAuto, "facility_ambient_temperature", `avg(joulie_facility_ambient_temperature_celsius)`},
	{"S0-120", "otel", "", AttributesAuto, "facility_it_power", `sum(rate(joulie_facility_it_energy_joules_total[5m])) or sum(joulie_facility_it_power_watts)`},
	{"S0-121", "otel", "", AttributesAuto, "facility_cooling_power", `sum(rate(joulie_facility_cooling_energy_joules_total[5m])) or sum(joulie_facility_cooling_power_watts)`},
	{"S0-122", "otel", "", AttributesAuto, "cooling_zone_temperature", `avg by (joulie_cooling_zone_name) (joulie_cooling_zone_ambient_temperature_celsius)`},
	{"S0-123", "otel", "", AttributesAuto, "rack_power", `sum by (joulie_rack_name) (rate(joulie_rack_energy_joules_total[5m])) or on (joulie_rack_name) sum by (joulie_rack_name) (joulie_rack_power_watts)`},
	{"S0-124", "otel", "", AttributesTargetInfo, "node_inlet_temperature", inletByBoth},
	{"S0-132", "kepler", "components", AttributesAuto, "node_power", `sum by (node_name) (label_replace(rate(kepler_node_cpu_active_joules_total` + packageZones + `[5m]), "joulie_component", "cpu_active", "", "") or label_replace(rate(kepler_node_cpu_idle_joules_total` + packageZones + `[5m]), "joulie_component", "cpu_idle", "", "") or label_replace(rate(kepler_node_gpu_joules_total[5m]), "joulie_component", "gpu", "", ""))`},
	{"S0-133", "kepler-legacy", "components", AttributesAuto, "node_power", `sum by (exported_instance) (label_replace(rate(kepler_node_package_joules_total[5m]), "joulie_component", "cpu", "", "") or label_replace(rate(kepler_node_gpu_joules_total[5m]), "joulie_component", "gpu", "", ""))`},
	{"S0-134", "kepler-legacy", "host", AttributesAuto, "node_power", `sum by (exported_instance) (rate(kepler_node_platform_joules_total[5m]))`},
}

// words are a reading's queries as they were written, one a form.
func words(r *Reading) []string {
	var out []string
	for _, q := range r.Explain().Queries {
		out = append(out, q.Words)
	}
	return out
}

func TestContractQueriesOfEveryPreset(t *testing.T) {
	for _, c := range contract {
		t.Run(c.id, func(t *testing.T) {
			set := mustLoad(t, Settings{Use: choices(c.preset, c.scope), Attributes: c.attributes}, shipped(t)...)
			if got := words(set.Reading(c.reading)); len(got) != 1 || got[0] != c.want {
				t.Errorf("%s has the words\n%s\nwant\n%s", c.reading, strings.Join(got, "\n"), c.want)
			}
		})
	}
	// S0-130: auto has both forms, labels first.
	set := mustLoad(t, Settings{Attributes: AttributesAuto}, shipped(t)...)
	if diff := cmp.Diff([]string{powerPlain, powerByInfo}, words(set.Reading("node_power"))); diff != "" {
		t.Error(diff)
	}
	// S0-145: names in quotes, the metric first.
	set = mustLoad(t, Settings{Naming: string(names.NoUTF8EscapingWithSuffixes)}, shipped(t)...)
	if got := words(set.Reading("node_power"))[0]; !strings.Contains(got, `rate({"hw.energy_joules_total", "hw.type"=~"cpu|gpu"}[5m])`) || !strings.HasPrefix(got, `sum by ("k8s.node.name") (`) {
		t.Errorf("S0-145: %s", got)
	}
}

// TestGoldenQueries prints the query of every preset under every strategy, form
// and window. What is in the contract is held to it above.
func TestGoldenQueries(t *testing.T) {
	var b strings.Builder
	for _, preset := range []struct{ use, scope string }{
		{"otel", "components"}, {"otel", "host"}, {"kepler", "components"}, {"kepler-legacy", "components"}, {"kepler-legacy", "host"},
	} {
		for _, s := range strategies {
			for _, form := range []string{AttributesLabels, AttributesTargetInfo} {
				for _, window := range []time.Duration{5 * time.Minute, 30 * time.Second} {
					set := mustLoad(t, Settings{Use: choices(preset.use, preset.scope), Naming: string(s), Attributes: form, RateWindow: window}, shipped(t)...)
					fmt.Fprintf(&b, "# preset %s, scope %s, naming %s, attributes %s, window %s\n", preset.use, preset.scope, s, form, formatDuration(window))
					for _, r := range set.Readings {
						whole := preset.use == "otel" && preset.scope == "components"
						switch filepath.Base(filepath.Dir(r.File)) {
						case "otel", "facility", "kepler", "kepler-legacy":
						default:
							continue // none of the contract's
						}
						if whole || r.Name == "node_power" || r.Name == "cpu_power" && preset.scope == "components" {
							fmt.Fprintf(&b, "%s: %s\n", r.Name, words(r)[0])
						}
					}
					// What runs is the same but for rate(, covered, and the matcher
					// that keeps workloads out.
					r := set.Reading("node_power")
					if want := regexp.MustCompile(`\brate\(`).ReplaceAllString(words(r)[0], "covered_rate("); withoutChannel(r.Query) != want {
						t.Errorf("runs %s\nwant %s", r.Query, want)
					}
				}
			}
		}
	}
	const path = "testdata/queries.golden"
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("queries differ (-want +got):\n%s", diff)
	}
	for _, c := range contract { // the golden file holds the contract, too
		if c.scope != "" && !strings.Contains(string(want), c.reading+": "+c.want+"\n") {
			t.Errorf("%s is not in %s", c.id, path)
		}
	}
}

func withoutChannel(query string) string {
	return strings.NewReplacer(`{channel=""}`, "", `channel="",`, "", `,channel=""`, "", `, channel=""}`, `}`).Replace(query)
}

// forms loads the shipped rules under an attribute mode and the default naming.
func forms(t testing.TB, attributes string, more ...Source) *Set {
	t.Helper()
	return mustLoad(t, Settings{Attributes: attributes}, append(shipped(t), more...)...)
}

// C25, S0-165 and S0-166: two target_info of one target do not fail the preset,
// and a plain join fails.
func TestC25(t *testing.T) {
	for _, attributes := range []string{AttributesTargetInfo, AttributesAuto} {
		for rate, young := range map[string]string{RateCovered: "250.00 fresh", RatePrometheus: "- warming"} {
			w := newWorld(t)
			w.load("C25-preset-target-info-churn", 15, 0)
			set := mustLoad(t, Settings{Attributes: attributes, Rate: rate}, shipped(t)...)
			r := set.Reading("node_power")
			w.want(r, 180, `{k8s_node_name="edge-a"} `+young)
			if rate == RatePrometheus { // its value is S0-155's, which no rule sees
				got, err := w.db.Instant(t.Context(), set.Reading("node_power").Explain().Queries[len(words(r))-1].Expr, at(180))
				if err != nil || len(got) != 1 || got[0].V < 149.5 || got[0].V > 150.5 {
					t.Errorf("rate() answers %v, %v at 180; want 150", got, err)
				}
				continue
			}
			w.want(r, 300, `{k8s_node_name="edge-a"} 250.00 fresh`)
		}
	}
	w := newWorld(t)
	w.load("C25-preset-target-info-churn", 15, 0)
	plain := reading(t, RatePrometheus, `rate(hw_energy_joules_total[5m]) * on (job, instance) group_left (k8s_node_name) target_info`, "k8s_node_name")
	if _, err := w.eval.Reading(bg, plain, at(180)); err == nil || !strings.Contains(err.Error(), "many-to-many") {
		t.Errorf("the plain join answers %v; want many-to-many", err)
	}
}

// pushes appends what one producer on a node sends: a counter of a package and a
// gauge of a GPU, with the node by label or by target_info.
func (w *world) pushes(node, instance string, promoted, info bool, cpu, gpu, first, last float64) {
	w.t.Helper()
	own := ""
	if promoted {
		own = `,k8s_node_name="` + node + `"`
	}
	if cpu > 0 {
		w.counter(`hw_energy_joules_total{job="j",instance="`+instance+`",hw_type="cpu",hw_id="cpu0"`+own+`}`, cpu, first, last, 5)
	}
	if gpu > 0 {
		w.gauge(`hw_power_watts{job="j",instance="`+instance+`",hw_type="gpu",hw_id="gpu0"`+own+`}`, gpu, first, last, 5)
	}
	if info { // as the receiver does: now and then
		w.gauge(`target_info{job="j",instance="`+instance+`",k8s_node_name="`+node+`"}`, 1, first, last, 150)
	}
}

// S0-130, S0-131, S0-164: labels where they answer, target_info where they give
// nothing or something without a node.
func TestAuto(t *testing.T) {
	f := func(id, want string, fill func(*world)) {
		t.Helper()
		t.Run(id, func(t *testing.T) {
			w := newWorld(t)
			fill(w)
			w.want(forms(t, AttributesAuto).Reading("node_power"), 300, want)
		})
	}
	both := `{k8s_node_name="a"} 350.00 fresh` + "\n" + `{k8s_node_name="b"} 90.00 fresh`
	f("promoted", both, func(w *world) {
		w.pushes("a", "1", true, false, 100, 250, 0, 300)
		w.pushes("b", "2", true, false, 90, 0, 0, 300)
	})
	f("nothing promoted", both, func(w *world) {
		w.pushes("a", "1", false, true, 100, 250, 0, 300)
		w.pushes("b", "2", false, true, 90, 0, 0, 300)
	})
	f("one of two promoted", both, func(w *world) {
		w.pushes("a", "1", false, true, 100, 250, 0, 300)
		w.pushes("b", "2", true, true, 90, 0, 0, 300)
	})
	f("promoted without target_info beside one with", both, func(w *world) {
		w.pushes("a", "1", false, true, 100, 250, 0, 300)
		w.pushes("b", "2", true, false, 90, 0, 0, 300)
	})
	f("half of a node without target_info", `{k8s_node_name="a"} 250.00 fresh partial`, func(w *world) {
		w.pushes("a", "1", true, false, 100, 0, 0, 300)
		w.pushes("a", "2", false, true, 0, 250, 0, 300)
	})
	f("nobody's", "", func(w *world) { w.pushes("a", "1", false, false, 100, 250, 0, 300) })
	f("nothing", "", func(*world) {})
}

// In steady state auto asks for one form: the other costs nothing.
func TestAutoIsCheap(t *testing.T) {
	w := newWorld(t)
	w.pushes("a", "1", true, true, 100, 250, 0, 600)
	r := forms(t, AttributesAuto).Reading("node_power")
	w.read(r, 300)
	w.queries = 0
	w.read(r, 305)
	if w.queries != 1 {
		t.Errorf("%d queries; want 1", w.queries)
	}
}

// Quality by way of target_info is what it is by labels: warming, stale, partial,
// missing, and what a marker ended is forgotten.
func TestQualityIsTheSameInEveryForm(t *testing.T) {
	for _, promoted := range []bool{true, false} {
		for _, attributes := range []string{AttributesLabels, AttributesTargetInfo, AttributesAuto} {
			if !promoted && attributes == AttributesLabels {
				continue // finds no node
			}
			t.Run(fmt.Sprint(promoted, attributes), func(t *testing.T) {
				w := newWorld(t)
				r := forms(t, attributes).Reading("node_power")
				w.pushes("a", "1", promoted, true, 100, 0, 0, 0)
				w.want(r, 0, `{k8s_node_name="a"} - warming`)
				w.pushes("a", "1", promoted, true, 100, 0, 5, 1000)
				w.pushes("a", "2", promoted, true, 0, 250, 5, 300)
				w.want(r, 100, `{k8s_node_name="a"} 350.00 fresh`)
				w.want(r, 300, `{k8s_node_name="a"} 350.00 fresh`)
				w.want(r, 340, `{k8s_node_name="a"} 350.00 stale`)
				w.want(r, 700, `{k8s_node_name="a"} 100.00 fresh partial`)
				w.restart()
				w.want(r, 705, `{k8s_node_name="a"} 100.00 fresh partial`) // expected again from the past
				w.want(r, 1400, `{k8s_node_name="a"} - missing partial`)
				if k := w.one(r, 1400); k.Age < 300*time.Second {
					t.Errorf("age %s", k.Age)
				}
			})
		}
	}
}

// S0-167: two nodes behind one instance are an error, and no number.
func TestSharedInstance(t *testing.T) {
	for _, attributes := range []string{AttributesTargetInfo, AttributesAuto} {
		w := newWorld(t)
		r := forms(t, attributes).Reading("node_power")
		w.pushes("c", "3", true, false, 70, 0, 0, 300)
		w.pushes("a", "1", false, true, 100, 0, 0, 300)
		w.gauge(`target_info{job="j",instance="1",k8s_node_name="b"}`, 1, 0, 300, 150)
		got, err := w.eval.Reading(bg, r, at(300))
		for _, k := range got {
			if k.Valid || !strings.Contains(k.Err, "many-to-many") {
				t.Errorf("%s: %s answers %+v", attributes, k.Key, k)
			}
		}
		if err == nil && len(got) == 0 || err != nil && !strings.Contains(err.Error(), "many-to-many") {
			t.Errorf("%s: %v, %v; want an error of every key", attributes, got, err)
		}
	}
}

const quiet = `version: 1
controls:
  quiet:
    key: [k8s_node_name]
    engage: {when: node_power > 300}
    release: {when: node_power < 250}
    action: rapl.set_power_cap_watts
    target: {hw_type: cpu}
    value: 400 - (node_power - cpu_power)
    limits: {min: 60, max: 400}
    ttl: 30s
    purpose: efficiency
`

// A control decides by the form that its readings have, node by node.
func TestControlInEveryForm(t *testing.T) {
	w := newWorld(t)
	c := forms(t, AttributesAuto, local(quiet)).Control("quiet")
	w.pushes("a", "1", false, true, 100, 250, 0, 300)
	w.pushes("b", "2", true, false, 90, 0, 0, 300)
	w.wantControl(c, 300, `{k8s_node_name="a"} engage 150.00 fresh`+"\n"+`{k8s_node_name="b"} release 400.00 fresh`)
}

// What a control selects by itself is joined likewise.
func TestControlOwnSelectorsInEveryForm(t *testing.T) {
	own := strings.NewReplacer("node_power > 300", "max by (k8s_node_name) (hw_power_watts) > 200", "node_power < 250", "max by (k8s_node_name) (hw_power_watts) < 100",
		"400 - (node_power - cpu_power)", "100").Replace(quiet)
	for _, promoted := range []bool{true, false} {
		w := newWorld(t)
		c := forms(t, AttributesAuto, local(own)).Control("quiet")
		w.pushes("a", "1", promoted, true, 0, 250, 0, 300)
		w.wantControl(c, 300, `{k8s_node_name="a"} engage 100.00 fresh`)
	}
}
