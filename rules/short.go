package rules

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
)

// short is a cheaper query than the whole one. For expressions of a simple
// shape it proves that every counter which has a recent sample answers and no
// other does. Then the newest samples alone say how old the components are, and
// nothing is warming. Where the proof fails the whole query is asked as well.
//
// What costs in a query is how often it reads a window and how many elements it
// puts together. The whole query reads each window about five times; the short one
// twice where the store's covered_newest tells in one reading what the proof needs,
// once more for what has a recent sample under any other function. An instant of a
// gauge costs as much as a window of the lookback.
type short struct {
	query string
	slots []slot
	// after is how long after a whole query the proof holds. What is recent is
	// twice as long, so that no series can begin between two queries unseen; one
	// that begins with an old sample is found at the next whole query.
	after time.Duration
}

// farMore is counted for a series that has a recent sample and does not answer.
// No component has as many series.
const farMore = 1e9

// shorten makes the short query, or nil where an expression is not simple.
func shorten(value string, branches []branch, intervals map[string]time.Duration, want question) *short {
	if value == "" || want.only != "" {
		return nil
	}
	s := &short{after: lookback}
	var all []string
	add := func(kind answerKind, branch int, stale time.Duration, query string) {
		all = append(all, tagged(query, slotLabel, fmt.Sprint(len(s.slots))))
		s.slots = append(s.slots, slot{kind, branch, stale})
	}
	// used asks for the newest samples, and behind them for their pace.
	used := func(kind answerKind, branch int, stale time.Duration, e parser.Expr, query string) {
		add(kind, branch, stale, query)
		if query := pace(e, nil); query != "" && stale > leastStaleAfter {
			add(isPace, branch, 0, query)
		}
	}
	add(isValue, 0, 0, value)
	for i, b := range branches {
		if len(b.steps) > 0 {
			return nil
		}
		sides := sources(b.expr)
		for _, e := range sides {
			l, ok := plain(e)
			if !ok || l.call != nil && extrapolates(l.call.Func.Name) {
				return nil
			}
			stale := staleAge(intervals[selectorText(l.vs)])
			put := func(op parser.ItemType, text string) string {
				return deriver{text: func(leaf) string { return text }, op: op}.derive(e)
			}
			if l.call == nil {
				used(isUsed, i, stale, e, put(parser.MIN, visible(l.vs)))
				continue
			}
			if len(sides) == 1 && aggregates(e) {
				return nil // a series that only warms may hide in its component
			}
			recent := *l.matrix
			recent.Range = min(recent.Range, stale)
			s.after = min(s.after, recent.Range/2)
			if l.call.Func.Name == coveredRate {
				used(isProven, i, stale, e, put(parser.MIN, provenIn(&recent, l)))
				continue
			}
			last := lastIn(&recent, l.vs)
			add(isAnswering, i, 0, put(parser.SUM, fmt.Sprintf("((0 * %s + 1) or (0 * %s + %g))", l.call, last, farMore)))
			add(isSampled, i, 0, put(parser.SUM, "(0 * "+last+" + 1)"))
			used(isUsed, i, stale, e, put(parser.MIN, last))
		}
	}
	if len(s.slots) == 1 {
		return nil // nothing to judge
	}
	s.query = strings.Join(all, " or ")
	return s
}

// provenIn is the time of the newest sample of each series under a covered rate,
// and -Inf for one that is recent and does not answer, or answers without being
// recent.
func provenIn(recent *parser.MatrixSelector, l leaf) string {
	over := *l.matrix
	over.VectorSelector = timeOnly(l.vs)
	return sinceSample(l.vs, fmt.Sprintf("%s(%s, %g)", coveredNewest, &over, recent.Range.Seconds()))
}

// sources are the sides of an `or` whose elements' labels alone name a
// component: the first that has a component is the one that it is read from.
func sources(e parser.Expr) []parser.Expr {
	e = unbracket(e)
	if b, ok := e.(*parser.BinaryExpr); ok && b.Op == parser.LOR && !usesName(b) && sameElements(b) {
		return append(sources(b.LHS), sources(b.RHS)...)
	}
	return []parser.Expr{e}
}

