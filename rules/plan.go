package rules

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
)

// The store's two functions that rate( and increase( are read as under
// rate: covered. Their meaning is the store's; here they are names.
const (
	coveredRate     = "covered_rate"
	coveredIncrease = "covered_increase"
	// In derived queries alone.
	coveredNewest = "covered_newest"
	coveredMoving = "covered_moving"
)

// A covered rate reads at least two measured export intervals and a quarter of
// one. Two hold two samples only while each arrives at the instant that it is
// stamped with; the quarter is for one that arrives late, and more than twice
// the lag at which a channel is flagged.
const (
	minIntervals = 2
	lateShare    = 4 // of an interval, the part that a sample may be late
)

// dialect parses every expression that a plan was built from, printed: PromQL
// with its experimental functions and the two of the store.
var dialect = parser.NewParser(parser.Options{
	EnableExperimentalFunctions: true,
	EnableBinopFillModifiers:    true,
	Functions:                   withCovered(parser.Functions),
})

// derived parses what was made of an expression, in which the store's other
// functions may stand too.
var derived = parser.NewParser(parser.Options{
	EnableExperimentalFunctions: true,
	EnableBinopFillModifiers:    true,
	Functions:                   withDerived(withCovered(parser.Functions)),
})

func withDerived(known map[string]*parser.Function) map[string]*parser.Function {
	for _, name := range []string{coveredNewest, coveredMoving} {
		f := dialectFunction(name)
		f.ArgTypes = append(f.ArgTypes, parser.ValueTypeScalar)
		known[name] = f
	}
	return known
}

func withCovered(known map[string]*parser.Function) map[string]*parser.Function {
	all := maps.Clone(known)
	for _, name := range []string{coveredRate, coveredIncrease} {
		all[name] = dialectFunction(name)
	}
	for _, name := range []string{coveredNewest, coveredMoving} {
		delete(all, name) // where the store is linked in, PromQL knows it
	}
	return all
}

// plan is how one expanded expression runs: what is asked for its value and
// what must be asked to judge it. It is immutable, and it holds text and not
// trees, since a tree that was evaluated once must not be evaluated again.
type plan struct {
	words   string   // as written, readings and parameters put in
	text    string   // words, every selector held to the trusted channels
	form    string   // AttributesLabels or AttributesTargetInfo; "" where there is one form
	node    string   // of the form with target_info: the label of the node, as stored
	query   string   // as it runs, before any window is widened
	key     []string // sorted
	covered bool     // rate( is read as covered_rate(
	// scalar is an expression without labels, such as a number: it holds for
	// every key.
	scalar bool
	// selectors are the distinct selectors of the expression, without offset, as
	// the store measures their export interval.
	selectors []string
	// windows are what stands under covered_rate and may be too short.
	windows []window
}

// window is a selector and how long a range of it is read.
type window struct {
	selector string
	length   time.Duration
}

// widened is the length that is read where a series' samples are that far
// apart, in whole seconds. What a timer jitters does not move it.
func (w window) widened(interval time.Duration) time.Duration {
	interval = interval.Round(time.Second / 10)
	if need := minIntervals*interval + interval/lateShare; w.length < need {
		return (need + time.Second - 1).Truncate(time.Second)
	}
	return w.length
}

// widens says whether any window is too short for the export intervals.
func (p *plan) widens(intervals map[string]time.Duration) bool {
	return slices.ContainsFunc(p.windows, func(w window) bool { return w.widened(intervals[w.selector]) > w.length })
}

// newPlan takes a fully expanded expression and the labels that its answers
// are read by. The tree is not kept and not changed.
func newPlan(expr parser.Expr, key []string, covered bool) (*plan, error) {
	switch expr.Type() {
	case parser.ValueTypeVector, parser.ValueTypeScalar:
	default:
		return nil, fmt.Errorf("%s is a %s, want one value a series: put a function such as rate() or max_over_time() around it",
			expr, parser.DocumentedType(expr.Type()))
	}
	p := &plan{
		text:    expr.String(),
		key:     slices.Sorted(slices.Values(key)),
		covered: covered,
		scalar:  expr.Type() == parser.ValueTypeScalar,
	}
	tree, err := p.tree(nil)
	if err != nil {
		return nil, err
	}
	p.query = pretty(tree)
	parser.Inspect(tree, func(n parser.Node, path []parser.Node) error {
		vs, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		name := selectorText(vs)
		p.selectors = appendNew(p.selectors, name)
		if m, ok := coveredWindow(path); ok {
			p.windows = appendNew(p.windows, window{name, m.Range})
		}
		return nil
	})
	return p, nil
}

// tree is the expression as it runs, in a tree of its own, its windows widened
// to the export intervals of their selectors.
func (p *plan) tree(intervals map[string]time.Duration) (parser.Expr, error) {
	expr, err := dialect.ParseExpr(p.text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.text, err)
	}
	parser.Inspect(expr, func(n parser.Node, path []parser.Node) error {
		switch n := n.(type) {
		case *parser.Call:
			switch {
			case !p.covered:
			case n.Func.Name == "rate":
				n.Func = dialectFunction(coveredRate)
			case n.Func.Name == "increase":
				n.Func = dialectFunction(coveredIncrease)
			}
		case *parser.VectorSelector:
			if m, ok := coveredWindow(path); ok {
				w := window{selectorText(n), m.Range}
				m.Range = w.widened(intervals[w.selector])
			}
		}
		return nil
	})
	return expr, nil
}

// coveredWindow finds the range of a selector whose path ends in a call of
// covered_rate. An increase counts what happened in its window and is never
// widened, nor is a range that is computed.
func coveredWindow(path []parser.Node) (*parser.MatrixSelector, bool) {
	if len(path) < 2 {
		return nil, false
	}
	m, ok := path[len(path)-1].(*parser.MatrixSelector)
	if !ok || m.RangeExpr != nil {
		return nil, false
	}
	for _, n := range slices.Backward(path[:len(path)-1]) {
		switch n := n.(type) {
		case *parser.ParenExpr:
		case *parser.Call:
			return m, n.Func.Name == coveredRate
		default:
			return nil, false
		}
	}
	return nil, false
}

func dialectFunction(name string) *parser.Function {
	return &parser.Function{
		Name:       name,
		ArgTypes:   []parser.ValueType{parser.ValueTypeMatrix},
		ReturnType: parser.ValueTypeVector,
	}
}

// selectorText is the selector alone: what it matches, without offset, @ and
// the words anchored and smoothed.
func selectorText(vs *parser.VectorSelector) string {
	bare := bareSelector(vs)
	return bare.String()
}

func bareSelector(vs *parser.VectorSelector) *parser.VectorSelector {
	return &parser.VectorSelector{Name: vs.Name, LabelMatchers: slices.Clone(vs.LabelMatchers)}
}

func appendNew[T comparable](list []T, values ...T) []T {
	for _, v := range values {
		if !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	return list
}
