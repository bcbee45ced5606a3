package actuate

// emergencyEvery is the least time in milliseconds between two emergency
// lowerings of a device.
const emergencyEvery = 60_000

// move is what a device is asked for in one step.
type move struct {
	bid    *bid
	cmd    Command // without an Op nothing is sent
	next   float64 // of a set, in the knob's scale
	every  int64   // the period that its slew counts in
	reason string  // of the outcome, where the command is applied
	// verdict stands in the way of the bid itself: what is sent keeps another
	// control's value alive.
	verdict   verdict
	emergency bool
	heading   float64 // its sign where it leaves the dead band; the device's before was from
	from      float64
	turner    *claim // whose reversal it is, where turns says that it is one
	turns     bool
	reply     Reply
}

// plan settles the move of each device. A control that turns out to be
// flapping is latched, and all is planned again.
func plan(knobs []*knob) {
	for again := true; again; {
		again = false
		for _, k := range knobs {
			k.move = k.decide()
			if m := k.move; m != nil && (m.cmd.Op == OpSet || m.cmd.Op == OpRelease) && k.flaps(m) {
				again = true
			}
		}
	}
}

// decide picks who has the device and what is asked of it.
func (k *knob) decide() *move {
	k.winner = nil
	var ending *bid
	for _, b := range k.bids {
		switch {
		case b.competes() && b.beats(k.winner):
			k.winner = b
		case !b.competes() && b.kind != "":
			ending = b
		}
	}
	switch {
	case k.winner != nil:
		return k.bring(k.winner)
	case ending != nil:
		return k.giveBack(ending)
	}
	return nil
}

// bring moves the device to what b wants, as fast as it may.
func (k *knob) bring(b *bid) *move {
	in, goal := b.intent(), b.want
	if in.Partial {
		goal = min(goal, k.cur)
	}
	goal = k.clamp(goal)
	s := k.stride(in.Slew)
	m := &move{bid: b, next: k.next(goal, s), every: s.every}
	if b.kind == Set && b.protects() && !b.claim.written && goal < k.cur && k.now-k.emergency >= emergencyEvery {
		m.next, m.emergency = goal, true
	}
	switch {
	case b.owns() && b.group.ghost: // its lease is not ours to renew
		return nil
	case b.owns() && b.kind == Hold:
		return m.send(in, OpHold, ReasonHolding)
	case b.owns() && (b.kind == Keep || k.inside(goal-k.cur)):
		return m.send(in, OpRenew, ReasonUnchanged)
	case b.owns() && (m.next == k.cur || k.resting() && !m.emergency):
		return m.send(in, OpRenew, ReasonRamping)
	case in.Partial && m.next > k.cur:
		m.verdict = verdict{Blocked, ReasonOutOfRange, "it stands below its limits, and partial input raises nothing"}
		return m
	case k.resting() && !m.emergency:
		return m.wait()
	case m.next != goal:
		return m.send(in, OpSet, ReasonRamping)
	}
	return m.send(in, OpSet, "")
}

// wait leaves the device as it is until it may be written again; the lease of
// the control that gives way is renewed so long.
func (m *move) wait() *move {
	k := m.bid.knob
	m.verdict = verdict{Blocked, ReasonRateLimit, "the device was written less than " + k.pace.MinInterval.String() + " ago"}
	if c := k.claims[k.owner()]; c != nil && !c.ghost && !c.held {
		return m.send(&c.intent, OpRenew, "")
	}
	return m
}

// giveBack raises the device to its original by the slew, and then has the
// original restored exactly.
func (k *knob) giveBack(b *bid) *move {
	in, goal := b.intent(), k.clamp(k.orig)
	s := k.stride(in.Slew)
	m := &move{bid: b, next: k.next(goal, s), every: s.every}
	switch {
	case b.kind != Restore && (k.resting() || m.next == k.clamp(k.cur) && m.next != goal):
		return m.send(in, OpRenew, ReasonRamping)
	case b.kind == Restore || m.next == goal:
		m.next = k.orig
		return m.send(in, OpRelease, ReasonRestored)
	}
	return m.send(in, OpSet, ReasonRamping)
}

// send makes the move's command, in the name of in.
func (m *move) send(in *Intent, op, reason string) *move {
	m.cmd, m.reason = m.bid.knob.command(in, op), reason
	if op == OpSet {
		m.cmd.Value = m.bid.knob.units(m.next)
	}
	return m
}

func (k *knob) command(in *Intent, op string) Command {
	return Command{
		Op: op, Device: k.state.ID, Control: in.Control, Key: in.Key, Purpose: in.Purpose, OnStop: in.OnStop,
		Strict: in.Purpose == PurposeProtect, TTLMillis: in.TTL.Milliseconds(), SafeCap: in.SafeCap,
	}
}
