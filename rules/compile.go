package rules

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
)

// Bounds of how far apart the past is looked at when an evaluator starts.
const (
	minSeedStep = 5 * time.Second
	maxSeedStep = 150 * time.Second // half the lookback: no living series is stepped over
)

// answerKind says what one element of a combined answer is.
type answerKind int

const (
	isValue answerKind = iota
	isUsed             // the sample that a component is read from
	isWarming
	isYoung
	isSeen
	isAnswering // how many series of a component answer, and farMore for each that does not
	isSampled   // how many have a sample
	isProven    // isUsed, and not finite where a series of the component is left out
	isPace      // how far a component's samples are apart, in seconds
	isFrozen    // 0 where all energy counters of a component stand still
)

// slot is where a combined query's element comes from. Its number is the
// value of slotLabel.
type slot struct {
	kind   answerKind
	branch int
	stale  time.Duration // isUsed: the age at which its components are stale
}

// compiled are the queries of one plan at the export intervals of its selectors.
type compiled struct {
	value    string   // the value alone, "" where only the inputs are judged
	all      string   // the value and what judges it, in one query
	inputs   string   // what judges it, alone
	seen     string   // which components have samples, whatever is made of them
	bare     string   // the value without its comparisons, "" if it has none
	past     []string // what answers with the components of each branch
	pastStep time.Duration
	slots    []slot
	branches []branch
	short    *short   // nil: there is no shorter way
	near     *closeUp // nil: one key cannot be asked for alone
}

// question is what a plan is compiled for.
type question struct {
	value     bool   // ask for the value too
	condition bool   // the expression is a condition of a control
	only      string // judge these selectors alone, one a line; "" is all
	forget    time.Duration
}

// pick is a deriver's for what is judged.
func (q question) pick() func(leaf) bool {
	if q.only == "" {
		return nil
	}
	only := strings.Split(q.only, "\n")
	return func(l leaf) bool { return slices.Contains(only, selectorText(l.vs)) }
}

func (p *plan) compile(intervals map[string]time.Duration, want question) (*compiled, error) {
	tree, err := p.tree(intervals)
	if err != nil {
		return nil, err
	}
	c := &compiled{branches: branches(tree, p.key, want.condition)}
	var all, inputs, seenAt []string
	add := func(kind answerKind, b int, stale time.Duration, query string) {
		if query == "" {
			return
		}
		text := tagged(query, slotLabel, fmt.Sprint(len(c.slots)))
		c.slots = append(c.slots, slot{kind, b, stale})
		switch kind {
		case isSeen:
			c.branches[b].sees = true
			seenAt = append(seenAt, text)
		case isValue:
			all = append(all, text)
		default:
			all, inputs = append(all, text), append(inputs, text)
		}
	}
	if want.value {
		c.value = tree.String()
		if p.scalar {
			c.value = "vector" + bracket(c.value)
		}
		add(isValue, 0, 0, c.value)
		c.bare = bareText(tree)
	}
	c.short = shorten(c.value, c.branches, intervals, want)
	pick := want.pick()
	for i, b := range c.branches {
		ages := staleAges(b.expr, intervals, pick)
		for _, age := range ages {
			d := deriver{aspect: used, pick: pick}
			if len(ages) > 1 {
				d.pick = func(l leaf) bool {
					return (pick == nil || pick(l)) && staleAge(intervals[selectorText(l.vs)]) == age
				}
			}
			add(isUsed, i, age, b.derive(d))
			if age > leastStaleAfter {
				add(isPace, i, 0, pace(b.expr, d.pick))
			}
		}
		add(isWarming, i, 0, b.derive(deriver{aspect: warming, pick: pick}))
		add(isYoung, i, 0, b.derive(deriver{aspect: used, pick: pick, young: true}))
		add(isFrozen, i, 0, b.frozen(pick))
		add(isSeen, i, 0, b.derive(deriver{aspect: seen}))
		before := union("or", b.derive(deriver{aspect: used, pick: pick}), b.derive(deriver{aspect: warming, pick: pick}))
		c.past = append(c.past, before)
	}
	c.all, c.inputs = strings.Join(all, " or "), strings.Join(inputs, " or ")
	c.seen, c.pastStep = strings.Join(seenAt, " or "), seedStep(tree)
	c.near = c.closeUp(p.key)
	return c, nil
}

// before asks for the components of that much time before an instant. The value
// of slotLabel is the branch.
func (c *compiled) before(span time.Duration) string {
	var all []string
	for i, query := range c.past {
		if query != "" {
			query = fmt.Sprintf("max_over_time((%s)[%ds:%ds])", query, int(span.Seconds()), int(c.pastStep.Seconds()))
			all = append(all, tagged(query, slotLabel, fmt.Sprint(i)))
		}
	}
	return strings.Join(all, " or ")
}

// staleAge is the age at which a sample is stale, by how far its series' samples
// are apart.
func staleAge(interval time.Duration) time.Duration {
	return max(staleIntervals*interval.Round(time.Second/10), leastStaleAfter)
}

// staleAges are the distinct ages at which the inputs of e are stale.
func staleAges(e parser.Expr, intervals map[string]time.Duration, pick func(leaf) bool) []time.Duration {
	var ages []time.Duration
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if vs, ok := n.(*parser.VectorSelector); ok && (pick == nil || pick(leaf{vs: vs})) {
			ages = appendNew(ages, staleAge(intervals[selectorText(vs)]))
		}
		return nil
	})
	return ages
}

// seedStep is short enough that no series which answered over the shortest
// window is stepped over.
func seedStep(tree parser.Expr) time.Duration {
	step := maxSeedStep
	parser.Inspect(tree, func(n parser.Node, _ []parser.Node) error {
		if m, ok := n.(*parser.MatrixSelector); ok && m.RangeExpr == nil {
			step = min(step, m.Range/2)
		}
		return nil
	})
	return max(step, minSeedStep)
}

// bareText is the expression without the comparisons that leave elements out,
// where they do not choose between two sides. It is empty if there are none.
func bareText(tree parser.Expr) string {
	before := tree.String()
	if after := bareExpr(tree).String(); after != before {
		return after
	}
	return ""
}

func bareExpr(e parser.Expr) parser.Expr {
	switch e := e.(type) {
	case *parser.ParenExpr:
		return &parser.ParenExpr{Expr: bareExpr(e.Expr)}
	case *parser.AggregateExpr:
		c := *e
		if !keepsElements(e.Op) {
			c.Expr = bareExpr(e.Expr)
		}
		return &c
	case *parser.BinaryExpr:
		if e.Op.IsSetOperator() {
			return e
		}
		c := *e
		c.LHS, c.RHS = bareExpr(e.LHS), bareExpr(e.RHS)
		if !e.Op.IsComparisonOperator() || e.ReturnBool {
			return &c
		}
		if isVector(e.LHS) && isVector(e.RHS) {
			c.Op = parser.ADD
			return &c
		}
		if isVector(e.LHS) {
			return &parser.ParenExpr{Expr: c.LHS}
		}
		return &parser.ParenExpr{Expr: c.RHS}
	}
	return e
}
