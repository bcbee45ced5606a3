package rules

import (
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/wattloop/wattloop/presets/names"
)

// The forms of a query that reads the node of an OpenTelemetry series (S0-129).
const (
	AttributesLabels     = "labels"      // from the series' own labels
	AttributesTargetInfo = "target_info" // by a join with target_info
	AttributesAuto       = "auto"        // by labels, and by a join where they do not answer
)

// nodeAttribute is the label that tells whose a series is, in the rule files'
// spelling.
const nodeAttribute = "k8s_node_name"

// joiner gives what an expression reads of OpenTelemetry metrics the label of its
// node from target_info (S0-117): X, the whole of a rate or a selector that
// stands alone, becomes X * on (job, instance) group_left (k8s_node_name) max by
// (job, instance, k8s_node_name) (target_info and on (job, instance) X). The max
// lets a target have two target_info for a while, as after a restart (S0-165).
//
// It works on the words of the rule file, before they are spelled as the store
// has them.
type joiner struct{ *loader }

// applies says whether an expression, as it was written, reads by nodes and
// leaves it to the form where they stand.
func (j joiner) applies(e parser.Expr, key []string) bool {
	byNode, leaf, own := slices.Contains(key, nodeAttribute), false, false
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			own = own || n.Name == targetInfo
			leaf = leaf || j.pushed(n)
		case *parser.AggregateExpr:
			byNode = byNode || slices.Contains(n.Grouping, nodeAttribute)
		case *parser.BinaryExpr:
			if m := n.VectorMatching; m != nil {
				byNode = byNode || slices.Contains(m.MatchingLabels, nodeAttribute) || slices.Contains(m.Include, nodeAttribute)
			}
		case *parser.StringLiteral:
			byNode = byNode || n.Val == nodeAttribute
		}
		return nil
	})
	return byNode && leaf && !own
}

// pushed is a selector of a metric that a producer sends, in the rule files'
// spelling.
func (j joiner) pushed(vs *parser.VectorSelector) bool {
	name := vs.Name
	if name == "" {
		name = equalName(vs.LabelMatchers)
	}
	if r := j.readings[name]; r != nil {
		if !j.leaf(r) {
			return false
		}
		name = j.metricBehind(name)
	}
	_, ok := names.Respell(name, names.UnderscoreEscapingWithSuffixes)
	return ok
}

// join rewrites an expression in place. bare says that nothing stands beside it
// which its operators could bind to.
func (j joiner) join(e parser.Expr, bare bool) parser.Expr {
	switch e := e.(type) {
	case *parser.VectorSelector:
		if j.pushed(e) {
			return j.joined(e, e, bare)
		}
	case *parser.AggregateExpr:
		e.Expr = j.join(e.Expr, true)
	case *parser.ParenExpr:
		e.Expr = j.join(e.Expr, true)
	case *parser.SubqueryExpr:
		e.Expr = j.join(e.Expr, false)
	case *parser.UnaryExpr:
		e.Expr = j.join(e.Expr, false)
	case *parser.BinaryExpr:
		e.LHS, e.RHS = j.join(e.LHS, false), j.join(e.RHS, false)
	case *parser.Call:
		if vs := ofSelector(e); vs != nil {
			if j.pushed(vs) {
				return j.joined(e, vs, bare)
			}
			return e
		}
		for i, arg := range e.Args {
			e.Args[i] = j.join(arg, true)
		}
	}
	return e
}

// ofSelector is the selector of a function that reads one as it is: a range of
// it, or its samples' times.
func ofSelector(e *parser.Call) *parser.VectorSelector {
	for _, arg := range e.Args {
		switch arg := unbracket(arg).(type) {
		case *parser.MatrixSelector:
			vs, _ := arg.VectorSelector.(*parser.VectorSelector)
			return vs
		case *parser.VectorSelector:
			if e.Func.Name == "timestamp" {
				return arg
			}
		}
	}
	return nil
}

// joined is x, which reads vs, with its node. What vs asks of the node is asked of
// target_info.
func (j joiner) joined(x parser.Expr, vs *parser.VectorSelector, bare bool) parser.Expr {
	info := &parser.VectorSelector{Name: targetInfo, LabelMatchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, nameLabel, targetInfo)}}
	info.OriginalOffset, info.OriginalOffsetExpr = vs.OriginalOffset, vs.OriginalOffsetExpr
	info.Timestamp, info.StartOrEnd = vs.Timestamp, vs.StartOrEnd
	for _, m := range vs.LabelMatchers {
		if m.Name == nodeAttribute {
			info.LabelMatchers = append(info.LabelMatchers, m)
		}
	}
	vs.LabelMatchers = slices.DeleteFunc(slices.Clone(vs.LabelMatchers), func(m *labels.Matcher) bool { return m.Name == nodeAttribute })
	again, err := dialect.ParseExpr(x.String())
	if err != nil {
		panic("BUG: " + x.String() + ": " + err.Error())
	}
	target := []string{"job", "instance"}
	on := func(card parser.VectorMatchCardinality, include ...string) *parser.VectorMatching {
		return &parser.VectorMatching{Card: card, On: true, MatchingLabels: target, Include: include}
	}
	out := &parser.BinaryExpr{
		Op: parser.MUL, LHS: x, VectorMatching: on(parser.CardManyToOne, nodeAttribute),
		RHS: &parser.AggregateExpr{
			Op: parser.MAX, Grouping: append(slices.Clone(target), nodeAttribute),
			Expr: &parser.BinaryExpr{Op: parser.LAND, LHS: info, RHS: again, VectorMatching: on(parser.CardManyToMany)},
		},
	}
	if bare {
		return out
	}
	return &parser.ParenExpr{Expr: out}
}

// lasting asks whom a join would give its node if it only had samples, and has
// target_info lend its labels for as long again as samples are
// looked back for: its last sample may lie some minutes before the last of what
// it belongs to, which is then no less there.
func lasting(e parser.Expr) parser.Expr {
	if firstSelector(e, targetInfo) == nil {
		return e
	}
	copied, err := dialect.ParseExpr(e.String())
	if err != nil {
		panic("BUG: " + e.String() + ": " + err.Error())
	}
	return lastInfo(copied)
}

func lastInfo(e parser.Expr) parser.Expr {
	switch e := e.(type) {
	case *parser.VectorSelector:
		if e.Name == targetInfo {
			over := &parser.MatrixSelector{VectorSelector: e, Range: 2 * lookback}
			return &parser.Call{Func: parser.Functions["last_over_time"], Args: parser.Expressions{over}}
		}
	case *parser.Call:
		if vs := ofSelector(e); vs != nil {
			return vs // there is what has samples, whatever is made of them
		}
	case *parser.AggregateExpr:
		e.Expr = lastInfo(e.Expr)
	case *parser.ParenExpr:
		e.Expr = lastInfo(e.Expr)
	case *parser.BinaryExpr:
		e.LHS, e.RHS = lastInfo(e.LHS), lastInfo(e.RHS)
	}
	return e
}
