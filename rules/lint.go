package rules

import (
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/wattloop/wattloop/presets/names"
)

// lint says what makes an expression read the wrong number. In what a control
// depends on that is an error, elsewhere a warning.
func (l *loader) lint(rule string, at place, format string, args ...any) {
	severity := SeverityWarning
	if l.acting[rule] {
		severity = SeverityError
	}
	l.add(severity, rule, at, "", format, args...)
}

// actingRules are the controls and every reading that one depends on, by the
// names that messages have for them.
func (l *loader) actingRules() map[string]bool {
	acting := map[string]bool{}
	var follow func(refs []*parser.VectorSelector)
	follow = func(refs []*parser.VectorSelector) {
		for _, ref := range refs {
			if rule := ruleName("readings", ref.Name); !acting[rule] {
				acting[rule] = true
				follow(l.readings[ref.Name].refs)
			}
		}
	}
	for name, c := range l.controls {
		acting[ruleName("controls", name)] = true
		for _, x := range []*expression{c.engage, c.release, c.value} {
			if t := l.parse(x, env{params: l.params, with: c.with}); t != nil {
				follow(l.references(t.root))
			}
		}
	}
	return acting
}

// checkHeight tells of a counter whose height goes into an answer. That is an
// error for energy (S0-169); some name a gauge _total, so of another it is only
// worth a warning.
func (l *loader) checkHeight(t *tree, at *parser.VectorSelector, metric string) {
	const text = "%s is a counter and is read without rate(): its value is the sum since some start"
	if strings.HasSuffix(metric, "_joules_total") {
		l.lint(t.rule, t.place(at.PosRange), text, metric)
		return
	}
	l.warnf(t.rule, t.place(at.PosRange), text, metric)
}

// oneSeries reports whether two sides of an `or` that have the same labels are
// the same series read alike, so that nothing is lost when one is dropped; or
// one side is a constant to fall back on.
func oneSeries(l, r parser.Expr) bool {
	if isConstantVector(l) || isConstantVector(r) {
		return true
	}
	left, ok := chain(l)
	right, okRight := chain(r)
	return ok && okRight && left == right
}

func isConstantVector(e parser.Expr) bool {
	c, ok := unbracket(e).(*parser.Call)
	return ok && c.Func.Name == "vector"
}

// chain is an expression of one selector under functions that keep its labels,
// without the matchers beside the metric's name.
func chain(e parser.Expr) (string, bool) {
	switch e := unbracket(e).(type) {
	case *parser.VectorSelector:
		return metricName(e), metricName(e) != "" && e.OriginalOffset == 0 && e.OriginalOffsetExpr == nil && !pinned(e)
	case *parser.MatrixSelector:
		text, ok := chain(e.VectorSelector)
		return text + "[" + e.Range.String() + "]", ok && e.RangeExpr == nil
	case *parser.Call:
		if len(e.Args) != 1 || strings.HasPrefix(e.Func.Name, "label_") {
			return "", false
		}
		text, ok := chain(e.Args[0])
		return e.Func.Name + bracket(text), ok
	}
	return "", false
}

// checkJoins finds a join with target_info as it stands (S0-166): while a producer
// that restarted has two of them, the join fails, and the rule with it.
func (l *loader) checkJoins(t *tree) {
	parser.Inspect(t.root, func(n parser.Node, _ []parser.Node) error {
		b, ok := n.(*parser.BinaryExpr)
		if !ok || b.Op.IsSetOperator() || !isVector(b.LHS) || !isVector(b.RHS) {
			return nil
		}
		for _, side := range []parser.Expr{b.LHS, b.RHS} {
			if info := plainInfo(side); info != nil {
				by := strings.Join(plus(b.VectorMatching.MatchingLabels, b.VectorMatching.Include), ", ")
				if !b.VectorMatching.On || by == "" {
					by = "job, instance, k8s_node_name"
				}
				l.lint(t.rule, t.place(info.PosRange), "this join fails while a restarted producer has two series of target_info: write max by (%s) (target_info)", by)
			}
		}
		return nil
	})
}

// plainInfo finds a selector of target_info whose series are the elements of an
// expression.
func plainInfo(e parser.Expr) *parser.VectorSelector {
	if inner, ok := passes(e); ok {
		return plainInfo(inner)
	}
	switch e := e.(type) {
	case *parser.VectorSelector:
		if metricName(e) == "target_info" {
			return e
		}
	case *parser.BinaryExpr:
		if found := plainInfo(e.LHS); found != nil || e.Op != parser.LOR {
			return found
		}
		return plainInfo(e.RHS)
	case *parser.Call:
		if strings.HasPrefix(e.Func.Name, "label_") {
			return plainInfo(e.Args[0])
		}
	}
	return nil
}

func metricName(vs *parser.VectorSelector) string {
	if vs.Name != "" {
		return vs.Name
	}
	for _, m := range vs.LabelMatchers {
		if m.Name == nameLabel && m.Type == labels.MatchEqual {
			return m.Value
		}
	}
	return ""
}

// unitWords are the words that people write for the units of the contract.
var unitWords = map[string][]string{
	"J":   {"joule", "joules", "kilojoule", "kilojoules"},
	"W":   {"watt", "watts", "w", "kilowatt", "kilowatts"},
	"Cel": {"celsius", "c", "degc", "degree", "degrees", "degree_celsius", "degrees_celsius"},
	"Hz":  {"hertz", "hz", "megahertz"},
	"s":   {"sec", "secs", "second", "seconds"},
	"%":   {"percent", "pct"},
	"1":   {"ratio"},
}

// checkUnitNames finds a metric of the contract under the name that it gets from
// a unit other than the contract's (S0-146): unit joule makes
// hw_energy_joule_total, which no preset reads.
func (l *loader) checkUnitNames(t *tree) {
	parser.Inspect(t.root, func(n parser.Node, _ []parser.Node) error {
		vs, ok := n.(*parser.VectorSelector)
		if !ok || l.readings[vs.Name] != nil {
			return nil
		}
		if m, stored := misnamed(metricName(vs)); stored != "" {
			l.lint(t.rule, t.place(vs.PosRange), "%s comes of a producer that sends %s in another unit than %s: no preset reads it; have it send unit %s, and read %s",
				metricName(vs), m.Name, m.Unit, m.Unit, stored)
		}
		return nil
	})
}

// misnamed finds the metric of the contract that a name is with another unit, and
// its right name.
func misnamed(name string) (names.Metric, string) {
	for _, s := range []names.Strategy{names.UnderscoreEscapingWithSuffixes, names.NoUTF8EscapingWithSuffixes} {
		for _, m := range names.Metrics() {
			bare := m.Stored(names.UnderscoreEscapingWithoutSuffixes)
			if s == names.NoUTF8EscapingWithSuffixes {
				bare = m.Name
			}
			rest, ok := strings.CutPrefix(name, bare+"_")
			if !ok || name == m.Stored(s) {
				continue
			}
			rest = strings.TrimSuffix(rest, "_total")
			if slices.Contains(unitWords[m.Unit], strings.ToLower(rest)) {
				return m, m.Stored(s)
			}
		}
	}
	return names.Metric{}, ""
}

// checkUnitWord warns of a unit that is not written as OpenTelemetry writes it.
func (l *loader) checkUnitWord(r *rawReading) {
	for unit, words := range unitWords {
		if r.Unit != unit && slices.Contains(words, strings.ToLower(r.Unit)) {
			l.add(SeverityWarning, ruleName("readings", r.Name), r.def.get("unit").at(), unit, "unit %s: units are written as OpenTelemetry writes them", r.Unit)
		}
	}
}
