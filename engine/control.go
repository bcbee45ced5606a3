package engine

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/wattloop/wattloop/actuate"
	"github.com/wattloop/wattloop/rules"
)

// Phase is where a control stands for one key.
type Phase string

const (
	Idle      Phase = "idle"      // not engaged, nothing asked of any device
	Engaged   Phase = "engaged"   // a value is asked for
	Releasing Phase = "releasing" // rising to the original by the slew
	Restoring Phase = "restoring" // giving the original back at once
	Holding   Phase = "holding"   // input lost, purpose protection
)

// asks says whether a control in this phase wants a value on its devices.
func (p Phase) asks() bool { return p == Engaged || p == Holding }

// controlState is a control's memory for one key. Its times are Unix
// milliseconds; 0 is never.
type controlState struct {
	key     string // canonical
	labels  labels.Labels
	phase   Phase
	engage  int64 // since when the engage condition has held
	release int64 // the same for the release condition
	at      int64 // of the last evaluation
	wroteAt int64 // of the last write that this control caused
	value   float64
	kind    actuate.Kind // what the next intent asks for
	// news is the start of the engine, or when an engaged state was taken up after
	// it. Until an input is newer nothing new is decided and no value is asked for,
	// and a lease runs on, or out: what the process before this one may have seen
	// proves nothing about now.
	news    int64
	resumed int64 // when an engaged state was taken up; 0: it was not, or the lease is over
	waits   bool  // the last evaluation waited for news

	last     rules.KeyControl
	why      string // why nothing new was decided, for the report
	outcomes []actuate.Outcome
	row      *ControlReport // in the last report
}

// rests says that nothing is asked of a device, or was and is going on.
func (st *controlState) rests() bool { return st.phase == Idle && len(st.outcomes) == 0 }

// advance moves the states of one control by what its rule read at ts.
func (e *Engine) advance(ctx context.Context, r *rule, kcs []rules.KeyControl, ts int64) error {
	var errs []error
	seen := map[string]bool{}
	for _, kc := range kcs {
		key := kc.Key.String()
		seen[key] = true
		st := r.states[key]
		if st == nil {
			st = &controlState{key: key, labels: kc.Key, phase: Idle, news: e.born}
			if r.resumes && ts-e.firstTS <= r.control.TTL.Milliseconds() {
				if err := e.resume(ctx, r.control, st, ts); err != nil {
					errs = append(errs, err) // the next evaluation tries again
					continue
				}
			}
			r.states[key] = st
		}
		st.step(r.control, kc, ts)
	}
	if r.dirty != nil {
		return errors.Join(errs...)
	}
	for key, st := range r.states {
		if seen[key] {
			continue
		}
		st.step(r.control, rules.KeyControl{Key: st.labels, Quality: rules.Missing, Why: "no input names this key any more"}, ts)
		if st.phase == Idle {
			delete(r.states, key)
		}
	}
	r.order = r.order[:0]
	for _, key := range sortedKeys(r.states) {
		r.order = append(r.order, r.states[key])
	}
	return errors.Join(errs...)
}

// step is the state machine of a control: the conditions hold for their time,
// only fresh input decides, and what doubt does is the purpose's to say.
func (st *controlState) step(c *rules.Control, kc rules.KeyControl, ts int64) {
	if st.at != 0 && ts-st.at > c.TTL.Milliseconds() {
		st.lapse(c)
	}
	st.last, st.at, st.why = kc, ts, kc.Why
	st.waits = st.news != 0 && kc.Quality == rules.Fresh && kc.Newest <= st.news
	if st.waits {
		st.await(c, ts)
		return
	}
	if kc.Newest > st.news {
		st.news, st.resumed = 0, 0
	}
	switch {
	case kc.Quality != rules.Fresh:
		if kc.Err != "" {
			st.why = kc.Err + ": " + kc.Why
		}
		st.doubt(c)
	case kc.Err != "":
		// The third in a row makes the key stale. Until then what stands goes on,
		// and nothing is taken from it for a release.
		st.why = kc.Err
		st.release = 0
		st.keep()
	default:
		st.engage = since(st.engage, kc.Engage, ts)
		// A partial reading may be low, so it never ends a cap.
		st.release = since(st.release, kc.Release && !kc.Partial, ts)
		st.decide(c, kc, ts)
	}
}

// await is a step without an input of this engine's own time. When the lease of
// a state that was taken up has run out meanwhile there is nothing left of it,
// but a cap for protection, which the warden holds.
func (st *controlState) await(c *rules.Control, ts int64) {
	if st.resumed != 0 && ts-st.resumed > c.TTL.Milliseconds() {
		st.resumed = 0
		st.lapse(c)
	}
	st.why = "waiting for an input that is newer than the start of the engine"
}

func since(from int64, holds bool, ts int64) int64 {
	switch {
	case !holds:
		return 0
	case from == 0:
		return ts
	}
	return from
}

func held(from, ts int64, d time.Duration) bool {
	return from != 0 && ts-from >= d.Milliseconds()
}

// lapse is a time without evaluation that is longer than the lease: the
// process slept. The lease has ended, so the rules begin anew, but for the cap
// that is held for protection.
func (st *controlState) lapse(c *rules.Control) {
	st.engage, st.release = 0, 0
	if c.Purpose != actuate.PurposeProtect {
		st.end()
	}
}

// end is how a control stands that holds nothing.
func (st *controlState) end() {
	st.phase, st.kind, st.value, st.wroteAt = Idle, "", 0, 0
}

