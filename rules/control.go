package rules

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// KeyControl is what a control's expressions say of one key at an instant,
// before any `for`.
type KeyControl struct {
	Key        labels.Labels
	Engage     bool // the engage condition holds
	Release    bool // the release condition holds
	Value      float64
	ValueValid bool          // false: there is no value, whatever Value holds
	Quality    Quality       // the worst of what the control reads
	Partial    bool          // of anything that it reads
	Age        time.Duration // of the oldest component of anything that it reads
	Newest     int64         // time of the newest input sample, Unix milliseconds; 0 = none
	Err        string        // why nothing can be concluded; then neither condition holds and there is no value
	Why        string        // what the quality and the mark come from, in words
}

// controlState is what is kept of a control between two evaluations.
type controlState struct {
	failures map[string]*failures // errors in a row, by key
	unread   []formed
	queries  [2]conditionQuery // by labels, and by target_info
}

// conditionQuery is a control's three expressions in one.
type conditionQuery struct {
	text       string
	near       oneKey // the same for one key; "" where it cannot be asked
	measuredAt int64
}

// expressions of a control, in the order of their numbers in the query, by labels
// or by target_info.
func (c *Control) expressions(joined bool) []*plan {
	all := []*plan{c.engage, c.release, c.value}
	for i, p := range c.joined {
		if joined && p != nil {
			all[i] = p
		}
	}
	return all
}

// unread are the inputs that no used reading judges: what one expression of a
// control selects beside the readings.
func (c *Control) unread() []formed {
	var judged []string
	for _, r := range c.Uses {
		judged = append(judged, r.plan.selectors...)
	}
	var out []formed
	for i, p := range c.expressions(false) {
		only := slices.DeleteFunc(slices.Clone(p.selectors), func(s string) bool { return slices.Contains(judged, s) })
		judged = append(judged, only...)
		if len(only) > 0 {
			q := question{condition: i != valueExpr, only: strings.Join(only, "\n"), forget: defaultForgetAfter}
			out = append(out, formed{"its input", p, c.joined[i], q})
		}
	}
	return out
}

// The places of a control's expressions.
const (
	engageExpr = iota
	releaseExpr
	valueExpr
	exprCount
)

// judged is one thing that a control reads: its keys' labels, and what was said
// of each.
type judged struct {
	name string
	key  []string
	keys []KeyReading
}

// Control evaluates a control at the instant ts, Unix milliseconds: one answer
// for each key that a used reading has, that a condition holds for or that has a
// value, in the order of the keys. Engage and Release are the conditions at the
// instant. A key keeps coming back as Missing as its readings do.
//
// After a failed query the keys come back with Err; it is returned as an error
// where there is no key to say it of. A canceled context changes nothing.
func (e *Evaluator) Control(ctx context.Context, c *Control, ts int64) ([]KeyControl, error) {
	state := e.control(c)
	inputs, joins, failed := e.inputs(ctx, c, state, ts)
	if failed != nil && canceled(ctx) {
		return nil, failed
	}
	said, err := e.conditions(ctx, c, state, ts, false, nil)
	if err != nil && canceled(ctx) {
		return nil, err
	}
	byInfo := said
	if joins && err == nil {
		if byInfo, err = e.conditions(ctx, c, state, ts, true, nil); err != nil && canceled(ctx) {
			return nil, err
		}
	}
	if joins {
		said.dropNobody()
	}
	keys := controlKeys(c, inputs, said, byInfo)
	out := make([]KeyControl, 0, len(keys))
	for _, key := range keys {
		k := KeyControl{Key: key, Quality: Fresh}
		answer := said
		if k.judge(c, inputs) {
			answer = byInfo
		}
		if err != nil {
			k.Err = cmp.Or(k.Err, err.Error())
		}
		answer.apply(&k)
		out = append(out, state.count(k, ts))
	}
	switch {
	case len(out) > 0:
		return out, nil
	case failed != nil:
		return nil, failed
	}
	return nil, err
}

func (e *Evaluator) control(c *Control) *controlState {
	if s := e.controls[c]; s != nil {
		return s
	}
	if e.controls == nil {
		e.controls = map[*Control]*controlState{}
	}
	s := &controlState{failures: map[string]*failures{}, unread: c.unread()}
	e.controls[c] = s
	return s
}

// inputs evaluates what the control reads, all of it by the same form where one
// of them needs target_info, as joins says.
func (e *Evaluator) inputs(ctx context.Context, c *Control, state *controlState, ts int64) (out []judged, joins bool, failed error) {
	type input struct {
		formed
		as         []string
		public     func(labels.Labels) labels.Labels
		staleAfter time.Duration
	}
	var all []input
	for _, r := range c.Uses {
		all = append(all, input{r.formed(), r.publicKey(), r.Public, cmp.Or(c.StaleAfter, r.StaleAfter)})
	}
	for _, in := range state.unread {
		same := func(key labels.Labels) labels.Labels { return key }
		all = append(all, input{in, in.plan.key, same, c.StaleAfter})
	}
	for range 2 {
		out, failed = nil, nil
		before := joins
		for _, in := range all {
			keys, asked, err := e.keys(ctx, in.formed, ts, in.staleAfter, before)
			joins = joins || asked
			if failed == nil {
				failed = err
			}
			for i := range keys {
				keys[i].Key = in.public(keys[i].Key)
			}
			out = append(out, judged{in.name, in.as, keys})
		}
		if joins == before || failed != nil && canceled(ctx) {
			break
		}
	}
	return out, joins, failed
}

