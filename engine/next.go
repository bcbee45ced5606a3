package engine

import (
	"slices"

	"github.com/wattloop/wattloop/actuate"
)

// change is a report together with what it has that the one before has not. What
// is written and logged of a step follows from it.
type change struct {
	rep *Report
	// before and now are parts of the last report and of rep: the rows that the step
	// may have changed, and all outcomes and devices. Both are nil where the step may
	// have changed anything.
	before, now *Report
}

// facts are those that are not known to stand.
func (c change) facts() []fact {
	if c.now != nil {
		return c.now.facts()
	}
	return c.rep.facts()
}

// oneByOne says that each of the rules was evaluated for single keys which it
// knew before, and was evaluated well.
func oneByOne(rs []*rule) bool {
	return !slices.ContainsFunc(rs, func(r *rule) bool { return r.dirty == nil || r.err != nil })
}

// nextReport is newReport where the rules that were evaluated were so for single
// keys: it makes the rows of these, and of the controls that have something on a
// device or had, and takes the others from the report before.
func (e *Engine) nextReport(ts int64, outcomes []actuate.Outcome, readings, controls []*rule) change {
	last := e.Report()
	rep := &Report{
		TS: ts, Steps: e.steps, Rules: e.describe(), Outcomes: outcomes, Devices: e.opts.Governor.Devices(), keys: last.keys,
		Readings: slices.Clone(last.Readings), Controls: slices.Clone(last.Controls),
	}
	before := &Report{TS: last.TS, Outcomes: last.Outcomes, Devices: last.Devices, keys: last.keys}
	now := &Report{TS: ts, Outcomes: outcomes, Devices: rep.Devices, keys: last.keys}
	for _, r := range readings {
		slices.Sort(r.alone)
		for _, i := range r.alone {
			before.Readings = append(before.Readings, rep.Readings[r.place+i])
			rep.Readings[r.place+i] = r.rows[i]
			now.Readings = append(now.Readings, r.rows[i])
		}
	}
	for _, r := range e.rules {
		for i, st := range r.order {
			if st.at != ts && st.rests() && st.row.rests() && !st.row.slow {
				continue
			}
			before.Controls = append(before.Controls, st.row)
			st.row = st.report(r.control, ts)
			rep.Controls[r.place+i] = st.row
			now.Controls = append(now.Controls, st.row)
		}
	}
	return change{rep, before, now}
}

func (c *ControlReport) rests() bool { return c.Phase == Idle && len(c.Outcomes) == 0 }