// setBack keeps the state's times from lying after ts.
func (st *controlState) setBack(ts int64) {
	for _, t := range []*int64{&st.engage, &st.release, &st.at, &st.wroteAt, &st.resumed, &st.news} {
		*t = min(*t, ts)
	}
}

// decide acts on fresh input.
func (st *controlState) decide(c *rules.Control, kc rules.KeyControl, ts int64) {
	if st.phase == Holding { // the input is back: go on where the cap stands
		st.phase = Engaged
	}
	switch {
	case st.phase == Engaged && held(st.release, ts, c.Release.For):
		st.phase, st.kind, st.engage = Releasing, actuate.Release, 0
		return
	case st.phase == Engaged:
	case held(st.engage, ts, c.Engage.For):
	case st.phase == Releasing && kc.Partial:
		st.stop(Engaged)
		return
	default:
		return
	}
	switch {
	case !kc.ValueValid:
		st.why = "the value expression gives no number for this key"
		st.keep()
	case c.ObserveAfter && st.wroteAt != 0 && ts-kc.Age.Milliseconds() <= st.wroteAt:
		st.why = "waiting for an input that is newer than the last write"
		st.keep()
	default:
		if st.phase != Engaged {
			st.phase, st.release = Engaged, 0
		}
		st.kind = actuate.Set
		st.value = math.Min(math.Max(kc.Value, c.Limits.Min), c.Limits.Max)
	}
}

// doubt is what happens on any input that is not fresh: efficiency gives the
// original back, protection holds what stands. A control that was not engaged
// writes nothing, unless it is safe_when_blind.
func (st *controlState) doubt(c *rules.Control) {
	st.engage, st.release = 0, 0
	protects := c.Purpose == actuate.PurposeProtect
	switch {
	case st.phase == Idle && protects && c.SafeWhenBlind:
		st.phase, st.kind, st.value = Holding, actuate.Set, c.SafeCap
	case st.phase == Idle || st.phase == Holding:
	case !protects:
		st.phase, st.kind = Restoring, actuate.Restore
	case st.phase == Releasing:
		st.stop(Holding)
	default:
		st.phase, st.kind = Holding, actuate.Hold
	}
}

// keep renews what stands, where anything does.
func (st *controlState) keep() {
	if st.phase == Engaged {
		st.kind = actuate.Keep
	}
}

// stop ends a release half way: the value that the devices have come to is
// asked for, the lowest of them.
func (st *controlState) stop(into Phase) {
	reached := math.Inf(1)
	for _, o := range st.outcomes {
		if !o.Ended && o.Result == actuate.Applied {
			reached = min(reached, o.Applied)
		}
	}
	st.phase, st.kind = into, actuate.Set
	if !math.IsInf(reached, 1) {
		st.value = reached
	}
}

// intent is what the state asks of the governor.
func (st *controlState) intent(c *rules.Control) (actuate.Intent, bool) {
	if st.phase == Idle || st.waits && st.phase.asks() {
		return actuate.Intent{}, false
	}
	return actuate.Intent{
		Control: c.Name, Key: st.key, Action: c.Action, Target: c.Target, Kind: st.kind, Value: st.value,
		Mode: string(c.Mode), Purpose: c.Purpose, TTL: c.TTL, SafeCap: c.SafeCap, OnStop: c.OnStop,
		Slew:    actuate.Slew{Down: c.Slew.Down, Up: c.Slew.Up, Every: c.Slew.Every},
		Partial: st.last.Partial,
	}, true
}

// settle takes what became of the intent.
func (st *controlState) settle(c *rules.Control, ts int64, outcomes []actuate.Outcome) {
	st.outcomes = outcomes
	ended, stands := len(outcomes) > 0, len(outcomes) > 0
	for _, o := range outcomes {
		if o.Wrote {
			st.wroteAt = ts
		}
		ended = ended && o.Ended
		stands = stands && o.Result == actuate.Applied && o.Reason != actuate.ReasonRamping
	}
	switch {
	case ended && (st.phase == Releasing || st.phase == Restoring):
		st.end()
	case st.phase == Engaged && st.kind == actuate.Set && c.ObserveAfter && st.wroteAt == ts:
		// Steps for other rules must not move the device on by this input.
		st.kind = actuate.Keep
	case st.phase == Holding && st.kind == actuate.Set && stands:
		st.kind = actuate.Hold
	}
}

// intents gathers what every control wants now, those included that were not
// due: the governor is told of all, or it releases.
func (e *Engine) intents() []actuate.Intent {
	var out []actuate.Intent
	for _, r := range e.rules {
		for _, st := range r.order {
			if in, ok := st.intent(r.control); ok {
				out = append(out, in)
			}
		}
	}
	return out
}

// settle tells every control state what became of its intent.
func (e *Engine) settle(ts int64, outcomes []actuate.Outcome) {
	type subject struct{ control, key string }
	of := map[subject][]actuate.Outcome{}
	for _, o := range outcomes {
		s := subject{o.Control, o.Key}
		of[s] = append(of[s], o)
	}
	for _, r := range e.rules {
		for _, st := range r.order {
			if !st.rests() {
				s := subject{r.control.Name, st.key}
				st.settle(r.control, ts, of[s])
				delete(of, s)
			}
		}
	}
	// What is left is of a state that has ended, and of its control's device.
	for s, left := range of {
		for _, r := range e.rules {
			if st := r.states[s.key]; st != nil && r.control.Name == s.control {
				st.settle(r.control, ts, left)
			}
		}
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
