package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
)

// branch is a part of an expression whose elements are the components that are
// judged: what stands inside an outermost aggregation, or a branch outside of
// any. Components carry the key's labels, but for a global branch.
type branch struct {
	expr   parser.Expr
	steps  []step
	alts   []alternative
	global bool // under scalar(): its components stand behind every key
	sees   bool // it can be asked which components have samples
}

// step carries a branch's components through what stands around the branch: a
// prefix and a suffix for each aspect.
type step struct {
	before, used, warming, seen string
}

// alternative is one `or` that a branch stands under, and on which side of it.
// What is absent on one side is excused where the other side answers for the
// same labels.
type alternative struct {
	or    int
	right bool
	on    []string // sorted
}

// derive is the query of one aspect of the branch's components.
func (p branch) derive(d deriver) string {
	x := d.derive(p.expr)
	if x == "" {
		return ""
	}
	for _, s := range p.steps {
		x = s.before + bracket(x) + [...]string{used: s.used, warming: s.warming, seen: s.seen}[d.aspect]
	}
	return x
}

// opposite says whether the branch stands on the other side of the `or`.
func (b branch) opposite(a alternative) bool {
	return slices.ContainsFunc(b.alts, func(o alternative) bool { return o.or == a.or && o.right != a.right })
}

// splitter finds the branches of an expression that is read by key.
type splitter struct {
	key []string
	ors *int // how many `or` were numbered
}

// branches of a whole expression. In a condition, what and, or, unless
// put together is judged each for itself: what a condition leaves out was an
// input of it.
func branches(e parser.Expr, key []string, condition bool) []branch {
	s := &splitter{key: key, ors: new(int)}
	split := s.outer
	if condition {
		split = s.condition
	}
	all := split(e)
	// What a scalar() reads has no labels of the key.
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if c, ok := n.(*parser.Call); ok && c.Func.Name == "scalar" {
			for _, p := range (&splitter{ors: s.ors}).outer(c.Args[0]) {
				p.global = true
				all = append(all, p)
			}
		}
		return nil
	})
	return all
}

func (s *splitter) condition(e parser.Expr) []branch {
	switch e := e.(type) {
	case *parser.ParenExpr:
		return s.condition(e.Expr)
	case *parser.BinaryExpr:
		if e.Op.IsSetOperator() && compares(e) {
			return slices.Concat(s.condition(e.LHS), s.condition(e.RHS))
		}
	}
	return s.outer(e)
}

func compares(e parser.Expr) bool {
	found := false
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		b, ok := n.(*parser.BinaryExpr)
		found = found || ok && b.Op.IsComparisonOperator() && !b.ReturnBool
		return nil
	})
	return found
}

// outer splits what is not inside an aggregation yet.
func (s *splitter) outer(e parser.Expr) []branch {
	if inner, ok := passes(e); ok {
		return s.outer(inner)
	}
	switch e := e.(type) {
	case *parser.AggregateExpr:
		if s.carriesKey(e) {
			return s.inner(e.Expr)
		}
	case *parser.BinaryExpr:
		if e.Op.IsSetOperator() {
			return s.set(e)
		}
		if s.keyOnBothSides(e) {
			return slices.Concat(s.outer(e.LHS), s.outer(e.RHS))
		}
	case *parser.Call:
		if e.Func.Name == "label_replace" || e.Func.Name == "label_join" {
			return s.relabelled(e)
		}
	}
	return entire(e)
}

// inner splits what stands inside the outermost aggregation: its elements are
// components, and only an `or` that puts unlike elements together divides it.
func (s *splitter) inner(e parser.Expr) []branch {
	if inner, ok := passes(e); ok {
		return s.inner(inner)
	}
	b, ok := e.(*parser.BinaryExpr)
	if !ok || b.Op != parser.LOR || !b.VectorMatching.On || usesName(b) || sameElements(b) {
		return entire(e)
	}
	return s.either(b, b.VectorMatching.MatchingLabels, s.inner)
}

