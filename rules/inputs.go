package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
)

// aspect is what a derived query asks of an expression's inputs. The value of
// each answer is a time, Unix seconds, of a sample.
type aspect int

const (
	// used: the newest sample behind each element that answered, the oldest of
	// them where several series are put into one element.
	used aspect = iota
	// warming: each element that would be there if a series had enough samples.
	warming
	// seen: each element whose selectors answer at the instant, whatever the
	// functions around them make of it.
	seen
)

// deriver rewrites an expression into the query of one aspect. The query's
// elements carry the labels that the expression's elements carry, without the
// metric's name. An empty string is a query that never answers.
type deriver struct {
	aspect aspect
	// pick says which leaves count; nil is all. Under used, a leaf that does not
	// count still hides what stands behind it in an `or`.
	pick func(leaf) bool
	// young asks only for elements that are read with Prometheus's rate and whose
	// series began inside the window.
	young bool
	// text, where set, is what stands for a leaf, and op how elements are put
	// together: for expressions that plain knows. followed has it asked of any
	// expression, and left out what cannot be followed.
	text     func(leaf) string
	op       parser.ItemType
	followed bool
	// exact keeps comparisons as filters. They are needed where an enclosing `or`
	// chooses by them; elsewhere an input that a comparison leaves out has
	// answered all the same.
	exact bool
}

func (d deriver) derive(e parser.Expr) string {
	switch e := e.(type) {
	case *parser.ParenExpr:
		return d.derive(e.Expr)
	case *parser.UnaryExpr:
		return d.derive(e.Expr)
	case *parser.VectorSelector:
		return d.instant(e)
	case *parser.AggregateExpr:
		return d.aggregate(e)
	case *parser.BinaryExpr:
		return d.binary(e)
	case *parser.Call:
		return d.call(e)
	}
	return ""
}

func (d deriver) instant(vs *parser.VectorSelector) string {
	if d.text != nil {
		return d.text(leaf{vs: vs})
	}
	if d.aspect == warming || d.young || !d.picks(leaf{vs: vs}) {
		return ""
	}
	return visible(vs)
}

func (d deriver) picks(l leaf) bool { return d.pick == nil || d.pick(l) }

func (d deriver) aggregate(e *parser.AggregateExpr) string {
	x := d.derive(e.Expr)
	switch {
	case x == "":
		return ""
	case e.Op == parser.COUNT_VALUES:
		return d.coarse(e)
	case keepsElements(e.Op):
		if d.aspect == used && !d.followed {
			x = join(x, "and", e.String())
		}
		return x
	}
	outer := *e
	outer.Op, outer.Param = parser.MAX, nil
	switch {
	case d.op != 0:
		outer.Op = d.op
	case d.aspect == used:
		outer.Op = parser.MIN
	}
	return outer.ShortString() + bracket(x)
}

// keepsElements is an aggregation whose elements are some of its input's.
func keepsElements(op parser.ItemType) bool {
	switch op {
	case parser.TOPK, parser.BOTTOMK, parser.LIMITK, parser.LIMIT_RATIO:
		return true
	}
	return false
}

func (d deriver) binary(e *parser.BinaryExpr) string {
	left, right := isVector(e.LHS), isVector(e.RHS)
	switch {
	case left && right && e.Op.IsSetOperator():
		return d.set(e)
	case left && right:
		return d.matched(e)
	case left:
		return d.compared(e, d.derive(e.LHS))
	case right:
		return d.compared(e, d.derive(e.RHS))
	}
	return ""
}

// compared leaves out what a comparison leaves out, where that is asked for.
func (d deriver) compared(e *parser.BinaryExpr, x string) string {
	if x == "" || d.aspect != used || !d.exact || !e.Op.IsComparisonOperator() || e.ReturnBool {
		return x
	}
	return join(x, "and", e.String())
}

func (d deriver) set(e *parser.BinaryExpr) string {
	if usesName(e) {
		return d.coarse(e)
	}
	chooses := d
	chooses.exact = d.exact || e.Op == parser.LOR
	l, r := chooses.derive(e.LHS), d.derive(e.RHS)
	switch {
	case e.Op == parser.LOR && d.aspect == used:
		if r != "" && (d.pick != nil || d.young) {
			r = join(r, matching(e, parser.LUNLESS), e.LHS.String())
		}
		return union(matching(e, parser.LOR), l, r)
	case e.Op == parser.LOR && d.aspect == warming:
		if both := union("or", l, r); both != "" {
			return join(both, matching(e, parser.LUNLESS), e.String())
		}
		return ""
	case e.Op == parser.LOR:
		return union("or", l, r)
	case d.aspect == seen || l == "" && r == "":
		return l
	case e.Op == parser.LAND && d.aspect == warming && r != "":
		// Both sides must answer: the one that is there waits for the other.
		waits := deriver{aspect: used}.derive(e.LHS)
		if waits != "" {
			waits = join(waits, matching(e, parser.LAND), r)
		}
		return union("or", l, waits)
	case l == "":
		return ""
	}
	return join(l, matching(e, e.Op), e.RHS.String())
}

