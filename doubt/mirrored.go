package doubt

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
)

const (
	// Two counters are one when they grow alike over each of these steps: packages
	// of their own lie further apart than a thousandth, even idle ones. Of slow
	// exporters a step may hold no new sample.
	mirrorSteps     = 5
	mirrorMoves     = 3      // steps in which they must have grown
	mirrorStep      = 60_000 // ms
	mirrorTolerance = 1e-3
)

// counters are one kind of energy counters, by node and id.
type counters struct{ expr, node, id string }

func (l Looker) counters() []counters {
	node, typ, id := l.label("k8s.node.name"), l.label("hw.type"), l.label("hw.id")
	return []counters{
		{fmt.Sprintf("max by (%q, %q) (%s)", node, id, selector(l.stored("hw.energy"), fmt.Sprintf(`%q="cpu"`, typ))), node, id},
		{`sum by (node_name, zone) ({__name__=~"kepler_node_cpu_(active|idle)_joules_total",channel="",zone=~"package-[0-9]+-die-[0-9]+"})`, "node_name", "zone"},
	}
}

// track is what one counter showed at each instant, the oldest first.
type track struct {
	node, id string
	at       [mirrorSteps + 1]float64
	n        int
}

func (l Looker) mirrored(ctx context.Context, ts int64) ([]Doubt, error) {
	var out []Doubt
	for _, c := range l.counters() {
		tracks, err := l.tracks(ctx, c, ts)
		if err != nil {
			return nil, err
		}
		for i, a := range tracks {
			for _, b := range tracks[i+1:] {
				if b.node != a.node { // they are sorted
					break
				}
				if a.mirrors(b) {
					out = append(out, Doubt{Mirrored, a.node, "the energy counters of " + a.id + " and " + b.id + " move as one: their sum counts the same joules twice"})
				}
			}
		}
	}
	return out, nil
}

// tracks are the counters that answer at every instant, in the order of node and
// id. Where none answers now, nothing is asked of before.
func (l Looker) tracks(ctx context.Context, c counters, ts int64) ([]*track, error) {
	byKey := map[string]*track{}
	for step := mirrorSteps; step >= 0; step-- {
		got, err := l.Query(ctx, c.expr, ts-int64(mirrorSteps-step)*mirrorStep)
		if err != nil || len(got) == 0 {
			return nil, err
		}
		for _, s := range got {
			t := &track{node: s.Metric.Get(c.node), id: s.Metric.Get(c.id)}
			key := t.node + "\x00" + t.id
			if byKey[key] == nil {
				byKey[key] = t
			}
			byKey[key].at[step] = s.V
			byKey[key].n++
		}
	}
	var all []*track
	for _, t := range byKey {
		if t.n == mirrorSteps+1 {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b *track) int { return strings.Compare(a.node+"\x00"+a.id, b.node+"\x00"+b.id) })
	return all, nil
}

// mirrors reports whether both grew by the same in every step, and stand where the
// same counter would stand.
func (a *track) mirrors(b *track) bool {
	moved, moves := 0.0, 0
	for i := 1; i < len(a.at); i++ {
		da, db := a.at[i]-a.at[i-1], b.at[i]-b.at[i-1]
		if da < 0 || db < 0 || math.Abs(da-db) > mirrorTolerance*max(da, db) {
			return false
		}
		if da > 0 {
			moves++
		}
		moved += da
	}
	return moves >= mirrorMoves && math.Abs(a.at[0]-b.at[0]) <= moved
}
