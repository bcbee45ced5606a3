package rules

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// component is one input of a rule as the evaluations have seen it: what stands
// inside the outermost aggregation, or a whole series where there is none.
type component struct {
	id       string
	labels   labels.Labels
	branch   int
	key      *keyState     // nil: stands behind every key
	last     int64         // its newest sample when it was used last, Unix ms
	stale    time.Duration // the age at which its selector is stale
	pace     time.Duration // how far its own samples are apart; 0 is unknown
	answered uint64        // the round in which it was used last
	warming  uint64        // the round in which it had too few samples last
	frozen   bool          // its energy counters stood still when the whole query was asked last
	silent   bool          // it went, and no marker said so
	counting uint64        // scratch of sameCounts
	count    float64
}

// keyState is what is remembered of one key.
type keyState struct {
	labels     labels.Labels
	components []*component
	last       int64 // the newest sample behind its last answer, Unix ms
	missing    int64 // since when it has no answer; 0 = it has one
	failures   failures

	value    float64
	values   int    // how many times it came back,
	answered uint64 // in this round
	leftOut  uint64 // the round in which a comparison left it out

	step  uint64 // of the last observation of this key alone, with its instant and its outcome
	at    int64
	err   error
	round uint64 // the last that was about this key alone
}

// failures counts errors in a row.
type failures struct {
	n  int
	at int64
}

// add counts one error an instant and says how many came in a row.
func (f *failures) add(ts int64) int {
	if f.n == 0 || f.at != ts {
		f.n, f.at = f.n+1, ts
	}
	return f.n
}

// tracker remembers which components one plan expects.
type tracker struct {
	plan     *plan
	question question

	compiled   *compiled
	intervals  map[string]time.Duration
	measuredAt int64

	components map[string]*component
	keys       map[string]*keyState
	globals    []*component
	rounds     uint64    // how many answers were taken
	round      uint64    // the one that is judged by
	whole      uint64    // the last that was about all keys
	byLabels   bool      // with a second form: labels alone answered all at the last whole evaluation
	scope      *keyState // the key that the round is about; nil: all
	seeded     bool
	seededAt   int64
	wholeAt    int64 // when the whole query was asked
	buf        []byte
	bySlot     [][]Sample // scratch of takeShort
	counting   uint64
	selects    [][]*labels.Matcher // the plan's selectors, once asked for

	step uint64 // of the last observation, with its instant and its outcome
	at   int64
	err  error
}

func newTracker(p *plan, q question) *tracker {
	t := &tracker{plan: p, question: q, components: map[string]*component{}, keys: map[string]*keyState{}}
	if len(p.key) == 0 {
		t.key(labels.EmptyLabels()) // there is one key, whether or not anything answers
	}
	return t
}

// key finds or makes the state of the key that the labels carry.
func (t *tracker) key(ls labels.Labels) *keyState {
	t.buf = ls.BytesWithLabels(t.buf[:0], t.plan.key...)
	if k := t.keys[string(t.buf)]; k != nil {
		return k
	}
	k := &keyState{labels: ls.MatchLabels(true, t.plan.key...)}
	t.keys[string(t.buf)] = k
	return k
}

// find is the component of a branch with these labels, nil if it is not known.
// The name that it would have is left in the buffer.
func (t *tracker) find(branch int, ls labels.Labels) *component {
	t.buf = ls.BytesWithoutLabels(t.buf[:0], slotLabel)
	t.buf = strconv.AppendInt(t.buf, int64(branch), 10)
	return t.components[string(t.buf)]
}

func (t *tracker) component(branch int, ls labels.Labels) *component {
	if c := t.find(branch, ls); c != nil {
		return c
	}
	c := &component{id: string(t.buf), branch: branch, labels: ls.MatchLabels(false, slotLabel)}
	t.components[c.id] = c
	if t.compiled.branches[branch].global {
		t.globals = append(t.globals, c)
		return c
	}
	c.key = t.key(c.labels)
	c.key.components = append(c.key.components, c)
	return c
}

func (t *tracker) drop(c *component) {
	delete(t.components, c.id)
	from := &t.globals
	if c.key != nil {
		from = &c.key.components
	}
	*from = slices.DeleteFunc(*from, func(o *component) bool { return o == c })
}

// take reads one whole answer.
func (t *tracker) take(samples []Sample) error {
	t.begin()
	return t.takeMore(samples)
}

// begin opens a round for the answer that has come.
func (t *tracker) begin() {
	t.rounds++
	t.round = t.rounds
	if t.scope != nil {
		t.scope.round = t.round
	} else {
		t.whole = t.round
	}
}

// turnTo has the key judged by the last round that was about it: there may have
// been others since, about other keys.
func (t *tracker) turnTo(k *keyState) { t.round = max(k.round, t.whole) }

