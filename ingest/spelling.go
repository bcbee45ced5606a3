package ingest

import "github.com/wattloop/wattloop/presets/names"

// maxMisspelt bounds how many metrics are told of: more than a few are one
// producer's habit.
const maxMisspelt = 16

// tellSpelling says once of a metric that the presets read under its name, and
// that is stored under another because of its unit or its kind: a unit of joule
// makes hw_energy_joule_total (S0-146). Nobody reads what a workload calls so.
func (w *walk) tellSpelling(m *metric) {
	if m.bad != 0 || w.src.channel == nil || w.src.channel.o.Class != Node || len(w.misspelt) >= maxMisspelt || w.misspelt[m.stored] {
		return
	}
	known, ok := names.Sent(m.name)
	if !ok {
		return
	}
	want := known.Stored(names.Strategy(w.o.Naming))
	if want == "" || want == m.stored {
		return
	}
	if w.misspelt == nil {
		w.misspelt = map[string]bool{}
	}
	w.misspelt[m.stored] = true
	w.o.Logger.Warn("a metric is stored under a name that no preset reads; have its producer send it as the unit and kind that it is known by",
		"metric", m.name, "channel", w.src.channel.Name(), "unit", m.unit, "want_unit", known.Unit, "want_kind", known.Kind,
		"stored", m.stored, "presets_read", want)
}