// plain finds the one leaf of an expression that only puts its elements
// together, relabels them or changes their values.
//
// It is no plain leaf that is anchored, smoothed, pinned by @, or has a computed
// range.
func plain(e parser.Expr) (leaf, bool) {
	switch e := e.(type) {
	case *parser.VectorSelector:
		return leaf{vs: e}, !e.Anchored && !e.Smoothed && !pinned(e)
	case *parser.AggregateExpr:
		if keepsElements(e.Op) || e.Op == parser.COUNT_VALUES {
			return leaf{}, false
		}
		return plain(e.Expr)
	case *parser.BinaryExpr:
		if e.Op.IsComparisonOperator() && !e.ReturnBool {
			return leaf{}, false
		}
	case *parser.Call:
		return plainCall(e)
	}
	if inner, ok := passes(e); ok {
		return plain(inner)
	}
	return leaf{}, false
}

func plainCall(e *parser.Call) (leaf, bool) {
	if e.Func.Name == "label_replace" || e.Func.Name == "label_join" {
		for _, arg := range e.Args[1:] {
			if lit, ok := arg.(*parser.StringLiteral); !ok || lit.Val == nameLabel {
				return leaf{}, false
			}
		}
		return plain(e.Args[0])
	}
	if inner, ok := passes(e); ok {
		return plain(inner)
	}
	if e.Func.Name == "absent_over_time" {
		return leaf{}, false
	}
	for _, arg := range e.Args {
		m, ok := unbracket(arg).(*parser.MatrixSelector)
		if !ok {
			continue
		}
		vs, ok := m.VectorSelector.(*parser.VectorSelector)
		return leaf{vs, m, e}, ok && m.RangeExpr == nil && !vs.Anchored && !vs.Smoothed && !pinned(vs)
	}
	return leaf{}, false
}

// takeShort reads a short answer and says whether it proved what it has to. What
// it took is right in any case, but it may not be all.
func (t *tracker) takeShort(samples []Sample) (bool, error) {
	s := t.compiled.short
	t.begin()
	t.bySlot = append(t.bySlot[:0], make([][]Sample, len(s.slots))...)
	for _, sample := range samples {
		n, err := slotOf(sample, len(s.slots))
		if err != nil {
			return false, err
		}
		t.bySlot[n] = append(t.bySlot[n], sample)
	}
	for i, sl := range s.slots {
		switch sl.kind {
		case isValue:
			for _, sample := range t.bySlot[i] {
				t.takeOne(sl, sample)
			}
		case isAnswering:
			if !t.sameCounts(sl.branch, t.bySlot[i], t.bySlot[i+1]) {
				return false, nil
			}
		case isProven:
			if !t.allProven(sl.branch, t.bySlot[i]) {
				return false, nil
			}
		}
	}
	for i, sl := range s.slots {
		if sl.kind == isUsed || sl.kind == isProven {
			t.takeSide(i)
		}
	}
	for c := range t.inScope() {
		if !t.signs(c) && !c.silent {
			return false, nil // it may be warming, with a sample that is not recent
		}
	}
	return true, nil
}

// takeSide takes the newest samples of one side of an `or`, and their pace, where
// no earlier side has the component.
func (t *tracker) takeSide(number int) {
	slots := t.compiled.short.slots
	from := slots[number]
	from.kind = isUsed
	paced := number+1 < len(slots) && slots[number+1].kind == isPace
	var mine map[*component]bool
	if paced {
		mine = map[*component]bool{}
	}
	for _, s := range t.bySlot[number] {
		if c := t.find(from.branch, s.Metric); c != nil && c.answered == t.round {
			continue
		}
		t.takeOne(from, s)
		if c := t.find(from.branch, s.Metric); c != nil && paced {
			c.pace, mine[c] = 0, true
		}
	}
	if !paced {
		return
	}
	for _, s := range t.bySlot[number+1] {
		if c := t.find(from.branch, s.Metric); mine[c] {
			t.takeOne(slots[number+1], s)
		}
	}
}

// allProven says whether every series of each component both answers and has a
// recent sample, and each component is known.
func (t *tracker) allProven(branch int, samples []Sample) bool {
	return !slices.ContainsFunc(samples, func(s Sample) bool { return !finite(s.V) || t.find(branch, s.Metric) == nil })
}

// sameCounts says whether both answers count the same number of series in each
// component, and know each component.
func (t *tracker) sameCounts(branch int, a, b []Sample) bool {
	if len(a) != len(b) {
		return false
	}
	t.counting++
	for _, s := range a {
		c := t.find(branch, s.Metric)
		if c == nil {
			return false
		}
		c.counting, c.count = t.counting, s.V
	}
	for _, s := range b {
		if c := t.find(branch, s.Metric); c == nil || c.counting != t.counting || c.count != s.V {
			return false
		}
	}
	return true
}
