package engine

import (
	"github.com/prometheus/prometheus/model/labels"

	"github.com/wattloop/wattloop/actuate"
)

// The series that a step writes back. docs/metrics.md lists them.
const (
	seriesReading        = "wattloop_reading"                 // value of a reading, in its own unit
	seriesEngaged        = "wattloop_control_engaged"         // 1 while a control is engaged or holding
	seriesHeld           = "wattloop_control_held_seconds"    // how long a condition has held
	seriesIntentWatts    = "wattloop_intent_watts"            // what a control wants of a device
	seriesIntentThrottle = "wattloop_intent_throttle_percent" // the same for dvfs
	seriesCap            = "wattloop_cap_watts"               // what a device was read to hold
	seriesOutcome        = "wattloop_outcome"                 // 1 for the result and reason that stand
)

const nameLabel = "__name__"

// fact is one sample of a step.
type fact struct {
	labels labels.Labels
	value  float64
	// stands says that the step has nothing new of the series, which goes on all
	// the same.
	stands bool
}

// facts lists what the store keeps of a step.
func (rep *Report) facts() []fact {
	var out []fact
	for _, r := range rep.Readings {
		if r.Valid {
			out = append(out, fact{named(seriesReading, r.Key, "reading", r.Name), r.Value, r.TS != rep.TS})
		}
	}
	asking := map[string]bool{}
	for _, c := range rep.Controls {
		if c.Keyless {
			continue
		}
		engaged, stands := 0.0, c.TS != rep.TS && !c.slow && !c.Phase.asks()
		if c.Phase.asks() {
			engaged = 1
			asking[c.Name+c.Key.String()] = true
		}
		out = append(out, fact{named(seriesEngaged, c.Key, "control", c.Name), engaged, stands})
		if c.Engage >= 0 {
			out = append(out, fact{named(seriesHeld, c.Key, "control", c.Name, "condition", "engage"), c.Engage.Seconds(), stands})
		}
		if c.Release >= 0 {
			out = append(out, fact{named(seriesHeld, c.Key, "control", c.Name, "condition", "release"), c.Release.Seconds(), stands})
		}
	}
	for _, o := range rep.Outcomes {
		key := rep.keys[o.Key]
		out = append(out, fact{labels: named(seriesOutcome, key, "control", o.Control, "device", o.Name, "action", o.Action,
			"result", o.Result, "reason", o.Reason), value: 1})
		if asking[o.Control+o.Key] {
			out = append(out, fact{labels: named(intentSeries(o.Action), key, "control", o.Control, "device", o.Name), value: o.Desired})
		}
	}
	for _, d := range rep.Devices {
		if d.Unit == "W" && d.Known {
			out = append(out, fact{labels: named(seriesCap, labels.EmptyLabels(), "device", d.Name), value: d.Current})
		}
	}
	return out
}

func intentSeries(action string) string {
	if action == actuate.ActionThrottle {
		return seriesIntentThrottle
	}
	return seriesIntentWatts
}

// named builds the labels of one of the engine's own series: the metric, the
// rule's key, and pairs. A label without a value is left out, as everywhere in
// Prometheus.
func named(metric string, key labels.Labels, pairs ...string) labels.Labels {
	b := labels.NewBuilder(labels.EmptyLabels())
	key.Range(func(l labels.Label) { b.Set(keyLabel(l.Name), l.Value) })
	b.Set(nameLabel, metric)
	for i := 0; i < len(pairs); i += 2 {
		b.Set(pairs[i], pairs[i+1])
	}
	return b.Labels()
}

// keyLabel is a label of a rule's key as the engine's series carry it: one of
// their own labels' names becomes exported_NAME.
func keyLabel(name string) string {
	switch name {
	case nameLabel, "reading", "control", "condition", "device", "action", "result", "reason":
		return "exported_" + name
	}
	return name
}
