package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/wattloop/wattloop/presets/names"
)

// targetInfo is where the receiver keeps the attributes of a resource. Every
// strategy calls it so; its labels are spelled as the strategy has them.
const targetInfo = "target_info"

// speller writes the names of an expression as the store has them. Rule files are
// written in the default strategy's spelling. What follows another is a metric
// of the names table, and what is computed of it: those labels alone that such
// series carry are spelled anew, so that a scraped series beside them keeps its
// own.
type speller struct {
	*loader
	strategy names.Strategy
}

// spelling is whose names an expression's elements carry.
type spelling int

const (
	neutral spelling = iota // none: a number
	asIs                    // those of the rule file
	respelt                 // those of the strategy
)

func (l *loader) speller() speller {
	return speller{l, names.Strategy(l.settings.Naming)}
}

// idle says that the rule files' spelling is the store's.
func (s speller) idle() bool {
	return s.strategy == "" || s.strategy == names.UnderscoreEscapingWithSuffixes
}

// label is a label's name in the store.
func (s speller) label(name string) string {
	if !s.idle() {
		if as, ok := names.RespellLabel(name, s.strategy); ok {
			return as
		}
	}
	return name
}

func (s speller) labels(all []string) []string {
	out := make([]string, len(all))
	for i, name := range all {
		out[i] = s.label(name)
	}
	return out
}

// back are the labels among these that the rule file knows by another name.
func (s speller) back(written []string) map[string]string {
	out := map[string]string{}
	for _, name := range written {
		if as := s.label(name); as != name {
			out[as] = name
		}
	}
	return out
}

// of is whose names the elements of an expression carry.
func (s speller) of(e parser.Expr) spelling {
	if s.idle() {
		return asIs
	}
	_, is := s.walk(e, false)
	return is
}

// spell writes an expression anew, in place, and says whose names it carries.
func (s speller) spell(e parser.Expr) (parser.Expr, spelling) {
	if s.idle() {
		return e, asIs
	}
	return s.walk(e, true)
}

func (s speller) walk(e parser.Expr, change bool) (parser.Expr, spelling) {
	switch e := e.(type) {
	case *parser.VectorSelector:
		return e, s.selector(e, change)
	case *parser.MatrixSelector:
		_, is := s.walk(e.VectorSelector, change)
		return e, is
	case *parser.ParenExpr:
		return s.inner(e, &e.Expr, change)
	case *parser.UnaryExpr:
		return s.inner(e, &e.Expr, change)
	case *parser.SubqueryExpr:
		return s.inner(e, &e.Expr, change)
	case *parser.AggregateExpr:
		_, is := s.inner(e, &e.Expr, change)
		if change && is == respelt {
			e.Grouping = s.labels(e.Grouping)
		}
		if e.Param != nil {
			s.inner(e, &e.Param, change)
		}
		return e, is
	case *parser.Call:
		return s.call(e, change)
	case *parser.BinaryExpr:
		return s.binary(e, change)
	}
	return e, neutral
}

func (s speller) inner(e parser.Expr, child *parser.Expr, change bool) (parser.Expr, spelling) {
	x, is := s.walk(*child, change)
	if change {
		*child = x
	}
	return e, is
}

// selector follows the strategy where it names a metric of the table.
func (s speller) selector(vs *parser.VectorSelector, change bool) spelling {
	as, own := s.metric(vs)
	if as == "" {
		return asIs
	}
	if !change {
		return respelt
	}
	for i, m := range vs.LabelMatchers {
		switch {
		case m.Name != nameLabel:
			vs.LabelMatchers[i] = labels.MustNewMatcher(m.Type, s.label(m.Name), m.Value)
		case own:
			vs.LabelMatchers[i] = labels.MustNewMatcher(m.Type, nameLabel, as)
		}
	}
	if own {
		vs.Name = as
		if !validName.MatchString(as) {
			vs.Name = "" // the matcher alone says it: PromQL wants it in quotes
		}
	}
	return respelt
}

// metric is the stored name of what a selector reads, "" for one that follows no
// strategy. own says that the selector itself is to carry it; a reading that is a
// selector alone brings its own.
func (s speller) metric(vs *parser.VectorSelector) (as string, own bool) {
	name := vs.Name
	if name == "" {
		name = equalName(vs.LabelMatchers)
	}
	if r := s.readings[name]; r != nil {
		if !s.leaf(r) {
			return "", false
		}
		return s.stored(s.metricBehind(name)), false
	}
	return s.stored(name), true
}

