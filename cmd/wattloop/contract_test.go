package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	semconv "github.com/wattloop/wattloop/presets/names"
	"github.com/wattloop/wattloop/rules"
)

// S0-13: what is read and what is given back to the store has names of its own, and
// so has /metrics of this program. A name in both would be a reading that a scrape
// of our own page changes.
func TestNoNameIsBothInputAndMetric(t *testing.T) {
	w := wiring{env: map[string]string{cpuFrom: "host", "ENABLE_FACILITY_METRICS": "true"}}
	r := newStoryRig(t, w, "version: 1\n")
	r.building("r1")
	r.step(100, false)
	r.building("r1")
	r.step(100, false)

	contract := map[string]string{} // name -> what of the contract has it
	for _, m := range semconv.Metrics() {
		for _, s := range []semconv.Strategy{semconv.UnderscoreEscapingWithSuffixes, semconv.UnderscoreEscapingWithoutSuffixes, semconv.NoUTF8EscapingWithSuffixes, semconv.NoTranslation} {
			contract[m.Stored(s)] = "the names table"
		}
	}
	for _, preset := range []string{"otel", "kepler", "kepler-legacy", "http"} {
		c, err := loaded(t, "presets: {facility: {enabled: true}}", "", func(name string) (string, bool) {
			v, ok := map[string]string{"NODE_POWER_PRESET": preset}[name]
			if preset == "http" {
				v, ok = map[string]string{powerFrom: "http", powerAt: "http://x/{node}", cpuFrom: "http", cpuAt: "http://x/{node}"}[name]
			}
			return v, ok
		})
		if err != nil {
			t.Fatal(err)
		}
		set, _, err := c.loadRules()
		if err != nil {
			t.Fatal(err)
		}
		for _, reading := range set.Readings {
			for _, selector := range set.Selectors(reading.Name) {
				i := slices.IndexFunc(selector, func(m *labels.Matcher) bool { return m.Name == "__name__" })
				if i < 0 {
					t.Fatalf("%s: %v has no name", reading.Name, selector)
				}
				contract[selector[i].Value] = "reading " + reading.Name
			}
		}
	}
	stored, err := r.parts.db.Instant(t.Context(), `count by (__name__) ({__name__=~".+"})`, r.now().UnixMilli())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range stored {
		contract[s.Metric.Get("__name__")] = "the store"
	}

	metrics := map[string]bool{}
	families, err := r.parts.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		metrics[f.GetName()] = true
	}
	// The page has those too that are counted once something happens.
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, ours, _ := strings.Cut(string(page), "## Metrics at")
	for _, m := range regexp.MustCompile("`((?:wattloop|joulie)_[a-z_]+)").FindAllStringSubmatch(ours, -1) {
		metrics[m[1]] = true
	}
	suffixes := regexp.MustCompile(`_(bucket|sum|count)$`)
	for name, of := range contract {
		if metrics[name] || metrics[suffixes.ReplaceAllString(name, "")] {
			t.Errorf("%s is a metric at /metrics and a name of %s", name, of)
		}
	}
	for _, want := range []string{"hw_energy_joules_total", "joulie_rack_power_watts", "kepler_node_package_joules_total", "wattloop_input_power_watts", "wattloop_reading", "wattloop_cap_watts", "wattloop_twin_spec_cpu_cap_watts"} {
		if contract[want] == "" {
			t.Errorf("%s is no name of the contract: the test looks past it", want)
		}
	}
	for _, want := range []string{"joulie_twin_input_queries_total", "joulie_twin_facility_rack_power_watts", "wattloop_eval_seconds", "wattloop_ingest_points_total", "wattloop_pull_polls_total"} {
		if !metrics[want] {
			t.Errorf("%s is no metric: the test looks past it", want)
		}
	}
}

