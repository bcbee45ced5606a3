package warden

import (
	"sync"
	"time"

	"github.com/wattloop/wattloop/actuate"
)

// Restored says what became of one device when it was given back.
type Restored struct {
	Device  string  `json:"device"`
	Name    string  `json:"name"`
	Unit    string  `json:"unit"`
	Value   float64 `json:"value,omitempty"`   // what it held when it was last read
	Unknown bool    `json:"unknown,omitempty"` // it was never read: there is no Value
	Result  string  `json:"result"`            // Applied: given back; None: nothing of ours was on it; Error: tried again
	Reason  string  `json:"reason,omitempty"`
	Message string  `json:"message,omitempty"`
}

// verdict is what is to be done with a device that an earlier warden has left
// an original or a record of.
type verdict int

const (
	forget  verdict = iota // nothing of ours is on it: close the entry
	restore                // bring the original back
	leave                  // somebody else has changed it: theirs
	adopt                  // go on with the cap under a fresh lease
	keep                   // a clean stop left it standing on purpose: hold it
)

// inheritance says which caps of an earlier warden may stay.
type inheritance struct {
	handover bool // those of a warden that handed over on purpose
	kept     bool // those that a clean stop left standing (on_stop: hold)
	alone    bool // they are left as they are, for the next start to take up
}

// judge reads the table of actuation.md, section 4, for a device that holds
// hw. The record is nil where there is none that can be believed.
func (k *knob) judge(original actuate.State, sameBoot bool, r *record, hw actuate.State, in inheritance) verdict {
	last := func() (float64, bool) {
		switch {
		case r == nil:
			return 0, false
		case r.Applied != nil:
			return r.Applied.Value, true
		}
		return r.Target, true
	}
	v, any := last()
	switch {
	case k.same(hw, original):
		return forget
	case !sameBoot:
		// The boot has reset the hardware, unless it happens to hold our value.
		if any && k.near(hw.Value, v) && !(k.desc.Default > 0 && k.near(hw.Value, k.desc.Default)) {
			return restore
		}
		return forget
	case r == nil, r.Phase != phaseStanding:
		// The original was saved to be overwritten, and it is not there: either
		// run.path was lost with a container, or the process died in a write.
		return restore
	case k.near(hw.Value, v) && r.Kept && in.kept:
		return keep
	case k.near(hw.Value, v) && in.handover:
		return adopt
	case k.near(hw.Value, v), k.near(hw.Value, original.Value):
		return restore
	}
	return leave
}

// takeOver deals with what an earlier warden has left of a device, before
// anything else is done with it.
func (k *knob) takeOver(in inheritance) Restored {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer k.publish()
	out := Restored{Device: k.desc.ID, Name: k.desc.Name, Unit: k.desc.Unit, Result: actuate.None}
	e, open := k.journal.get(k.desc.ID)
	r, err := k.intents.read(k.desc.ID)
	if err != nil {
		k.log.Warn("intent record is of no use", "err", err)
	}
	hw, readErr := k.read()
	out.Value, out.Unknown = hw.Value, readErr != nil
	if !open && r == nil {
		if readErr != nil && gone(readErr) {
			k.lose()
		}
		if k.journal.suspect(k.desc.ID) {
			k.alarm = actuate.ReasonJournal
			out.Result, out.Reason, out.Message = actuate.Error, k.alarm, k.alarmText()
		}
		return out
	}
	if !open { // closed, and the record was still to be removed; or the journal was lost
		e = entry{BootID: r.BootID, State: r.Original}
	} else if r != nil && r.BootID != e.BootID {
		r = nil // of another life
	}
	k.original = &e.State
	k.inherit(r)
	k.opt.Fault(FaultLeftover)
	switch {
	case readErr != nil && gone(readErr):
		k.lose()
		out.Result, out.Reason, out.Message = actuate.Error, actuate.ReasonGone, readErr.Error()
		return out
	case readErr != nil:
		k.dirty = true
		k.giveBack()
	default:
		v := k.judge(e.State, e.BootID == k.boot, r, hw, in)
		if in.alone && (v == adopt || v == keep) {
			out.Result, out.Reason, out.Message = actuate.Applied, actuate.ReasonHolding, "stays, for "+r.Owner.Control
			return out
		}
		k.carryOut(v, open, r, hw)
	}
	out.Value, out.Unknown = k.current.Value, !k.readable
	switch k.state {
	case actuate.StateArmed:
		if !k.same(hw, e.State) && k.same(k.current, e.State) {
			out.Result, out.Reason = actuate.Applied, actuate.ReasonRestored
		}
	case actuate.StateApplied, actuate.StateHolding:
		out.Result, out.Reason, out.Message = actuate.Applied, k.state, k.governing().control
	case actuate.StateExternal, actuate.StateContested:
		out.Reason, out.Message = k.alarm, k.alarmText()
	default:
		out.Result, out.Reason, out.Message = actuate.Error, k.alarm, k.alarmText()
	}
	return out
}

// inherit takes over what the record says of the device.
func (k *knob) inherit(r *record) {
	k.dirty = r == nil || r.Phase != phaseStanding || r.Applied == nil
	if r == nil {
		return
	}
	k.seq, k.standing = r.Seq, r.Target
	k.applied = actuate.State{Value: r.Target}
	if r.Applied != nil {
		k.applied = *r.Applied
	}
}

func (k *knob) carryOut(v verdict, open bool, r *record, hw actuate.State) {
	switch v {
	case forget:
		k.log.Info("nothing of an earlier run is on it", "reads", hw.Value, "original", k.original.Value)
		k.forget()
		return
	case leave:
		k.leave(hw)
		return
	case adopt, keep:
		if k.adopt(r, v) {
			return
		}
	}
	if !open { // nothing is written before the original is safe
		if _, err := k.journal.save(k.desc.ID, k.boot, *k.original); err != nil {
			k.log.Error("original not saved again", "err", err)
		}
	}
	k.log.Warn("a cap of an earlier run is on it: giving the original back", "reads", hw.Value, "original", k.original.Value)
	k.dirty = true
	k.giveBack()
}

