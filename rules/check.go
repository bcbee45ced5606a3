package rules

import (
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/wattloop/wattloop/internal/nearest"
)

// checkReading looks at what a reading says, beyond whether it can be read.
func (l *loader) checkReading(r *rawReading) {
	for _, s := range r.spares {
		l.checkSpare(s)
	}
	if r.tree == nil {
		return
	}
	if r.tree.root.Type() != parser.ValueTypeVector {
		l.notVector(r.tree)
		r.broken = true
		return
	}
	l.checkUnitWord(r)
	l.checkUnit(r)
	l.checkReadingTree(r.tree, r.written)
}

func (l *loader) notVector(t *tree) {
	l.errorf(t.rule, t.at.at(), "expr is a %s: a reading answers with one number for each key", parser.DocumentedType(t.root.Type()))
}

func (l *loader) checkReadingTree(t *tree, key []string) {
	l.checkTree(t, nil)
	// A bare selector stays bare, so that a range of it can be read: it may be a
	// counter, and there is no aggregation to prove the key by; a doubled key is
	// an error when it runs.
	if scaledSelector(t.root) == nil {
		l.checkCounters(t, t.root, true)
		l.checkKey(t, key)
	}
}

func (l *loader) checkControl(c *rawControl, engage, release, value *tree) {
	for _, t := range []*tree{engage, release, value} {
		if t != nil {
			l.checkTree(t, c.TrustedChannels)
			l.checkCounters(t, t.root, true)
		}
	}
	for _, t := range []*tree{engage, release} {
		if t != nil && l.checkCondition(t) {
			l.checkKey(t, c.Key)
		}
	}
	if value != nil && value.root.Type() != parser.ValueTypeScalar {
		l.checkKey(value, c.Key)
	}
	if engage != nil && release != nil && !engage.patched && !release.patched {
		l.checkFlapping(engage, release)
	}
}

// checkCondition refuses a `when` that holds whenever there is an answer.
func (l *loader) checkCondition(t *tree) bool {
	switch {
	case t.root.Type() != parser.ValueTypeVector:
		l.errorf(t.rule, t.place(t.root.PositionRange()), "when is a %s: it compares a reading, as node_power > 400 does",
			parser.DocumentedType(t.root.Type()))
	case !selects(t.root):
		l.errorf(t.rule, t.place(t.root.PositionRange()), "%s", whyAlways(t.root))
	default:
		return true
	}
	return false
}

// selects reports whether an expression answers for some keys only, because of
// a comparison in it.
func selects(e parser.Expr) bool {
	switch e := e.(type) {
	case *parser.ParenExpr:
		return selects(e.Expr)
	case *parser.UnaryExpr:
		return selects(e.Expr)
	case *parser.AggregateExpr:
		return selects(e.Expr)
	case *parser.Call:
		return slices.ContainsFunc(e.Args, selects)
	case *parser.SubqueryExpr:
		return selects(e.Expr)
	case *parser.BinaryExpr:
		switch {
		case e.Op == parser.LOR:
			return selects(e.LHS) && selects(e.RHS)
		case e.Op == parser.LUNLESS:
			return selects(e.LHS)
		case e.Op.IsComparisonOperator() && !e.ReturnBool:
			return true
		case e.Op.IsComparisonOperator():
			return false
		}
		return selects(e.LHS) || selects(e.RHS)
	}
	return false
}

// whyAlways says why a condition does not select.
func whyAlways(e parser.Expr) string {
	why := "when has no comparison, so it holds whenever there is an answer"
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		switch b, ok := n.(*parser.BinaryExpr); {
		case !ok || !b.Op.IsComparisonOperator():
		case b.ReturnBool:
			why = "bool answers 0 or 1 for every key, so when always holds: leave the word out"
		default:
			why = "when has a comparison, but holds without it whenever there is an answer"
		}
		return nil
	})
	return why
}

// checkTree is what holds for every expression, reading or control.
func (l *loader) checkTree(t *tree, trusted []string) {
	l.checkTrust(t, trusted)
	l.checkOff(t)
	l.checkOr(t, t.root, false)
	l.checkNames(t)
	l.checkJoins(t)
	l.checkUnitNames(t)
	l.checkRates(t)
}

// checkNames warns of a metric whose name is a near miss of a reading: a typo
// there reads a series that nobody sends, and the rule never acts.
func (l *loader) checkNames(t *tree) {
	names := make([]string, 0, len(l.readings))
	for name := range l.readings {
		names = append(names, name)
	}
	slices.Sort(names)
	parser.Inspect(t.root, func(n parser.Node, _ []parser.Node) error {
		vs, ok := n.(*parser.VectorSelector)
		if !ok || vs.Name == "" || len(vs.LabelMatchers) > 1 || slices.Contains(names, vs.Name) {
			return nil
		}
		if near := nearest.Of(vs.Name, names); near != "" && nearest.Distance(vs.Name, near) <= 2 {
			l.add(SeverityWarning, t.rule, t.place(vs.PosRange), near, "%s is no reading, it is taken for a metric", vs.Name)
		}
		return nil
	})
}

