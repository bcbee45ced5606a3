package actuate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// verdict is a word that is not taken from a reply. The zero verdict is none.
type verdict struct{ result, reason, message string }

func (v verdict) given() bool { return v.result != "" }

// group is one intent with the devices that it matches.
type group struct {
	intent Intent
	bids   []*bid
	ghost  bool // made from what is on a device: nobody hears of it
	out    Outcome
}

// gather makes a group of each intent, and of each control that has left
// something on a device and is no longer asked for.
func gather(ts int64, knobs []*knob, intents []Intent) []*group {
	var groups []*group
	for _, in := range intents {
		gr := newGroup(in, ts)
		for _, k := range knobs {
			if in.Action == k.state.Action && matches(in.Target, k.state.Labels) {
				gr.add(k)
			}
		}
		groups = append(groups, gr)
	}
	absent := map[owner]*group{}
	for _, k := range knobs {
		for o, c := range k.claims {
			if c.named || !c.engaged && !c.held && !k.holds(o) && !c.stuck(k.now) {
				continue
			}
			if absent[o] == nil {
				in := c.intent
				if !c.ghost {
					in.Kind, in.Partial = Release, false
				}
				absent[o] = newGroup(in, ts)
				absent[o].ghost = c.ghost
			}
			absent[o].add(k)
		}
	}
	for _, o := range slices.SortedFunc(maps.Keys(absent), compareOwners) {
		groups = append(groups, absent[o])
	}
	return groups
}

func compareOwners(a, b owner) int {
	return cmp.Or(strings.Compare(a.control, b.control), strings.Compare(a.key, b.key))
}

func ending(k Kind) bool { return k == Release || k == Restore }

// matches says whether labels has all that target asks for.
func matches(target, labels map[string]string) bool {
	for name, want := range target {
		if got, ok := labels[name]; !ok || got != want {
			return false
		}
	}
	return true
}

func newGroup(in Intent, ts int64) *group {
	gr := &group{intent: in, out: Outcome{
		Control: in.Control, Key: in.Key, Action: in.Action, Desired: in.Value, TS: ts,
		Result: Blocked, Reason: ReasonNoDevice, Ended: true,
		Message: fmt.Sprintf("no device answers %s with the labels %v", in.Action, in.Target),
	}}
	if !finite(in.Value) {
		gr.out.Desired = 0 // it is in the message; JSON has no word for it
	}
	return gr
}

func (gr *group) add(k *knob) {
	o := gr.intent.owner()
	b := &bid{group: gr, knob: k, kind: gr.intent.Kind, claim: k.claims[o], out: gr.out}
	b.out.Device, b.out.Name = k.state.ID, k.state.Name
	b.out.Granted, b.out.Applied = k.state.Current, k.state.Current
	b.out.Result, b.out.Reason, b.out.Message, b.out.Ended = None, ReasonNotEngaged, "", false
	if b.claim != nil || k.holds(o) || k.unsure && !k.gone {
		b.claim = k.claim(&gr.intent)
		b.claim.named, b.claim.ghost = true, gr.ghost
	}
	k.bids = append(k.bids, b)
	gr.bids = append(gr.bids, b)
}

// preflight settles what each device of the group is asked for, and what the
// group as a whole may not do.
func (gr *group) preflight(allowPartial bool) {
	in := &gr.intent
	switch v := in.fault(); {
	case v.given():
		gr.stop(v)
	case in.Kind == Restore, in.Kind == Release && !in.Partial:
		gr.each((*bid).end)
	case in.Mode != ModeEnforce:
		gr.each((*bid).observe)
	default:
		gr.each((*bid).engage)
		gr.each((*bid).face)
		if in.Kind == Set {
			gr.together(allowPartial)
		}
	}
	gr.each((*bid).latch)
}

func (gr *group) each(f func(*bid)) {
	for _, b := range gr.bids {
		f(b)
	}
}

func (gr *group) stop(v verdict) {
	gr.each(func(b *bid) { b.stay(v) })
}

// fault says what is wrong with an intent that no device can put right.
func (in *Intent) fault() verdict {
	switch in.Kind {
	case Keep, Hold, Release, Restore:
		return verdict{}
	case Set:
	default:
		return verdict{Error, ReasonBadCommand, fmt.Sprintf("an intent of the unknown kind %q", in.Kind)}
	}
	switch {
	case !finite(in.Value) || in.Value < 0:
		return verdict{Error, ReasonBadCommand, fmt.Sprintf("the value %g cannot be set", in.Value)}
	case in.Action == ActionThrottle && in.Value > 100: // S0-16
		return verdict{Blocked, ReasonOutOfRange, fmt.Sprintf("a throttle of %g %%: want 0 to 100", in.Value)}
	}
	return verdict{}
}

// together holds the group to all or nothing: where one device cannot be
// written, none is (but what is held stays held). A device that is gone does
// not count.
func (gr *group) together(allowPartial bool) {
	for _, v := range []verdict{gr.tooLow(), gr.outside()} {
		if v.given() {
			gr.stop(v)
			return
		}
	}
	i := slices.IndexFunc(gr.bids, func(b *bid) bool { return b.verdict.given() && !b.knob.gone })
	if i < 0 || allowPartial {
		return
	}
	v := gr.bids[i].because(gr.bids[i].verdict)
	for _, b := range gr.bids {
		if !b.verdict.given() {
			b.stay(v)
		}
	}
}

// tooLow refuses one cap for several GPUs where it is below the minimum of one
// (decisions.md X12). Above a maximum, and on a CPU, it is clamped.
func (gr *group) tooLow() verdict {
	var ranges []string
	refused := false
	for _, b := range gr.bids {
		d := b.knob.state.Description
		ranges = append(ranges, fmt.Sprintf("%s takes %s to %s %s", d.Name, decimal(d.Min), decimal(d.Max), d.Unit))
		refused = refused || gr.intent.Value < d.Min
	}
	if gr.intent.Action != ActionGPUCap || !refused {
		return verdict{}
	}
	return verdict{Blocked, ReasonOutOfRange,
		fmt.Sprintf("%s is below a minimum: %s", decimal(gr.intent.Value), strings.Join(ranges, ", "))}
}

// outside refuses a value beyond the limits of a device whose owner wants it
// blocked and not clamped.
func (gr *group) outside() verdict {
	if gr.intent.Kind != Set {
		return verdict{}
	}
	for _, b := range gr.bids {
		d := b.knob.state
		if v := gr.intent.Value; d.Rejects && (v < d.Low || v > d.High) {
			return verdict{Blocked, ReasonOutOfRange,
				fmt.Sprintf("%s is outside of %s to %s %s, which %s takes", decimal(v), decimal(d.Low), decimal(d.High), d.Unit, d.Name)}
		}
	}
	return verdict{}
}

// outcomes lists what became of each bid.
func outcomes(groups []*group) []Outcome {
	var out []Outcome
	for _, gr := range groups {
		switch {
		case gr.ghost:
		case len(gr.bids) == 0:
			out = append(out, gr.out)
		default:
			gr.each(func(b *bid) { out = append(out, b.outcome()) })
		}
	}
	return out
}
