package warden

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/wattloop/wattloop/actuate"
)

// maxBatch is how many commands one message may carry, maxName how long a
// control's name or key may be.
const (
	maxBatch = 256
	maxName  = 4096
)

// do carries out the commands of one message, those of different devices at
// the same time, and returns a reply to each in the same order.
//
// The sets of one control and key are one thing: none is written when one of
// its devices stands in the way, and where a write fails the others are rolled
// back (efficiency) or stay lowered (protection).
func (w *warden) do(cmds []actuate.Command) []actuate.Reply {
	replies := make([]actuate.Reply, len(cmds))
	changes := make([]*change, len(cmds))
	answered := make([]bool, len(cmds))
	for i, cmd := range cmds {
		if reply, bad := w.malformed(cmd); bad {
			replies[i], answered[i] = reply, true
		}
	}
	if !w.opt.Partial {
		w.preflight(cmds, replies, answered)
	}
	byDevice := map[string][]int{}
	for i, cmd := range cmds {
		if !answered[i] {
			byDevice[cmd.Device] = append(byDevice[cmd.Device], i)
		}
	}
	var all sync.WaitGroup
	for id, turns := range byDevice {
		k := w.byID[id]
		all.Go(func() {
			for _, i := range turns {
				replies[i], changes[i] = k.carry(cmds[i])
			}
		})
	}
	all.Wait()
	if !w.opt.Partial {
		rollBack(cmds, replies, changes)
	}
	return replies
}

// carry is one command of one device.
func (k *knob) carry(cmd actuate.Command) (actuate.Reply, *change) {
	switch cmd.Op {
	case actuate.OpSet:
		return k.set(cmd)
	case actuate.OpRenew:
		return k.renew(cmd), nil
	case actuate.OpHold:
		return k.hold(cmd), nil
	default: // malformed lets no other through
		return k.release(cmd), nil
	}
}

// malformed answers a command that no honest engine sends. The warden trusts
// nothing of it: what it repeats is cut.
func (w *warden) malformed(cmd actuate.Command) (actuate.Reply, bool) {
	r := actuate.Reply{Seq: cmd.Seq, Device: cmd.Device[:min(len(cmd.Device), maxID)], Result: actuate.Blocked}
	if w.byID[cmd.Device] == nil {
		w.bad.note(w.opt.Log, "command for an unknown device")
		r.Reason, r.Message = actuate.ReasonNoDevice, "not a device of the warden"
		return r, true
	}
	if text := fault(cmd); text != "" {
		w.bad.note(w.opt.Log, "bad command")
		r.Reason, r.Message = actuate.ReasonBadCommand, text
		return r, true
	}
	return r, false
}

// fault says what is wrong with a command, whatever the device.
func fault(cmd actuate.Command) string {
	switch {
	case !slices.Contains([]string{actuate.OpSet, actuate.OpRenew, actuate.OpHold, actuate.OpRelease}, cmd.Op):
		return "op: want set, renew, hold or release"
	case cmd.Control == "" || len(cmd.Control) > maxName || len(cmd.Key) > maxName:
		return "control and key: want a name of at most 4096 bytes"
	case cmd.Op != actuate.OpSet:
		return ""
	case !finite(cmd.Value) || cmd.Value < 0:
		return "value: want a finite number that is not negative"
	case cmd.Purpose != actuate.PurposeEfficient && cmd.Purpose != actuate.PurposeProtect:
		return "purpose: want efficiency or protection"
	case cmd.OnStop != "" && cmd.OnStop != actuate.OpHold && cmd.OnStop != "restore":
		return "on_stop: want hold or restore"
	case cmd.Purpose == actuate.PurposeProtect && !(finite(cmd.SafeCap) && cmd.SafeCap > 0):
		return "safe_cap: protection needs one"
	}
	return ""
}

// preflight answers all sets of a control when one of its devices cannot be
// set at all. Devices that somebody else holds lower, or keeps raising, are no
// such reason: what is left to set is still worth setting.
func (w *warden) preflight(cmds []actuate.Command, replies []actuate.Reply, answered []bool) {
	type obstacle struct{ device, reason, text string }
	inTheWay := map[group]obstacle{}
	for i, cmd := range cmds {
		if answered[i] || cmd.Op != actuate.OpSet {
			continue
		}
		k := w.byID[cmd.Device]
		k.mu.Lock()
		reason, text := k.refusal(cmd)
		k.mu.Unlock()
		switch reason {
		case "", actuate.ReasonExternalLower, actuate.ReasonContested, actuate.ReasonOverridden:
			continue
		}
		if _, have := inTheWay[groupOf(cmd)]; !have {
			inTheWay[groupOf(cmd)] = obstacle{cmd.Device, reason, text}
		}
	}
	for i, cmd := range cmds {
		o, stands := inTheWay[groupOf(cmd)]
		if answered[i] || cmd.Op != actuate.OpSet || !stands || o.device == cmd.Device {
			continue
		}
		k := w.byID[cmd.Device]
		k.mu.Lock()
		if own, text := k.refusal(cmd); own != "" {
			replies[i] = k.blocked(cmd, own, text)
		} else {
			replies[i] = k.blocked(cmd, actuate.ReasonGroup, "nothing is written: "+o.text)
		}
		k.mu.Unlock()
		answered[i] = true
	}
}

// rollBack undoes what was written for a control of efficiency when one of its
// devices failed.
func rollBack(cmds []actuate.Command, replies []actuate.Reply, changes []*change) {
	failed := map[group]string{}
	for i, cmd := range cmds {
		if cmd.Op == actuate.OpSet && cmd.Purpose != actuate.PurposeProtect && replies[i].Result == actuate.Error && failed[groupOf(cmd)] == "" {
			failed[groupOf(cmd)] = cmd.Device + " failed: " + replies[i].Message
		}
	}
	var all sync.WaitGroup
	for i, cmd := range cmds {
		why := failed[groupOf(cmd)]
		if why == "" || changes[i] == nil {
			continue
		}
		all.Go(func() {
			changes[i].undo()
			k := changes[i].knob
			k.mu.Lock()
			defer k.mu.Unlock()
			replies[i] = k.failed(cmd, actuate.ReasonRolledBack, why)
		})
	}
	all.Wait()
}

// group is what the devices of one control have in common.
type group struct{ control, key string }

func groupOf(cmd actuate.Command) group { return group{cmd.Control, cmd.Key} }

// counter counts what should not happen and logs the first of it.
type counter struct{ n atomic.Uint64 }

func (c *counter) note(log interface{ Warn(string, ...any) }, what string, args ...any) {
	if c.n.Add(1) == 1 {
		log.Warn("engine: "+what+"; further ones are counted only", args...)
	}
}
