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
	obstacles := w.preflight(cmds, answered)
	byDevice := map[string][]int{}
	for i, cmd := range cmds {
		if o, ok := obstacles[groupOf(cmd)]; ok && !answered[i] && cmd.Op == actuate.OpSet && o.device != cmd.Device && !w.opt.Partial {
			replies[i], answered[i] = w.byID[cmd.Device].standAside(cmd, o), true
		}
		if !answered[i] {
			byDevice[cmd.Device] = append(byDevice[cmd.Device], i)
		}
	}
	var all sync.WaitGroup
	for id, turns := range byDevice {
		k := w.byID[id]
		all.Go(func() {
			for n, i := range turns {
				replies[i], changes[i] = k.carry(cmds[i], n == 0)
			}
		})
	}
	all.Wait()
	if !w.opt.Partial {
		rollBack(cmds, replies, changes)
	}
	return replies
}

// carry is one command of one device. A set that follows another command of
// the same message finds a device that was not examined since.
func (k *knob) carry(cmd actuate.Command, examined bool) (actuate.Reply, *change) {
	switch cmd.Op {
	case actuate.OpSet:
		if !examined {
			k.examine(cmd)
		}
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
	case cmd.OnStop != "" && cmd.OnStop != onStopHold && cmd.OnStop != "restore":
		return "on_stop: want hold or restore"
	case cmd.Purpose == actuate.PurposeProtect && !(finite(cmd.SafeCap) && cmd.SafeCap > 0):
		return "safe_cap: protection needs one"
	}
	return ""
}

// obstacle is a device that keeps the others of its control from being set.
type obstacle struct{ device, text string }

// preflight examines every device that is to be set, all at the same time, and
// returns for each control the first that cannot be set at all. One that
// somebody else holds lower, or keeps raising, is no obstacle: what is left to
// set is still worth setting.
func (w *warden) preflight(cmds []actuate.Command, answered []bool) map[group]obstacle {
	reasons, texts := make([]string, len(cmds)), make([]string, len(cmds))
	var all sync.WaitGroup
	for i, cmd := range cmds {
		if !answered[i] && cmd.Op == actuate.OpSet {
			all.Go(func() { reasons[i], texts[i] = w.byID[cmd.Device].examine(cmd) })
		}
	}
	all.Wait()
	obstacles := map[group]obstacle{}
	for i, cmd := range cmds {
		switch reasons[i] {
		case "", actuate.ReasonExternalLower, actuate.ReasonContested, actuate.ReasonOverridden:
			continue
		}
		if _, have := obstacles[groupOf(cmd)]; !have {
			obstacles[groupOf(cmd)] = obstacle{cmd.Device, texts[i]}
		}
	}
	return obstacles
}

// standAside answers a set that is not carried out because of another device.
func (k *knob) standAside(cmd actuate.Command, o obstacle) actuate.Reply {
	k.mu.Lock()
	defer k.mu.Unlock()
	if reason, text := k.refusal(cmd); reason != "" {
		return k.blocked(cmd, reason, text)
	}
	return k.blocked(cmd, actuate.ReasonGroup, "nothing is written: "+o.text)
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
