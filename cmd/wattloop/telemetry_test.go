package main

import (
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/wattloop/wattloop/ingest/pull"
	semconv "github.com/wattloop/wattloop/presets/names"
	"github.com/wattloop/wattloop/twin"
)

// S0-70, S0-71: what one wattloop serves, another reads: the gauge while the
// counter warms up, the counter from then on, and no watt of a sample that is old.
func TestServedTelemetryIsRead(t *testing.T) {
	const at = 1760000060_000
	meter := func(name, kind, id string, ms int64, v float64) twin.Meter {
		return twin.Meter{Labels: labels.FromStrings("__name__", name, "hw_type", kind, "hw_id", id, "instance", "worker-01", "k8s_node_name", "worker-01"), T: ms, Interval: 5000, V: v}
	}
	agent, controller := pull.Reader{Role: pull.Agent}, pull.Reader{Role: pull.Controller, Window: 5 * time.Minute}
	f := func(now int64, wantAgent, wantController float64, meters ...twin.Meter) {
		t.Helper()
		doc, err := twin.Telemetry(meters, semconv.UnderscoreEscapingWithSuffixes, now)
		if err != nil {
			t.Fatal(err)
		}
		for r, want := range map[*pull.Reader]float64{&agent: wantAgent, &controller: wantController} {
			parsed, err := pull.Parse(doc, "worker-01")
			if err != nil {
				t.Fatal(err)
			}
			got, err := r.Read(parsed)
			if fresh := got.Quality == pull.Fresh; err != nil || fresh != (want > 0) || fresh && got.Watts != want {
				t.Errorf("%s at %d: %+v, %v; want %g W", r.Role, now, got, err, want)
			}
		}
	}
	energy, power := "hw_energy_joules_total", "hw_power_watts"
	f(at, 240, 440, meter(energy, "cpu", "cpu0", at, 15000), meter(power, "cpu", "cpu0", at, 240), meter(power, "gpu", "gpu0", at, 200))
	f(at+60_000, 250, 450, meter(energy, "cpu", "cpu0", at+60_000, 30000), meter(power, "gpu", "gpu0", at+60_000, 200))
	f(at+120_000, 250, 250, meter(energy, "cpu", "cpu0", at+120_000, 45000), meter(power, "gpu", "gpu0", at+90_000, 200))
	f(at+180_000, 0, 0, meter(energy, "cpu", "cpu0", at+120_000, 45000))
}
