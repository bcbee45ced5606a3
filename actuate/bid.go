package actuate

import "fmt"

// bid is what one intent wants of one device.
type bid struct {
	group *group
	knob  *knob
	claim *claim // nil while the control has nothing to do with the device
	// kind is what is asked of this device, "" for nothing. Set, Keep and Hold
	// compete for it by want, which lies within the device's limits.
	kind    Kind
	want    float64
	clamped bool
	move    *move // what was sent for it
	verdict verdict
	out     Outcome
}

func (b *bid) intent() *Intent { return &b.group.intent }
func (b *bid) owns() bool      { return b.knob.holds(b.intent().owner()) }
func (b *bid) competes() bool  { return b.kind == Set || b.kind == Keep || b.kind == Hold }
func (b *bid) protects() bool  { return b.intent().Purpose == PurposeProtect }

// engage has the bid compete for the device.
func (b *bid) engage() {
	k, in := b.knob, b.intent()
	if k.gone { // the control's claim goes on, so that the loss is told until it ends
		b.kind, b.out.Ended, b.verdict = "", true, verdict{Error, ReasonGone, "the device is no longer there"}
		return
	}
	if b.kind == Release {
		b.kind = Keep // partial input never ends a cap
	}
	if b.kind == Set {
		if b.claim == nil {
			b.claim = k.claim(in)
			b.claim.named = true
		}
		b.claim.engaged = true
		b.want = k.clamp(k.sign * in.Value)
		b.clamped = b.want != k.sign*in.Value
		if in.Partial && b.owns() {
			b.want = min(b.want, k.cur)
		}
		b.claim.want = b.want
		return
	}
	switch {
	case b.claim == nil || !b.claim.engaged:
		b.rest(verdict{})
	case b.owns():
		b.want, b.claim.want = k.cur, k.cur
	default:
		b.want = k.clamp(b.claim.want)
	}
}

// face puts the bid before what stands in the way of a write. Renewing what
// stands is none.
func (b *bid) face() {
	k := b.knob
	if !b.competes() || b.kind != Set && b.owns() {
		return
	}
	v := k.unfit()
	switch {
	case v.given():
	case b.protects():
	case k.now < b.claim.latched:
		v = flapping
	case k.now < k.retryAt:
		v = k.failure
	}
	if v.given() {
		b.stay(v)
	}
}

// stay keeps what the control holds on the device, if anything, and asks for
// nothing new.
func (b *bid) stay(v verdict) {
	if !b.owns() {
		b.rest(v)
		return
	}
	b.verdict, b.claim.engaged = v, true
	if b.kind != Hold { // whose lease must not be renewed
		b.kind = Keep
	}
	b.want = b.knob.cur
}

// rest asks for nothing.
func (b *bid) rest(v verdict) {
	b.kind, b.verdict = "", v
	b.out.Ended = !b.owns()
	if b.claim != nil {
		b.claim.engaged = false
	}
}

// end gives back what the control holds.
func (b *bid) end() {
	if c := b.claim; c != nil {
		c.engaged, c.written = false, false
		if b.kind == Restore && b.protects() {
			c.latched = never
		}
	}
	if b.owns() {
		return
	}
	b.rest(b.verdict)
	if b.knob.returning() && !b.knob.gone {
		b.out.Ended = false
		if b.knob.state.State == StateRestoreFailed && !b.verdict.given() {
			b.verdict = verdict{Error, ReasonRestoreFailed, "the original could not be given back yet; the warden goes on trying"}
		}
	}
}

// observe says what would be written, and gives back what an earlier mode has
// left on the device.
func (b *bid) observe() {
	k, in := b.knob, b.intent()
	b.verdict = verdict{Blocked, ReasonObserve, ""}
	if b.kind == Set {
		want := k.clamp(k.sign * in.Value)
		b.clamped = want != k.sign*in.Value
		if in.Partial {
			want = min(want, k.cur)
		}
		b.out.Granted = k.units(k.next(want, k.stride(in.Slew)))
	}
	b.kind = Release
	b.end()
}

// because is the verdict on the other devices of the group.
func (b *bid) because(v verdict) verdict {
	text := b.out.Name + ": " + v.reason
	if v.message != "" {
		text += ": " + v.message
	}
	return verdict{Blocked, ReasonGroup, text}
}

// beats says whether b wins the device over o: the tightest does. Among equals
// the present owner spares a change of hands, and protection outlives the
// engine.
func (b *bid) beats(o *bid) bool {
	switch {
	case o == nil || b.want != o.want:
		return o == nil || b.want < o.want
	case b.owns() != o.owns():
		return b.owns()
	}
	return b.protects() && !o.protects()
}

// outcome puts the bid into its final words.
func (b *bid) outcome() Outcome {
	o, win := b.out, b.knob.winner
	switch {
	case b.move != nil: // worded when the reply came
	case b.verdict.given():
		o.Result, o.Reason, o.Message = b.verdict.result, b.verdict.reason, b.verdict.message
	case b.competes() && b != win:
		o.Granted, o.Applied = win.out.Granted, win.out.Applied
		o.Result, o.Reason = Blocked, ReasonOverridden
		o.Message = fmt.Sprintf("%s%s wants %s", win.out.Control, win.out.Key, b.knob.text(win.want))
	case ending(b.kind):
		o.Ended = win != nil && win.move != nil && win.move.took()
	}
	if o.Result == Applied || o.Reason == ReasonObserve {
		o.Clamped = o.Clamped || b.clamped
	}
	return o
}
