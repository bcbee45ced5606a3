package warden

import (
	"slices"
	"time"

	"github.com/wattloop/wattloop/actuate"
)

// A device that somebody else raises is set again at most so often in so long.
const (
	maxReasserts   = 3
	reassertWindow = 10 * time.Minute
)

// keepGone is how long the original of an unplugged device is kept.
const keepGone = 24 * time.Hour

// check is the look at a device at each tick and at each deadline: leases,
// retries, and whether the device still holds what was read back.
func (k *knob) check() {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer k.publish()
	defer func() { k.looked.Store(time.Now().UnixNano()) }()
	k.expire()
	if k.state != actuate.StateGone && (!k.ours() || !k.desc.Writable) {
		k.describe(false) // a cap that stands is judged by its writes, not by what might be
	}
	switch {
	case k.state == actuate.StateGone:
		k.lookForReturn()
	case k.pending:
		if k.opt.Clock() >= k.retryAt {
			k.settle()
		}
	case k.ours():
		k.verify()
	default:
		k.watch()
	}
}

// verify reads a device that holds a value of ours and does what must be done
// when it holds another.
func (k *knob) verify() {
	st, err := k.read()
	switch {
	case err != nil && gone(err):
		k.lose()
	case err != nil, k.dirty, k.pending, k.near(st.Value, k.applied.Value):
	case tighter(k.desc, st.Value, k.applied.Value):
		k.leave(st)
	case len(k.recentReasserts()) >= maxReasserts:
		k.leave(st)
	default:
		k.reasserts = append(k.recentReasserts(), k.opt.Clock())
		k.log.Warn("somebody else raised it: setting it again", "reads", st.Value, "want", k.standing, "times", len(k.reasserts))
		k.dirty = true // until it is read back
		k.settle()
	}
}

// leave lets somebody else have the device: what it holds is its new baseline.
func (k *knob) leave(st actuate.State) {
	lower := tighter(k.desc, st.Value, k.applied.Value)
	k.log.Error("somebody else has changed it: left to them", "reads", st.Value, "ours", k.applied.Value)
	k.forget()
	k.state, k.alarm = actuate.StateContested, actuate.ReasonContested
	if lower {
		v := st.Value
		k.state, k.alarm, k.external = actuate.StateExternal, actuate.ReasonExternalLower, &v
	}
}

// watch looks at a device that holds nothing of ours.
func (k *knob) watch() {
	if k.unclosed {
		err := k.journal.close(k.desc.ID)
		k.fail("journal entry not closed", err)
		k.unclosed = err != nil
	}
	st, err := k.read()
	switch {
	case err != nil && gone(err):
		k.lose()
	case err != nil:
	case k.external != nil && !k.near(st.Value, *k.external):
		k.external = nil // they have changed their mind
		k.state, k.alarm = actuate.StateArmed, ""
	case k.state == actuate.StateContested && len(k.recentReasserts()) < maxReasserts:
		k.state, k.alarm = actuate.StateArmed, ""
	}
}

func (k *knob) recentReasserts() []time.Duration {
	now := k.opt.Clock()
	return slices.DeleteFunc(slices.Clone(k.reasserts), func(at time.Duration) bool { return now-at > reassertWindow })
}

// lose follows the loss of a device: its leases end, its original is kept.
func (k *knob) lose() {
	if k.state == actuate.StateGone {
		return
	}
	k.log.Error("device is gone", "err", k.readErr)
	k.live, k.held = nil, nil
	k.state, k.alarm = actuate.StateGone, actuate.ReasonGone
	k.goneAt, k.readable = k.opt.Clock(), false
	k.done()
}

// lookForReturn sees whether an unplugged device is back, and then treats it
// as found anew: what we had put on it is given back, and nothing is set again
// before a rule says so.
func (k *knob) lookForReturn() {
	st, err := k.read()
	if err != nil {
		if k.ours() && k.opt.Clock()-k.goneAt > keepGone {
			k.log.Warn("device has been gone for a day: its original is forgotten", "value", k.original.Value)
			k.forget()
		}
		return
	}
	k.log.Info("device is back", "value", st.Value)
	k.describe(true)
	k.seen = k.opt.Clock()
	k.state, k.alarm = actuate.StateArmed, ""
	k.opt.Fault(FaultReturned)
	if !k.ours() {
		return
	}
	if k.dirty || k.near(st.Value, k.applied.Value) || k.same(st, *k.original) {
		k.giveBack()
		return
	}
	k.log.Info("its driver has reset it", "value", st.Value)
	k.forget()
}
