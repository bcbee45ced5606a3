package warden

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wattloop/wattloop/actuate"
)

// onStopHold is the on_stop of a control whose cap outlives a clean stop.
const onStopHold = "hold"

// claim is what one control has been granted of one device. The device's live
// claim has a lease; a claim of protection outlives it, held by the warden.
type claim struct {
	control, key, purpose, onStop string
	strict                        bool
	value                         float64 // granted
	clamped                       bool    // value is not what was asked, or the device holds another
	safeCap                       float64
	ttl                           time.Duration
	deadline                      time.Duration // on the clock, while live
	since                         time.Duration // on the clock: since when it is held
	safe                          bool          // max_hold has passed, value is the safe cap
}

func (c *claim) ownedBy(cmd actuate.Command) bool {
	return c.control == cmd.Control && c.key == cmd.Key
}

func (c *claim) protects() bool { return c.purpose == actuate.PurposeProtect }

// term is how long a lease asked for lasts: within [1 s, ttl_max].
func (k *knob) term(millis int64) time.Duration {
	if millis > k.opt.TTLMax.Milliseconds() {
		return k.opt.TTLMax
	}
	return max(time.Duration(millis)*time.Millisecond, minTTL)
}

// renew lets the owner's lease run anew. A claim that was held becomes live
// again with the value that stands.
func (k *knob) renew(cmd actuate.Command) actuate.Reply {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer k.publish()
	k.expire()
	if reason, text := k.barred(); reason != "" && reason != actuate.ReasonObserving {
		return k.blocked(cmd, reason, text)
	}
	c := k.claimOf(cmd)
	if c == nil {
		return k.blocked(cmd, actuate.ReasonNoLease, "no lease of this control to renew")
	}
	if k.verify(); k.claimOf(cmd) == nil { // somebody else has changed the device, or it cannot be set any more
		if k.alarm == "" {
			return k.blocked(cmd, actuate.ReasonNoLease, k.desc.ID+": the cap was lost and the original given back")
		}
		return k.blocked(cmd, k.alarm, k.alarmText())
	}
	if k.readErr != nil { // not verified, hence not renewed
		return k.failed(cmd, actuate.ReasonReadFailed, k.readErr.Error())
	}
	k.opt.Fault(FaultRenew)
	if cmd.TTLMillis != 0 {
		c.ttl = k.term(cmd.TTLMillis)
	}
	if c != k.live {
		if k.live != nil && tighter(k.desc, k.live.value, c.value) {
			c.since, c.safe = k.opt.Clock(), false // its input is back: it is not held for too long
			return k.blocked(cmd, actuate.ReasonOverridden, "held lower by "+k.live.control)
		}
		if k.live != nil {
			k.endLive() // this claim is the tighter one: it takes the lease
		}
		k.held = slices.DeleteFunc(k.held, func(h *claim) bool { return h == c })
		k.live, c.safe = c, false
		k.state = k.settled()
		k.log.Info("lease taken up again", "control", c.control, "value", c.value)
	}
	c.deadline = k.opt.Clock() + c.ttl
	k.poke()
	if k.pending {
		return k.failed(cmd, k.alarm, k.alarmText())
	}
	k.warn("renewal not recorded", k.intents.write(k.standingRecord())) // the lease is as good without
	r := k.reply(cmd, actuate.Applied, actuate.ReasonUnchanged, "")
	r.Granted, r.Clamped = c.value, c.clamped
	return r
}

// hold is the word of an engine whose input is gone: protection stays where it
// is, efficiency gives back.
func (k *knob) hold(cmd actuate.Command) actuate.Reply {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer k.publish()
	k.expire()
	c := k.claimOf(cmd)
	switch {
	case c == nil:
		return k.blocked(cmd, actuate.ReasonNoLease, "nothing of this control to hold")
	case !c.protects():
		return k.letGo(cmd)
	case c == k.live:
		k.keep(c, "input lost")
	}
	k.settle()
	r := k.reply(cmd, actuate.Applied, actuate.ReasonHolding, "")
	r.Granted, r.Clamped = c.value, c.clamped
	if k.pending {
		return k.failed(cmd, k.alarm, k.alarmText())
	}
	return r
}

