package warden

import (
	"fmt"
	"slices"

	"github.com/wattloop/wattloop/actuate"
)

// settle brings the device to what the claims say: the tightest of them, or
// the original when there is none left. What fails is tried again at retryAt,
// for ever; a claim of efficiency that cannot be had is dropped.
func (k *knob) settle() {
	for {
		c := k.governing()
		if c == nil {
			if k.ours() {
				k.giveBack()
			}
			return
		}
		if k.dirty || k.pending || k.standing != c.value {
			err := k.put(c)
			k.fail("cap could not be set", err, "control", c.control, "value", c.value)
			if err != nil {
				if !c.protects() {
					k.live = nil
					continue
				}
				k.alarm, k.state = actuate.ReasonWriteFailed, k.settled()
				k.later()
				return
			}
		}
		k.done()
		k.alarm, k.state = "", k.settled()
		k.poke()
		return
	}
}

// giveBack brings the original back, unless somebody else has changed the
// device meanwhile: then it is theirs.
func (k *knob) giveBack() {
	if k.state != actuate.StateRestoreFailed {
		k.state = actuate.StateRestoring
		k.publish()
	}
	st, err := k.read()
	switch {
	case err != nil && gone(err):
		k.lose()
		return
	case err == nil && k.same(st, *k.original):
		k.close("original stands")
		return
	case err == nil && !k.dirty && !k.near(st.Value, k.applied.Value) && !k.near(st.Value, k.original.Value):
		k.leave(st)
		return
	}
	err = k.restore()
	k.fail("original could not be given back: trying again until it can", err, "original", k.original.Value)
	if err != nil {
		k.alarm, k.state, k.refused = actuate.ReasonRestoreFailed, actuate.StateRestoreFailed, err
		k.later()
		return
	}
	k.close("original given back")
}

// restore writes the original and reads it back.
func (k *knob) restore() error {
	k.warn("restore not recorded", k.intents.write(k.record(phaseRestoring, k.governing()))) // the original matters more
	k.dirty = true
	original := *k.original
	if err := k.tryAgain(func() error { return k.dev.Restore(original) }); err != nil {
		return fmt.Errorf("warden: %s: restore %g %s: %w", k.desc.ID, original.Value, k.desc.Unit, err)
	}
	k.opt.Fault(FaultMidRestore)
	if _, err := k.readBack(func(st actuate.State) bool { return k.same(st, original) }); err != nil {
		return err
	}
	k.opt.Fault(FaultRestored)
	return nil
}

// close ends the entry in the journal: nothing of ours is on the device.
func (k *knob) close(why string) {
	k.log.Info(why, "value", k.original.Value)
	k.forget()
	k.state, k.alarm = actuate.StateArmed, ""
	k.describe(false)
}

// forget drops all that is known of our values on the device. Where the journal
// cannot be written the entry stays open, which is harmless: it is closed
// before the next one is opened, or by the next start.
func (k *knob) forget() {
	err := k.journal.close(k.desc.ID)
	k.fail("journal entry not closed", err)
	if err != nil {
		k.unclosed = true
	} else {
		k.warn("intent record not removed", k.intents.remove(k.desc.ID))
	}
	k.original, k.live, k.held = nil, nil, nil
	k.standing, k.applied, k.dirty = 0, actuate.State{}, false
	k.done()
}

// leaveStanding drops every claim but those of protection with on_stop: hold,
// and records what is left as kept. It is false when nothing is, or when it
// cannot be had.
func (k *knob) leaveStanding() bool {
	passes := func(c *claim) bool { return !c.protects() || c.onStop != onStopHold }
	if k.live != nil && passes(k.live) {
		k.live = nil
	}
	k.held = slices.DeleteFunc(k.held, passes)
	if k.governing() == nil {
		return false
	}
	k.kept = true
	k.settle()
	if k.pending || k.dirty || k.governing() == nil {
		return false
	}
	err := k.intents.write(k.standingRecord())
	k.fail("cap cannot be left standing", err)
	return err == nil
}

// restoreNow gives the device back whatever the claims say, for a person or at
// the end of the warden. With keep, a claim of protection with on_stop: hold
// stays on the device, recorded as kept.
func (k *knob) restoreNow(keep bool) Restored {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer k.publish()
	r := Restored{Device: k.desc.ID, Name: k.desc.Name, Unit: k.desc.Unit, Result: actuate.None}
	if !k.ours() {
		r.Value, r.Unknown = k.current.Value, !k.readable
		return r
	}
	if keep && k.leaveStanding() {
		r.Result, r.Reason, r.Value = actuate.Applied, actuate.ReasonHolding, k.current.Value
		r.Message = k.governing().control + ": on_stop: hold"
		return r
	}
	k.live, k.held, k.kept = nil, nil, false
	k.giveBack()
	r.Value, r.Unknown = k.current.Value, !k.readable
	switch k.state {
	case actuate.StateArmed:
		r.Result, r.Reason = actuate.Applied, actuate.ReasonRestored
	case actuate.StateGone:
		r.Result, r.Reason, r.Message = actuate.Error, actuate.ReasonGone, k.desc.ID+": unplugged"
	case actuate.StateExternal, actuate.StateContested:
		r.Reason, r.Message = k.alarm, k.alarmText()
	default:
		r.Result, r.Reason, r.Message = actuate.Error, k.alarm, k.alarmText()
	}
	return r
}
