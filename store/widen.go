package store

import (
	"fmt"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
)

// lookback is how old a series' last sample may be and still count, as in
// Prometheus. Both lanes run with it.
const lookback = 5 * time.Minute

// widen prepares each covered_increase of a parsed query: its range grows by
// the lookback, so that the last sample before the window is loaded too, and a
// second argument tells the function by how much. The parser knows one
// argument only, so nobody can write the second by hand. Offset and @ move the
// window's end and are left alone.
func widen(expr parser.Expr) error {
	var failed error
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		call, ok := n.(*parser.Call)
		if !ok || call.Func.Name != coveredIncreaseName || len(call.Args) != 1 || failed != nil {
			return failed
		}
		arg := unparen(call.Args[0])
		switch a := arg.(type) {
		case *parser.MatrixSelector:
			if vs, ok := a.VectorSelector.(*parser.VectorSelector); ok && (vs.Anchored || vs.Smoothed) {
				failed = fmt.Errorf("%s takes neither anchored nor smoothed: it counts from the sample before the window by itself", coveredIncreaseName)
				return failed
			}
			a.Range, a.RangeExpr = wider(a.Range, a.RangeExpr)
		case *parser.SubqueryExpr:
			a.Range, a.RangeExpr = wider(a.Range, a.RangeExpr)
		default:
			failed = fmt.Errorf("%s wants a range such as x[5m], not %s", coveredIncreaseName, arg)
			return failed
		}
		call.Args = append(call.Args, &parser.NumberLiteral{Val: lookback.Seconds(), PosRange: arg.PositionRange()})
		return nil
	})
	return failed
}

// wider adds the lookback to a range, which the engine computes from the
// expression where there is one, as in x[step() * 3].
func wider(r time.Duration, e *parser.DurationExpr) (time.Duration, *parser.DurationExpr) {
	if e == nil {
		return r + lookback, nil
	}
	return r + lookback, &parser.DurationExpr{
		Op:      parser.ADD,
		LHS:     e,
		RHS:     &parser.NumberLiteral{Val: lookback.Seconds(), PosRange: e.PositionRange()},
		Wrapped: true,
	}
}

func unparen(e parser.Expr) parser.Expr {
	for {
		p, ok := e.(*parser.ParenExpr)
		if !ok {
			return e
		}
		e = p.Expr
	}
}
