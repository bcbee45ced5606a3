package actuate

import "context"

// rollBack holds an efficiency control to all or nothing where one of its
// writes was not applied: those that were go back to the value before.
// Protection keeps what it has lowered, and tries the rest again.
func (g *Governor) rollBack(ctx context.Context, groups []*group) {
	var cmds []Command
	var undone []*bid
	for _, gr := range groups {
		bad := gr.broken()
		if bad == nil {
			continue
		}
		why := bad.because(verdict{bad.out.Result, bad.out.Reason, bad.out.Message})
		for _, b := range gr.bids {
			switch {
			case b.move != nil && b.move.took():
				cmds, undone = append(cmds, g.number(b.undo())), append(undone, b)
				b.say(verdict{Error, ReasonRolledBack, why.message})
				// Until then the group would be written and rolled back in every step.
				bad.knob.retryAt = bad.knob.now + retryAfter
				bad.knob.failure = verdict{bad.out.Result, bad.out.Reason, bad.out.Message}
			case b.out.Result == Applied:
				b.say(why)
			}
		}
	}
	answer := g.do(ctx, cmds)
	for i, b := range undone {
		b.revert(answer(cmds[i]))
	}
}

// broken is the bid that keeps its group from being applied as a whole, if
// any. A device that somebody else holds does not, nor do those that the warden
// has left alone or put back because of another.
func (gr *group) broken() *bid {
	if gr.intent.Kind != Set || gr.intent.Purpose == PurposeProtect {
		return nil
	}
	for _, b := range gr.bids {
		if b.move == nil || b.move.cmd.Op != OpSet || b.move.took() {
			continue
		}
		switch b.move.reply.Reason {
		case ReasonExternalLower, ReasonContested, ReasonOverridden, ReasonGroup, ReasonRolledBack:
		default:
			return b
		}
	}
	return nil
}

// undo is the command that puts the device back to how the step found it.
func (b *bid) undo() Command {
	k := b.knob
	before := k.claims[k.owner()]
	if before == nil {
		return k.command(b.intent(), OpRelease)
	}
	c := k.command(&before.intent, OpSet)
	c.Value = k.units(k.clamp(k.cur))
	return c
}

// revert takes back what the move has left in the memory.
func (b *bid) revert(r Reply) {
	m, k := b.move, b.knob
	m.reply = r
	m.reply.Result = Error // the move did not take
	if r.Result == Applied {
		b.out.Granted, b.out.Applied = r.Granted, r.Applied
	} else {
		b.out.Reason, b.out.Message = r.Reason, "roll back: "+r.Message
	}
	if m.heading != 0 {
		k.heading = m.from
	}
	if m.turns {
		m.turner.turns = m.turner.turns[:len(m.turner.turns)-1]
	}
	b.claim.written = b.owns()
}
