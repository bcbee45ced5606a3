package rules

import (
	"github.com/prometheus/prometheus/model/labels"
)

// A meter that is there and cannot be read never had a sample, so that nothing
// expects one: what is put together without it would be low and look whole.

// lacks is a series that somebody knows to be missing from what the plan reads for
// the key, empty where there is none. One that a component stands for, from
// another producer, is not missing.
func (t *tracker) lacks(k *keyState, unread []labels.Labels) labels.Labels {
	for _, u := range unread {
		if labels.Equal(u.MatchLabels(true, t.plan.key...), k.labels) && t.reads(u) && !t.stoodFor(k, u) {
			return u
		}
	}
	return labels.EmptyLabels()
}

// reads reports whether a selector of the plan would take the series.
func (t *tracker) reads(u labels.Labels) bool {
	if t.selects == nil {
		for _, s := range t.plan.selectors {
			if ms, err := dialect.ParseMetricSelector(s); err == nil { // the plan was made of them
				t.selects = append(t.selects, ms)
			}
		}
	}
	for _, ms := range t.selects {
		if labels.Selector(ms).Matches(u) {
			return true
		}
	}
	return false
}

// stoodFor reports whether a component of the key that answers is the series', or
// another producer's of the same meter.
func (t *tracker) stoodFor(k *keyState, u labels.Labels) bool {
	key := map[string]bool{nameLabel: true}
	for _, name := range t.plan.key {
		key[name] = true
	}
	for _, c := range k.components {
		if c.answered != t.round {
			continue
		}
		same, tells := true, u.Len() == u.MatchLabels(true, t.plan.key...).Len()+1 // nothing tells it from others of the key
		u.Range(func(l labels.Label) {
			switch v := c.labels.Get(l.Name); {
			case key[l.Name] || v == "":
			case v == l.Value:
				tells = true
			default:
				same = false
			}
		})
		if same && tells {
			return true
		}
	}
	return false
}

// unread are the series of the meters that cannot be read now.
func (e *Evaluator) unread() []labels.Labels {
	if e.Unread == nil {
		return nil
	}
	return e.Unread()
}

// marked is the answer for a key, partial where one of the unread meters is
// missing from it.
func (t *tracker) marked(k *keyState, r KeyReading, unread []labels.Labels) KeyReading {
	u := t.lacks(k, unread)
	if u.IsEmpty() {
		return r
	}
	r.Partial = true
	if r.Why == "" {
		r.Why = u.String() + " is a meter that is there and cannot be read"
	}
	return r
}