// takeMore reads an answer into the round that has begun.
func (t *tracker) takeMore(samples []Sample) error {
	for c := range t.inScope() {
		c.frozen, c.pace = false, 0
	}
	for _, s := range samples {
		n, err := slotOf(s, len(t.compiled.slots))
		if err != nil {
			return err
		}
		t.takeOne(t.compiled.slots[n], s)
	}
	return nil
}

// slotOf is the number of the place in a combined query that a sample is from.
func slotOf(s Sample, count int) (int, error) {
	n, err := strconv.Atoi(s.Metric.Get(slotLabel))
	if err != nil || n < 0 || n >= count {
		return 0, fmt.Errorf("BUG: an answer that was not asked for: %s", s.Metric)
	}
	return n, nil
}

func (t *tracker) takeOne(from slot, s Sample) {
	if from.kind == isValue {
		k := t.key(s.Metric)
		if k.answered != t.round {
			k.answered, k.values = t.round, 0
		}
		k.value, k.values = s.V, k.values+1
		return
	}
	if !finite(s.V) {
		return
	}
	if from.kind == isPace {
		if c := t.find(from.branch, s.Metric); c != nil {
			c.pace = paceOf(s.V)
		}
		return
	}
	if from.kind == isFrozen {
		if s.V == 0 {
			t.component(from.branch, s.Metric).frozen = true
		}
		return
	}
	last := int64(math.Round(s.V * 1000))
	c := t.component(from.branch, s.Metric)
	switch from.kind {
	case isUsed:
		// Of two inputs in one component the one nearer to being stale counts.
		ends := last + from.stale.Milliseconds()
		if c.answered != t.round || ends < c.last+c.stale.Milliseconds() {
			c.last, c.stale = last, from.stale
		}
		c.answered, c.silent = t.round, false
	case isWarming:
		if c.answered != t.round {
			c.last = last
		}
		c.warming, c.silent = t.round, false
	case isYoung:
		c.warming = t.round
	}
}

// remember takes the components of the time before the first evaluation.
func (t *tracker) remember(samples []Sample) error {
	for _, s := range samples {
		branch, err := slotOf(s, len(t.compiled.branches))
		if err != nil {
			return err
		}
		if !finite(s.V) {
			continue
		}
		c := t.component(branch, s.Metric)
		if t.signs(c) {
			continue
		}
		c.last = max(c.last, int64(math.Round(s.V*1000)))
		if c.key != nil {
			c.key.last = max(c.key.last, c.last)
			c.key.missing = c.key.last
		}
	}
	return nil
}

// known maps an answer of compiled.seen to the components that are known.
func (t *tracker) known(samples []Sample) (map[*component]bool, error) {
	out := map[*component]bool{}
	for _, s := range samples {
		n, err := slotOf(s, len(t.compiled.slots))
		if err != nil {
			return nil, err
		}
		if c := t.find(t.compiled.slots[n].branch, s.Metric); c != nil {
			out[c] = true
		}
	}
	return out, nil
}

// signs says whether the component was used, or is warming, in this round.
func (t *tracker) signs(c *component) bool { return c.answered == t.round || c.warming == t.round }

// unaccounted are the absent components of which it is not known how they went,
// and can be.
func (t *tracker) unaccounted() []*component {
	var out []*component
	for c := range t.inScope() {
		if t.compiled.branches[c.branch].sees && !t.signs(c) && !c.silent && !t.excused(c) {
			out = append(out, c)
		}
	}
	return out
}

// expire forgets what was not seen for forget_after.
func (t *tracker) expire(ts int64) {
	forget := t.question.forget.Milliseconds()
	for _, c := range t.components {
		if !t.signs(c) && ts-c.last > forget {
			t.drop(c)
		}
	}
	for id, k := range t.keys {
		if len(k.components) > 0 || k.answered == t.round || k.missing == 0 || len(t.plan.key) == 0 {
			continue
		}
		// Where the clock jumped, the key is still reported missing for as long as
		// one whose last sample went out of sight in its time.
		if ts-k.last > forget && ts-k.missing > forget-lookback.Milliseconds() {
			delete(t.keys, id)
		}
	}
}

func (t *tracker) anyKeyWithoutValue() bool {
	if t.scope != nil {
		return t.scope.answered != t.round
	}
	for _, k := range t.keys {
		if k.answered != t.round {
			return true
		}
	}
	return false
}

// sortedKeys are the keys in the order of their labels.
func (t *tracker) sortedKeys() []*keyState {
	keys := make([]*keyState, 0, len(t.keys))
	for _, k := range t.keys {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b *keyState) int { return labels.Compare(a.labels, b.labels) })
	return keys
}
