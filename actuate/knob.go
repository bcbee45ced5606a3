package actuate

import (
	"math"
	"slices"
	"strconv"
	"time"
)

// never is before any step.
const never = math.MinInt64 / 2

// owner names whose value is on a device.
type owner struct{ control, key string }

func (in *Intent) owner() owner { return owner{in.Control, in.Key} }

// knob is a device with what the governor remembers of it. Its numbers lie on
// a scale where smaller is tighter, whatever the action: a cap as it is, a
// throttle negated.
type knob struct {
	pace  Pace
	now   int64
	state DeviceState // as the link told it last
	gone  bool
	sign  float64
	// unsure says that an earlier engine has left something on the device. Under
	// the owner's value the warden may then hold others, which no state shows.
	unsure bool

	cur, orig, low, high float64

	claims map[owner]*claim
	bids   []*bid // of this step
	winner *bid   // whose value the device is brought to; nil when nobody wants one
	move   *move  // what is asked of the device; nil for nothing

	ramp      ramp
	wroteAt   int64
	heading   float64 // sign of the last move beyond the dead band
	emergency int64   // the last emergency lowering
	retryAt   int64   // after a failed write: when the next may be tried
	failure   verdict // and what failed
}

// claim is what one control holds of one device, or has held lately.
type claim struct {
	intent  Intent // the last one
	named   bool   // by an intent of this step
	engaged bool   // wants a value, whether it wins or not
	written bool   // since it engaged: the emergency lowering is spent
	ghost   bool   // found on the device, and no step has named it yet
	held    bool   // the warden holds its value without a lease
	want    float64
	turns   []turn
	latched int64 // flapping, until then
	latchAt float64
}

func newKnob(p Pace, now int64) *knob {
	return &knob{
		pace: p, claims: map[owner]*claim{}, ramp: ramp{since: never, seen: now},
		wroteAt: never, emergency: never, retryAt: never,
	}
}

// begin starts a step. The device counts as gone until load.
func (k *knob) begin(now int64) {
	k.now, k.gone, k.bids = now, true, nil
	for _, c := range k.claims {
		c.named = false
	}
}

func (k *knob) load(s DeviceState) {
	k.unsure = s.Owner != "" && (k.unsure || k.state.ID == "")
	k.state, k.gone, k.sign = s, s.State == StateGone, 1
	if s.Action == ActionThrottle {
		k.sign = -1
	}
	k.cur, k.orig = k.sign*s.Current, k.sign*s.Original
	if s.Owner != "" && math.Abs(s.Current-s.Granted) <= s.Tolerance {
		k.cur = k.sign * s.Granted // a read-back is rounded; steps go from value to value
	}
	k.low, k.high = math.Inf(-1), math.Inf(1)
	if s.Low != 0 || s.High != 0 {
		k.low, k.high = min(k.sign*s.Low, k.sign*s.High), max(k.sign*s.Low, k.sign*s.High)
		if s.Low > s.High {
			k.low, k.high = k.high, k.low
		}
	}
	if s.Owner == "" {
		k.ramp.seen = k.now // time in which nobody held the device gives no room
	}
	k.adopt()
}

// adopt counts a protection control's cap that an earlier engine left on the
// device as wanted, until its control is heard of or the cap is given back. An
// efficiency control's leftover has no such say: the next control starts from
// where it stands, or its lease runs out.
func (k *knob) adopt() {
	for o, c := range k.claims {
		if c.ghost && (k.state.Owner == "" || k.state.Latched) {
			delete(k.claims, o)
		}
	}
	o, s := k.owner(), k.state
	if s.Owner == "" || s.Purpose != PurposeProtect {
		return
	}
	if k.claims[o] == nil {
		k.claim(&Intent{
			Control: s.Owner, Key: s.Key, Action: s.Action, Kind: Hold, Mode: ModeEnforce, Purpose: s.Purpose,
			SafeCap: s.SafeCap, OnStop: s.OnStop, TTL: time.Duration(s.LeaseMillis) * time.Millisecond,
		}).ghost = true
	}
	k.claims[o].held = s.State == StateHolding || s.State == StateSafe
}

// claim is the claim of in's control; a new one knows what the device holds of
// it, or may hold.
func (k *knob) claim(in *Intent) *claim {
	o := in.owner()
	c := k.claims[o]
	if c == nil {
		owns := k.holds(o)
		c = &claim{engaged: owns, written: owns, want: k.cur, latched: never}
		c.held = k.unsure && !owns && in.Purpose == PurposeProtect
		k.claims[o] = c
	}
	c.intent = *in
	return c
}

func (k *knob) owner() owner { return owner{k.state.Owner, k.state.Key} }

// holds says whether the value on the device is o's.
func (k *knob) holds(o owner) bool { return !k.gone && k.owner() == o }

// returning says whether the warden is giving the original back, and may be
// trying in vain.
func (k *knob) returning() bool {
	return k.state.State == StateRestoring || k.state.State == StateRestoreFailed
}

func (k *knob) clamp(v float64) float64 { return min(max(v, k.low), k.high) }

// units is a value of the knob's scale in the device's unit.
func (k *knob) units(v float64) float64 { return k.sign*v + 0 } // + 0: no -0

// text is a value as a message shows it.
func (k *knob) text(v float64) string { return decimal(k.units(v)) + " " + k.state.Unit }

func decimal(v float64) string {
	return strconv.FormatFloat(math.Round(v*1000)/1000, 'f', -1, 64)
}

// unfit says why no value can be set on the device now, if so.
func (k *knob) unfit() verdict {
	s := k.state
	switch {
	case !s.Writable:
		return verdict{Blocked, ReasonNotWritable, s.Description.Reason}
	case !s.Enabled:
		return verdict{Blocked, ReasonDisabled, "actuation.enabled is not true in the warden's file"}
	case s.Latched:
		return verdict{Blocked, ReasonLatched, "given back by wattloop caps restore, until wattloop caps resume"}
	case s.Reason == ReasonReadFailed, s.Reason == ReasonJournal, s.Reason == ReasonRestoreFailed:
		return verdict{Error, s.Reason, ""}
	case slices.Contains(standing, s.Reason):
		return verdict{Blocked, s.Reason, ""}
	case k.low > k.high:
		return verdict{Blocked, ReasonOutOfRange, "the limits of the device leave no value"}
	}
	return verdict{}
}

// standing are the reasons of a device that block any value. Somebody else's
// value on it is none of them: there the warden is asked, and the other devices
// of the control do not wait.
var standing = []string{ReasonObserving, ReasonNotSaved, ReasonShuttingDown, ReasonOutOfRange}
