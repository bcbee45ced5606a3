package rules

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// ReadingOf evaluates a reading for one key: what Reading says of it, at the cost
// of that key's series alone. It answers false, and nothing happened, where the
// whole reading must be evaluated: its expression does not prove that a key is
// made of its own series, the key is new, or what is known of it is old.
//
// What Reading sees beside, new keys and forgotten ones, waits for Reading.
func (e *Evaluator) ReadingOf(ctx context.Context, r *Reading, key labels.Labels, ts int64) (KeyReading, bool, error) {
	return e.readingOf(ctx, r.formed(), key, ts, r.StaleAfter)
}

// OwnKey are the labels of the reading's key, if each key is made of series with
// these labels alone; else none.
func (r *Reading) OwnKey() []string {
	if r.plan == nil || perKey(r.plan.query, r.plan.key) == "" {
		return nil
	}
	return r.plan.key
}

// OwnKey is OwnKey for all that the control reads.
func (c *Control) OwnKey() []string {
	for _, p := range c.expressions(false) {
		if p == nil || !p.scalar && perKey(p.query, c.Key) == "" {
			return nil
		}
	}
	for _, r := range c.Uses {
		if own := r.OwnKey(); !sameNames(own, c.Key) {
			return nil
		}
	}
	return c.Key
}

// readingOf reads by labels alone, as long as those answer for every key.
func (e *Evaluator) readingOf(ctx context.Context, f formed, key labels.Labels, ts int64, staleAfter time.Duration) (KeyReading, bool, error) {
	t := e.trackers[idOf(f.plan, f.question)]
	k := t.focus(key, ts)
	if k == nil || f.joined != nil && !t.byLabels {
		return KeyReading{}, false, nil
	}
	t.scope = k
	defer func() { t.scope = nil }()
	if err := e.observeKey(ctx, t, k, ts); err != nil {
		if canceled(ctx) {
			return KeyReading{}, true, err
		}
		return t.failedKey(k, ts, staleAfter, err), true, nil
	}
	if f.joined != nil && f.question.value && k.answered != t.round && k.leftOut != t.round {
		return KeyReading{}, false, nil // target_info may answer
	}
	return t.marked(k, t.answer(k, ts, staleAfter), e.unread()), true, nil
}

// focus is the key, if it can be evaluated by itself at the instant.
func (t *tracker) focus(key labels.Labels, ts int64) *keyState {
	if t == nil || t.compiled == nil || t.compiled.near == nil || !t.seeded || due(t.measuredAt, ts) || len(t.globals) > 0 {
		return nil
	}
	// Whole evaluations see what came and went; they must not lie far apart.
	if since := time.Duration(ts-t.seededAt) * time.Millisecond; since < 0 || since > t.compiled.pastStep {
		return nil
	}
	t.buf = key.BytesWithLabels(t.buf[:0], t.plan.key...)
	return t.keys[string(t.buf)]
}

// observeKey brings one key of a tracker up to the instant ts.
func (e *Evaluator) observeKey(ctx context.Context, t *tracker, k *keyState, ts int64) error {
	switch {
	case e.step == 0:
	case t.step == e.step && t.at == ts:
		return t.err
	case k.step == e.step && k.at == ts:
		t.turnTo(k)
		return k.err
	}
	k.err = e.lookAt(ctx, t, ts)
	k.step, k.at = e.step, ts
	return k.err
}

func (e *Evaluator) lookAt(ctx context.Context, t *tracker, ts int64) error {
	if err := e.ask(ctx, t, ts); err != nil {
		return err
	}
	if err := e.upkeep(ctx, t, ts); err != nil {
		return err
	}
	return e.filtered(ctx, t, ts)
}

// asked notes when the whole query was asked of all keys.
func (t *tracker) asked(ts int64) {
	if t.scope == nil {
		t.wholeAt = ts
	}
}

// ControlOf is to Control what ReadingOf is to Reading.
func (e *Evaluator) ControlOf(ctx context.Context, c *Control, key labels.Labels, ts int64) (KeyControl, bool, error) {
	state := e.controls[c]
	if state == nil || state.queries[0].near == "" || due(state.queries[0].measuredAt, ts) {
		return KeyControl{}, false, nil
	}
	var inputs []judged
	add := func(f formed, staleAfter time.Duration) (bool, error) {
		if !sameNames(f.plan.key, c.Key) {
			return false, nil
		}
		r, ok, err := e.readingOf(ctx, f, key, ts, staleAfter)
		inputs = append(inputs, judged{f.name, c.Key, []KeyReading{r}})
		return ok, err
	}
	for _, r := range c.Uses {
		if ok, err := add(r.formed(), cmp.Or(c.StaleAfter, r.StaleAfter)); !ok || err != nil {
			return KeyControl{}, ok, err
		}
	}
	for _, in := range state.unread {
		if ok, err := add(in, c.StaleAfter); !ok || err != nil {
			return KeyControl{}, ok, err
		}
	}
	said, err := e.conditions(ctx, c, state, ts, false, &key)
	if err != nil && canceled(ctx) {
		return KeyControl{}, true, err
	}
	k := KeyControl{Key: key.MatchLabels(true, c.Key...), Quality: Fresh}
	k.judge(c, inputs)
	if err != nil {
		k.Err = cmp.Or(k.Err, err.Error())
	}
	said.apply(&k)
	return state.count(k, ts), true, nil
}

// controlQuery is the three expressions in one query, of all keys and of one. An
// expression without labels holds for every key, and reads no series of any.
func (e *Evaluator) controlQuery(ctx context.Context, c *Control, ps []*plan, ts int64) (string, oneKey, error) {
	var all, near []string
	proven := true
	for i, p := range ps {
		intervals, err := e.measure(ctx, p, c.Name, ts)
		if err != nil {
			return "", "", err
		}
		text := p.query
		if p.widens(intervals) {
			tree, err := p.tree(intervals)
			if err != nil {
				return "", "", err
			}
			text = tree.String()
		}
		if p.scalar {
			text = "vector" + bracket(text)
		}
		slot := strconv.Itoa(i)
		all = append(all, tagged(text, slotLabel, slot))
		one := perKey(text, c.Key)
		if p.scalar && scalarOfNothing(text) {
			one = oneKey(text)
		}
		proven = proven && one != ""
		near = append(near, tagged(string(one), slotLabel, slot))
	}
	if !proven {
		near = nil
	}
	return strings.Join(all, " or "), oneKey(strings.Join(near, " or ")), nil
}
