package store

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// The bounds of a query that a person or a program sends. PromQL's own limits
// (time, samples) do not bound the memory that a nest of label_replace takes,
// so the tree is looked at before it runs. Rules are an administrator's words
// and are not bounded.
const (
	maxQueryRunes    = 4000
	maxNodes         = 500
	maxDepth         = 50
	maxRegexBytes    = 512
	maxAlternatives  = 100
	maxLabelLiteral  = 256 // bytes of a literal given to label_replace or label_join
	maxReferences    = 4   // $ in a label_replace
	maxSubquerySteps = 10_000
	maxRangePoints   = 11_000
)

func guardLength(query string) error {
	if n := utf8.RuneCountInString(query); n > maxQueryRunes {
		return fmt.Errorf("query has %d characters, the most is %d", n, maxQueryRunes)
	}
	return nil
}

// guard refuses a tree that could take memory or time out of proportion.
func guard(expr parser.Expr) error {
	nodes := 0
	var failed error
	refuse := func(format string, args ...any) error {
		failed = fmt.Errorf(format, args...)
		return failed
	}
	parser.Inspect(expr, func(n parser.Node, path []parser.Node) error {
		if failed != nil || n == nil {
			return failed
		}
		if nodes++; nodes > maxNodes {
			return refuse("query has more than %d parts", maxNodes)
		}
		if len(path) >= maxDepth {
			return refuse("query is nested deeper than %d", maxDepth)
		}
		switch n := n.(type) {
		case *parser.VectorSelector:
			for _, m := range n.LabelMatchers {
				if m.Type == labels.MatchRegexp || m.Type == labels.MatchNotRegexp {
					if err := guardRegex(m.Value); err != nil {
						return refuse("label %s: %w", m.Name, err)
					}
				}
			}
		case *parser.SubqueryExpr:
			step := n.Step
			if step == 0 {
				step = subqueryStep
			}
			if steps := int64(n.Range / step); steps > maxSubquerySteps {
				return refuse("subquery has %d steps of %s, the most is %d: give it a longer step", steps, step, maxSubquerySteps)
			}
		case *parser.Call:
			if err := guardLabelCall(n, path); err != nil {
				return refuse("%w", err)
			}
		}
		return nil
	})
	return failed
}

func guardRegex(re string) error {
	if len(re) > maxRegexBytes {
		return fmt.Errorf("regular expression has %d bytes, the most is %d", len(re), maxRegexBytes)
	}
	if n := strings.Count(re, "|") + 1; n > maxAlternatives {
		return fmt.Errorf("regular expression has %d alternatives, the most is %d", n, maxAlternatives)
	}
	return nil
}

func writesLabels(c *parser.Call) bool {
	return c.Func.Name == "label_replace" || c.Func.Name == "label_join"
}

// guardLabelCall bounds the two functions that build label values: one inside
// another multiplies the length of the value at each level.
func guardLabelCall(c *parser.Call, path []parser.Node) error {
	if !writesLabels(c) {
		return nil
	}
	for _, above := range path {
		if outer, ok := above.(*parser.Call); ok && writesLabels(outer) {
			return fmt.Errorf("%s inside %s: one of them at most", c.Func.Name, outer.Func.Name)
		}
	}
	for i, arg := range c.Args {
		s, ok := unparen(arg).(*parser.StringLiteral)
		if !ok {
			continue
		}
		if len(s.Val) > maxLabelLiteral {
			return fmt.Errorf("%s: a literal has %d bytes, the most is %d", c.Func.Name, len(s.Val), maxLabelLiteral)
		}
		if c.Func.Name == "label_replace" && i == 2 && strings.Count(s.Val, "$") > maxReferences {
			return fmt.Errorf("label_replace: more than %d references in the replacement", maxReferences)
		}
	}
	return nil
}

// guardRange checks the grid of a range query, times in Unix milliseconds.
func guardRange(start, end int64, step time.Duration) error {
	switch {
	case step < time.Millisecond:
		return fmt.Errorf("step %s: the least is 1ms", step)
	case end < start:
		return fmt.Errorf("end is before start")
	}
	if points := (end-start)/step.Milliseconds() + 1; points > maxRangePoints {
		return fmt.Errorf("%d points a series, the most is %d: use a longer step or a shorter range", points, maxRangePoints)
	}
	return nil
}
