package warden

import (
	"fmt"
	"time"

	"github.com/wattloop/wattloop/actuate"
)

// refusal says why a set is blocked now, or "". It touches nothing.
func (k *knob) refusal(cmd actuate.Command) (reason, text string) {
	if reason, text := k.barred(); reason != "" {
		return reason, text
	}
	id, unit, l := k.desc.ID, k.desc.Unit, k.limits()
	if k.external != nil && !tighter(k.desc, cmd.Value, *k.external) {
		return actuate.ReasonExternalLower, fmt.Sprintf("%s: somebody else set %g %s: respected", id, *k.external, unit)
	}
	if k.opt.RejectOutOfRange && !l.hold(cmd.Value) {
		return actuate.ReasonOutOfRange, fmt.Sprintf("%s: %g %s is outside %g to %g", id, cmd.Value, unit, l.low, l.high)
	}
	for _, h := range k.held {
		if h.control == cmd.Control && h.key == cmd.Key {
			continue
		}
		if tighter(k.desc, h.value, l.clamp(cmd.Value)) {
			return actuate.ReasonOverridden, fmt.Sprintf("%s: %s holds %g %s without input", id, h.control, h.value, unit)
		}
	}
	return "", ""
}

// barred says why nothing at all may be written to the device now, or "".
func (k *knob) barred() (reason, text string) {
	id := k.desc.ID
	switch l := k.limits(); {
	case k.closing.Load():
		return actuate.ReasonShuttingDown, id + ": everything is being given back"
	case !k.opt.Enabled:
		return actuate.ReasonDisabled, id + ": actuation.enabled is false: set it in warden.yaml"
	case k.latch.closed():
		return actuate.ReasonLatched, id + ": `wattloop caps restore` has latched it, `wattloop caps resume` ends that"
	case k.state == actuate.StateGone:
		return actuate.ReasonGone, id + ": unplugged"
	case k.journal.suspect(id):
		return actuate.ReasonJournal, id + ": the originals were lost and it stands below its default: set it by hand, then `wattloop caps resume`"
	case !k.desc.Writable:
		return actuate.ReasonNotWritable, id + ": " + k.desc.Reason
	case k.readErr != nil:
		return actuate.ReasonReadFailed, k.readErr.Error()
	case !k.readable:
		return actuate.ReasonReadFailed, id + ": not read yet"
	case !k.ours() && k.opt.Clock()-k.seen < k.opt.ObserveFirst:
		left := k.opt.ObserveFirst - (k.opt.Clock() - k.seen)
		return actuate.ReasonObserving, fmt.Sprintf("%s: observed for another %s before the first write", id, left.Round(time.Second))
	case k.state == actuate.StateRestoreFailed:
		return actuate.ReasonRestoreFailed, k.alarmText()
	case k.state == actuate.StateContested:
		return actuate.ReasonContested, k.alarmText()
	case l.empty():
		return actuate.ReasonOutOfRange, fmt.Sprintf("%s: no value between %g and %g %s", id, l.low, l.high, k.desc.Unit)
	}
	return "", ""
}

// reply is the answer to a command with what the device holds now.
func (k *knob) reply(cmd actuate.Command, result, reason, text string) actuate.Reply {
	r := actuate.Reply{
		Seq: cmd.Seq, Device: k.desc.ID, Applied: k.current.Value,
		Result: result, Reason: reason, Message: text,
	}
	if c := k.governing(); c != nil {
		r.Granted = c.value
	}
	return r
}

// blocked answers that nothing was written. A few reasons are faults that
// somebody must look after, and their word is error.
func (k *knob) blocked(cmd actuate.Command, reason, text string) actuate.Reply {
	switch reason {
	case actuate.ReasonRestoreFailed, actuate.ReasonJournal, actuate.ReasonReadFailed:
		return k.failed(cmd, reason, text)
	}
	return k.reply(cmd, actuate.Blocked, reason, text)
}

// failed answers that it was tried and did not work.
func (k *knob) failed(cmd actuate.Command, reason, text string) actuate.Reply {
	return k.reply(cmd, actuate.Error, reason, text)
}
