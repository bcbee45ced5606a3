package engine

import (
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/wattloop/wattloop/actuate"
	"github.com/wattloop/wattloop/rules"
)

// Report is one step's view of everything: what was read, what is wanted, what
// the devices hold. It is immutable.
type Report struct {
	TS       int64 // Unix milliseconds of the step; 0 before the first
	Steps    uint64
	Rules    []RuleReport
	Readings []*ReadingReport
	Controls []*ControlReport
	Devices  []Device
	// Outcomes are of all controls, those included that a reload removed and
	// whose devices are still being given back.
	Outcomes []actuate.Outcome

	// Unstored says why not all of this went into the store as series; "" if it did.
	Unstored string

	keys map[string]labels.Labels // of the outcomes, by their canonical form
}

// Device is a device as the last step left it, under the engine's name for
// those that know the engine alone.
type Device = actuate.DeviceStatus

// RuleReport is how one rule's last evaluation went.
type RuleReport struct {
	Name, Kind string // Kind: reading, control
	Took       time.Duration
	Err        string
	Cause      string // of Err, where other rules may fail of it too (Options.Cause)
	LeftOut    string // what of a reading's answers is no answer, in words; "" for nothing
	File       string
	Line       int
}

// ReadingReport is one reading for one key, as it was evaluated last.
type ReadingReport struct {
	Name, Unit string
	Note       string // what to know of its answers, as the rule file says
	TS         int64  // of the evaluation, Unix milliseconds
	// Keyless marks the one row of a reading that has no key: it is missing, and
	// Why or Err says the reason.
	Keyless bool
	Cause   string // as of a RuleReport, of a keyless row
	rules.KeyReading
}

// ControlReport is one control for one key.
type ControlReport struct {
	Keyless                     bool   // as of a reading
	Cause                       string // as of a reading
	Name, Mode, Purpose, Action string
	Key                         labels.Labels
	Phase                       Phase
	TS                          int64         // of the evaluation, Unix milliseconds
	Engage, Release             time.Duration // how long the condition has held, at the evaluation or, while a value is asked for, the step; -1 = it does not hold
	Value                       float64       // what is asked for while engaged or holding; otherwise nothing
	Quality                     rules.Quality
	Partial                     bool
	Err                         string // why the control's expressions give no answer
	Why                         string
	Result                      string // the summary over the devices
	Outcomes                    []actuate.Outcome

	slow bool // evaluated too seldom for its series to stand between two evaluations
}

func (e *Engine) newReport(ts int64, outcomes []actuate.Outcome) *Report {
	rep := &Report{
		TS: ts, Steps: e.steps, Rules: e.describe(), Outcomes: outcomes, Devices: e.opts.Governor.Devices(),
		keys: map[string]labels.Labels{},
	}
	for _, r := range e.rules {
		r.place = len(rep.Readings)
		if r.control != nil {
			r.place = len(rep.Controls)
		}
		rep.Readings = append(rep.Readings, r.rows...)
		for _, st := range r.order {
			st.row = st.report(r.control, ts)
			rep.Controls = append(rep.Controls, st.row)
			rep.keys[st.key] = st.labels
		}
		rep.keyless(r)
	}
	for _, o := range outcomes {
		if ls, ok := e.keys[o.Key]; ok {
			rep.keys[o.Key] = ls
		}
	}
	e.keys = rep.keys
	return rep
}

// keyless adds the row of a rule that has nothing to say of any key, so that
// what is missing is seen.
func (rep *Report) keyless(r *rule) {
	why, failed := "not evaluated yet", ""
	switch {
	case r.err != nil:
		why, failed = "", r.err.Error()
	case r.leftOut != "":
		why = r.leftOut + " is left out"
	case r.at != 0 && r.matched:
		why = "no series matches any more"
	case r.at != 0:
		why = "no series matches yet"
	}
	switch {
	case r.control != nil && len(r.states) == 0:
		c := r.control
		rep.Controls = append(rep.Controls, &ControlReport{
			Keyless: true, Cause: r.cause, Name: c.Name, Mode: string(c.Mode), Purpose: c.Purpose, Action: c.Action, Phase: Idle,
			Engage: -1, Release: -1, Quality: rules.Missing, Err: failed, Why: why,
		})
	case r.reading != nil && len(r.rows) == 0:
		rep.Readings = append(rep.Readings, &ReadingReport{
			Keyless: true, Cause: r.cause, Name: r.reading.Name, Unit: r.reading.Unit, Note: r.reading.Note, TS: r.at,
			KeyReading: rules.KeyReading{Quality: rules.Missing, Err: failed, Why: why},
		})
	}
}

func (e *Engine) describe() []RuleReport {
	var out []RuleReport
	for _, r := range e.rules {
		rr := RuleReport{Name: r.name(), Kind: "reading", Took: r.took}
		if r.control != nil {
			rr.Kind, rr.File, rr.Line = "control", r.control.File, r.control.Line
		} else {
			rr.File, rr.Line = r.reading.File, r.reading.Line
		}
		rr.LeftOut = r.leftOut
		if r.err != nil {
			rr.Err, rr.Cause = r.err.Error(), r.cause
		}
		out = append(out, rr)
	}
	return out
}

// row is what the report says of a key of a reading that was evaluated at ts.
func (r *rule) row(kr rules.KeyReading, ts int64) *ReadingReport {
	return &ReadingReport{Name: r.reading.Name, Unit: r.reading.Unit, Note: r.reading.Note, TS: ts, KeyReading: kr}
}

// standsFor is the longest interval of a control whose series stand between two
// evaluations: well within the time that PromQL looks back for a sample.
const standsFor = time.Minute

func (st *controlState) report(c *rules.Control, ts int64) *ControlReport {
	held, slow := st.at, c.Interval > standsFor
	if slow || st.phase.asks() {
		held = ts
	}
	return &ControlReport{
		Name: c.Name, Mode: string(c.Mode), Purpose: c.Purpose, Action: c.Action, Key: st.labels, TS: st.at,
		Phase: st.phase, Engage: heldFor(st.engage, held), Release: heldFor(st.release, held), Value: st.value,
		Quality: st.last.Quality, Partial: st.last.Partial, Err: st.last.Err, Why: st.why,
		Result: actuate.Summarize(st.outcomes), Outcomes: st.outcomes, slow: slow,
	}
}

func heldFor(from, ts int64) time.Duration {
	if from == 0 {
		return -1
	}
	return time.Duration(ts-from) * time.Millisecond
}