// judge takes the worst of what the control reads for the key, and says whether
// any of it came by way of target_info.
func (k *KeyControl) judge(c *Control, inputs []judged) (joined bool) {
	for _, in := range inputs {
		shared := slices.DeleteFunc(slices.Clone(in.key), func(n string) bool { return !slices.Contains(c.Key, n) })
		found := false
		for _, r := range in.keys {
			if !agree(k.Key, r.Key, shared) {
				continue
			}
			found, joined = true, joined || r.joined
			k.Partial = k.Partial || r.Partial
			k.Age, k.Newest = max(k.Age, r.Age), max(k.Newest, r.Newest)
			worse := k.Quality.Worse(r.Quality)
			if worse != k.Quality || k.Why == "" && r.Why != "" {
				k.Why = in.name + ": " + r.Why
			}
			k.Quality = worse
			if r.Err != "" && k.Err == "" {
				k.Err = in.name + ": " + r.Err
			}
		}
		if !found {
			k.Quality, k.Why = Missing, in.name+": no answer"
		}
	}
	return joined
}

func agree(a, b labels.Labels, names []string) bool {
	for _, n := range names {
		if a.Get(n) != b.Get(n) {
			return false
		}
	}
	return true
}

// controlAnswer is what the control's three expressions answered, by key.
type controlAnswer struct {
	c      *Control
	byKey  map[string]*keyAnswer
	scalar [exprCount]*float64 // an expression without labels holds for every key
}

type keyAnswer struct {
	key    labels.Labels
	values [exprCount]float64
	times  [exprCount]int
}

// dropNobody leaves out what has no node, where nodes are told apart.
func (s *controlAnswer) dropNobody() {
	maps.DeleteFunc(s.byKey, func(_ string, k *keyAnswer) bool {
		return slices.Contains(s.c.Key, nodeAttribute) && k.key.Get(nodeAttribute) == ""
	})
}

// conditions asks for engage, release and value in one query, by labels or by
// target_info.
func (e *Evaluator) conditions(ctx context.Context, c *Control, state *controlState, ts int64, joined bool, key *labels.Labels) (*controlAnswer, error) {
	s := &controlAnswer{c: c, byKey: map[string]*keyAnswer{}}
	ps, query := c.expressions(joined), &state.queries[0]
	if joined {
		query = &state.queries[1]
	}
	if query.text == "" || due(query.measuredAt, ts) {
		text, near, err := e.controlQuery(ctx, c, ps, ts)
		if err != nil {
			return s, err
		}
		*query = conditionQuery{text, near, ts}
	}
	text := query.text
	if key != nil {
		text = query.near.of(*key, c.Key)
	}
	samples, err := e.Query(ctx, text, ts)
	if err != nil {
		return s, err
	}
	for _, sample := range samples {
		n, err := slotOf(sample, len(ps))
		if err != nil {
			return s, err
		}
		if ps[n].scalar {
			s.scalar[n] = &sample.V
			continue
		}
		id := string(sample.Metric.BytesWithLabels(nil, ps[n].key...))
		k := s.byKey[id]
		if k == nil {
			k = &keyAnswer{key: sample.Metric.MatchLabels(true, ps[n].key...)}
			s.byKey[id] = k
		}
		k.values[n], k.times[n] = sample.V, k.times[n]+1
	}
	return s, nil
}

// apply puts the conditions and the value in, unless an error forbids it.
func (s *controlAnswer) apply(k *KeyControl) {
	var values [exprCount]float64
	var has [exprCount]bool
	of := s.byKey[string(k.Key.BytesWithLabels(nil, s.c.engage.key...))]
	for n, name := range []string{"engage", "release", "value"} {
		switch {
		case s.scalar[n] != nil:
			values[n] = *s.scalar[n]
			has[n] = n == valueExpr || values[n] != 0
		case of != nil && of.times[n] == 1:
			values[n], has[n] = of.values[n], true
		case of != nil && of.times[n] > 1:
			k.Err = cmp.Or(k.Err, fmt.Sprintf("%s comes back %d times: aggregate the labels beside the key away", name, of.times[n]))
		}
	}
	if has[valueExpr] && !finite(values[valueExpr]) {
		k.Err = cmp.Or(k.Err, "value: answers "+strconv.FormatFloat(values[valueExpr], 'g', -1, 64))
	}
	if k.Err == "" {
		k.Engage, k.Release = has[engageExpr], has[releaseExpr]
		k.Value, k.ValueValid = values[valueExpr], has[valueExpr]
	}
}

// controlKeys are all keys that anything is known of, in their order.
func controlKeys(c *Control, inputs []judged, answers ...*controlAnswer) []labels.Labels {
	byID := map[string]labels.Labels{}
	add := func(ls labels.Labels) {
		key := ls.MatchLabels(true, c.Key...)
		byID[key.String()] = key
	}
	if len(c.Key) == 0 {
		add(labels.EmptyLabels())
	}
	for _, in := range inputs {
		if !subset(c.Key, in.key) {
			continue // it has no key of the control
		}
		for _, r := range in.keys {
			add(r.Key)
		}
	}
	for _, s := range answers {
		for _, k := range s.byKey {
			add(k.key)
		}
	}
	out := make([]labels.Labels, 0, len(byID))
	for _, key := range byID {
		out = append(out, key)
	}
	slices.SortFunc(out, labels.Compare)
	return out
}

// count counts an error of the key. The third in a row makes it stale.
func (s *controlState) count(k KeyControl, ts int64) KeyControl {
	id := k.Key.String()
	if k.Err == "" {
		delete(s.failures, id)
		return k
	}
	f := s.failures[id]
	if f == nil {
		f = &failures{}
		s.failures[id] = f
	}
	if n := f.add(ts); n >= maxErrors && k.Quality == Fresh {
		k.Quality, k.Why = Stale, fmt.Sprintf("%d errors in a row", n)
	}
	return k
}
