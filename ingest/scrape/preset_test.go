package scrape

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"testing"

	"github.com/wattloop/wattloop/presets"
	"github.com/wattloop/wattloop/rules"
	rulesd "github.com/wattloop/wattloop/rules.d"
)

// reading evaluates node_power of a shipped preset at T0+300.
func (r *rig) reading(preset, rate string) []string {
	r.t.Helper()
	var all []rules.Source
	for _, tree := range []struct {
		prefix string
		files  fs.FS
	}{{"presets", presets.Files}, {"rules.d", rulesd.Files}} {
		sources, err := rules.Sources(tree.files, tree.prefix)
		if err != nil {
			r.t.Fatal(err)
		}
		all = append(all, sources...)
	}
	use := rules.Choice{Use: preset}
	set, messages := rules.Load(all, rules.Settings{Rate: rate, Use: map[string]rules.Choice{"node_power": use, "cpu_power": use}})
	if len(messages) > 0 {
		r.t.Fatal(messages)
	}
	eval := rules.Evaluator{Interval: r.db.Interval, Query: func(ctx context.Context, expr string, ts int64) ([]rules.Sample, error) {
		got, err := r.db.Instant(ctx, expr, ts)
		var out []rules.Sample
		for _, s := range got {
			out = append(out, rules.Sample{Metric: s.Metric, T: s.T, V: s.V})
		}
		return out, err
	}}
	eval.Begin()
	keys, err := eval.Reading(r.t.Context(), set.Reading("node_power"), base+300_000)
	if err != nil {
		r.t.Fatal(err)
	}
	var out []string
	for _, k := range keys {
		out = append(out, fmt.Sprintf("%s %.2f %v", k.Key, k.Value, k.Valid))
	}
	slices.Sort(out)
	return out
}

// C30 by the shipped preset, in both ways of reading a rate, whether or not the
// configuration gives the nodes' names.
func TestC30KeplerLegacy(t *testing.T) {
	for _, named := range []bool{false, true} {
		r := newRig(t)
		a, b := Target{URL: "http://10.0.0.5:9102/metrics"}, Target{URL: "http://10.0.0.6:9102/metrics"}
		if named {
			a.Node, b.Node = "edge-a", "edge-b"
		}
		pagesA, pagesB := casePages(t, "C30/edge-a"), casePages(t, "C30/edge-b")
		for _, at := range slices.Sorted(maps.Keys(pagesA)) {
			r.scrape(a, at, pagesA[at])
			r.scrape(b, at, pagesB[at])
		}
		for _, rate := range []string{rules.RatePrometheus, rules.RateCovered} {
			wantLines(t, rate, r.reading("kepler-legacy", rate),
				`{exported_instance="edge-a"} 180.00 true`, `{exported_instance="edge-b"} 150.00 true`)
		}
	}
}
