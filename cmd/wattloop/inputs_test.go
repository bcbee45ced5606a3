package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// S0-170, S0-171: one line for each input with all that decides what it reads;
// after a reload those that have changed.
func TestInputLines(t *testing.T) {
	var out bytes.Buffer
	p := &parts{log: slog.New(slog.NewTextHandler(&out, nil))}
	f := func(text string, want ...string) {
		t.Helper()
		c, err := loaded(t, text+"\nstorage.path: /data\nrules: []", "", noEnv)
		if err != nil {
			t.Fatal(err)
		}
		set, _, err := c.loadRules()
		if err != nil {
			t.Fatal(err)
		}
		p.c = c
		out.Reset()
		p.tellInputs(set, c.Attributes)
		got := strings.Count(out.String(), ": source store, address /data, preset ")
		if got != len(want) {
			t.Errorf("%s: %d lines; want %d:\n%s", text, got, len(want), out.String())
		}
		for line := range strings.Lines(out.String()) {
			if short, _, _ := strings.Cut(line, " query="); len(short) > 320 {
				t.Errorf("%s: %d characters before the query: %s", text, len(short), short)
			}
		}
		for _, w := range want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("%s: no %q in\n%s", text, w, out.String())
			}
		}
	}
	const rest = "naming UnderscoreEscapingWithSuffixes, attributes "
	f("", `"input node_power: source store, address /data, preset otel, scope components, `+rest+`auto (labels, then target_info), window 5m, rate covered" query="sum by (k8s_node_name) (max by (k8s_node_name, hw_type, hw_id) (rate(`)
	f("")
	f("presets: {node_power: {scope: host}}", "preset otel, scope host, "+rest+"auto (labels, then target_info), window 5m, rate covered\" query=\"max by (k8s_node_name)")
	f("presets: {node_power: {attributes: labels}}", "preset otel, scope components, "+rest+"labels, window 5m")
	f("presets: {node_power: {attributes: target_info}}", "preset otel, scope components, "+rest+"target_info, window 5m")
	f("presets: {node_power: {use: kepler}}\nrate_window: 2m\nrate: prometheus", "preset kepler, scope components, "+rest+"-, window 2m, rate prometheus\" query=\"sum by (node_name)")
	if !strings.Contains(out.String(), "input node_power: GPUs count only with Kepler 0.12") {
		t.Errorf("no note of the preset:\n%s", out.String())
	}
	f("presets: {node_power: {use: kepler-legacy, scope: host}}", "preset kepler-legacy, scope host, "+rest+"-, window 5m")
	f("presets: {node_power: {use: kepler-legacy, scope: host}, facility: {enabled: true}}",
		"input facility ambient_temperature: source store, address /data, preset facility, scope -, "+rest+"-, window -, rate covered\" query=avg(joulie_facility_ambient_temperature_celsius",
		"input facility it_power: ", "input facility cooling_power: ", "input facility cooling_zone_temperature: ", "input facility rack_power: ",
		"input facility node_inlet_temperature: source store, address /data, preset facility, scope -, "+rest+"labels and target_info, window -, ")
}