// building has a producer report racks and cooling zones of these names, the i-th
// at i times 100 W and at 20 + i degrees, and kube-state-metrics the labels of a
// node in each.
func (r *storyRig) building(names ...string) {
	r.t.Helper()
	type m = map[string]any
	attr := func(key, v string) m { return m{"key": key, "value": m{"stringValue": v}} }
	var racks, zones, nodes []m
	for i, name := range names {
		at := func(v float64, attrs ...m) m {
			return m{"attributes": attrs, "timeUnixNano": fmt.Sprint(r.now().UnixNano()), "asDouble": v}
		}
		racks = append(racks, at(float64(100*i), attr("joulie.rack.name", name)))
		zones = append(zones, at(float64(20+i), attr("joulie.cooling_zone.name", name)))
		nodes = append(nodes, at(1, attr("node", fmt.Sprint("node", i)), attr("label_joulie_io_rack", name), attr("label_joulie_io_cooling_zone", name)))
	}
	nodes = append(nodes, m{"attributes": []m{attr("node", "elsewhere"), attr("label_joulie_io_rack", "none-such")}, "timeUnixNano": fmt.Sprint(r.now().UnixNano()), "asDouble": 1})
	gauge := func(name, unit string, points []m) m {
		return m{"name": name, "unit": unit, "gauge": m{"dataPoints": points}}
	}
	body := mustJSON(r.t, m{"resourceMetrics": []m{{
		"resource": m{"attributes": []m{attr("service.instance.id", "building")}},
		"scopeMetrics": []m{{"metrics": []m{
			gauge("joulie.rack.power", "W", racks), gauge("joulie.cooling_zone.ambient_temperature", "Cel", zones), gauge("kube_node_labels", "", nodes),
		}}},
	}}})
	if res, err := r.parts.recv.Channel(defaultChannel).ExportJSON(r.t.Context(), body); err != nil || res.Rejected > 0 {
		r.t.Fatalf("%+v, %v", res, err)
	}
}

// S0-115: the names of racks and cooling zones are those of the nodes' labels
// joulie.io/rack and joulie.io/cooling-zone, letter for letter in every spelling
// that a label's value may have, so that each node finds its own rack and zone by
// them; the reading of docs/joulie.md does.
func TestRackNamesAreThoseOfTheNodeLabels(t *testing.T) {
	page, err := os.ReadFile("../../docs/joulie.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "## Racks and cooling zones")
	_, text, _ = strings.Cut(text, "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	longest := strings.Repeat("x", 63)
	names := []string{"r1", "R1", "row-3.rack_07", "r-1", "r.1", "r_1", "0", longest}
	r := newStoryRig(t, wiring{env: map[string]string{cpuFrom: "host", "ENABLE_FACILITY_METRICS": "true"}}, text)
	r.building(names...)
	rep := r.step(100, false)

	type row struct {
		reading, key string
	}
	got := map[row]float64{}
	for _, k := range rep.Readings {
		if k.Valid && k.Quality == rules.Fresh {
			got[row{k.Name, k.Key.String()}] = k.Value
		}
	}
	read := func(reading, label, value string, want float64) {
		t.Helper()
		at := row{reading, labels.FromStrings(label, value).String()}
		if v, ok := got[at]; !ok || v != want {
			t.Errorf("%s %s reads %g, %v; want %g", at.reading, at.key, v, ok, want)
		}
		delete(got, at)
	}
	metrics := r.gauges("joulie_twin_facility_")
	for i, name := range names {
		read("rack_power", "joulie_rack_name", name, float64(100*i))
		read("cooling_zone_temperature", "joulie_cooling_zone_name", name, float64(20+i))
		read("node_rack_power", "node", fmt.Sprint("node", i), float64(100*i))
		for metric, want := range map[string]float64{
			fmt.Sprintf("joulie_twin_facility_rack_power_watts rack=%s", name):                         float64(100 * i),
			fmt.Sprintf("joulie_twin_facility_cooling_zone_temperature_celsius cooling_zone=%s", name): float64(20 + i),
		} {
			if v, ok := metrics[metric]; !ok || v != want {
				t.Errorf("/metrics has %s as %g, %v; want %g", metric, v, ok, want)
			}
			delete(metrics, metric)
		}
	}
	for at := range got {
		if at.reading == "node_rack_power" || at.reading == "rack_power" || at.reading == "cooling_zone_temperature" {
			t.Errorf("%s has %s too", at.reading, at.key)
		}
	}
	if len(metrics) > 0 {
		t.Errorf("/metrics has %v too", metrics)
	}
}

// gauges are the values of the metrics whose name begins so, by name and labels.
func (r *storyRig) gauges(prefix string) map[string]float64 {
	r.t.Helper()
	families, err := r.parts.reg.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), prefix) {
			continue
		}
		for _, m := range f.GetMetric() {
			id := f.GetName()
			for _, l := range m.GetLabel() {
				id += " " + l.GetName() + "=" + l.GetValue()
			}
			out[id] = m.GetGauge().GetValue()
		}
	}
	return out
}
