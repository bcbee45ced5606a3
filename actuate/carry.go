package actuate

import (
	"context"
	"fmt"
	"slices"
)

// retryAfter is how many milliseconds an efficiency control waits after a
// write that failed. Protection tries again in the next step.
const retryAfter = 10_000

// unhold ends what the warden holds without a lease for a control that has
// input again, where another control has the device or takes it now: else that
// cap would bind the other for ever. Giving it back would raise a device that
// it governs, so there it gets a lease, which ends when the other has its own.
func (g *Governor) unhold(ctx context.Context, knobs []*knob) {
	var cmds []Command
	var claims []*claim
	for _, k := range knobs {
		for _, b := range k.bids {
			if b.claim == nil || !b.claim.held || b.group.ghost || b.kind == Hold || k.gone {
				continue
			}
			op := OpRelease
			if b.owns() {
				if k.winner == b || k.winner == nil || k.move == nil || k.move.cmd.Op != OpSet {
					continue
				}
				op = OpRenew
			}
			cmds, claims = append(cmds, g.number(k.command(b.intent(), op))), append(claims, b.claim)
		}
	}
	answer := g.do(ctx, cmds)
	for i, c := range claims {
		c.held = c.held && answer(cmds[i]).Result == Error
	}
}

// carryOut sends the moves in one batch and takes what became of them.
func (g *Governor) carryOut(ctx context.Context, knobs []*knob) {
	var cmds []Command
	var moves []*move
	for _, k := range knobs {
		m := k.move
		if m == nil {
			continue
		}
		if m.verdict.given() && !m.bid.verdict.given() {
			m.bid.verdict = m.verdict
		}
		if m.cmd.Op != "" {
			m.bid.move = m
			cmds, moves = append(cmds, g.number(m.cmd)), append(moves, m)
		}
	}
	answer := g.do(ctx, cmds)
	for i, m := range moves {
		m.settle(answer(cmds[i]))
	}
}

func (g *Governor) number(c Command) Command {
	g.seq++
	c.Seq = g.seq
	return c
}

// do sends commands and answers with the reply to each.
func (g *Governor) do(ctx context.Context, cmds []Command) func(Command) Reply {
	if len(cmds) == 0 {
		return nil
	}
	replies, err := g.Link.Do(ctx, cmds)
	message := "no answer to the command"
	if err != nil {
		message = err.Error()
	}
	bySeq := make(map[uint64]Reply, len(replies))
	for _, r := range replies {
		bySeq[r.Seq] = r
	}
	return func(c Command) Reply {
		if r, ok := bySeq[c.Seq]; ok {
			return r
		}
		return Reply{Result: Error, Reason: ReasonLink, Message: message}
	}
}

// took says whether a set reached the hardware and was read back.
func (m *move) took() bool { return m.cmd.Op == OpSet && m.reply.Result == Applied }

// settle words the outcome of the move and remembers what a write did.
func (m *move) settle(r Reply) {
	b, o, k := m.bid, &m.bid.out, m.bid.knob
	m.reply = k.proven(m.cmd.Op, r)
	o.Result, o.Reason, o.Message, o.Clamped = m.reply.Result, m.reply.Reason, m.reply.Message, m.reply.Clamped
	if r.Applied != 0 || r.Result == Applied {
		o.Applied = r.Applied
	}
	switch m.reply.Result {
	case Applied:
		m.remember()
		if b.verdict.given() {
			b.say(b.verdict)
			break
		}
		o.Granted = r.Granted
		if m.cmd.Op == OpRelease {
			o.Granted = r.Applied
		}
		if o.Reason == "" || o.Reason == ReasonUnchanged {
			o.Reason = m.reason
		}
	case Error:
		m.failed()
	}
	o.Ended = m.cmd.Op == OpRelease && (r.Result == Applied || r.Result == None)
}

func (b *bid) say(v verdict) {
	b.out.Result, b.out.Reason, b.out.Message = v.result, v.reason, v.message
}

// proven lets only a read-back make a reply an applied one: equal to the value
// granted, or tighter and said to be clamped.
func (k *knob) proven(op string, r Reply) Reply {
	looser := k.sign * (r.Applied - r.Granted)
	switch {
	case !slices.Contains([]string{Applied, Blocked, Error, None}, r.Result):
		r.Message = fmt.Sprintf("the unknown result %q", r.Result)
		r.Result, r.Reason = Error, ReasonLink
	case r.Result != Applied || op == OpRelease:
	case looser > k.state.Tolerance, -looser > k.state.Tolerance && !r.Clamped:
		r.Message = fmt.Sprintf("want %s %s, reads %s", decimal(r.Granted), k.state.Unit, decimal(r.Applied))
		r.Result, r.Reason = Error, ReasonReadBack
	}
	return r
}

// remember takes a write that was applied into the device's and the control's
// memory.
func (m *move) remember() {
	if m.cmd.Op != OpSet && m.cmd.Op != OpRelease {
		return
	}
	b, k, c := m.bid, m.bid.knob, m.bid.claim
	b.out.Wrote = m.reply.Reason != ReasonUnchanged
	k.wroteAt, k.retryAt = k.now, never
	k.ramp.take(k.now, m.every, m.next-k.cur)
	if m.emergency {
		k.emergency = k.now
	}
	if m.turns {
		m.turner.turns = append(m.turner.turns, turn{k.now, min(k.cur, m.next)})
	}
	if m.heading != 0 {
		k.heading = m.heading
	}
	c.written = m.cmd.Op == OpSet
}

// failed remembers a write that was not applied. The value on the device may
// have changed all the same, so the interval counts from here too.
func (m *move) failed() {
	if m.cmd.Op != OpSet {
		return
	}
	k := m.bid.knob
	k.wroteAt = k.now
	k.retryAt, k.failure = k.now+retryAfter, verdict{Error, m.reply.Reason, m.reply.Message}
}
