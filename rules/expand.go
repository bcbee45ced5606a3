package rules

import (
	"time"

	"github.com/prometheus/prometheus/promql/parser"
)

// expander puts the readings that an expression names in their place.
type expander struct {
	*loader
	env  env
	rate string // how the whole expression is to be read
	join bool   // nodes are read from target_info
	// words is set where parts of the expression read rate( differently: each
	// part is then put in with the function that it means.
	words bool
	mixed bool // such a part was met
	// joined is set once an expression was met that the join changes.
	joined bool
	node   string // of the expression that was expanded last: in the end, the whole
	// failed is true once something was reported.
	failed bool
}

// expansion is one expanded expression, ready for newPlan.
type expansion struct {
	root    parser.Expr
	words   string // root before the matcher of the trusted channels
	covered bool   // newPlan shall read rate( as covered_rate(
	joined  bool   // it reads nodes from target_info
	node    string // the label of its answers that has the node, if any has
}

// whose says for whom an expression is expanded: how its rates are read, and by
// which labels its answers.
type whose struct {
	rate string
	key  []string // as written
	// keyed has the answers carry the key as written, whatever the store calls it.
	keyed bool
}

// expansion expands an expression in one of the two forms; nil after a report.
func (l *loader) expansion(x *expression, e env, w whose, join bool) *expansion {
	in := expander{loader: l, env: e, rate: w.rate, join: join}
	root := in.tree(l.parse(x, e), w)
	if in.mixed && !in.failed {
		in.words = true
		root = in.tree(l.parse(x, e), w)
	}
	if in.failed {
		return nil
	}
	words := pretty(root)
	trust(root, e.trusted)
	return &expansion{root, words, w.rate == RateCovered && !in.mixed, in.joined, in.node}
}

// tree expands a parsed tree in place.
func (x *expander) tree(t *tree, w whose) parser.Expr {
	if t == nil {
		x.failed = true
		return nil
	}
	x.mixed = x.mixed || w.rate != x.rate
	root := t.root
	if j := (joiner{x.loader}); x.join && j.applies(root, w.key) {
		x.joined = true
		root = j.join(root, true)
	}
	root, is := x.speller().spell(root)
	p := fragment{x, t, w.rate}
	root = p.expr(root)
	if w.keyed && is == respelt {
		root, is = renamed(root, x.speller().back(w.key)), asIs
	}
	x.node = nodeAttribute
	if is == respelt {
		x.node = x.speller().label(nodeAttribute)
	}
	return root
}

// fragment is one file's expression inside the whole.
type fragment struct {
	*expander
	tree *tree
	rate string
}

func (p fragment) expr(e parser.Expr) parser.Expr {
	switch e := e.(type) {
	case *parser.VectorSelector:
		if p.readings[e.Name] != nil {
			return p.instant(e)
		}
	case *parser.MatrixSelector:
		if vs, ok := e.VectorSelector.(*parser.VectorSelector); ok && p.readings[vs.Name] != nil {
			ranged, _ := p.ranged(e, vs, unscalable)
			return ranged
		}
	case *parser.Call:
		return p.call(e)
	case *parser.AggregateExpr:
		e.Expr = p.expr(e.Expr)
		if e.Param != nil {
			e.Param = p.expr(e.Param)
		}
	case *parser.BinaryExpr:
		e.LHS, e.RHS = p.expr(e.LHS), p.expr(e.RHS)
	case *parser.SubqueryExpr:
		e.Expr = p.expr(e.Expr)
	case *parser.ParenExpr:
		e.Expr = p.expr(e.Expr)
	case *parser.UnaryExpr:
		e.Expr = p.expr(e.Expr)
	}
	return e
}

func (p fragment) fail(vs *parser.VectorSelector, format string, args ...any) parser.Expr {
	p.failed = true
	p.errorf(p.tree.rule, p.tree.place(vs.PosRange), format, args...)
	return vs
}

// definition is the expanded expression of a reading, in a tree of its own, with
// the labels of the reading's own key. A reading that is a selector gets its node
// where the selector stands.
func (p fragment) definition(name string) parser.Expr {
	r := p.readings[name]
	if r.broken {
		p.failed = true // reported where it is broken
		return nil
	}
	w := whose{rate: r.Rate, key: r.written}
	if p.leaf(r) {
		w.key = nil
	}
	return p.expander.tree(p.parse(r.expr, p.env), w)
}

// instant puts a reading in where its value at the instant is read.
func (p fragment) instant(ref *parser.VectorSelector) parser.Expr {
	root := p.definition(ref.Name)
	if root == nil {
		return ref
	}
	names := p.renames(ref.Name)
	if s := scaledSelector(root); s != nil {
		if why := s.take(ref, names); why != "" {
			return p.fail(ref, "%s: %s", ref.Name, why)
		}
		return bracketed(renamed(s.scale(s.selector), names))
	}
	if len(ref.LabelMatchers) > 1 {
		return p.fail(ref, "%s is an expression, not a metric: select labels inside its expr, or by a comparison with `and`", ref.Name)
	}
	if ref.Timestamp != nil || ref.StartOrEnd != 0 || ref.Anchored || ref.Smoothed || ref.OriginalOffsetExpr != nil {
		return p.fail(ref, "%s is an expression, not a metric: of the modifiers only a plain offset can be put on it", ref.Name)
	}
	if ref.OriginalOffset != 0 {
		if fn := shift(root, ref.OriginalOffset); fn != "" {
			return p.fail(ref, "%s calls %s, which an offset does not move: write the offset inside", ref.Name, fn)
		}
	}
	return bracketed(renamed(root, names))
}

