package warden

import (
	"math"

	"github.com/wattloop/wattloop/actuate"
)

// maxThrottle is what a throttle in percent never exceeds (actuation.md, floor).
const maxThrottle = 60

// limits is the range within which a value for a device is granted. Where low
// is above high nothing is.
type limits struct{ low, high float64 }

// limitsOf returns the limits of a device: the hardware's, the administrator's
// and the floor; and the original, beyond which no value of ours loosens the
// device unless raise says so.
func limitsOf(d actuate.Description, c Clamp, original float64, raise bool) limits {
	if inverted(d) {
		l := limits{low: max(d.Min, c.Min, 0), high: min(known(d.Max), known(c.Max), maxThrottle, 100*(1-c.Floor))}
		if !raise {
			l.low = max(l.low, original)
		}
		return l
	}
	base := d.Default
	if base <= 0 {
		base = original
	}
	l := limits{low: max(d.Min, c.Min, c.Floor*base), high: min(known(d.Max), known(c.Max))}
	if !raise {
		l.high = min(l.high, original)
	}
	if math.IsInf(l.high, 1) { // allowed to raise, and nobody says how far
		l.high = max(base, original)
	}
	return l
}

func (l limits) empty() bool { return !(l.low <= l.high) }

func (l limits) hold(v float64) bool { return l.low <= v && v <= l.high }

func (l limits) clamp(v float64) float64 { return min(max(v, l.low), l.high) }

// inverted says that a higher value is the tighter one: a throttle in percent.
func inverted(d actuate.Description) bool { return d.Action == actuate.ActionThrottle }

// tighter says whether a holds the device down more than b.
func tighter(d actuate.Description, a, b float64) bool {
	if inverted(d) {
		return a > b
	}
	return a < b
}

// known turns a limit that is not stated, 0, into one that does not bind.
func known(limit float64) float64 {
	if limit <= 0 {
		return math.Inf(1)
	}
	return limit
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
