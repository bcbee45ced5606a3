package warden

import (
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wattloop/wattloop/actuate"
)

// books is what the knobs of one warden share.
type books struct {
	opt     *Options
	boot    string
	journal *journal
	intents intents
	latch   *latch
	closing atomic.Bool // everything is being given back, for good
}

// knob is one device in the warden's hand, with all that is known of it. Every
// method that touches the device holds mu, for seconds when the device is slow;
// what others may want to know is published beside it.
type knob struct {
	*books
	dev  actuate.Device
	desc actuate.Description
	log  *slog.Logger
	hand hand
	troubles
	wake chan struct{} // a deadline has changed

	published atomic.Pointer[actuate.DeviceState]
	attempt   atomic.Pointer[Restored] // the last one to give it back at a person's word or at the end
	looked    atomic.Int64             // wall time of the last look, Unix nanoseconds

	mu       sync.Mutex
	state    string
	current  actuate.State // last read
	readable bool          // current was read at all
	readErr  error         // of the last read; reported once, when it changes
	seen     time.Duration // on the clock: since when the device is watched; -1: not yet

	goneAt time.Duration // on the clock: since when it is unplugged

	original *actuate.State // its entry in the journal is open
	unclosed bool           // given back, but the journal could not be told
	live     *claim         // has a lease
	held     []*claim       // protection without one
	standing float64        // the value last put on the device for a claim
	applied  actuate.State  // what was read back then
	dirty    bool           // a write has begun and was not read back: the device may hold anything
	kept     bool           // left standing by a clean stop
	refused  error          // of the last restore that failed
	pending  bool           // the device does not hold what the claims say: tried again at retryAt
	retryAt  time.Duration
	backoff  time.Duration
	seq      uint64

	reasserts []time.Duration // on the clock, within the last ten minutes
	external  *float64        // what somebody else set, lower than we had
	alarm     string          // why the state is what it is, when that is bad
}

func newKnob(b *books, dev actuate.Device) *knob {
	d := dev.Describe()
	k := &knob{
		books: b, dev: dev, desc: d, hand: newHand(), wake: make(chan struct{}, 1),
		log: b.opt.Log.With("device", d.ID), state: actuate.StateArmed, seen: -1,
	}
	k.publish()
	return k
}

// read asks the device what it holds. It notes when the device was first seen.
func (k *knob) read() (actuate.State, error) {
	st, err := call(k.hand, k.dev.Read)
	if err == nil && !finite(st.Value) {
		err = fmt.Errorf("reads %g %s", st.Value, k.desc.Unit)
	}
	if err != nil {
		err = fmt.Errorf("warden: %s: %w", k.desc.ID, err)
		k.readErr = err
		k.warn("device cannot be read", err)
		return actuate.State{}, err
	}
	k.readErr = nil
	k.warn("device cannot be read", nil)
	k.current, k.readable = st, true
	if k.seen < 0 {
		k.seen = k.opt.Clock()
	}
	return st, nil
}

func (k *knob) warn(what string, err error, args ...any) {
	k.note(k.log, slog.LevelWarn, what, err, args...)
}

func (k *knob) fail(what string, err error, args ...any) {
	k.note(k.log, slog.LevelError, what, err, args...)
}

// describe asks the device anew whether it can be written: it may have been
// found on a tree that was mounted read-only, or have become so since. With
// limits it takes over what the device states of those too: another driver may
// be behind it.
func (k *knob) describe(limits bool) {
	d, err := call(k.hand, func() (actuate.Description, error) { return k.dev.Describe(), nil })
	if err != nil {
		return // the driver hangs: the next read says so
	}
	switch {
	case d.Writable && !k.desc.Writable:
		k.log.Info("device can be written now")
	case !d.Writable && (k.desc.Writable || d.Reason != k.desc.Reason):
		k.log.Warn("device cannot be written", "reason", d.Reason)
	}
	k.desc.Writable, k.desc.Reason = d.Writable, d.Reason
	if limits {
		k.desc.Min, k.desc.Max, k.desc.Default, k.desc.Tolerance = d.Min, d.Max, d.Default, d.Tolerance
	}
}

// near says that two values are the same within what the device can tell apart.
func (k *knob) near(a, b float64) bool {
	return math.Abs(a-b) <= max(k.desc.Tolerance, 1e-9)
}

// same says that a device holds a state exactly: its value, and every file that
// a write of ours may have touched.
func (k *knob) same(have, want actuate.State) bool {
	if !k.near(have.Value, want.Value) {
		return false
	}
	for name, content := range want.Files {
		if strings.TrimSpace(have.Files[name]) != strings.TrimSpace(content) {
			return false
		}
	}
	return true
}

// limits are those that hold now: the original bounds them once it is saved,
// and what the device holds of itself before.
func (k *knob) limits() limits {
	original := k.current.Value
	if k.original != nil {
		original = k.original.Value
	}
	return limitsOf(k.desc, k.opt.clampOf(k.desc.ID), original, k.opt.AllowRaise)
}

// governing is the claim whose value the device must hold: the tightest.
func (k *knob) governing() *claim {
	c := k.live
	for _, h := range k.held {
		if c == nil || tighter(k.desc, h.value, c.value) {
			c = h
		}
	}
	return c
}

// ours says that a value of ours may be on the device.
func (k *knob) ours() bool { return k.original != nil }

// settled names the state after everything is as the claims say.
func (k *knob) settled() string {
	switch c := k.governing(); {
	case c == nil:
		return actuate.StateArmed
	case c == k.live:
		return actuate.StateApplied
	case c.safe:
		return actuate.StateSafe
	default:
		return actuate.StateHolding
	}
}

// later sets when a failed attempt is made again: after half a second, then
// twice as long each time, at most ten seconds.
func (k *knob) later() {
	k.backoff = min(max(2*k.backoff, 500*time.Millisecond), 10*time.Second)
	k.pending, k.retryAt = true, k.opt.Clock()+k.backoff
	k.poke()
}

// done is the opposite of later.
func (k *knob) done() { k.pending, k.backoff = false, 0 }

// poke has the knob's loop reckon its next look anew.
func (k *knob) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// publish makes the state visible to those that must not wait for the device.
func (k *knob) publish() {
	d := actuate.DeviceState{
		Description: k.desc, State: k.state, Reason: k.alarm,
		Enabled: k.opt.Enabled, Latched: k.latch.closed(), Rejects: k.opt.RejectOutOfRange,
		Current: k.current.Value, Original: k.current.Value,
	}
	if k.original != nil {
		d.Original = k.original.Value
	}
	if k.readable {
		l := k.limits()
		d.Low, d.High = l.low, l.high
	} else {
		d.Low = 1 // above High: nothing is granted
	}
	if c := k.governing(); c != nil {
		d.Granted, d.Clamped = c.value, c.clamped
		d.Owner, d.Key, d.Purpose, d.OnStop, d.SafeCap = c.control, c.key, c.purpose, c.onStop, c.safeCap
	}
	if k.live != nil {
		d.LeaseMillis = max((k.live.deadline - k.opt.Clock()).Milliseconds(), 0)
	}
	if d.Reason == "" {
		d.Reason, _ = k.barred()
	}
	k.published.Store(&d)
}

// snapshot is the state as last published.
func (k *knob) snapshot() actuate.DeviceState {
	d := *k.published.Load()
	d.Latched = k.latch.closed()
	return d
}
