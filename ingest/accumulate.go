package ingest

// A delta point says by how much a stream grew over its interval; the store
// holds the running sum. The sum belongs to the stored series, so that several
// streams that give one series add up (S2-72, S2-75); what was counted already
// is remembered by exact stream, so that a retry is not added twice (S2-79). A
// gap between two intervals is lost data, no reset (C03): the sum goes on.
//
// Both live in memory and start at zero after a restart, which reads as a
// counter's reset.

// runningSum is the sum of the delta points of a series.
type runningSum struct {
	v   float64
	t   int64 // Unix milliseconds of the newest sample
	any bool
	req uint64 // request that has saved it for undo
}

// interval is one delta point that was counted: (start, end] in Unix
// nanoseconds, start 0 when the sender does not know it.
type interval struct {
	start, end uint64
	v          float64
}

// deltas are the newest intervals of one stream.
type deltas struct {
	ring [8]interval
	n    int // counted so far
	req  uint64
}

// verdict is what to do with a delta point.
type verdict uint8

const (
	addNew  verdict = iota // add it and write the sum at its time
	addLate                // add it, though the sum at its time is written
	retry                  // it is in the sum already
	refuse
)

// judge compares a point with what its stream has counted.
func (d *deltas) judge(start, end uint64, v float64) (verdict, reason) {
	known := d.ring[:min(d.n, len(d.ring))]
	newest, oldest := uint64(0), ^uint64(0)
	overlaps := false
	for _, k := range known {
		if k.end == end {
			if k.start == start && k.v == v {
				return retry, fine
			}
			return refuse, duplicate
		}
		newest, oldest = max(newest, k.end), min(oldest, k.end)
		overlaps = overlaps || start < k.end && k.start < end
	}
	switch {
	case end > newest:
		// Also where the start lies inside an earlier interval: some senders keep
		// one start for ever.
		return addNew, fine
	case start == 0 || start > end || overlaps:
		return refuse, outOfOrder
	case end < oldest && d.n > len(d.ring):
		return refuse, outOfOrder // it may have been counted and forgotten
	}
	return addLate, fine
}

func (d *deltas) count(start, end uint64, v float64) {
	d.ring[d.n%len(d.ring)] = interval{start, end, v}
	d.n++
}

// savedSum and savedDeltas are what a request that fails puts back.
type savedSum struct {
	s   *series
	was runningSum
}

type savedDeltas struct {
	st  *stream
	was deltas
}

// sumOf returns the running sum of a series, saved for undo.
func (w *walk) sumOf(s *series) *runningSum {
	if s.sum == nil {
		s.sum = &runningSum{}
	}
	if s.sum.req != w.n {
		w.savedSums = append(w.savedSums, savedSum{s, *s.sum})
		s.sum.req = w.n
	}
	return s.sum
}

func (w *walk) deltasOf(st *stream) *deltas {
	if st.seen == nil {
		st.seen = &deltas{}
	}
	if st.seen.req != w.n {
		w.savedDeltas = append(w.savedDeltas, savedDeltas{st, *st.seen})
		st.seen.req = w.n
	}
	return st.seen
}

// accumulate adds v to the series and reports whether the sum is to be written
// at t. A sum that is waiting to be written in this request takes v along.
func (w *walk) accumulate(s *series, t int64, v float64) (sum float64, write bool) {
	a := w.sumOf(s)
	a.v += v
	if !a.any || t > a.t {
		a.any, a.t = true, t
		return a.v, true
	}
	if s.req == w.n && s.last >= 0 {
		w.samples[s.last].v = a.v
	}
	return a.v, false
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
	d := w.deltasOf(st)
	switch verdict, why := d.judge(p.start, p.end, p.v); verdict {
	case refuse:
		w.tally.reject(why, 1, m.name, "")
		return false
	case retry:
		w.repeat(m, st, p.t)
		return false
	}
	d.count(p.start, p.end, p.v)
	return true
}

// repeat answers a retry. When the sum still stands at the point's time it is
// written there again: the first time it may have been lost before it was
// durable.
func (w *walk) repeat(m *metric, st *stream, t int64) {
	w.decided().act = actDrop // it has gone onward
	first := len(w.samples)
	for s := range st.all() {
		if s.sum != nil && s.sum.any && s.sum.t == t {
			w.sample(m, s, t, s.sum.v)
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
	if !w.admit(m, st, st.s, p) {
		return
	}
	first := len(w.samples)
	if sum, write := w.accumulate(st.s, p.t, p.v); write {
		w.sample(m, st.s, p.t, sum)
		w.queue(point{m: m, t: p.t, delta: true}, first)
		return
	}
	w.tally.folded++
}
