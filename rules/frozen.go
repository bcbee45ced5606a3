package rules

import (
	"fmt"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/wattloop/wattloop/presets/names"
)

// minFrozen is how many samples a window holds at least before a counter that
// stands still in it is called frozen: as many as a rate needs, so that no 0 W of
// a source that measures more slowly than it exports is ever fresh.
const minFrozen = 2

const (
	keplerActive = "kepler_node_cpu_active_joules_total"
	keplerIdle   = "kepler_node_cpu_idle_joules_total"
)

// frozen is the query of a branch's components whose energy counters all stand
// still: 0 for one that is frozen, more than 0 for any other. It is empty where
// the branch reads no energy of packages, GPUs or hosts. They draw power while
// they are there, so that a counter which does not move at all has stopped
// counting: 0 W is no measurement of it. Gauges may be 0.
func (b branch) frozen(pick func(leaf) bool) string {
	if !readsEnergy(b.expr, pick) {
		return ""
	}
	return b.derive(deriver{aspect: used, pick: pick, op: parser.MAX, followed: true, text: func(l leaf) string {
		if pick != nil && !pick(l) {
			return ""
		}
		return standsStill(l)
	}})
}

func readsEnergy(e parser.Expr, pick func(leaf) bool) bool {
	found := false
	parser.Inspect(e, func(n parser.Node, path []parser.Node) error {
		vs, ok := n.(*parser.VectorSelector)
		found = found || ok && energyOf(vs) != nil && (pick == nil || pick(leaf{vs: vs}))
		return nil
	})
	return found
}

// standsStill is 0 for each series under a rate that did not move in its window, or
// has stopped in it.
func standsStill(l leaf) string {
	energy := energyOf(l.vs)
	if energy == nil || l.call == nil || l.matrix.RangeExpr != nil || !isRate(l.call.Func.Name) {
		return ""
	}
	vs := timeOnly(l.vs)
	vs.LabelMatchers = append(vs.LabelMatchers, energy.parts...)
	m := *l.matrix
	m.VectorSelector = vs
	still := fmt.Sprintf("(%s + (count_over_time(%s) < bool %d))", moved(m), &m, minFrozen)
	switch {
	case energy.beside != "":
		other := m
		other.VectorSelector = sibling(vs, energy.beside)
		return fmt.Sprintf("(%s + %s)", still, moved(other))
	case energy.split != "":
		return fmt.Sprintf("(%s + ignoring (%s) group_left () sum without (%s) %s)", still, energy.split, energy.split, moved(m))
	}
	return still
}

// moved is how often a series moved in its window, and 0 where it has stopped. What
// it did before the window still says how long it may rest: it is read twice as
// long, so that one that stops is told until the window has forgotten its last rise.
func moved(m parser.MatrixSelector) string {
	long := m
	long.Range *= 2
	return fmt.Sprintf("(changes(%s) * %s(%s, %g))", &m, coveredMoving, &long, leastStaleAfter.Seconds())
}

// sibling is the same selector of another metric.
func sibling(vs *parser.VectorSelector, name string) *parser.VectorSelector {
	out := *vs
	out.Name = name
	out.LabelMatchers = slices.Clone(vs.LabelMatchers)
	for i, m := range out.LabelMatchers {
		if m.Name == nameLabel {
			out.LabelMatchers[i] = labels.MustNewMatcher(labels.MatchEqual, nameLabel, name)
		}
	}
	return &out
}

func isRate(name string) bool { return name == "rate" || name == "irate" || name == coveredRate }

// energy is what of a metric cannot stand still: of its series those that parts
// selects, together with the metric beside it, or summed over the label split.
type energy struct {
	parts         []*labels.Matcher
	beside, split string
}

// energyOf is nil for a selector of anything but hw.energy and hw.host.energy, in
// any spelling, and the counters of Kepler that the presets read. Kepler divides
// what a zone uses into active and idle, of which either may rest.
func energyOf(vs *parser.VectorSelector) *energy {
	name := metricName(vs)
	switch name {
	case keplerActive:
		return &energy{beside: keplerIdle}
	case keplerIdle:
		return &energy{beside: keplerActive}
	case "kepler_node_package_joules_total", "kepler_node_gpu_joules_total", "kepler_node_platform_joules_total":
		return &energy{split: "mode"}
	}
	host, _ := names.Lookup("hw.host.energy")
	component, _ := names.Lookup("hw.energy")
	for _, s := range names.Strategies() {
		switch name {
		case host.Stored(s):
			return &energy{}
		case component.Stored(s):
			return &energy{parts: []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, hwType(s), "cpu|gpu")}}
		}
	}
	return nil
}

// hwType is the label that says what a component is.
func hwType(s names.Strategy) string {
	all := names.Attributes()
	return all[slices.IndexFunc(all, func(a names.Attribute) bool { return a.Name == "hw.type" })].Stored(s)
}
