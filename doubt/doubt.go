// Package doubt looks at what is stored for what no rule can see of a reading: two
// energy counters that are one, and a node whose GPUs its meter leaves out. It says
// so and changes no reading: the queries of the presets stay as they are.
package doubt

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/wattloop/wattloop/presets/names"
)

// The kinds of doubts.
const (
	// Mirrored: energy counters of one node move together, sample by sample, as
	// where a machine shows one package counter in the zone of every die. A sum
	// counts the energy as often as there are counters (decisions.md X11).
	Mirrored = "mirrored_energy_counter"
	// NoGPUEnergy: Kepler counts no energy of a node's GPUs, which others report,
	// so that the node seems to have more headroom than it has (S0-168).
	NoGPUEnergy = "no_gpu_energy"
)

// Doubt is one thing that makes the readings of a node wrong.
type Doubt struct {
	Kind string
	Node string
	What string // which counters, or whose GPUs, for people
}

// Looker asks the store.
type Looker struct {
	// Query answers a PromQL expression at an instant, Unix milliseconds.
	Query  func(ctx context.Context, expr string, ts int64) ([]Sample, error)
	Naming names.Strategy
	Kepler bool // node_power is read from Kepler
}

// Sample is one element of an answer.
type Sample struct {
	Metric labels.Labels
	V      float64
}

// Look returns the doubts at an instant, Unix milliseconds, sorted.
func (l Looker) Look(ctx context.Context, ts int64) ([]Doubt, error) {
	all, err := l.mirrored(ctx, ts)
	if err != nil {
		return nil, err
	}
	if l.Kepler {
		gpus, err := l.withoutGPU(ctx, ts)
		if err != nil {
			return nil, err
		}
		all = append(all, gpus...)
	}
	slices.SortFunc(all, func(a, b Doubt) int {
		return strings.Compare(a.Kind+"\x00"+a.Node+"\x00"+a.What, b.Kind+"\x00"+b.Node+"\x00"+b.What)
	})
	return all, nil
}

// stored spells a name of the table.
func (l Looker) stored(name string) string {
	m, _ := names.Lookup(name)
	return m.Stored(l.Naming)
}

func (l Looker) label(name string) string {
	for _, a := range names.Attributes() {
		if a.Name == name {
			return a.Stored(l.Naming)
		}
	}
	return name
}

// selector quotes all names, which PromQL takes under every strategy. What an
// untrusted channel says is left out.
func selector(metric string, matchers ...string) string {
	return fmt.Sprintf("{%q,channel=\"\"%s}", metric, strings.Join(append([]string{""}, matchers...), ","))
}
