package warden

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wattloop/wattloop/actuate"
)

// failure is an error with the word that a reply gives as its reason.
type failure struct {
	reason string
	err    error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// change is what a set did, so that it can be undone.
type change struct {
	knob *knob
	made *claim
	was  *claim
}

// examine looks at the device and says why a set would be blocked, or "".
func (k *knob) examine(cmd actuate.Command) (reason, text string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer k.publish()
	k.expire()
	if reason, text := k.refusal(cmd); reason != "" && reason != actuate.ReasonReadFailed {
		return reason, text
	}
	if k.ours() {
		k.verify()
	} else if _, err := k.read(); err != nil && gone(err) {
		k.lose()
	}
	return k.refusal(cmd) // the look may have shown something new
}

// set brings the device to a value: clamp, save the original, record, write,
// read back. The device has been examined a moment ago. The change is nil when
// nothing was written.
func (k *knob) set(cmd actuate.Command) (actuate.Reply, *change) {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer k.publish()
	k.expire()
	if reason, text := k.refusal(cmd); reason != "" {
		return k.blocked(cmd, reason, text), nil
	}
	c := k.claim(cmd)
	if k.stands(c) {
		return k.goOn(cmd, c), nil
	}
	err := k.save()
	k.fail("original not saved: nothing is written", err)
	if err != nil {
		return k.blocked(cmd, actuate.ReasonNotSaved, err.Error()), nil
	}
	live, held := k.live, k.held
	k.take(c)
	if err := k.put(c); err != nil {
		return k.fallBack(cmd, live, held, err), nil
	}
	k.done()
	k.state, k.alarm, k.external = k.settled(), "", nil
	k.poke()
	r := k.reply(cmd, actuate.Applied, "", "")
	r.Granted, r.Clamped = c.value, c.clamped
	return r, &change{knob: k, made: c, was: live}
}

// claim is what a set asks for, brought into the limits.
func (k *knob) claim(cmd actuate.Command) *claim {
	c := &claim{
		control: cmd.Control, key: cmd.Key, purpose: cmd.Purpose, onStop: cmd.OnStop,
		strict: cmd.Strict, safeCap: cmd.SafeCap, ttl: k.term(cmd.TTLMillis),
		value: k.limits().clamp(cmd.Value),
	}
	c.clamped = c.value != cmd.Value
	c.deadline = k.opt.Clock() + c.ttl
	return c
}

// stands says that the device holds the claim's value already, under a lease
// of the same owner.
func (k *knob) stands(c *claim) bool {
	return k.live != nil && k.live == k.governing() && k.live.control == c.control && k.live.key == c.key &&
		k.live.value == c.value && k.live.strict == c.strict && !k.dirty && !k.pending
}

// goOn renews the owner's lease at the value that stands.
func (k *knob) goOn(cmd actuate.Command, c *claim) actuate.Reply {
	k.opt.Fault(FaultRenew)
	c.clamped = c.clamped || !k.near(k.applied.Value, c.value)
	k.take(c)
	k.poke()
	k.warn("renewal not recorded", k.intents.write(k.standingRecord())) // the lease is as good without
	r := k.reply(cmd, actuate.Applied, actuate.ReasonUnchanged, "")
	r.Granted, r.Clamped = c.value, c.clamped
	return r
}

// take makes a claim the live one; an older one of the same owner ends.
func (k *knob) take(c *claim) {
	k.live = c
	k.held = slices.DeleteFunc(slices.Clone(k.held), func(h *claim) bool {
		return h.control == c.control && h.key == c.key
	})
}

// save opens the journal's entry of the device, once for as long as values of
// ours are on it.
func (k *knob) save() error {
	if k.ours() {
		return nil
	}
	if k.unclosed { // the entry of last time is still open, and what it says is old
		if err := k.journal.close(k.desc.ID); err != nil {
			return err
		}
		k.unclosed = false
	}
	original, err := k.journal.save(k.desc.ID, k.boot, k.current)
	if err != nil {
		return err
	}
	k.original = &original
	k.log.Info("original saved", "value", original.Value)
	return nil
}

// put writes a claim's value and reads it back. After an error the device may
// hold anything.
func (k *knob) put(c *claim) error {
	k.seq++
	rec := k.record(phaseWriting, c)
	rec.Target, rec.Previous = c.value, k.current.Value
	if err := k.intents.write(rec); err != nil {
		return &failure{actuate.ReasonNotIntended, err}
	}
	k.dirty = true
	k.opt.Fault(FaultRecorded)
	var last error
	for range 2 { // one rewrite
		if err := k.write(c); err != nil {
			return err
		}
		k.opt.Fault(FaultBeforeReadBack)
		st, err := k.readBack(func(st actuate.State) bool { return k.near(st.Value, c.value) })
		if err == nil {
			return k.stand(c, st)
		}
		last = err
	}
	if k.readErr == nil && tighter(k.desc, k.current.Value, c.value) && k.limits().hold(k.current.Value) {
		c.clamped = true // the hardware has a limit of its own that it does not tell
		return k.stand(c, k.current)
	}
	return &failure{actuate.ReasonReadBack, fmt.Errorf("%w: %s", last, strings.Join(k.desc.Files, ", "))}
}

// stand notes that a claim's value was read back.
func (k *knob) stand(c *claim, st actuate.State) error {
	k.opt.Fault(FaultReadBack)
	k.standing, k.applied, k.dirty = c.value, st, false
	k.desc.Writable, k.desc.Reason = true, ""
	// Without it, the record before it names the target, and says that anything
	// may be on the device: a successor gives back what it finds.
	k.warn("read-back not recorded", k.intents.write(k.standingRecord()))
	return nil
}

// retries are the pauses before a failed write is tried again.
var retries = [...]time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond}

