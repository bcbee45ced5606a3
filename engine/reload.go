package engine

import (
	"errors"
	"fmt"
	"strings"

	"github.com/wattloop/wattloop/actuate"
	"github.com/wattloop/wattloop/rules"
)

// ErrEngaged is why a reload is refused: it would end a cap whose purpose is
// protection.
var ErrEngaged = errors.New("a protection control is engaged")

// mostRules bounds the numbers of rules and their keys, which begin again at 0
// beyond it: the receiver keeps a mark for each.
const mostRules = 1 << 20

// install makes a set the one that runs. Every rule of it is due at once.
func (e *Engine) install(set *rules.Set) {
	var gen uint64
	var base int32
	if old := e.index.Load(); old != nil {
		gen, base = old.gen+1, (old.base+old.size())%mostRules
	}
	before := map[string]*rule{}
	for _, r := range e.rules {
		before[r.name()] = r
	}
	var rs []*rule
	for _, rd := range set.Readings {
		rs = append(rs, &rule{reading: rd})
	}
	for _, c := range set.Controls {
		r := &rule{control: c, states: map[string]*controlState{}}
		if old := before[c.Name]; old != nil && old.control != nil && same(old.control, c) {
			r.states, r.order, r.resumes = old.states, old.order, old.resumes
		}
		rs = append(rs, r)
	}
	e.rules, e.current = rs, false
	e.index.Store(newIndex(gen, base, set, rs))
	e.eval.Keep(set)
	for name := range before {
		if set.Reading(name) == nil && set.Control(name) == nil {
			e.metrics.forget(name)
		}
	}
}

// same says whether two controls do the same, whatever their names for it: the
// words of help, where it stands, and how its expressions are laid out.
func same(a, b *rules.Control) bool { return fingerprint(a) == fingerprint(b) }

// fingerprint is all that decides what a control does.
func fingerprint(c *rules.Control) string {
	var b strings.Builder
	fmt.Fprintln(&b, c.Mode, c.Key, c.Purpose, c.Engage.For, c.Release.For, c.Action, c.Target, c.Limits, c.Slew, c.TTL,
		c.Interval, c.StaleAfter, c.SafeCap, c.SafeWhenBlind, c.ObserveAfter, c.OnStop, c.TrustedChannels)
	for _, q := range c.Explain().Queries {
		fmt.Fprintln(&b, q.Name, q.Expr)
	}
	for _, r := range c.Uses {
		fmt.Fprintln(&b, r.Name, r.Key, r.As, r.Rate, r.StaleAfter, r.ForgetAfter)
		for _, q := range r.Explain().Queries {
			fmt.Fprintln(&b, q.Expr)
		}
	}
	return b.String()
}

// Reload swaps the rule set. A control that the new set does not have, or has
// otherwise, ends its lease at the swap: the governor lets its caps rise by the
// slew and gives them back. While such a control is engaged for protection the
// whole reload is refused with ErrEngaged, unless force is set.
func (e *Engine) Reload(set *rules.Set, force bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.rules {
		if r.control == nil || force || !r.protecting() {
			continue
		}
		if c := set.Control(r.control.Name); c != nil && same(r.control, c) {
			continue
		}
		e.metrics.reloaded(false)
		return fmt.Errorf("reload: control %s holds a cap: %w; POST /-/reload?yes=1 ends it", r.control.Name, ErrEngaged)
	}
	e.install(set)
	e.metrics.reloaded(true)
	e.poke()
	return nil
}

// protecting says whether a control has a cap on a device, or wants one there,
// for protection.
func (r *rule) protecting() bool {
	if r.control.Purpose != actuate.PurposeProtect || r.control.Mode != rules.Enforce {
		return false
	}
	for _, st := range r.states {
		if st.phase.asks() {
			return true
		}
	}
	return false
}

// ReloadRefused records that rule files were not taken, for the metric.
func (e *Engine) ReloadRefused() { e.metrics.reloaded(false) }
