package rules

import (
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// scaling is what a constant factor on a function's range does to its result.
type scaling uint8

const (
	unscalable scaling = iota
	linear             // the result is scaled likewise
	ordered            // likewise, for a positive factor
	counting           // the result is the same, for a positive factor
)

var scalings = map[string]scaling{
	"rate": linear, "increase": linear, coveredRate: linear, coveredIncrease: linear,
	"irate": linear, "delta": linear, "idelta": linear, "deriv": linear,
	"avg_over_time": linear, "sum_over_time": linear, "last_over_time": linear, "first_over_time": linear,
	"predict_linear": linear, "double_exponential_smoothing": linear,
	"min_over_time": ordered, "max_over_time": ordered, "quantile_over_time": ordered,
	"stddev_over_time": ordered, "mad_over_time": ordered,
	"count_over_time": counting, "present_over_time": counting, "absent_over_time": counting,
	"changes": counting, "resets": counting,
	"ts_of_max_over_time": counting, "ts_of_min_over_time": counting,
	"ts_of_last_over_time": counting, "ts_of_first_over_time": counting,
}

// scaled is an expression that is a selector, or one times constants.
type scaled struct {
	selector *parser.VectorSelector
	plain    bool    // no constant at all
	factor   float64 // of all constants
	scale    func(parser.Expr) parser.Expr
}

func (s *scaled) fits(how scaling) bool {
	return s.plain || how == linear || (how == ordered || how == counting) && s.factor > 0
}

// take moves what the reference says beyond the name onto the selector, whose own
// labels have the names given under which the reference knows them.
func (s *scaled) take(ref *parser.VectorSelector, names map[string]string) (why string) {
	for _, m := range ref.LabelMatchers {
		if m.Name != nameLabel {
			for own, as := range names {
				if m.Name == as {
					m = labels.MustNewMatcher(m.Type, own, m.Value)
				}
			}
			s.selector.LabelMatchers = append(slices.Clip(s.selector.LabelMatchers), m)
		}
	}
	pinned := func(v *parser.VectorSelector) bool { return v.Timestamp != nil || v.StartOrEnd != 0 }
	switch own, theirs := s.selector, ref; {
	case pinned(theirs) && pinned(own), own.OriginalOffsetExpr != nil && (theirs.OriginalOffset != 0 || theirs.OriginalOffsetExpr != nil),
		theirs.OriginalOffsetExpr != nil && own.OriginalOffset != 0:
		return "its expr has such a modifier already"
	}
	if pinned(ref) {
		s.selector.Timestamp, s.selector.StartOrEnd = ref.Timestamp, ref.StartOrEnd
	}
	if ref.OriginalOffsetExpr != nil {
		s.selector.OriginalOffsetExpr = ref.OriginalOffsetExpr
	}
	if !pinned(s.selector) || pinned(ref) {
		s.selector.OriginalOffset += ref.OriginalOffset
	}
	s.selector.Anchored = s.selector.Anchored || ref.Anchored
	s.selector.Smoothed = s.selector.Smoothed || ref.Smoothed
	return ""
}

// scaledSelector recognises a selector under constant factors; nil when e is
// anything else.
func scaledSelector(e parser.Expr) *scaled {
	switch e := e.(type) {
	case *parser.VectorSelector:
		return &scaled{selector: e, plain: true, factor: 1, scale: func(x parser.Expr) parser.Expr { return x }}
	case *parser.ParenExpr:
		return scaledSelector(e.Expr)
	case *parser.BinaryExpr:
		return scaledProduct(e)
	}
	return nil
}

func scaledProduct(e *parser.BinaryExpr) *scaled {
	left, isLeft := constant(e.LHS)
	right, isRight := constant(e.RHS)
	switch {
	case e.Op == parser.MUL && isLeft:
		return scaledSelector(e.RHS).by(left, func(x parser.Expr) parser.Expr {
			return &parser.BinaryExpr{Op: e.Op, LHS: e.LHS, RHS: x}
		})
	case (e.Op == parser.MUL || e.Op == parser.DIV) && isRight:
		if e.Op == parser.DIV {
			right = 1 / right
		}
		return scaledSelector(e.LHS).by(right, func(x parser.Expr) parser.Expr {
			return &parser.BinaryExpr{Op: e.Op, LHS: x, RHS: e.RHS}
		})
	}
	return nil
}

func (s *scaled) by(factor float64, wrap func(parser.Expr) parser.Expr) *scaled {
	if s == nil || factor == 0 || math.IsInf(factor, 0) || math.IsNaN(factor) {
		return nil
	}
	inner := s.scale
	s.plain, s.factor = false, s.factor*factor
	s.scale = func(x parser.Expr) parser.Expr { return wrap(bracketedProduct(inner(x))) }
	return s
}

// bracketedProduct keeps a product together; a call or a selector needs no brackets.
func bracketedProduct(e parser.Expr) parser.Expr {
	if _, ok := e.(*parser.BinaryExpr); ok {
		return &parser.ParenExpr{Expr: e}
	}
	return e
}

// constant computes an expression of numbers alone.
func constant(e parser.Expr) (float64, bool) {
	switch e := e.(type) {
	case *parser.NumberLiteral:
		return e.Val, true
	case *parser.ParenExpr:
		return constant(e.Expr)
	case *parser.UnaryExpr:
		n, ok := constant(e.Expr)
		if e.Op == parser.SUB {
			n = -n
		}
		return n, ok
	case *parser.BinaryExpr:
		l, okL := constant(e.LHS)
		r, okR := constant(e.RHS)
		if !okL || !okR {
			return 0, false
		}
		switch e.Op {
		case parser.ADD:
			return l + r, true
		case parser.SUB:
			return l - r, true
		case parser.MUL:
			return l * r, true
		case parser.DIV:
			return l / r, true
		case parser.POW:
			return math.Pow(l, r), true
		case parser.MOD:
			return math.Mod(l, r), true
		}
	}
	return 0, false
}
