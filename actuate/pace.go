package actuate

import (
	"math"
	"time"
)

// Pace is how gently the devices of one action are written. A zero field sets
// no bound.
type Pace struct {
	// MinInterval is the least time between two writes of a device. Giving the
	// original back at once and the emergency lowering do not wait for it.
	MinInterval time.Duration
	// A value no further from the one on the device than DeadBand, in the
	// device's unit, or than DeadBandShare of it is not written.
	DeadBand, DeadBandShare float64
	// Down and Up bound a control that brings no slew of its own, as shares of
	// the device's range (Max - Min) a second.
	Down, Up float64
	// Reversals is how often within five minutes a control may turn a device's
	// direction; one more is flapping.
	Reversals int
}

// DefaultPace is the pace of an action that nobody says otherwise for.
func DefaultPace(action string) Pace {
	p := Pace{MinInterval: time.Second, DeadBand: 2, DeadBandShare: 0.02, Down: 0.20, Up: 0.05, Reversals: 6}
	if action == ActionGPUCap {
		p.MinInterval, p.DeadBand = 5*time.Second, 5
	}
	return p
}

func (g *Governor) pace(action string) Pace {
	if p, ok := g.Pace[action]; ok {
		return p
	}
	return DefaultPace(action)
}

// stride is a slew with the defaults filled in: a device moves at most down or
// up within every milliseconds.
type stride struct {
	down, up float64
	every    int64
}

func (k *knob) stride(s Slew) stride {
	if s.Every <= 0 {
		s.Every = time.Second
	}
	st := stride{s.Down, s.Up, max(1, s.Every.Milliseconds())}
	if st.down <= 0 {
		st.down = k.share(k.pace.Down, s.Every)
	}
	if st.up <= 0 {
		st.up = k.share(k.pace.Up, s.Every)
	}
	return st
}

// share turns a share of the range a second into units within every.
func (k *knob) share(a float64, every time.Duration) float64 {
	if a == 0 {
		return math.Inf(1)
	}
	width := k.state.Max - k.state.Min
	if width <= 0 {
		width = k.high - k.low
	}
	if width <= 0 || math.IsInf(width, 0) {
		width = math.Abs(k.orig)
	}
	return a * width * every.Seconds()
}

// ramp counts how far a device has moved in the period that runs.
type ramp struct {
	since    int64 // the first move of the period
	seen     int64 // the step before this one
	down, up float64
}

// room is how far the device may still move in one direction. Where steps come
// further apart than a period, the periods since the last step count; those in
// which the device was let stand do not add up.
func (r *ramp) room(now, every int64, width, moved float64) float64 {
	if now-r.since < every {
		return max(width-moved, 0)
	}
	return width * float64(max(1, (now-r.seen)/every))
}

func (r *ramp) take(now, every int64, delta float64) {
	if now-r.since >= every {
		r.since, r.down, r.up = now, 0, 0
	}
	r.down += max(-delta, 0)
	r.up += max(delta, 0)
}

// next is the value closest to goal that the device may take now.
func (k *knob) next(goal float64, s stride) float64 {
	from := k.clamp(k.cur)
	if goal < from {
		return max(goal, from-k.ramp.room(k.now, s.every, s.down, k.ramp.down))
	}
	return min(goal, from+k.ramp.room(k.now, s.every, s.up, k.ramp.up))
}

// inside says whether a move by delta lies within the dead band.
func (k *knob) inside(delta float64) bool {
	return math.Abs(delta) <= max(k.pace.DeadBand, k.pace.DeadBandShare*math.Abs(k.cur))
}

// resting says whether the device was written too short a time ago.
func (k *knob) resting() bool {
	return k.now-k.wroteAt < k.pace.MinInterval.Milliseconds()
}
