package rules

import (
	"slices"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
)

// checkKey holds the labels of an expression's answers against the key that
// they are read by.
func (l *loader) checkKey(t *tree, key []string) {
	if key == nil {
		return // reported where it is missing
	}
	have, known := l.answerLabels(t.root)
	if !known && len(key) == 0 {
		l.warnf(t.rule, t.place(t.root.PositionRange()), "cannot tell that there is one answer: end in an aggregation without by")
		return
	}
	if !known {
		l.warnf(t.rule, t.place(t.root.PositionRange()),
			"cannot tell that there is one answer for each %s: end in an aggregation by (%s)",
			strings.Join(key, ", "), strings.Join(key, ", "))
		return
	}
	var missing, more []string
	for _, k := range key {
		if !slices.Contains(have, k) {
			missing = append(missing, k)
		}
	}
	for _, h := range have {
		if !slices.Contains(key, h) {
			more = append(more, h)
		}
	}
	switch {
	case len(missing) > 0:
		l.errorf(t.rule, t.place(t.root.PositionRange()), "the answers have no label %s, which is in the key",
			strings.Join(missing, ", "))
	case len(more) > 0:
		l.warnf(t.rule, t.place(t.root.PositionRange()), "the answers also differ by %s, which is not in the key: a key that comes back twice is an error",
			strings.Join(more, ", "))
	}
}

// answerLabels are the labels that an expression's answers have, where the
// expression alone decides it.
func (l *loader) answerLabels(e parser.Expr) (names []string, known bool) {
	switch e := e.(type) {
	case *parser.ParenExpr:
		return l.answerLabels(e.Expr)
	case *parser.UnaryExpr:
		return l.answerLabels(e.Expr)
	case *parser.SubqueryExpr:
		return l.answerLabels(e.Expr)
	case *parser.MatrixSelector:
		return l.answerLabels(e.VectorSelector)
	case *parser.VectorSelector:
		if r := l.readings[e.Name]; r != nil {
			return r.As, true
		}
	case *parser.AggregateExpr:
		switch e.Op {
		case parser.TOPK, parser.BOTTOMK, parser.LIMITK, parser.LIMIT_RATIO:
			return l.answerLabels(e.Expr) // picks some of its input's
		case parser.COUNT_VALUES:
			return nil, false
		}
		return e.Grouping, !e.Without
	case *parser.BinaryExpr:
		return l.binaryLabels(e)
	case *parser.Call:
		return l.callLabels(e)
	}
	return nil, false
}

func (l *loader) binaryLabels(e *parser.BinaryExpr) ([]string, bool) {
	left, okLeft := l.answerLabels(e.LHS)
	right, okRight := l.answerLabels(e.RHS)
	vm := e.VectorMatching
	switch {
	case e.LHS.Type() == parser.ValueTypeScalar:
		return right, okRight
	case e.RHS.Type() == parser.ValueTypeScalar || vm == nil:
		return left, okLeft
	case e.Op == parser.LOR:
		return left, okLeft && okRight && sameNames(left, right)
	case e.Op.IsSetOperator():
		return left, okLeft
	case vm.Card == parser.CardManyToOne:
		return plus(left, vm.Include), okLeft
	case vm.Card == parser.CardOneToMany:
		return plus(right, vm.Include), okRight
	case vm.On:
		return vm.MatchingLabels, true
	}
	return except(left, vm.MatchingLabels), okLeft
}

// callLabels follows the one vector argument that most functions hand through.
func (l *loader) callLabels(e *parser.Call) ([]string, bool) {
	switch e.Func.Name {
	case "absent", "absent_over_time", "info", "label_join", "vector", "scalar":
		return nil, false
	}
	for _, arg := range e.Args {
		if t := arg.Type(); t != parser.ValueTypeVector && t != parser.ValueTypeMatrix {
			continue
		}
		names, known := l.answerLabels(arg)
		switch e.Func.Name {
		case "label_replace":
			if dst, ok := e.Args[1].(*parser.StringLiteral); ok {
				return plus(names, []string{dst.Val}), known
			}
		case "histogram_quantile":
			return except(names, []string{"le"}), known
		}
		return names, known
	}
	return nil, false
}

func sameNames(a, b []string) bool {
	return len(except(a, b)) == 0 && len(except(b, a)) == 0
}

func except(names, drop []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(drop, n) })
}

func plus(a, b []string) []string {
	return append(slices.Clip(a), except(b, a)...)
}