// release gives back what the control has of the device.
func (k *knob) release(cmd actuate.Command) actuate.Reply {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer k.publish()
	k.expire()
	if k.claimOf(cmd) == nil {
		return k.reply(cmd, actuate.None, actuate.ReasonNotOwner, "")
	}
	return k.letGo(cmd)
}

// letGo drops the claim of a command and settles the device.
func (k *knob) letGo(cmd actuate.Command) actuate.Reply {
	if k.live != nil && k.live.ownedBy(cmd) {
		k.live = nil
	}
	k.held = slices.DeleteFunc(k.held, func(h *claim) bool { return h.ownedBy(cmd) })
	k.settle()
	switch c := k.governing(); {
	case k.pending:
		return k.failed(cmd, k.alarm, k.alarmText())
	case c != nil:
		return k.reply(cmd, actuate.Applied, actuate.ReasonOverridden, "held lower by "+c.control)
	case k.alarm != "": // left to somebody else
		return k.blocked(cmd, k.alarm, k.alarmText())
	}
	return k.reply(cmd, actuate.Applied, actuate.ReasonRestored, "")
}

// claimOf returns the claim that the command's control has of the device.
func (k *knob) claimOf(cmd actuate.Command) *claim {
	if k.live != nil && k.live.ownedBy(cmd) {
		return k.live
	}
	for _, h := range k.held {
		if h.ownedBy(cmd) {
			return h
		}
	}
	return nil
}

// expire ends the lease when its time is over, and steps claims that were held
// for too long to their safe cap.
func (k *knob) expire() {
	now, changed := k.opt.Clock(), false
	if k.live != nil && now >= k.live.deadline {
		k.log.Warn("lease ended without renewal", "control", k.live.control, "purpose", k.live.purpose)
		k.endLive()
		changed = true
	}
	for _, h := range k.held {
		if h.safe || now-h.since < k.opt.MaxHold {
			continue
		}
		if l := k.limits(); !l.empty() {
			h.value = l.clamp(h.safeCap)
			h.clamped = h.value != h.safeCap
		}
		h.safe, changed = true, true
		k.log.Error("held too long: stepping to the safe cap", "control", h.control, "safe_cap", h.value)
	}
	if changed {
		k.settle()
	}
}

// endLive ends the live claim by the policy of its purpose.
func (k *knob) endLive() {
	c := k.live
	k.live = nil
	if c.protects() {
		k.keep(c, "lease ended")
	}
}

// keep holds a claim of protection without a lease.
func (k *knob) keep(c *claim, why string) {
	if k.live == c {
		k.live = nil
	}
	c.since, c.safe = k.opt.Clock(), false
	k.held = append(k.held, c)
	k.log.Error("holding the last good cap: "+why, "control", c.control, "value", c.value, "max_hold", k.opt.MaxHold)
}

// due is when the knob must be looked at next, at the latest, on the clock.
func (k *knob) due() (at time.Duration, any bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	soonest := func(t time.Duration) {
		if !any || t < at {
			at, any = t, true
		}
	}
	if k.live != nil {
		soonest(k.live.deadline)
	}
	for _, h := range k.held {
		if !h.safe {
			soonest(h.since + k.opt.MaxHold)
		}
	}
	if k.pending {
		soonest(k.retryAt)
	}
	return at, any
}

// alarmText says what the alarm of a knob is about.
func (k *knob) alarmText() string {
	if k.readErr != nil {
		return k.readErr.Error()
	}
	switch k.alarm {
	case actuate.ReasonExternalLower:
		return fmt.Sprintf("%s: somebody else set %g %s, lower than asked: respected", k.desc.ID, k.current.Value, k.desc.Unit)
	case actuate.ReasonContested:
		return fmt.Sprintf("%s: set back to %g %s by somebody else more than %d times in %s: left to them",
			k.desc.ID, k.current.Value, k.desc.Unit, maxReasserts, reassertWindow)
	case actuate.ReasonRestoreFailed:
		return fmt.Sprintf("%s: reads %g %s, the original could not be given back yet; it is tried again: %v", k.desc.ID, k.current.Value, k.desc.Unit, k.refused)
	case actuate.ReasonJournal:
		return fmt.Sprintf("%s: the originals were lost and it stands below its default: set it by hand, then `wattloop caps resume`", k.desc.ID)
	}
	return k.desc.ID + ": " + strings.ReplaceAll(k.alarm, "_", " ")
}
