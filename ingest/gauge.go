package ingest

import (
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/value"
)

// On a workload channel the streams of many actors may give one series of a
// gauge, or of a cumulative sum that goes down as well. There is no right number
// then (S2-81); the channel says which one is stored (S2-84).

const (
	gaugeLive    = 5 * 60_000 // ms: how long a stream's value stands without a newer one
	maxGaugeSize = 256        // streams of one series; the one that is oldest gives way
)

// gaugeSet holds the newest value of each stream of one series, under one
// activation.
type gaugeSet struct {
	of      *origin
	members []gaugeMember
}

type gaugeMember struct {
	st *stream
	t  int64 // Unix milliseconds
	v  float64
}

// addShared stores one point of a gauge by the channel's policy.
func (w *walk) addShared(m *metric, st *stream, t int64, v float64) {
	policy := w.src.channel.o.Gauge
	if policy == GaugeLast {
		w.add(m, st.s, t, v)
		return
	}
	if !w.free(m, st.s) {
		w.tally.reject(nameCollision, 1, m.name, "")
		return
	}
	g := w.gaugeOf(st.s)
	newest := g.put(st, t, v)
	w.storeShared(m, st.s, t, newest, g.value(policy))
}

// endShared takes a stream's value out: it ended, and others may go on. Where a
// policy goes over all streams the series says at once what is left.
func (w *walk) endShared(m *metric, st *stream, t int64) {
	policy := w.src.channel.o.Gauge
	if policy == GaugeLast || m.kind != kindGauge && m.monotonic {
		w.tally.folded++
		return
	}
	g := w.gaugeOf(st.s)
	newest, was := g.leave(st, t)
	switch {
	case !was:
		w.tally.folded++
	case len(g.members) == 0:
		w.storeShared(m, st.s, t, newest, math.Float64frombits(value.StaleNaN))
	default:
		w.storeShared(m, st.s, t, newest, g.value(policy))
	}
}

// storeShared stores what a series is at t, unless it has something as new.
func (w *walk) storeShared(m *metric, s *series, t, newest int64, v float64) {
	switch {
	case t == newest && s.req == w.n && s.last >= 0 && s.lastT == t:
		w.samples[s.last].v = v
		w.tally.folded++
	case t < newest, s.inOrder && s.epoch == w.cache.epoch && t <= s.newest:
		w.tally.folded++ // the next sample has it
	default:
		w.add(m, s, t, v)
	}
}

func (w *walk) gaugeOf(s *series) *gaugeSet {
	if s.gauge == nil || s.gauge.of != w.src {
		s.gauge = &gaugeSet{of: w.src}
	}
	return s.gauge
}

// put takes a value in, drops those that are too old beside it, and returns the
// newest time of all.
func (g *gaugeSet) put(st *stream, t int64, v float64) (newest int64) {
	newest = t
	for _, o := range g.members {
		newest = max(newest, o.t)
	}
	g.members = slices.DeleteFunc(g.members, func(o gaugeMember) bool {
		return o.t < newest-gaugeLive || o.st == st && o.t <= t
	})
	if slices.ContainsFunc(g.members, func(o gaugeMember) bool { return o.st == st }) || t < newest-gaugeLive {
		return newest // it has a newer one
	}
	if len(g.members) >= maxGaugeSize {
		oldest := 0
		for i, o := range g.members {
			if o.t < g.members[oldest].t {
				oldest = i
			}
		}
		g.members = slices.Delete(g.members, oldest, oldest+1)
	}
	g.members = append(g.members, gaugeMember{st, t, v})
	return newest
}

// leave takes a stream out that has nothing newer than t, and says whether it was
// in. newest is the newest time of the others and t.
func (g *gaugeSet) leave(st *stream, t int64) (newest int64, was bool) {
	newest = t
	for _, o := range g.members {
		if o.st != st {
			newest = max(newest, o.t)
		}
		was = was || o.st == st && o.t <= t
	}
	g.members = slices.DeleteFunc(g.members, func(o gaugeMember) bool {
		return o.t < newest-gaugeLive || o.st == st && o.t <= t
	})
	return newest, was
}

// value is the policy over what is in. A NaN is no measurement: it counts only
// where there is nothing else.
func (g *gaugeSet) value(policy Gauge) float64 {
	v, sum, n := math.NaN(), 0.0, 0
	for _, o := range g.members {
		if o.v != o.v {
			continue
		}
		n++
		sum += o.v
		switch {
		case n == 1:
			v = o.v
		case policy == GaugeMin:
			v = min(v, o.v)
		case policy == GaugeMax:
			v = max(v, o.v)
		}
	}
	switch {
	case n == 0:
		return math.Float64frombits(value.NormalNaN)
	case policy == GaugeAvg:
		return sum / float64(n)
	}
	return v
}
