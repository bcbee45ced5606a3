package main

import (
	"fmt"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/wattloop/wattloop/actuate"
	"github.com/wattloop/wattloop/engine"
	"github.com/wattloop/wattloop/presets"
	"github.com/wattloop/wattloop/rules"
	rulesd "github.com/wattloop/wattloop/rules.d"
	"github.com/wattloop/wattloop/store"
)

// nodePowerAlone is the preset's node_power without anything beside it.
const nodePowerAlone = "version: 1\nreadings:\n  node_power:\n    unit: W\n    key: [k8s_node_name]\n    expr: >-\n      " + nodePowerQuery + "\n"

// arrivals measures the whole step of the engine that a sample of one node causes:
// which rules it feeds is known, as it is to the receiver; they are evaluated,
// acted upon, reported, logged and stored. Once with node_power alone, which is
// what the goal is for, and once with all that ships.
func arrivals(r run, db *store.DB, name string, now int64, key labels.Labels) error {
	for _, m := range []struct{ figure, rules, what string }{
		{"arrival_step_ms_", nodePowerAlone, fmt.Sprintf("the engine's step for an arrival, node_power alone; goal %g", goalDirtyKey)},
		{"arrival_step_shipped_ms_", "", "the same with the presets and controls that ship: three readings, and a control over 30 s that observes"},
	} {
		set, err := shippedRules(m.rules)
		if err != nil {
			return err
		}
		ts := now
		eng := engine.New(engine.Options{
			Rules: set, Query: queries(db), Interval: db.Interval, Store: db, Governor: &actuate.Governor{Link: actuate.NewDry(nil, nil)},
			Clock: func() time.Time { return time.UnixMilli(ts) },
		})
		if _, err := eng.Step(r.ctx, ts); err != nil { // all rules, all nodes
			return err
		}
		touched := eng.Touched(labels.NewBuilder(key).Set(labels.MetricName, "hw_energy_joules_total").Set("hw_type", "cpu").Set("hw_id", "cpu0").Labels())
		took, err := cpuTime(500, func() error {
			ts++
			eng.Grew(touched, ts)
			_, err := eng.Step(r.ctx, ts)
			return err
		})
		if err != nil {
			return err
		}
		if err := evaluatedAlone(eng.Report(), key, now); err != nil {
			return err
		}
		figure(m.figure+name, took.mid, "ms", fmt.Sprintf("%s; %s", took, m.what))
	}
	return nil
}

// evaluatedAlone says whether the steps since an instant evaluated node_power for
// the key and for no other.
func evaluatedAlone(rep *engine.Report, key labels.Labels, since int64) error {
	for _, k := range rep.Readings {
		if k.Name == "node_power" && (k.TS > since) != labels.Equal(k.Key, key) {
			return fmt.Errorf("after arrivals of %s node_power of %s was evaluated at %d, the whole at %d", key, k.Key, k.TS, since)
		}
	}
	return nil
}

// shippedRules is the set of a rule file, or all that ships where it is empty.
func shippedRules(file string) (*rules.Set, error) {
	sources := []rules.Source{{Name: "bench.yaml", Data: []byte(file)}}
	if file == "" {
		readings, err := rules.Sources(presets.Files, "presets")
		if err != nil {
			return nil, err
		}
		controls, err := rules.Sources(rulesd.Files, "rules.d")
		if err != nil {
			return nil, err
		}
		sources = append(readings, controls...)
	}
	set, messages := rules.Load(sources, rules.Settings{Off: map[string]string{"presets/facility/preset.yaml": "off, as it is by default"}})
	if set == nil {
		return nil, fmt.Errorf("rules: %v", messages)
	}
	return set, nil
}