// blind are the functions that ask whether and when a counter has samples, not
// how high it stands; counterWise those that read a counter as one.
var (
	blind = []string{
		"absent", "absent_over_time", "changes", "count_over_time", "present_over_time", "resets", "timestamp",
		"ts_of_first_over_time", "ts_of_last_over_time", "ts_of_max_over_time", "ts_of_min_over_time",
	}
	counterWise = []string{"rate", "irate", "increase", "delta", "idelta", "deriv", coveredRate, coveredIncrease}
)

// checkCounters tells of a counter whose height goes into the answer (S0-169).
func (l *loader) checkCounters(t *tree, e parser.Expr, counts bool) {
	switch e := e.(type) {
	case *parser.VectorSelector:
		name := l.metricBehind(e.Name)
		if counts && strings.HasSuffix(name, "_total") {
			l.checkHeight(t, e, name)
		}
	case *parser.Call:
		if slices.Contains(blind, e.Func.Name) {
			counts = false
		}
		for _, arg := range e.Args {
			if _, ok := arg.(*parser.MatrixSelector); ok && slices.Contains(counterWise, e.Func.Name) {
				continue
			}
			l.checkCounters(t, arg, counts)
		}
	case *parser.AggregateExpr:
		l.checkCounters(t, e.Expr, counts && e.Op != parser.COUNT && e.Op != parser.GROUP)
	case *parser.BinaryExpr:
		l.checkCounters(t, e.LHS, counts)
		l.checkCounters(t, e.RHS, counts && e.Op != parser.LAND && e.Op != parser.LUNLESS)
	default:
		for child := range parser.ChildrenIter(e) {
			if c, ok := child.(parser.Expr); ok {
				l.checkCounters(t, c, counts)
			}
		}
	}
}

// metricBehind is the metric that a name reads: of a reading that is a bare
// selector the selector's, of any other reading none.
func (l *loader) metricBehind(name string) string {
	for range len(l.readings) + 1 {
		r := l.readings[name]
		if r == nil {
			return name
		}
		if r.tree == nil {
			return ""
		}
		s := scaledSelector(r.tree.root)
		if s == nil {
			return ""
		}
		name = s.selector.Name
	}
	return ""
}

// checkOr tells of an `or` that drops series without saying so (S0-141): by all
// labels, a series of the right side that has the labels of one on the left
// disappears. on() says what it chooses by, label_replace tells the sides apart,
// and between whole aggregations or conditions `or` is a fallback.
func (l *loader) checkOr(t *tree, e parser.Expr, combined bool) {
	b, ok := e.(*parser.BinaryExpr)
	if !ok || b.Op != parser.LOR {
		_, aggregates := e.(*parser.AggregateExpr)
		for child := range parser.ChildrenIter(e) {
			if c, ok := child.(parser.Expr); ok {
				l.checkOr(t, c, combined || aggregates)
			}
		}
		return
	}
	if vm := b.VectorMatching; vm != nil && !vm.On && len(vm.MatchingLabels) == 0 && !apart(b.LHS, b.RHS) && !oneSeries(b.LHS, b.RHS) {
		for _, side := range []parser.Expr{b.LHS, b.RHS} {
			if !l.guarded(side, combined) {
				l.lint(t.rule, t.place(b.RHS.PositionRange()),
					"this `or` drops series that have the labels of one on its left: add on (...), or label_replace() on each side")
				break
			}
		}
	}
	l.checkOr(t, b.LHS, combined)
	l.checkOr(t, b.RHS, combined)
}

// apart reports whether two sides select by whether a label is there, each its
// own way.
func apart(l, r parser.Expr) bool {
	has := func(e parser.Expr, op labels.MatchType) []string {
		var names []string
		if sel := firstSelector(e, ""); sel != nil {
			for _, m := range sel.LabelMatchers {
				if m.Type == op && m.Value == "" {
					names = append(names, m.Name)
				}
			}
		}
		return names
	}
	for _, name := range has(l, labels.MatchNotEqual) {
		if slices.Contains(has(r, labels.MatchEqual), name) {
			return true
		}
	}
	return false
}

// firstSelector is what an expression reads first, of a metric where one is named.
func firstSelector(e parser.Expr, metric string) (found *parser.VectorSelector) {
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if vs, ok := n.(*parser.VectorSelector); ok && found == nil && (metric == "" || vs.Name == metric) {
			found = vs
		}
		return nil
	})
	return found
}

// guarded reports whether a side of an `or` cannot be dropped unseen.
func (l *loader) guarded(e parser.Expr, combined bool) bool {
	switch e := e.(type) {
	case *parser.ParenExpr:
		return l.guarded(e.Expr, combined)
	case *parser.Call:
		return e.Func.Name == "label_replace" || e.Func.Name == "label_join"
	case *parser.AggregateExpr:
		return !combined
	case *parser.VectorSelector:
		return !combined && l.readings[e.Name] != nil
	case *parser.BinaryExpr:
		if e.Op == parser.LOR {
			return true // seen to by itself
		}
		return !combined && (e.Op.IsComparisonOperator() || e.Op.IsSetOperator())
	}
	return false
}
