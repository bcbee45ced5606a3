package ingest

import (
	"fmt"
	"math"
)

// gate compares the time of a point with the receiver's clock before anything
// else is done with it: one point far ahead would close a TSDB to all honest
// ones, and two would make retention delete its history.
type gate struct {
	off              bool
	oldest, youngest int64 // Unix milliseconds, both still taken
}

func newGate(o *Options, now int64) gate {
	return gate{
		off:      o.NoTimeGate,
		oldest:   now - o.OutOfOrder.Milliseconds(),
		youngest: now + o.Ahead.Milliseconds(),
	}
}

// check turns a time in Unix nanoseconds into milliseconds, rounding down.
func (g *gate) check(nanos uint64) (int64, reason) {
	if nanos == 0 || nanos > math.MaxInt64 {
		return 0, badTime
	}
	t := int64(nanos / 1e6)
	switch {
	case g.off:
		return t, fine
	case t > g.youngest:
		return t, future
	case t < g.oldest:
		return t, tooOld
	}
	return t, fine
}

// explain says how far off a time is.
func (g *gate) explain(why reason, t, now int64) string {
	switch why {
	case future:
		return fmt.Sprintf("%.3f s ahead of the receiver's clock, allowed are %.0f s: check the sender's clock",
			float64(t-now)/1000, float64(g.youngest-now)/1000)
	case tooOld:
		return fmt.Sprintf("%.3f s behind the receiver's clock, allowed are %.0f s",
			float64(now-t)/1000, float64(now-g.oldest)/1000)
	}
	return ""
}
