package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"
)

const (
	// lookback is how old a sample may be and still answer at an instant. It is
	// the store's, and Prometheus's.
	lookback = 5 * time.Minute
	// leastStaleAfter is the age that every component may have where a rule does
	// not say otherwise.
	leastStaleAfter = 30 * time.Second
	// staleIntervals is how many export intervals a component may miss.
	staleIntervals = 3
	// maxErrors in a row make a key stale.
	maxErrors = 3
)

// excused is a component whose `or` is answered from the other side for the
// same labels: the expression itself does without it.
func (t *tracker) excused(c *component) bool {
	for _, a := range t.compiled.branches[c.branch].alts {
		want := c.labels.BytesWithLabels(nil, a.on...)
		for o := range t.inScope() {
			if o.answered != t.round || !t.compiled.branches[o.branch].opposite(a) {
				continue
			}
			if string(o.labels.BytesWithLabels(nil, a.on...)) == string(want) {
				return true
			}
		}
	}
	return false
}

// verdict is the quality of one key and what it comes from.
type verdict struct {
	quality Quality
	partial bool
	age     time.Duration
	newest  int64
	why     string
}

// judge looks at a key's components; the oldest decides. answered says that the
// expression has an answer for the key.
func (t *tracker) judge(k *keyState, ts int64, answered bool, staleAfter time.Duration) verdict {
	var v verdict
	var old, warm, gone, frozen *component
	backed := len(t.compiled.branches) == 0 // nothing to judge
	for _, c := range slices.Concat(k.components, t.globals) {
		age := since(ts, c)
		if c.warming == t.round {
			warm = cmp.Or(warm, c)
		}
		switch {
		case c.answered == t.round:
			backed = true
			v.age = max(v.age, age)
			if c.frozen {
				frozen = cmp.Or(frozen, c)
			}
			if age > cmp.Or(staleAfter, c.staleAge()) && (old == nil || c.last < old.last) {
				old = c
			}
		case !t.signs(c) && !t.excused(c):
			v.partial = true
			if gone == nil || c.last < gone.last {
				gone = c
			}
			continue
		}
		v.newest = max(v.newest, c.last)
	}
	switch {
	case warm != nil:
		v.quality, v.why = Warming, warm.name()+" has too few samples so far"
	case !answered || !backed:
		v.quality, v.why = Missing, "no input answers"
		if gone != nil {
			v.age, v.why = max(v.age, since(ts, gone)), gone.absence(ts)
		}
	case old != nil:
		v.quality = Stale
		v.why = fmt.Sprintf("%s is %s old, stale after %s", old.name(), since(ts, old), cmp.Or(staleAfter, old.staleAge()))
	case frozen != nil:
		v.quality = Stale
		v.why = "frozen counter: " + frozen.name() + " has new samples and not one joule more"
	default:
		v.quality = Fresh
		if gone != nil {
			v.why = gone.absence(ts)
		}
	}
	return v
}

// staleAge is the age at which the component is stale: by its own pace, where the
// slowest series of its selector would let it be older.
func (c *component) staleAge() time.Duration {
	if c.pace > 0 {
		return min(c.stale, staleAge(c.pace))
	}
	return c.stale
}

// since is how old the component's last sample is; a sample from the future is
// not old.
func since(ts int64, c *component) time.Duration {
	return max(0, time.Duration(ts-c.last)*time.Millisecond)
}

func (c *component) name() string {
	if c.labels.IsEmpty() {
		return "the input"
	}
	return c.labels.String()
}

func (c *component) absence(ts int64) string {
	return fmt.Sprintf("%s does not answer, its last sample is %s old", c.name(), since(ts, c))
}

// answer is what the round says of a key.
func (t *tracker) answer(k *keyState, ts int64, staleAfter time.Duration) KeyReading {
	has, leftOut := k.answered == t.round, k.leftOut == t.round
	v := t.judge(k, ts, has || leftOut || !t.question.value, staleAfter)
	if v.quality == Missing {
		k.missing = cmp.Or(k.missing, ts)
	} else {
		k.missing, k.last = 0, max(k.last, v.newest)
	}
	out := v.reading(k)
	switch {
	case has && k.values > 1:
		out.Err = fmt.Sprintf("comes back %d times: aggregate the labels beside the key away", k.values)
	case has && !finite(k.value):
		out.Err = "answers " + strconv.FormatFloat(k.value, 'g', -1, 64)
	case has && v.quality != Missing && v.quality != Warming:
		out.Valid, out.Value = true, k.value
	case leftOut && out.Why == "":
		out.Why = "a comparison in the expression leaves it out"
	}
	if out.Err == "" {
		k.failures = failures{}
		return out
	}
	return k.fail(out, ts)
}

// failed is what is known of the keys when the query failed: nothing new.
func (t *tracker) failed(ts int64, staleAfter time.Duration, err error) []KeyReading {
	out := make([]KeyReading, 0, len(t.keys))
	for _, k := range t.sortedKeys() {
		out = append(out, t.failedKey(k, ts, staleAfter, err))
	}
	return out
}

func (t *tracker) failedKey(k *keyState, ts int64, staleAfter time.Duration, err error) KeyReading {
	v := verdict{quality: Missing, why: "no input answers"}
	if t.compiled != nil {
		t.turnTo(k)
		v = t.judge(k, ts, k.missing == 0, staleAfter)
	}
	r := v.reading(k)
	r.Err = err.Error()
	return k.fail(r, ts)
}

func (v verdict) reading(k *keyState) KeyReading {
	return KeyReading{Key: k.labels, Quality: v.quality, Partial: v.partial, Age: v.age, Newest: v.newest, Why: v.why}
}

// fail counts an error of the key. The third in a row makes it stale.
func (k *keyState) fail(r KeyReading, ts int64) KeyReading {
	if n := k.failures.add(ts); n >= maxErrors && r.Quality == Fresh {
		r.Quality, r.Why = Stale, fmt.Sprintf("%d errors in a row", n)
	}
	return r
}