// renames are the labels of a reading that the expression knows by other names.
func (p fragment) renames(reading string) map[string]string {
	r := p.readings[reading]
	if p.leaf(r) {
		return nil // its own are spelled as those of the expression
	}
	return r.Reading.renames()
}

// bracketed keeps an expression together whatever stands around it.
func bracketed(e parser.Expr) parser.Expr {
	switch e.(type) {
	case *parser.VectorSelector, *parser.ParenExpr:
		return e
	}
	return &parser.ParenExpr{Expr: e}
}

// call expands the arguments. A range over a reading that is a selector times a
// constant stays a range over the selector, and the constant goes around the
// call: a counter compared by increase is read raw.
func (p fragment) call(e *parser.Call) parser.Expr {
	if p.words && p.rate == RateCovered {
		switch e.Func.Name {
		case "rate":
			e.Func = dialectFunction(coveredRate)
		case "increase":
			e.Func = dialectFunction(coveredIncrease)
		}
	}
	var scale func(parser.Expr) parser.Expr
	for i, arg := range e.Args {
		m, ok := arg.(*parser.MatrixSelector)
		if ok {
			vs := m.VectorSelector.(*parser.VectorSelector)
			if p.readings[vs.Name] != nil {
				e.Args[i], scale = p.ranged(m, vs, scalings[e.Func.Name])
				continue
			}
		}
		e.Args[i] = p.expr(arg)
	}
	if scale == nil {
		return e
	}
	return bracketed(scale(e))
}

// ranged puts a reading in where a range of it is read: as a range of its
// selector when it is one, else as a subquery whose step is the reading's own
// interval. scale, when not nil, goes around the call.
func (p fragment) ranged(m *parser.MatrixSelector, ref *parser.VectorSelector, how scaling) (_ parser.Expr, scale func(parser.Expr) parser.Expr) {
	root := p.definition(ref.Name)
	if root == nil {
		return m, nil
	}
	names := p.renames(ref.Name)
	if s := scaledSelector(root); s != nil && s.fits(how) && (how != unscalable || len(names) == 0) {
		if why := s.take(ref, names); why != "" {
			return p.fail(ref, "%s: %s", ref.Name, why), nil
		}
		m.VectorSelector = s.selector
		scales := !s.plain && how != counting
		if !scales && len(names) == 0 {
			return m, nil
		}
		return m, func(x parser.Expr) parser.Expr {
			if scales {
				x = s.scale(x)
			}
			return renamed(x, names)
		}
	}
	if len(ref.LabelMatchers) > 1 {
		return p.fail(ref, "%s is an expression, not a metric: select labels inside its expr", ref.Name), nil
	}
	if ref.Anchored || ref.Smoothed {
		return p.fail(ref, "%s is an expression, not a metric: it cannot be anchored or smoothed", ref.Name), nil
	}
	step := p.readings[ref.Name].Interval
	if m.RangeExpr == nil && m.Range/step > maxSubquerySteps {
		return p.fail(ref, "a range of %s over %s has more than %d steps of its interval (%s): write the step, as in %s[%s:1m]",
			formatDuration(m.Range), ref.Name, maxSubquerySteps, formatDuration(step), ref.Name, formatDuration(m.Range)), nil
	}
	return &parser.SubqueryExpr{
		Expr: bracketed(renamed(root, names)), Range: m.Range, RangeExpr: m.RangeExpr, Step: step,
		OriginalOffset: ref.OriginalOffset, OriginalOffsetExpr: ref.OriginalOffsetExpr,
		Timestamp: ref.Timestamp, StartOrEnd: ref.StartOrEnd,
	}, nil
}

// maxSubquerySteps is the bound that the store's own guard has.
const maxSubquerySteps = 10000

// shift moves an expression into the past: the offset goes to every selector
// and subquery, whose insides move with it. What is pinned by @ stays. It
// returns the name of a function that reads the instant itself, if there is one.
func shift(e parser.Expr, by time.Duration) (reads string) {
	switch e := e.(type) {
	case *parser.VectorSelector:
		if e.Timestamp == nil && e.StartOrEnd == 0 {
			if e.OriginalOffsetExpr != nil {
				return "an offset of its own"
			}
			e.OriginalOffset += by
		}
		return ""
	case *parser.SubqueryExpr:
		if e.Timestamp == nil && e.StartOrEnd == 0 {
			if e.OriginalOffsetExpr != nil {
				return "an offset of its own"
			}
			e.OriginalOffset += by
		}
		return ""
	case *parser.Call:
		if len(e.Args) == 0 || e.Func.Name == "predict_linear" {
			return e.Func.Name + "()"
		}
	}
	for child := range parser.ChildrenIter(e) {
		if c, ok := child.(parser.Expr); ok {
			if fn := shift(c, by); fn != "" {
				return fn
			}
		}
	}
	return ""
}