// entire is an expression whose own elements are the components.
func entire(e parser.Expr) []branch {
	if isVector(e) && (deriver{aspect: used}).derive(e) != "" {
		return []branch{{expr: e}}
	}
	return nil
}

// passes finds the vector that an operation changes in value alone.
func passes(e parser.Expr) (parser.Expr, bool) {
	switch e := e.(type) {
	case *parser.ParenExpr:
		return e.Expr, true
	case *parser.UnaryExpr:
		return e.Expr, true
	case *parser.BinaryExpr:
		switch left, right := isVector(e.LHS), isVector(e.RHS); {
		case left && !right:
			return e.LHS, true
		case right && !left:
			return e.RHS, true
		}
	case *parser.Call:
		switch e.Func.Name {
		case "abs", "ceil", "clamp", "clamp_max", "clamp_min", "exp", "floor", "ln", "log10", "log2",
			"round", "sgn", "sort", "sort_desc", "sort_by_label", "sort_by_label_desc", "sqrt":
			return e.Args[0], true
		}
	}
	return nil, false
}

// carriesKey is an aggregation whose inputs can be told apart by the key as its
// results are.
func (s *splitter) carriesKey(e *parser.AggregateExpr) bool {
	if keepsElements(e.Op) || e.Op == parser.COUNT_VALUES {
		return false
	}
	for _, k := range s.key {
		if slices.Contains(e.Grouping, k) == e.Without {
			return false
		}
	}
	return true
}

// keyOnBothSides is an operation of two vectors that are both read by the key.
func (s *splitter) keyOnBothSides(e *parser.BinaryExpr) bool {
	if !isVector(e.LHS) || !isVector(e.RHS) {
		return false
	}
	m := e.VectorMatching
	for _, k := range s.key {
		if slices.Contains(m.MatchingLabels, k) != m.On || slices.Contains(m.Include, k) {
			return false
		}
	}
	return true
}

func (s *splitter) set(e *parser.BinaryExpr) []branch {
	on, ok := s.matchedLabels(e)
	switch {
	case !ok || e.Op == parser.LOR && sameElements(e) && !aggregates(e.LHS):
		return entire(e)
	case e.Op == parser.LOR:
		return s.either(e, on, s.outer)
	}
	parts := s.outer(e.LHS)
	filter := " " + e.Op.String() + " on (" + quoted(on) + ") " + bracket(e.RHS.String())
	for i := range parts {
		parts[i].steps = append(parts[i].steps, step{used: filter, warming: filter})
	}
	return parts
}

// either splits an `or` whose sides are matched on the labels: the right side
// counts where the left does not answer.
func (s *splitter) either(e *parser.BinaryExpr, on []string, split func(parser.Expr) []branch) []branch {
	id := *s.ors
	*s.ors++
	matched := " unless on (" + quoted(on) + ") "
	side := func(half, hiddenBy parser.Expr, right bool) []branch {
		ps := split(half)
		for i := range ps {
			st := step{warming: matched + bracket(e.String())}
			if hiddenBy != nil {
				st.used = matched + bracket(hiddenBy.String())
			}
			ps[i].steps = append(ps[i].steps, st)
			ps[i].alts = append(ps[i].alts, alternative{id, right, slices.Sorted(slices.Values(on))})
		}
		return ps
	}
	return slices.Concat(side(e.LHS, nil, false), side(e.RHS, e.LHS, true))
}

// relabelled carries a label that is made outside of the aggregation to the
// components, if they have what it is made of.
func (s *splitter) relabelled(e *parser.Call) []branch {
	from, ok := resultLabels(e.Args[0])
	if !ok {
		return entire(e)
	}
	names := make([]string, 0, len(e.Args))
	for _, arg := range e.Args[1:] {
		lit, ok := unbracket(arg).(*parser.StringLiteral)
		if !ok {
			return entire(e)
		}
		names = append(names, lit.Val)
	}
	sources := names[2:] // label_join: separator, then the sources
	if e.Func.Name == "label_replace" {
		sources = names[2:3]
	}
	for _, src := range sources {
		if !slices.Contains(from, src) {
			return entire(e)
		}
	}
	inside := &splitter{key: without(s.key, names[0]), ors: s.ors}
	parts := inside.outer(e.Args[0])
	tail := ", " + parser.Expressions(e.Args[1:]).String() + ")"
	for i := range parts {
		parts[i].steps = append(parts[i].steps, step{before: e.Func.Name + "(", used: tail, warming: tail, seen: tail})
	}
	return parts
}