func (s speller) stored(name string) string {
	if name == targetInfo {
		return name
	}
	as, _ := names.Respell(name, s.strategy)
	return as
}

// leaf is a reading that stands for its selector, labels and all.
func (l *loader) leaf(r *rawReading) bool {
	return r.tree != nil && scaledSelector(r.tree.root) != nil && slices.Equal(r.written, r.As)
}

func equalName(ms []*labels.Matcher) string {
	for _, m := range ms {
		if m.Name == nameLabel && m.Type == labels.MatchEqual {
			return m.Value
		}
	}
	return ""
}

func (s speller) call(e *parser.Call, change bool) (parser.Expr, spelling) {
	is := neutral
	for i := range e.Args {
		if _, of := s.inner(e, &e.Args[i], change); of != neutral {
			is = of
		}
	}
	switch e.Func.Name {
	case "scalar", "vector":
		return e, neutral
	case "label_replace", "label_join":
		for i, arg := range e.Args[1:] {
			lit, ok := arg.(*parser.StringLiteral)
			if ok && change && is == respelt && namesLabel(e.Func.Name, i) {
				e.Args[i+1] = &parser.StringLiteral{Val: s.label(lit.Val), PosRange: lit.PosRange}
			}
		}
	}
	return e, is
}

// namesLabel says whether an argument behind the first is the name of a label.
func namesLabel(function string, i int) bool {
	if function == "label_replace" {
		return i == 0 || i == 2 // destination, replacement, source, regex
	}
	return i != 1 // destination, separator, sources
}

// binary puts the labels of a side that follows the strategy back where the other
// does not, so that the two are matched by the words of the rule file.
func (s speller) binary(e *parser.BinaryExpr, change bool) (parser.Expr, spelling) {
	_, l := s.inner(e, &e.LHS, change)
	_, r := s.inner(e, &e.RHS, change)
	switch {
	case !isVector(e.LHS) && !isVector(e.RHS):
		return e, neutral
	case !isVector(e.LHS):
		return e, r
	case !isVector(e.RHS):
		return e, l
	case l == asIs || r == asIs || l == neutral || r == neutral:
		if change && l == respelt {
			e.LHS = s.unspell(e.LHS)
		}
		if change && r == respelt {
			e.RHS = s.unspell(e.RHS)
		}
		return e, asIs
	}
	if change {
		e.VectorMatching.MatchingLabels = s.labels(e.VectorMatching.MatchingLabels)
		e.VectorMatching.Include = s.labels(e.VectorMatching.Include)
	}
	return e, respelt
}

// unspell puts the labels of a side back that its elements are known to carry, or
// else all that the table has.
func (s speller) unspell(e parser.Expr) parser.Expr {
	var written []string
	have, known := resultLabels(e)
	for _, a := range names.Attributes() {
		as := a.Stored(s.strategy)
		if !known || slices.Contains(have, as) {
			written = append(written, a.Stored(names.UnderscoreEscapingWithSuffixes))
		}
	}
	return bracketed(renamed(e, s.back(written)))
}

// pretty is an expression as a person writes it: a name that PromQL wants in
// quotes stands first in its braces (S0-145). e is not changed.
func pretty(e parser.Expr) string {
	copied, err := dialect.ParseExpr(e.String())
	if err != nil {
		return e.String()
	}
	var quotedNames []string
	parser.Inspect(copied, func(n parser.Node, _ []parser.Node) error {
		vs, ok := n.(*parser.VectorSelector)
		if !ok || vs.Name != "" {
			return nil
		}
		if name := equalName(vs.LabelMatchers); name != "" {
			vs.Name = standIn(len(quotedNames))
			vs.LabelMatchers = slices.DeleteFunc(vs.LabelMatchers, func(m *labels.Matcher) bool { return m.Name == nameLabel })
			quotedNames = append(quotedNames, name)
		}
		return nil
	})
	text := copied.String()
	for i, name := range quotedNames {
		text = strings.ReplaceAll(text, standIn(i)+"{", fmt.Sprintf("{%q, ", name))
		text = strings.ReplaceAll(text, standIn(i), fmt.Sprintf("{%q}", name))
	}
	return text
}

// standIn is a name that no expression has.
func standIn(i int) string { return fmt.Sprintf("__wattloop_name_%d__", i) }
