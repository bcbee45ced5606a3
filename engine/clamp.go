package engine

import "github.com/wattloop/wattloop/actuate"

// ClampedTo is the limit that an outcome of rep was clamped to, in the unit of
// its device: what the warden grants at the least or at the most, or what the
// hardware made of the value by a limit of its own. ok is false for an outcome
// that was not clamped.
func (rep *Report) ClampedTo(o actuate.Outcome) (limit float64, ok bool) {
	if !o.Clamped {
		return 0, false
	}
	for _, d := range rep.Devices {
		switch {
		case d.ID != o.Device || d.Low > d.High:
		case o.Desired < d.Low:
			return d.Low, true
		case o.Desired > d.High:
			return d.High, true
		}
	}
	return o.Applied, true
}

// Standing is the outcome of the control whose value is on d; ok is false when
// there is none.
func (rep *Report) Standing(d Device) (o actuate.Outcome, ok bool) {
	for _, o := range rep.Outcomes {
		if d.Owner != "" && o.Device == d.ID && o.Control == d.Owner && o.Key == d.Key {
			return o, true
		}
	}
	return actuate.Outcome{}, false
}