// matchedLabels are the labels that two sides of a set operation are matched
// on, if components can be matched on them as the results are.
func (s *splitter) matchedLabels(e *parser.BinaryExpr) ([]string, bool) {
	if usesName(e) {
		return nil, false
	}
	l, lok := resultLabels(e.LHS)
	r, rok := resultLabels(e.RHS)
	m := e.VectorMatching
	if m.On {
		ok := (!lok || subset(m.MatchingLabels, l)) && (!rok || subset(m.MatchingLabels, r))
		return m.MatchingLabels, ok
	}
	if !lok || !rok || !subset(l, r) || !subset(r, l) {
		return nil, false
	}
	return without(l, m.MatchingLabels...), true
}

// resultLabels are the labels that an expression's results can have, where the
// expression itself says so.
func resultLabels(e parser.Expr) ([]string, bool) {
	if inner, ok := passes(e); ok {
		return resultLabels(inner)
	}
	switch e := e.(type) {
	case *parser.AggregateExpr:
		return e.Grouping, !e.Without && !keepsElements(e.Op) && e.Op != parser.COUNT_VALUES
	case *parser.BinaryExpr:
		return matchedResult(e)
	case *parser.Call:
		if e.Func.Name != "label_replace" && e.Func.Name != "label_join" {
			return nil, false
		}
		lit, ok := unbracket(e.Args[1]).(*parser.StringLiteral)
		l, lok := resultLabels(e.Args[0])
		if !ok || !lok {
			return nil, false
		}
		return appendNew(slices.Clone(l), lit.Val), true
	}
	return nil, false
}

func matchedResult(e *parser.BinaryExpr) ([]string, bool) {
	if !isVector(e.LHS) {
		return nil, false
	}
	m := e.VectorMatching
	l, lok := resultLabels(e.LHS)
	r, rok := resultLabels(e.RHS)
	switch {
	case e.Op == parser.LAND || e.Op == parser.LUNLESS:
		return l, lok
	case e.Op == parser.LOR:
		return l, lok && rok && subset(l, r) && subset(r, l)
	case m.Card == parser.CardManyToOne:
		return appendNew(slices.Clone(l), m.Include...), lok
	case m.Card == parser.CardOneToMany:
		return appendNew(slices.Clone(r), m.Include...), rok
	case m.On:
		return m.MatchingLabels, true
	}
	return without(l, m.MatchingLabels...), lok && rok
}

// sameElements is an `or` that lets a right element through only beside left
// ones with other labels, so that the labels alone name a component.
func sameElements(e *parser.BinaryExpr) bool {
	m := e.VectorMatching
	if !m.On {
		return len(m.MatchingLabels) == 0
	}
	l, lok := resultLabels(e.LHS)
	r, rok := resultLabels(e.RHS)
	return lok && rok && subset(l, m.MatchingLabels) && subset(r, m.MatchingLabels)
}

func aggregates(e parser.Expr) bool {
	if inner, ok := passes(e); ok {
		return aggregates(inner)
	}
	switch e := e.(type) {
	case *parser.AggregateExpr:
		return true
	case *parser.BinaryExpr:
		return aggregates(e.LHS) || aggregates(e.RHS)
	case *parser.Call:
		return len(e.Args) > 0 && strings.HasPrefix(e.Func.Name, "label_") && aggregates(e.Args[0])
	}
	return false
}

func subset(of, all []string) bool {
	return !slices.ContainsFunc(of, func(s string) bool { return !slices.Contains(all, s) })
}

func without(list []string, names ...string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(names, s) })
}

func quoted(names []string) string {
	all := make([]string, len(names))
	for i, n := range names {
		all[i] = fmt.Sprintf("%q", n)
	}
	return strings.Join(all, ", ")
}
