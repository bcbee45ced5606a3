package names

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/otlptranslator"
)

var strategies = []Strategy{
	UnderscoreEscapingWithSuffixes, UnderscoreEscapingWithoutSuffixes,
	NoUTF8EscapingWithSuffixes, NoTranslation,
}

// S0-91, S0-148: every spelling in the table is the translator's own.
func TestSpellings(t *testing.T) {
	types := map[Kind]otlptranslator.MetricType{
		Counter:       otlptranslator.MetricTypeMonotonicCounter,
		UpDownCounter: otlptranslator.MetricTypeNonMonotonicCounter,
		Gauge:         otlptranslator.MetricTypeGauge,
	}
	for _, s := range strategies {
		namer := otlptranslator.NewMetricNamer("", otlptranslator.TranslationStrategyOption(s))
		build := func(m Metric, name string) string {
			got, err := namer.Build(otlptranslator.Metric{Name: name, Unit: m.Unit, Type: types[m.Kind]})
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		for _, m := range Metrics() {
			if got, want := m.Stored(s), build(m, m.Name); got != want {
				t.Errorf("%s: Stored(%s) = %s; the translator gives %s", m.Name, s, got, want)
			}
			// X15: a name sent with underscores for dots is stored alike.
			if under := strings.ReplaceAll(m.Name, ".", "_"); strings.HasPrefix(string(s), "Underscore") {
				if got := build(m, under); got != m.Stored(s) {
					t.Errorf("%s and %s are stored as %s and %s", m.Name, under, m.Stored(s), got)
				}
			}
		}
		labels := otlptranslator.LabelNamer{UTF8Allowed: strings.HasPrefix(string(s), "No")}
		for _, a := range Attributes() {
			want, err := labels.Build(a.Name)
			if err != nil {
				t.Fatal(err)
			}
			if got := a.Stored(s); got != want {
				t.Errorf("%s: Stored(%s) = %s; the translator gives %s", a.Name, s, got, want)
			}
		}
	}
	if got := (Metric{Name: "x"}).Stored("no such"); got != "" {
		t.Errorf(`Stored("no such") = %q; want ""`, got)
	}
}

var update = flag.Bool("update", false, "rewrite the golden files; read the diff before you accept it")

// S0-148: the fixture has every name of the table under every strategy, as the
// translator library spells it.
func TestGoldenNames(t *testing.T) {
	types := map[Kind]otlptranslator.MetricType{
		Counter: otlptranslator.MetricTypeMonotonicCounter,
		Gauge:   otlptranslator.MetricTypeGauge,
	}
	var b strings.Builder
	b.WriteString("sent\tunit\tkind")
	for _, s := range strategies {
		b.WriteString("\t" + string(s))
	}
	b.WriteString("\n")
	for _, m := range Metrics() {
		b.WriteString(m.Name + "\t" + m.Unit + "\t" + string(m.Kind))
		for _, s := range strategies {
			namer := otlptranslator.NewMetricNamer("", otlptranslator.TranslationStrategyOption(s))
			stored, err := namer.Build(otlptranslator.Metric{Name: m.Name, Unit: m.Unit, Type: types[m.Kind]})
			if err != nil {
				t.Fatal(err)
			}
			b.WriteString("\t" + stored)
			if back, ok := Respell(m.Stored(UnderscoreEscapingWithSuffixes), s); !ok || back != stored {
				t.Errorf("Respell(%s, %s) = %q, %v; want %s", m.Stored(UnderscoreEscapingWithSuffixes), s, back, ok, stored)
			}
		}
		b.WriteString("\n")
	}
	for _, a := range Attributes() {
		b.WriteString(a.Name + "\t\tattribute")
		for _, s := range strategies {
			labels := otlptranslator.LabelNamer{UTF8Allowed: strings.HasPrefix(string(s), "No")}
			stored, err := labels.Build(a.Name)
			if err != nil {
				t.Fatal(err)
			}
			b.WriteString("\t" + stored)
			if back, ok := RespellLabel(a.Stored(UnderscoreEscapingWithSuffixes), s); !ok || back != stored {
				t.Errorf("RespellLabel(%s, %s) = %q, %v; want %s", a.Stored(UnderscoreEscapingWithSuffixes), s, back, ok, stored)
			}
		}
		b.WriteString("\n")
	}
	const path = "testdata/prometheus-names.tsv"
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
		t.Errorf("%s differs (-want +got); make golden rewrites it:\n%s", path, diff)
	}
	for _, name := range []string{"hw.energy", "hw_energy"} {
		if m, ok := Sent(name); !ok || m.Name != "hw.energy" {
			t.Errorf("Sent(%s) = %v, %v", name, m, ok)
		}
	}
	if _, ok := Sent("hw-energy"); ok {
		t.Error("Sent finds hw-energy")
	}
	if _, ok := Respell("hw_energy_joule_total", NoTranslation); ok {
		t.Error("Respell finds a name of another unit")
	}
}

// S0-97 to S0-106: the names that the presets read.
func TestStoredNames(t *testing.T) {
	for _, want := range []struct {
		item, name, stored string
	}{
		{"S0-97", "hw.energy", "hw_energy_joules_total"},
		{"S0-98", "hw.power", "hw_power_watts"},
		{"S0-99", "hw.host.energy", "hw_host_energy_joules_total"},
		{"S0-100", "hw.host.power", "hw_host_power_watts"},
		{"S0-101", "hw.host.ambient_temperature", "hw_host_ambient_temperature_celsius"},
		{"S0-102", "joulie.facility.ambient_temperature", "joulie_facility_ambient_temperature_celsius"},
		{"S0-103", "joulie.facility.it.energy", "joulie_facility_it_energy_joules_total"},
		{"S0-103", "joulie.facility.it.power", "joulie_facility_it_power_watts"},
		{"S0-104", "joulie.facility.cooling.energy", "joulie_facility_cooling_energy_joules_total"},
		{"S0-104", "joulie.facility.cooling.power", "joulie_facility_cooling_power_watts"},
		{"S0-105", "joulie.cooling_zone.ambient_temperature", "joulie_cooling_zone_ambient_temperature_celsius"},
		{"S0-106", "joulie.rack.energy", "joulie_rack_energy_joules_total"},
		{"S0-106", "joulie.rack.power", "joulie_rack_power_watts"},
	} {
		m, ok := Lookup(want.name)
		if got := m.Stored(UnderscoreEscapingWithSuffixes); !ok || got != want.stored {
			t.Errorf("%s: %s is stored as %q; want %s", want.item, want.name, got, want.stored)
		}
	}
	for _, want := range []struct{ item, name, stored string }{
		{"S0-93", "k8s.node.name", "k8s_node_name"},
		{"S0-105", "joulie.cooling_zone.name", "joulie_cooling_zone_name"},
		{"S0-106", "joulie.rack.name", "joulie_rack_name"},
	} {
		found := false
		for _, a := range Attributes() {
			found = found || a.Name == want.name && a.Stored(UnderscoreEscapingWithSuffixes) == want.stored
		}
		if !found {
			t.Errorf("%s: no attribute %s stored as %s", want.item, want.name, want.stored)
		}
	}
	if _, ok := Lookup("hw.nothing"); ok {
		t.Error("Lookup finds a name that is not in the table")
	}
}
