package ingest

import (
	"context"
	"math"

	native "github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
)

// A delta point says by how much a stream grew over its interval; the store
// holds the running sum. The sum belongs to the stored series, so that several
// streams that give one series add up (S2-72, S2-75); what was counted already
// is remembered by exact stream, so that a retry is not added twice (S2-79). A
// gap between two intervals is lost data, no reset (C03): the sum goes on.
//
// Both outlive what the cache knows of the series, and with Options.StateDir the
// process.

// accumulator holds the running sums and what is known of the streams that they
// are made of. The Receiver's lock guards it.
type accumulator struct {
	sums    map[uint64]*runningSum // by hash of the labels, chained by same
	nSums   int
	streams map[streamKey]*streamState
	max     int   // of each
	nCounts int   // bucket counts in streams
	actors  int   // streams that count for workload channels
	swept   int64 // Unix milliseconds
	cramped int64 // when it was last swept for want of room
	m       *metrics

	// blind is the time, in Unix milliseconds, up to which there were cumulative
	// streams of which nothing is known any more: what an unknown one counts from
	// before it may be in a sum already.
	blind int64

	// What names them in the journal.
	lastSum, lastStream uint64
	journal             *journal // nil in memory alone
}

// total is a sum as of its newest sample.
type total struct {
	v   float64
	f   *native.FloatHistogram // of an exponential histogram, in place of v; never changed in place
	t   int64                  // Unix milliseconds of the newest sample
	any bool                   // there is one
}

// runningSum is the sum of the increments of a series.
type runningSum struct {
	total
	labels    labels.Labels
	monotonic bool
	same      *runningSum // next one with the same hash
	id        uint64      // in the journal; 0: not in it yet
	used      int64       // Unix milliseconds
	compared  bool        // with what the store holds
	gone      bool        // out of the accumulator, for want of room
	req       uint64      // request that has saved it for undo
}

func newAccumulator(o *Options, m *metrics) accumulator {
	return accumulator{sums: map[uint64]*runningSum{}, streams: map[streamKey]*streamState{}, max: o.MaxSeries, m: m}
}

// sum finds the running sum of a series, nil when there is none.
func (a *accumulator) sum(hash uint64, ls labels.Labels) *runningSum {
	for s := a.sums[hash]; s != nil; s = s.same {
		if labels.Equal(s.labels, ls) {
			return s
		}
	}
	return nil
}

func (a *accumulator) addSum(s *runningSum) {
	hash := s.labels.Hash()
	s.same, s.gone = a.sums[hash], false
	a.sums[hash] = s
	a.nSums++
}

// savedTotal is what a request that fails puts back.
type savedTotal struct {
	s   *runningSum
	was total
}

// sumOf returns the running sum of a series that metric m writes, saved for undo.
// It is nil when there is no room.
func (w *walk) sumOf(m *metric, s *series) *runningSum {
	a := s.sum
	if a == nil || a.gone {
		if a = w.findSum(m, s); a == nil {
			return nil
		}
		s.sum = a
	}
	a.used = w.now
	if a.req != w.n {
		w.savedTotals = append(w.savedTotals, savedTotal{a, a.total})
		a.req = w.n
	}
	return a
}

func (w *walk) findSum(m *metric, s *series) *runningSum {
	c := &w.sums
	a := s.sum
	if a == nil {
		a = c.sum(s.labels.Hash(), s.labels)
	}
	if a == nil || a.gone {
		if !c.room(func() bool { return c.nSums < c.max }, w.now) {
			return nil
		}
		if a == nil {
			a = &runningSum{labels: s.labels}
		}
		c.addSum(a)
	}
	a.monotonic = !s.falls && (m.monotonic || m.kind != kindSum)
	if !a.compared && c.journal != nil {
		w.compare(a, m.kind == kindExpHistogram)
	}
	a.compared = true
	return a
}

// compare takes over what the store has beyond a sum that an earlier process
// left: after a power cut the log of the store may reach further than the
// journal. A counter never goes back.
func (w *walk) compare(a *runningSum, histograms bool) {
	from := w.now - forgetAfter
	if a.any {
		from = a.t
	}
	found := w.newestStored(a.labels, from, histograms)
	switch {
	case !found.any:
	case !a.any:
		a.total = found
		if w.src.stamp != nil {
			w.sums.blind = max(w.sums.blind, found.t) // whose streams it is made of is not known
		}
	case histograms:
		if a.f == nil || found.f.Count > a.f.Count {
			a.f = found.f
		}
		a.t = max(a.t, found.t)
	case a.monotonic:
		a.v, a.t = max(a.v, found.v), max(a.t, found.t)
	case found.t > a.t:
		a.v, a.t = found.v, found.t
	}
}

