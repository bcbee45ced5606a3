package rules

import (
	"fmt"
	"slices"

	"github.com/prometheus/prometheus/promql/parser"
)

const (
	nameLabel   = "__name__"
	bucketLabel = "le"
	sideLabel   = "__wattloop_side__"
	slotLabel   = "__wattloop_slot__"
)

// leaf is a selector where it stands: alone, or with a range under a function.
type leaf struct {
	vs     *parser.VectorSelector
	matrix *parser.MatrixSelector // nil: alone
	call   *parser.Call           // the function over the range
}

// needsTwo is a function that answers nothing for a series with one sample.
func needsTwo(name string) bool {
	switch name {
	case "rate", "increase", "delta", "irate", "idelta", "deriv", "predict_linear",
		"double_exponential_smoothing", coveredRate, coveredIncrease:
		return true
	}
	return false
}

// extrapolates is a function that reads low until the series spans its window.
func extrapolates(name string) bool {
	return name == "rate" || name == "increase" || name == "delta"
}

// timeOnly is the selector as its samples' times are asked for: with its offset
// and @, without the words that move or add samples.
func timeOnly(vs *parser.VectorSelector) *parser.VectorSelector {
	c := bareSelector(vs)
	c.OriginalOffset, c.OriginalOffsetExpr = vs.OriginalOffset, vs.OriginalOffsetExpr
	c.Timestamp, c.StartOrEnd = vs.Timestamp, vs.StartOrEnd
	return c
}

// visible is the time of the newest sample that answers at the instant.
func visible(vs *parser.VectorSelector) string {
	return sinceSample(vs, "timestamp("+timeOnly(vs).String()+")")
}

// inWindow is the time of the newest sample of each series that answers at the
// instant and has a sample in the range. A series that a marker ended, or that
// went out of sight, is not about to answer.
func inWindow(m *parser.MatrixSelector, vs *parser.VectorSelector) string {
	if m.RangeExpr != nil || pinned(vs) {
		return join(visible(vs), "and", lastIn(m, vs))
	}
	return fmt.Sprintf("%s > time() - %g", visible(vs), m.Range.Seconds())
}

// lastIn is the time of the newest sample in a range.
func lastIn(m *parser.MatrixSelector, vs *parser.VectorSelector) string {
	over := *m
	over.VectorSelector = timeOnly(vs)
	return sinceSample(vs, "ts_of_last_over_time("+over.String()+")")
}

// sinceSample corrects the time of a sample that is old on purpose: an offset
// counts from where it points, and what @ pins never gets old.
func sinceSample(vs *parser.VectorSelector, last string) string {
	switch {
	case pinned(vs):
		return "(0 * " + last + " + time())"
	case vs.OriginalOffset != 0:
		return fmt.Sprintf("(%s + %g)", last, vs.OriginalOffset.Seconds())
	}
	return last
}

// pinned is a selector with @.
func pinned(vs *parser.VectorSelector) bool { return vs.Timestamp != nil || vs.StartOrEnd != 0 }

// usesName is a matching by the metric's name, which derived answers have lost.
func usesName(e *parser.BinaryExpr) bool {
	return e.VectorMatching.On && slices.Contains(e.VectorMatching.MatchingLabels, nameLabel)
}

// matching prints another operator with the matching of e.
func matching(e *parser.BinaryExpr, op parser.ItemType) string {
	c := *e
	c.Op, c.ReturnBool = op, false
	return c.ShortString()
}

func bracket(s string) string { return "(" + s + ")" }

func join(l, op, r string) string { return bracket(l) + " " + op + " " + bracket(r) }

// union joins what is there of two queries.
func union(op, l, r string) string {
	if l == "" || r == "" {
		return or(l, r)
	}
	return join(l, op, r)
}

func or(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// zero answers 0 for each element of e, whatever its value, NaN too.
func zero(e parser.Expr) string { return "0 * timestamp" + bracket(e.String()) }

func tagged(x, label, value string) string {
	return fmt.Sprintf("label_replace(%s, %q, %q, \"\", \"\")", x, label, value)
}

func unbracket(e parser.Expr) parser.Expr {
	for {
		p, ok := e.(*parser.ParenExpr)
		if !ok {
			return e
		}
		e = p.Expr
	}
}

func isVector(e parser.Expr) bool { return e.Type() == parser.ValueTypeVector }
