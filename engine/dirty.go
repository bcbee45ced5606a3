package engine

import (
	"context"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/wattloop/wattloop/rules"
)

const (
	// mostDirty is how many keys of a rule are evaluated one by one; with more the
	// whole rule is cheaper.
	mostDirty = 8
	// mostKeys bounds the numbers that an index gives to keys. What comes later has
	// its whole rules evaluated.
	mostKeys = 1 << 16
)

// readKeys evaluates the keys of a reading whose series grew, each by itself. It
// answers false where the whole reading must be evaluated.
func (e *Engine) readKeys(ctx context.Context, r *rule, ts int64) (done bool, err error) {
	if r.dirty == nil || r.err != nil {
		r.dirty = nil
		return false, nil
	}
	for _, key := range r.dirty {
		if nameless(key, r.reading.Key) && r.leftOut != "" {
			continue // as the whole reading has found
		}
		kr, ok, err := e.eval.ReadingOf(ctx, r.reading, key, ts)
		if ok && err != nil {
			return true, err
		}
		i, known := slices.BinarySearchFunc(r.rows, kr.Key, func(row *ReadingReport, key labels.Labels) int { return labels.Compare(row.Key, key) })
		if !ok || !known {
			r.dirty = nil
			return false, nil
		}
		r.answers[i], r.rows[i] = kr, r.row(kr, ts)
		r.alone = append(r.alone, i)
	}
	if e.opts.Evaluated != nil {
		e.opts.Evaluated(r.reading.Name, ts, r.answers, nil)
	}
	return true, nil
}

// controlKeys is readKeys for a control.
func (e *Engine) controlKeys(ctx context.Context, r *rule, ts int64) (done bool, err error) {
	if r.dirty == nil || r.err != nil {
		r.dirty = nil
		return false, nil
	}
	var kcs []rules.KeyControl
	for _, key := range r.dirty {
		if nameless(key, r.control.Key) && r.matched {
			continue // it is nobody's
		}
		kc, ok, err := e.eval.ControlOf(ctx, r.control, key, ts)
		switch {
		case !ok:
			r.dirty = nil
			return false, nil
		case err != nil:
			return true, err
		}
		if r.states[kc.Key.String()] == nil {
			r.dirty = nil // the whole control makes states, and takes them up again
			return false, nil
		}
		kcs = append(kcs, kc)
	}
	return true, e.advance(ctx, r, kcs, ts)
}

// keyOf is what stands for one key of a rule among the numbers.
type keyOf struct {
	rule int
	key  labels.Labels
}

// number is what Grew is told when a series of the rule grew: of its key, where
// the series has every label of it, else of the whole rule.
func (x *index) number(rule int32, ls labels.Labels) int32 {
	i := int(rule - x.base)
	names := x.keys[i]
	for _, name := range names {
		if ls.Get(name) == "" {
			return rule
		}
	}
	if len(names) == 0 {
		return rule
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.buf = ls.BytesWithLabels(x.buf[:0], names...)
	x.buf = append(x.buf, byte(i), byte(i>>8), byte(i>>16))
	if n, ok := x.numbers[string(x.buf)]; ok {
		return n
	}
	if len(x.of) == mostKeys {
		return rule
	}
	n := x.base + int32(len(x.keys)+len(x.of))
	x.of = append(x.of, keyOf{i, ls.MatchLabels(true, names...)})
	x.numbers[string(x.buf)] = n
	return n
}

// find is what a number stands for: a rule, and its key if it is of one.
func (x *index) find(n int32) (rule int, key labels.Labels, one, ok bool) {
	i := int(n - x.base)
	if i < 0 {
		return 0, labels.EmptyLabels(), false, false
	}
	if i < len(x.keys) {
		return i, labels.EmptyLabels(), false, true
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if i -= len(x.keys); i >= len(x.of) {
		return 0, labels.EmptyLabels(), false, false
	}
	return x.of[i].rule, x.of[i].key, true, true
}

// size is how many numbers the index has given.
func (x *index) size() int32 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return int32(len(x.keys) + len(x.of))
}

// keysOf lists the keys that numbers stand for, by rule. A number that is of no
// rule here was asked for before a reload, and what it stands for now is not
// known.
func (x *index) keysOf(numbers map[int32]bool) (keys map[int][]labels.Labels, foreign bool) {
	keys = map[int][]labels.Labels{}
	for n := range numbers {
		rule, key, one, ok := x.find(n)
		switch {
		case !ok:
			return nil, true
		case one:
			keys[rule] = append(keys[rule], key)
		}
	}
	return keys, false
}