// matched is arithmetic or a comparison of two vectors: each side's answer is
// carried into the labels of the result.
func (d deriver) matched(e *parser.BinaryExpr) string {
	fill := e.VectorMatching.FillValues
	if fill.LHS != nil || fill.RHS != nil || usesName(e) {
		return d.coarse(e)
	}
	left, right := d, d
	switch e.VectorMatching.Card {
	case parser.CardManyToOne:
		right = d.withoutInfo()
	case parser.CardOneToMany:
		left = d.withoutInfo()
	}
	l, r := left.derive(e.LHS), right.derive(e.RHS)
	if l == "" && r == "" {
		return ""
	}
	plus := matching(e, parser.ADD)
	switch d.aspect {
	case seen:
		l, r = or(l, zero(lasting(e.LHS))), or(r, zero(lasting(e.RHS)))
		return bracket(l) + " " + plus + " 0 * " + bracket(r)
	case warming:
		l, r = union("or", l, present(e.LHS)), union("or", r, present(e.RHS))
		whole := bracket(l) + " " + plus + " 0 * " + bracket(r)
		return join(whole, "unless", zero(e.LHS)+" "+plus+" "+zero(e.RHS))
	}
	if l != "" {
		l = bracket(l) + " " + plus + " " + zero(e.RHS)
	}
	if r != "" {
		r = zero(e.LHS) + " " + plus + " " + bracket(r)
	}
	return d.compared(e, oldest(l, r))
}

// withoutInfo takes target_info, which only lends its labels to a join, for no
// input: it measures nothing, and is written far less often than what does.
func (d deriver) withoutInfo() deriver {
	pick := d.pick
	d.pick = func(l leaf) bool { return l.vs.Name != targetInfo && (pick == nil || pick(l)) }
	return d
}

// present answers for each element of e, with the time of its inputs where it
// has any.
func present(e parser.Expr) string {
	return or(deriver{aspect: used}.derive(e), zero(e))
}

// oldest is the older of two answers with the same labels.
func oldest(l, r string) string {
	if l == "" || r == "" {
		return or(l, r)
	}
	return fmt.Sprintf("min without (%s) (%s or %s)", sideLabel, tagged(l, sideLabel, "l"), tagged(r, sideLabel, "r"))
}

func (d deriver) call(e *parser.Call) string {
	switch e.Func.Name {
	case "absent", "absent_over_time", "vector":
		return "" // answers without an input, or because there is none
	case "info", "histogram_quantiles":
		return d.coarse(e)
	case "label_replace", "label_join":
		return d.relabel(e)
	case "histogram_quantile", "histogram_fraction":
		x := d.derive(e.Args[slices.IndexFunc(e.Args, isVector)])
		if x == "" {
			return ""
		}
		op := "max"
		if d.aspect == used {
			op = "min"
		}
		return op + " without (" + bucketLabel + ") " + bracket(x)
	}
	for _, arg := range e.Args {
		switch arg.Type() {
		case parser.ValueTypeMatrix:
			return d.ranged(e, unbracket(arg))
		case parser.ValueTypeVector:
			return d.derive(arg)
		}
	}
	return ""
}

func (d deriver) relabel(e *parser.Call) string {
	for _, arg := range e.Args[1:] {
		if s, ok := arg.(*parser.StringLiteral); ok && s.Val == nameLabel {
			return d.coarse(e) // the answers here have lost the name
		}
	}
	x := d.derive(e.Args[0])
	if x == "" {
		return ""
	}
	return e.Func.Name + "(" + x + ", " + parser.Expressions(e.Args[1:]).String() + ")"
}

// ranged is a function over a range: of a selector, or of a subquery.
func (d deriver) ranged(e *parser.Call, arg parser.Expr) string {
	if sub, ok := arg.(*parser.SubqueryExpr); ok {
		return d.subquery(e, sub)
	}
	m := arg.(*parser.MatrixSelector)
	vs := m.VectorSelector.(*parser.VectorSelector)
	if d.text != nil {
		return d.text(leaf{vs, m, e})
	}
	if !d.picks(leaf{vs, m, e}) {
		return ""
	}
	if d.aspect == seen {
		return d.instant(vs)
	}
	if d.aspect == warming {
		if !needsTwo(e.Func.Name) {
			return ""
		}
		return join(inWindow(m, vs), "unless", e.String())
	}
	last := lastIn(m, vs)
	switch {
	case !d.young:
		return join(last, "and", e.String())
	case extrapolates(e.Func.Name) && m.RangeExpr == nil:
		before := timeOnly(vs)
		before.OriginalOffset += m.Range
		return join(join(last, "and", e.String()), "unless", before.String())
	}
	return ""
}

func (d deriver) subquery(e *parser.Call, sub *parser.SubqueryExpr) string {
	if d.followed {
		return ""
	}
	x := d.derive(sub.Expr)
	if d.aspect == seen || d.young {
		return x
	}
	u := deriver{aspect: used, pick: d.pick, exact: d.exact}.derive(sub.Expr)
	last := ""
	if u != "" {
		last = "max_over_time(" + bracket(u) + sub.ShortString() + ")"
		if sub.OriginalOffset != 0 {
			last = fmt.Sprintf("(%s + %g)", last, sub.OriginalOffset.Seconds())
		}
	}
	switch {
	case d.aspect == used && last != "":
		return join(last, "and", e.String())
	case d.aspect == warming && last != "" && needsTwo(e.Func.Name):
		return union("or", x, join(last, "unless", e.String()))
	case d.aspect == warming:
		return x
	}
	return ""
}

// coarse stands in for an expression whose labels cannot be followed: every
// element is as old as the oldest of all inputs.
func (d deriver) coarse(e parser.Expr) string {
	if d.aspect != used || d.young || d.followed {
		return ""
	}
	var all []string
	parser.Inspect(e, func(n parser.Node, path []parser.Node) error {
		vs, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		l := leaf{vs: vs}
		if len(path) > 0 {
			l.matrix, _ = path[len(path)-1].(*parser.MatrixSelector)
		}
		if !d.picks(l) {
			return nil
		}
		last := visible(vs)
		if l.matrix != nil {
			last = lastIn(l.matrix, vs)
		}
		all = append(all, tagged("min"+bracket(last), sideLabel, fmt.Sprint(len(all))))
		return nil
	})
	if len(all) == 0 {
		return ""
	}
	return zero(e) + " + scalar(min(" + strings.Join(all, " or ") + "))"
}
