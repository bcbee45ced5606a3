package ingest

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// S0-146: a metric that the presets would read, but for its unit or its kind, is
// told of once, with what to do; one that they find under its stored name is not.
func TestSpellingIsTold(t *testing.T) {
	f := func(naming Naming, name, unit string, counter bool, want ...string) {
		t.Helper()
		var said bytes.Buffer
		b := newBed(t, func(o *Options) { o.Logger, o.Naming = slog.New(slog.NewTextHandler(&said, nil)), naming })
		for i := range 3 {
			p := newPayload(append(node, "service.name", fmt.Sprint(i))...) // three producers
			if counter {
				p.sum(name, unit, cumulative, -1000, int64(i), 1, "hw.id", "cpu0")
			} else {
				p.gauge(name, unit, int64(i), 1, "hw.id", "cpu0")
			}
			checkResult(t, b.export(p.md), 1, 0, nil)
		}
		lines := strings.Count(said.String(), "no preset reads")
		if len(want) == 0 && lines != 0 || len(want) > 0 && lines != 1 {
			t.Errorf("%s %s in %s: told %d times:\n%s", naming, name, unit, lines, &said)
		}
		for _, w := range want {
			if !strings.Contains(said.String(), w) {
				t.Errorf("%s in %s: said\n%s\nwant %s", name, unit, &said, w)
			}
		}
	}
	with, without, utf8, none := Namings()[0], Namings()[1], Namings()[2], Namings()[3]
	f(with, "hw.energy", "joule", true, "metric=hw.energy", "channel=default", "unit=joule", "want_unit=J", "want_kind=counter",
		"stored=hw_energy_joule_total", "presets_read=hw_energy_joules_total")
	f(with, "hw_energy", "joule", true, "stored=hw_energy_joule_total") // X15
	f(with, "hw.energy", "J", false, "stored=hw_energy_joules ", "want_kind=counter")
	f(with, "hw.power", "kW", false, "presets_read=hw_power_watts")
	f(with, "joulie.rack.power", "watt", false, "stored=joulie_rack_power_watt", "presets_read=joulie_rack_power_watts")
	f(utf8, "hw.energy", "joule", true, "stored=hw.energy_joule_total")
	f(with, "hw.energy", "J", true)
	f(without, "hw.energy", "joule", true) // there the unit is in no name
	f(none, "hw.power", "kW", false)
	f(with, "disk.energy", "joule", true) // not in the table
}

// No preset reads what a workload sends, and it may send any number of names.
func TestSpellingOfAWorkloadIsNotTold(t *testing.T) {
	var said bytes.Buffer
	b := newBed(t, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&said, nil)) })
	ch, err := b.r.AddChannel(ChannelOptions{Name: "w", Class: Workload})
	if err != nil {
		t.Fatal(err)
	}
	a, err := ch.Activate(actor, instant(0), instant(0))
	if err != nil {
		t.Fatal(err)
	}
	p := newPayload("service.name", "x")
	p.gauge("hw.power", "kW", 0, 1, "hw.id", "cpu0")
	if res, err := a.Export(t.Context(), wireOf(t, p.md)); err != nil || res.Accepted != 1 {
		t.Fatalf("%+v, %v", res, err)
	}
	if strings.Contains(said.String(), "no preset reads") {
		t.Error(said.String())
	}
}
