package actuate

import (
	"math"
	"slices"
)

const (
	flapWindow = 5 * 60_000  // milliseconds in which reversals are counted
	flapLatch  = 10 * 60_000 // and for which the control is latched after too many
)

var flapping = verdict{Blocked, ReasonFlapping, "too many reversals within 5 min: latched for 10 min"}

// turn is one reversal of a device's direction, and the tighter of the two
// values that it went between.
type turn struct {
	at  int64
	low float64
}

// recent drops the turns that no longer count.
func (c *claim) recent(now int64) []turn {
	c.turns = slices.DeleteFunc(c.turns, func(t turn) bool { return now-t.at > flapWindow })
	return c.turns
}

// remembered says whether the claim has a say in later steps though its
// control is not engaged.
func (c *claim) remembered(now int64) bool { return now < c.latched || len(c.recent(now)) > 0 }

// stuck says whether the claim outlives its control: protection is latched at
// a value, efficiency at none.
func (c *claim) stuck(now int64) bool {
	return now < c.latched && c.intent.Purpose == PurposeProtect
}

// flaps says whether the move would be one reversal too many. Then the control
// that keeps turning the device is latched on all its devices, and the move
// must be planned anew. Down it is the control that lowers; up, the one that
// lets go.
func (k *knob) flaps(m *move) bool {
	delta := m.next - k.cur
	if delta == 0 || k.inside(delta) {
		return false
	}
	m.heading, m.from, m.turner = math.Copysign(1, delta), k.heading, m.bid.claim
	if holder := k.claims[k.owner()]; delta > 0 && holder != nil {
		m.turner = holder
	}
	m.turns = k.heading != 0 && k.heading != m.heading
	c := m.turner
	if !m.turns || m.bid.kind == Restore || k.now < c.latched || k.pace.Reversals == 0 || len(c.recent(k.now)) < k.pace.Reversals {
		return false
	}
	for _, b := range k.bids {
		if b.claim == c {
			b.group.each((*bid).jam)
		}
	}
	return true
}

// jam latches the control on this device, at the lowest of the values that it
// turned at and of the one wanted now.
func (b *bid) jam() {
	c := b.claim
	if c == nil {
		return
	}
	c.latched, c.latchAt = b.knob.now+flapLatch, c.want
	for _, t := range c.turns {
		c.latchAt = min(c.latchAt, t.low)
	}
	c.turns = nil
	b.latch()
}

// latch does what a latched control may do: protection stays at its lowest or
// below, efficiency gives the original back.
func (b *bid) latch() {
	c, in := b.claim, b.intent()
	if c == nil || b.knob.now >= c.latched || in.Mode != ModeEnforce || in.Kind == Restore || b.knob.gone {
		return
	}
	switch {
	case b.protects() && in.Kind == Release:
		b.kind, b.want, b.verdict = Set, b.knob.clamp(c.latchAt), flapping
	case b.protects() && b.kind == Set:
		b.want, b.verdict = min(b.want, b.knob.clamp(c.latchAt)), flapping
	case b.protects() && b.competes():
		b.verdict = flapping
	case b.protects() || !b.competes():
	case b.owns():
		c.engaged, c.written = false, false
		b.kind, b.verdict = Release, flapping
	default:
		b.rest(flapping)
	}
}
