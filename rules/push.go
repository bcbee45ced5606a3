package rules

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// oneKey is a query of which each element is made of series with the element's
// own key alone. With key="x" in every selector it gives the elements of the key
// x and no others. It is text that stands for any key; empty is a query that is
// not so, or none.
type oneKey string

// perKey puts the key into every selector of a query, where the query's tree
// proves that this only leaves out the elements of other keys.
func perKey(query string, key []string) oneKey {
	if query == "" || len(key) == 0 {
		return ""
	}
	e, err := derived.ParseExpr(query)
	if err != nil || !keepsKey(e, key) {
		return ""
	}
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if vs, ok := n.(*parser.VectorSelector); ok {
			for i, name := range key {
				vs.LabelMatchers = append(slices.Clip(vs.LabelMatchers), labels.MustNewMatcher(labels.MatchEqual, name, placeholder(i)))
			}
		}
		return nil
	})
	return oneKey(e.String())
}

func placeholder(i int) string { return fmt.Sprintf("@wattloop key label %d@", i) }

// of is the query for one key.
func (q oneKey) of(key labels.Labels, names []string) string {
	text := string(q)
	for i, name := range names {
		text = strings.ReplaceAll(text, strconv.Quote(placeholder(i)), strconv.Quote(key.Get(name)))
	}
	return text
}

// keepsKey proves that the elements of a key are made of series with that key
// alone: the labels of the key go through every operation untouched.
func keepsKey(e parser.Expr, key []string) bool {
	switch e := e.(type) {
	case *parser.VectorSelector, *parser.MatrixSelector:
		return true
	case *parser.ParenExpr:
		return keepsKey(e.Expr, key)
	case *parser.UnaryExpr:
		return keepsKey(e.Expr, key)
	case *parser.SubqueryExpr:
		return keepsKey(e.Expr, key)
	case *parser.AggregateExpr:
		return e.Op != parser.COUNT_VALUES && keepsKey(e.Expr, key) && (e.Param == nil || selectsNothing(e.Param)) &&
			keepsLabels(e.Grouping, !e.Without, key)
	case *parser.BinaryExpr:
		return binaryKeepsKey(e, key)
	case *parser.Call:
		return callKeepsKey(e, key)
	}
	return false
}

// keepsLabels reports whether a list of labels to keep, or to leave out, keeps
// the key.
func keepsLabels(list []string, keep bool, key []string) bool {
	return !slices.ContainsFunc(key, func(k string) bool { return slices.Contains(list, k) != keep })
}

func binaryKeepsKey(e *parser.BinaryExpr, key []string) bool {
	switch left, right := isVector(e.LHS), isVector(e.RHS); {
	case left && right:
		m := e.VectorMatching
		return m.FillValues.LHS == nil && m.FillValues.RHS == nil && keepsLabels(m.MatchingLabels, m.On, key) &&
			!slices.ContainsFunc(m.Include, func(l string) bool { return slices.Contains(key, l) }) &&
			keepsKey(e.LHS, key) && keepsKey(e.RHS, key)
	case left:
		return keepsKey(e.LHS, key) && selectsNothing(e.RHS)
	case right:
		return keepsKey(e.RHS, key) && selectsNothing(e.LHS)
	}
	return false
}

func callKeepsKey(e *parser.Call, key []string) bool {
	switch e.Func.Name {
	case "absent", "absent_over_time", "vector", "scalar", "info", "histogram_quantiles":
		return false
	case "label_replace", "label_join":
		to, ok := unbracket(e.Args[1]).(*parser.StringLiteral)
		return ok && !slices.Contains(key, to.Val) && keepsKey(e.Args[0], key)
	case "histogram_quantile", "histogram_fraction":
		if slices.Contains(key, bucketLabel) {
			return false
		}
	}
	read := false
	for _, arg := range e.Args {
		switch arg.Type() {
		case parser.ValueTypeVector, parser.ValueTypeMatrix:
			if read = true; !keepsKey(arg, key) {
				return false
			}
		default:
			if !selectsNothing(arg) {
				return false
			}
		}
	}
	return read && !slices.Contains(key, nameLabel)
}

// selectsNothing is an expression that reads no series.
func selectsNothing(e parser.Expr) bool {
	nothing := true
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if _, ok := n.(*parser.VectorSelector); ok {
			nothing = false
		}
		return nil
	})
	return nothing
}

func scalarOfNothing(text string) bool {
	e, err := dialect.ParseExpr(text)
	return err == nil && selectsNothing(e)
}

// closeUp are the queries of one key, of a plan whose queries all keep the key.
type closeUp struct {
	value, short, all, inputs, seen, bare oneKey
}

// closeUp is nil where one of the queries does not keep the key, and where a
// component stands behind every key.
func (c *compiled) closeUp(key []string) *closeUp {
	if slices.ContainsFunc(c.branches, func(b branch) bool { return b.global }) {
		return nil
	}
	u, ok := &closeUp{}, true
	put := func(into *oneKey, query string) {
		*into = perKey(query, key)
		ok = ok && (*into != "" || query == "")
	}
	put(&u.value, c.value)
	put(&u.all, c.all)
	put(&u.inputs, c.inputs)
	put(&u.seen, c.seen)
	put(&u.bare, c.bare)
	if c.short != nil {
		put(&u.short, c.short.query)
	}
	if !ok || u.all == "" {
		return nil
	}
	return u
}

// inScope are the components that the round is about: those of one key, or all.
func (t *tracker) inScope() iter.Seq[*component] {
	if t.scope != nil {
		return slices.Values(t.scope.components)
	}
	return maps.Values(t.components)
}

// text is a query as the round asks it: of one key, or whole.
func (t *tracker) text(whole string, one func(*closeUp) oneKey) string {
	if t.scope == nil || whole == "" {
		return whole
	}
	return one(t.compiled.near).of(t.scope.labels, t.plan.key)
}