// write calls the device until it takes the value, at most four times; an error
// that no repetition heals ends it at once.
func (k *knob) write(c *claim) error {
	err := k.tryAgain(func() error { return k.dev.Write(actuate.Setting{Value: c.value, Strict: c.strict}) })
	if err == nil {
		k.opt.Fault(FaultMidWrite)
		return nil
	}
	reason := actuate.ReasonWriteFailed
	switch {
	case denied(err):
		reason = actuate.ReasonNotWritable
	case gone(err):
		reason = actuate.ReasonGone
	}
	return &failure{reason, fmt.Errorf("warden: %s: write %g %s: %w", k.desc.ID, c.value, k.desc.Unit, err)}
}

// tryAgain makes a call of the device, and makes it again after each pause.
func (k *knob) tryAgain(f func() error) error {
	for i := 0; ; i++ {
		_, err := call(k.hand, func() (struct{}, error) { return struct{}{}, f() })
		if err == nil || denied(err) || gone(err) || errors.Is(err, errStuck) || i == len(retries) {
			return err
		}
		time.Sleep(retries[i])
	}
}

// readBack reads three times over 500 ms, until the device holds what it
// should: some hardware takes a while to say so.
func (k *knob) readBack(right func(actuate.State) bool) (actuate.State, error) {
	var last error
	for i := range 3 {
		if i > 0 {
			time.Sleep(250 * time.Millisecond)
		}
		st, err := k.read()
		if err == nil && right(st) {
			return st, nil
		}
		if last = err; err == nil {
			last = fmt.Errorf("warden: %s: reads %g %s: hardware did not take the setpoint", k.desc.ID, st.Value, k.desc.Unit)
		}
	}
	return actuate.State{}, last
}

// fallBack follows a set that failed. Protection goes back to the value it had;
// otherwise, and for efficiency, the original is given back.
func (k *knob) fallBack(cmd actuate.Command, live *claim, held []*claim, cause error) actuate.Reply {
	k.live, k.held = nil, held
	if live != nil && live.protects() {
		if k.live = live; k.opt.Clock() >= live.deadline {
			k.endLive()
		}
	}
	reason := actuate.ReasonWriteFailed
	var f *failure
	if errors.As(cause, &f) {
		reason = f.reason
	}
	if reason == actuate.ReasonGone {
		k.lose()
	} else {
		k.settle()
	}
	if reason == actuate.ReasonNotWritable || reason == actuate.ReasonNotIntended || reason == actuate.ReasonGone {
		return k.blocked(cmd, reason, cause.Error())
	}
	return k.failed(cmd, reason, cause.Error())
}

// undo takes back what a set did, because another device of the same control
// failed.
func (c *change) undo() {
	k := c.knob
	k.mu.Lock()
	defer k.mu.Unlock()
	defer k.publish()
	if k.live != c.made {
		return // something has happened to it since
	}
	k.live = c.was
	if k.live != nil && k.opt.Clock() >= k.live.deadline {
		k.endLive()
	}
	k.settle()
}

// record describes the device for a successor, in a phase of the claim c.
func (k *knob) record(phase string, c *claim) record {
	r := record{
		Device: k.desc.ID, BootID: k.boot, Phase: phase, Seq: k.seq,
		Target: k.standing, Previous: k.current.Value, Original: *k.original, Kept: k.kept,
	}
	if c == nil {
		return r
	}
	r.Owner = recordedControl{
		Control: c.control, Key: c.key, Purpose: c.purpose, OnStop: c.onStop,
		Strict: c.strict, Value: c.value, SafeCap: c.safeCap, TTLMS: c.ttl.Milliseconds(),
	}
	if c == k.live {
		r.DeadlineMS = c.deadline.Milliseconds()
	}
	return r
}

// standingRecord describes a device that holds what its claims say.
func (k *knob) standingRecord() record {
	r := k.record(phaseStanding, k.governing())
	applied := k.applied
	r.Applied = &applied
	return r
}