// newestStored reads the newest number of a series at or after from, or its newest
// histogram.
func (w *walk) newestStored(ls labels.Labels, from int64, histograms bool) (found total) {
	if w.o.Queryable == nil {
		return found
	}
	q, err := w.o.Queryable.Querier(from, w.now+w.o.Ahead.Milliseconds())
	if err != nil {
		w.o.Logger.Warn("a running sum goes on without a look at what is stored", "err", err)
		return found
	}
	defer func() {
		if err := q.Close(); err != nil {
			w.o.Logger.Warn("a querier did not close", "err", err)
		}
	}()
	set := q.Select(context.Background(), false, &storage.SelectHints{Start: from, End: w.now + w.o.Ahead.Milliseconds()}, exactly(ls)...)
	for set.Next() {
		one := set.At()
		if !labels.Equal(one.Labels(), ls) {
			continue
		}
		it := one.Iterator(nil)
		for kind := it.Next(); kind != 0; kind = it.Next() {
			switch {
			case histograms && kind != floatSample:
				if at, f := it.AtFloatHistogram(nil); !value.IsStaleNaN(f.Sum) {
					f.CounterResetHint = native.UnknownCounterReset
					found = total{f: f, t: at, any: true}
				}
			case !histograms && kind == floatSample:
				if at, x := it.At(); !value.IsStaleNaN(x) && x == x {
					found = total{v: x, t: at, any: true}
				}
			}
		}
	}
	if err := set.Err(); err != nil {
		w.o.Logger.Warn("a running sum goes on without a look at all that is stored", "err", err)
	}
	return found
}

// accumulate adds v to the series and reports whether the sum is to be written
// at t. A sum that is waiting to be written in this request takes v along. One
// beyond the greatest number begins anew, as a counter does that is full: what is
// infinite would stay so for all who share the series.
func (w *walk) accumulate(m *metric, s *series, t int64, v float64) (sum float64, write bool) {
	a := w.sumOf(m, s)
	if math.IsInf(v, 0) { // the difference of two finite ones
		v = 0
	}
	if a.v += v; math.IsInf(a.v, 0) {
		a.v = v
	}
	if !a.any || t > a.t {
		a.any, a.t = true, t
		return a.v, true
	}
	if s.req == w.n && s.last >= 0 {
		w.samples[s.last].v = a.v
	}
	return a.v, false
}

// roomFor reports whether there is room for the running sums of a stream.
func (w *walk) roomFor(m *metric, st *stream) bool {
	for s := range st.all() {
		if w.sumOf(m, s) == nil {
			return false
		}
	}
	return true
}

// deltaPoint is one delta point: its time in milliseconds, its interval in
// nanoseconds, and what tells it from another one of the same interval.
type deltaPoint struct {
	t          int64
	start, end uint64
	v          float64
}

// admit judges a delta point of a stream that writes to s, and counts it. A point
// that is not to be added has been dealt with when ok is false.
func (w *walk) admit(m *metric, st *stream, s *series, p deltaPoint) (ok bool) {
	if !w.free(m, s) {
		w.tally.reject(nameCollision, 1, m.name, "")
		return false
	}
	d := w.state(st)
	if d == nil || !w.roomFor(m, st) {
		w.tally.reject(seriesLimit, 1, m.name, "")
		return false
	}
	verdict, why := d.judge(p.start, p.end, p.v)
	switch {
	case verdict == retry:
		w.repeat(m, st, p.t)
		return false
	case p.end <= w.src.since: // on a workload channel: it is not this actor's own
		w.tally.windows[windowBefore]++
		w.tally.reject(beforeActivation, 1, m.name, "")
		return false
	case verdict == refuse:
		w.tally.reject(why, 1, m.name, "")
		return false
	case verdict == addLate:
		w.tally.windows[windowLate]++
	case d.gap(p.start, w.src.since):
		w.tally.windows[windowLost]++
	}
	d.count(p.start, p.end, p.v)
	return true
}

// repeat answers a retry. When the sum still stands at the point's time it is
// written there again: the first time it may have been lost before it was
// durable.
func (w *walk) repeat(m *metric, st *stream, t int64) {
	w.decided().act = actDrop // it has gone onward
	w.tally.windows[windowRepeated]++
	first := len(w.samples)
	for s := range st.all() {
		a := w.sumOf(m, s)
		switch {
		case a == nil || !a.any || a.t != t:
		case m.kind == kindExpHistogram && a.f != nil:
			w.histogramSample(m, s, t, hist{f: a.f.Copy()})
		case m.kind != kindExpHistogram:
			w.sample(m, s, t, a.v)
		}
	}
	if len(w.samples) == first {
		w.tally.folded++
		return
	}
	w.queue(point{m: m, t: t, fold: true}, first)
}

// addDelta adds one point of a sum.
func (w *walk) addDelta(m *metric, st *stream, p deltaPoint) {
	if w.admit(m, st, st.s, p) {
		w.grow(m, st.s, p.t, p.v, false)
	}
}

// grow adds v to the sum of a series and queues the point. fold says that the
// point counts as folded even where its sum is written.
func (w *walk) grow(m *metric, s *series, t int64, v float64, fold bool) {
	first := len(w.samples)
	if sum, write := w.accumulate(m, s, t, v); write {
		w.sample(m, s, t, sum)
		w.queue(point{m: m, t: t, delta: true, fold: fold}, first)
		return
	}
	w.tally.folded++
}
