package ingest

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// lagShare of an export interval is the most that a point may be late before
	// Prometheus's rate reads low (S0-159, S0-160).
	lagShare = 10
	// A channel is judged by its newest requests, once there are so many.
	lagWindow   = 20
	lagRequests = 5
)

// lagGauge judges how late the points of a channel come, request by request: the
// age of the newest point against the export interval, which is the time since
// the sample before of the same series. It is for one goroutine at a time; what
// it found may be read by any.
type lagGauge struct {
	late      [lagWindow]bool
	intervals [lagWindow]int64 // milliseconds
	n         int
	age       int64 // of the request before, milliseconds
	told      bool

	flagged  atomic.Bool
	interval atomic.Int64 // the median, milliseconds
	flag     prometheus.Gauge
}

// Lagging says whether the points of a channel come so late that a rate reads
// low.
type Lagging struct {
	// Flagged: of the newest requests most came later than a tenth of the export
	// interval.
	Flagged  bool
	Interval time.Duration // between two exports, the median of the newest; 0 = unknown
}

// add takes one request: the age of its newest point and the time since the
// sample before, in milliseconds. It says whether the channel has just been
// flagged for the first time.
func (g *lagGauge) add(age, interval int64) (first bool) {
	if interval <= 0 {
		return false
	}
	// A sender that catches up, as after an outage or with a history, comes nearer
	// by an interval with each request. That is no lag which will stay.
	isLate, nearer := age*lagShare > interval, g.age-age
	if g.age = age; isLate && nearer*2 > interval && nearer*2 < 3*interval {
		return false
	}
	at := g.n % lagWindow
	g.late[at], g.intervals[at] = isLate, interval
	g.n++
	n := min(g.n, lagWindow)
	late := 0
	for _, is := range g.late[:n] {
		if is {
			late++
		}
	}
	sorted := g.intervals
	slices.Sort(sorted[:n])
	// Between a quarter and a half what was said stands.
	flagged := n >= lagRequests && (late*2 > n || g.flagged.Load() && late*4 > n)
	g.flagged.Store(flagged)
	g.interval.Store(sorted[n/2])
	if !flagged {
		g.flag.Set(0)
		return false
	}
	g.flag.Set(1)
	first, g.told = !g.told, true
	return first
}

func (g *lagGauge) lagging() Lagging {
	return Lagging{g.flagged.Load(), time.Duration(g.interval.Load()) * time.Millisecond}
}

// Lagging says whether what comes in on the channel comes too late (S0-163).
func (c *Channel) Lagging() Lagging { return c.m.lags.lagging() }

// judgeLag holds the lag of a request that was stored against its channel's
// export interval, and says once that it is too high.
func (r *Receiver) judgeLag(c *Channel) {
	w := &r.w
	if w.gap == 0 || w.tally.accepted == 0 {
		return
	}
	age := max(0, w.now-w.newestAccepted)
	if c.m.lags.add(age, w.gap) {
		r.o.Logger.Warn("points arrive late: a rate of them under rate: prometheus reads low by up to (lag + interval/2) / window; stamp points when they are read, send them at once, or export less often",
			"channel", c.Name(), "lag", time.Duration(age)*time.Millisecond, "interval", c.Lagging().Interval)
	}
}