// adopt goes on with the recorded claim, where the owner of the machine still
// allows its value.
func (k *knob) adopt(r *record, v verdict) bool {
	o := r.Owner
	if !k.opt.Enabled || k.latch.closed() || o.Control == "" || !k.limits().hold(o.Value) {
		return false
	}
	c := &claim{
		control: o.Control, key: o.Key, purpose: o.Purpose, onStop: o.OnStop,
		strict: o.Strict, value: o.Value, safeCap: o.SafeCap, ttl: k.term(o.TTLMS),
	}
	c.clamped = !k.near(k.applied.Value, c.value)
	k.standing = c.value
	k.log.Warn("going on with the cap of an earlier run", "control", c.control, "value", c.value)
	if v == keep || r.DeadlineMS == 0 && c.protects() {
		k.keep(c, "left standing by an earlier run")
	} else {
		c.deadline = k.opt.Clock() + c.ttl
		k.live = c
	}
	k.state = k.settled()
	if err := k.intents.write(k.standingRecord()); err != nil { // no longer kept, and with a lease of now
		k.log.Warn("adoption not recorded", "err", err)
	}
	return true
}

// takeOverAll deals with the leftovers of every device, all at once.
func (w *warden) takeOverAll(in inheritance) []Restored {
	w.strays()
	for _, k := range w.knobs {
		if w.journal.suspect(k.desc.ID) && k.belowDefault() {
			k.toDefault()
		}
	}
	out := make([]Restored, len(w.knobs))
	var all sync.WaitGroup
	for i, k := range w.knobs {
		all.Go(func() { out[i] = k.takeOver(in) })
	}
	all.Wait()
	return out
}

// strays are open entries of devices that are not there now. They are kept for
// a day, in case the device comes back at a later start of the same boot.
func (w *warden) strays() {
	for _, id := range w.journal.ids() {
		if w.byID[id] != nil {
			continue
		}
		e, _ := w.journal.get(id)
		age := time.Since(time.UnixMilli(e.SavedMS))
		if e.BootID == w.boot && age < keepGone {
			w.opt.Log.Warn("device with a saved original is not there", "device", id, "original", e.State.Value)
			continue
		}
		if err := w.journal.close(id); err != nil {
			w.opt.Log.Error("journal entry not closed", "device", id, "err", err)
			continue
		}
		if err := w.intents.remove(id); err != nil {
			w.opt.Log.Warn("intent record not removed", "device", id, "err", err)
		}
	}
}

// mend follows a corrupt journal: it is put aside, and the originals are taken
// from the intent records. A device without one that stands below its default
// is suspect: it may hold a cap of ours whose original is lost. It is brought
// to its default where the owner allows that, and nothing else is written to
// it before a person has cleared it.
func (w *warden) mend(cause error) {
	written, err := w.journal.quarantine()
	w.opt.Log.Error("the originals cannot be read: put into quarantine", "cause", cause, "err", err)
	entries := map[string]entry{}
	ids, err := w.intents.ids()
	if err != nil {
		w.opt.Log.Error("intent records cannot be listed", "err", err)
	}
	for _, id := range ids {
		r, err := w.intents.read(id)
		if err != nil {
			w.opt.Log.Warn("intent record is of no use", "device", id, "err", err)
		}
		if r != nil && r.BootID == w.boot {
			entries[id] = entry{BootID: r.BootID, SavedMS: time.Now().UnixMilli(), State: r.Original}
		}
	}
	var suspect []string
	booted := time.Now().Add(-bootTime() - time.Second)
	for _, k := range w.knobs {
		if _, known := entries[k.desc.ID]; !known && written.After(booted) && k.belowDefault() {
			suspect = append(suspect, k.desc.ID)
		}
	}
	if err := w.journal.rebuild(entries, suspect); err != nil {
		w.opt.Log.Error("the originals could not be written anew", "err", err)
	}
}

// belowDefault says that a cap of ours may be on a device of which nothing is
// known: it stands below its default, or has none that could be compared.
func (k *knob) belowDefault() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	st, err := k.read()
	if err != nil {
		return !gone(err)
	}
	if !inverted(k.desc) && k.desc.Default <= 0 {
		return true
	}
	return tighter(k.desc, st.Value, k.desc.Default) && !k.near(st.Value, k.desc.Default)
}

// toDefault sets a device whose original is lost to the hardware's default. It
// is the one write without a saved original, since there is none to save.
func (k *knob) toDefault() {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer k.publish()
	if d := k.desc.Default; d > 0 && k.opt.defaultOnCorrupt(k.desc) {
		err := k.write(&claim{value: d})
		if err == nil {
			_, err = k.readBack(func(st actuate.State) bool { return k.near(st.Value, d) })
		}
		if err != nil {
			k.log.Error("default could not be set", "default", d, "err", err)
			return
		}
		k.log.Warn("original lost: set to the hardware's default", "default", d)
		return
	}
	k.log.Error("original lost and below its default: set it by hand, then `wattloop caps resume`", "reads", k.current.Value)
}

// cleared is the word of a person that suspect devices are as they should be.
func (w *warden) cleared() error {
	if err := w.journal.clear(); err != nil {
		return err
	}
	for _, k := range w.knobs {
		k.mu.Lock()
		if k.alarm == actuate.ReasonJournal {
			k.alarm = ""
		}
		k.publish()
		k.mu.Unlock()
	}
	return nil
}
