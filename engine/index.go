package engine

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/wattloop/wattloop/rules"
)

// index answers which rules a series feeds. But for the numbers of keys it is
// immutable; a reload makes a new one with a higher generation.
type index struct {
	gen    uint64
	base   int32              // the number of the first rule
	n      int32              // of rules
	byName map[string][]entry // selectors that name their metric
	rest   []entry
	keys   [][]string // by rule, the labels of its key; none where keys are not evaluated one by one

	mu      sync.Mutex
	numbers map[string]int32 // of keys, by the bytes of their labels and the rule
	of      []keyOf          // what they stand for
	buf     []byte
}

type entry struct {
	rule     int32
	matchers []*labels.Matcher
}

// newIndex numbers the rules from base on.
func newIndex(gen uint64, base int32, set *rules.Set, rs []*rule) *index {
	x := &index{gen: gen, base: base, n: int32(len(rs)), byName: map[string][]entry{}, numbers: map[string]int32{}}
	for i, r := range rs {
		x.keys = append(x.keys, r.ownKey())
		for _, ms := range set.Selectors(r.name()) {
			e := entry{base + int32(i), ms}
			if name := metricName(ms); name != "" {
				x.byName[name] = append(x.byName[name], e)
			} else {
				x.rest = append(x.rest, e)
			}
		}
	}
	return x
}

func metricName(ms []*labels.Matcher) string {
	for _, m := range ms {
		if m.Name == nameLabel && m.Type == labels.MatchEqual {
			return m.Value
		}
	}
	return ""
}

func (x *index) touched(ls labels.Labels) []int32 {
	var out []int32
	for _, es := range [2][]entry{x.byName[ls.Get(nameLabel)], x.rest} {
		for _, e := range es {
			if matches(e.matchers, ls) {
				out = append(out, x.number(e.rule, ls))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func matches(ms []*labels.Matcher, ls labels.Labels) bool {
	for _, m := range ms {
		if !m.Matches(ls.Get(m.Name)) {
			return false
		}
	}
	return true
}

// Generation changes whenever the answer of Touched may change.
func (e *Engine) Generation() uint64 { return e.index.Load().gen }

// Touched names the rules that select a series with these labels, sorted; the
// numbers mean something to Grew alone. Those of an earlier generation are
// known as such.
func (e *Engine) Touched(ls labels.Labels) []int32 { return e.index.Load().touched(ls) }

// Grew says that series of these rules have new samples, the newest of them at
// newest (Unix milliseconds). It returns at once; Run evaluates.
func (e *Engine) Grew(touched []int32, newest int64) {
	if len(touched) == 0 {
		return
	}
	e.grownMu.Lock()
	if len(e.grown.rules) == 0 {
		e.grown = grown{rules: map[int32]bool{}, since: e.opts.Clock()}
	}
	for _, i := range touched {
		e.grown.rules[i] = true
	}
	e.grown.newest = max(e.grown.newest, newest)
	e.grownMu.Unlock()
	e.poke()
}

// GrewAll is Grew for every rule: samples came to where the engine reads and
// nobody here saw of which series.
func (e *Engine) GrewAll() {
	x := e.index.Load()
	touched := make([]int32, x.n)
	for i := range touched {
		touched[i] = x.base + int32(i)
	}
	e.Grew(touched, 0)
}

// poke has Run step soon.
func (e *Engine) poke() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// grown is what Grew has told since the last step.
type grown struct {
	rules  map[int32]bool // by number
	newest int64          // time of the newest sample
	since  time.Time      // when the first of it was told; zero: nothing was
}

// takeGrown empties the list of rules whose series grew.
func (e *Engine) takeGrown() grown {
	e.grownMu.Lock()
	defer e.grownMu.Unlock()
	g := e.grown
	e.grown = grown{}
	return g
}

// growAgain puts rules back that were taken with g, for a later step.
func (e *Engine) growAgain(rules []int32, g grown) {
	e.grownMu.Lock()
	defer e.grownMu.Unlock()
	if e.grown.rules == nil {
		e.grown.rules = map[int32]bool{}
	}
	for _, i := range rules {
		e.grown.rules[i] = true
	}
	e.grown.newest = max(e.grown.newest, g.newest)
	if e.grown.since.IsZero() || g.since.Before(e.grown.since) {
		e.grown.since = g.since
	}
}
