package ingest

import (
	"encoding/binary"
)

// On a workload channel many actors write one series, one after another and at
// one time, and each counts from a start of its own: perhaps one that is frozen
// in the snapshot that it was restored from (S2-76). So a cumulative stream is
// turned into increments, and these add up like those of a delta stream: the
// stored counter never goes back (S2-74), and what an actor brought along from
// before its activation is not counted again (S2-77).

// step is what a new value of a cumulative stream does to the sum.
type step uint8

const (
	stepWhole    step = iota // all of it is new: the first value, or after a reset
	stepGrown                // what it is more than the last value
	stepBaseline             // nothing of it can be told to be new
	stepOld                  // the last value is newer
	stepRepeated             // the last value is this one
	stepClash                // the last value has the same time and is another
)

// step compares a value with the last one of its stream. since is when the actor's
// own time here begins; less says that the value, or a part of it, is
// smaller than the last one, and same that it is equal in all.
func (l *lastValue) step(start, end, since uint64, less, same bool) step {
	switch {
	case l.known() && end < l.end:
		return stepOld
	case l.known() && end == l.end && same && start == l.start:
		return stepRepeated
	case l.known() && end == l.end:
		return stepClash
	case l.end < since || !l.known(): // a first one: what came before was elsewhere
		if start >= since {
			return stepWhole
		}
		return stepBaseline
	case start > l.start, less:
		return stepWhole
	}
	return stepGrown
}

// addCumulative adds one point of a monotonic sum.
func (w *walk) addCumulative(m *metric, st *stream, t int64, start, end uint64, v float64) {
	l := w.admitCumulative(m, st, st.s)
	if l == nil {
		return
	}
	by := 0.0
	do := l.step(start, end, w.alone(l), v < l.v, v == l.v)
	switch do {
	case stepWhole:
		by = v
	case stepGrown:
		by = v - l.v
	case stepBaseline:
	default:
		w.notAdded(m, st, t, do)
		return
	}
	d := w.turned(l, start, do)
	d.value = by
	l.start, l.end, l.v = start, end, v
	w.grow(m, st.s, t, by, do == stepBaseline)
}

func (w *walk) admitCumulative(m *metric, st *stream, s *series) *lastValue {
	if !w.free(m, s) {
		w.tally.reject(nameCollision, 1, m.name, "")
		return nil
	}
	state := w.state(st)
	if state == nil || !w.roomFor(m, st) {
		w.tally.reject(seriesLimit, 1, m.name, "")
		return nil
	}
	return state.lastValue
}

// alone is since when what a stream counts can be told to be counted nowhere else:
// of one that is not known, after the last that was forgotten.
func (w *walk) alone(l *lastValue) uint64 {
	if l.known() || w.sums.blind <= 0 {
		return w.src.alone
	}
	return max(w.src.alone, uint64(w.sums.blind)*1e6+1)
}

// turned counts a value that is added and decides that it goes onward as what it
// adds, since the last value or since the actor's own time.
func (w *walk) turned(l *lastValue, start uint64, do step) *decision {
	d := w.decided()
	d.act = actDelta
	switch do {
	case stepGrown:
		d.start = l.end
	case stepBaseline:
		d.act = actDrop
		w.tally.windows[windowBaseline]++
	default:
		d.start = max(start, w.src.since)
	}
	return d
}

// notAdded answers a value that changes nothing.
func (w *walk) notAdded(m *metric, st *stream, t int64, do step) {
	switch do {
	case stepRepeated:
		w.repeat(m, st, t)
	case stepOld:
		w.decided().act = actDrop
		w.tally.windows[windowLate]++
		w.tally.folded++
	default:
		w.tally.reject(duplicate, 1, m.name, "")
	}
}

// boundsHash is the same in every process.
func boundsHash(b []byte) uint64 {
	// FNV-1a: it tells the sets of bounds of one stream apart, against no enemy:
	// a stream is one sender's own.
	h := uint64(14695981039346656037)
	for _, c := range b {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return h
}

// addCumulativeHistogram adds one point of a classic histogram. Other bounds than
// before are a reset: counts over different bounds do not add up.
func (w *walk) addCumulativeHistogram(m *metric, st *stream, t int64, v *histogramValue) {
	l := w.admitCumulative(m, st, st.h.count)
	if l == nil {
		return
	}
	n, bounds := len(v.counts.b)/8, boundsHash(v.bounds.b)
	if !w.sums.roomForCounts(w.src.channel, n-len(l.counts)) {
		w.tally.reject(seriesLimit, 1, m.name, "")
		return
	}
	less := float64(v.count) < l.v || bounds != l.bounds || n != len(l.counts)
	same := !less && float64(v.count) == l.v && v.sum == l.sum
	for i := range min(n, len(l.counts)) {
		c := binary.LittleEndian.Uint64(v.counts.b[8*i:])
		less, same = less || c < l.counts[i], same && c == l.counts[i]
	}
	do := l.step(v.start, v.end, w.alone(l), less, same)
	by := *v
	switch do {
	case stepWhole:
	case stepGrown, stepBaseline:
		w.subtract(&by, l, do == stepBaseline)
	default:
		w.notAdded(m, st, t, do)
		return
	}
	d := w.turned(l, v.start, do)
	if w.decisions != nil && d.act == actDelta {
		d.hist = &histogramDelta{count: by.count, sum: by.sum, hasSum: by.hasSum, counts: make([]uint64, n)}
		for i := range n {
			d.hist.counts[i] = binary.LittleEndian.Uint64(by.counts.b[8*i:])
		}
	}
	w.sums.resized(st.state, n-len(l.counts))
	l.start, l.end, l.v, l.sum, l.bounds = v.start, v.end, float64(v.count), v.sum, bounds
	l.counts = l.counts[:0]
	for i := range n {
		l.counts = append(l.counts, binary.LittleEndian.Uint64(v.counts.b[8*i:]))
	}
	w.growHistogram(m, st, t, &by, do == stepBaseline)
}

// subtract leaves in v what it is more than the last value, or nothing at all.
func (w *walk) subtract(v *histogramValue, l *lastValue, all bool) {
	w.diff = w.diff[:0]
	for i := range len(v.counts.b) / 8 {
		c := binary.LittleEndian.Uint64(v.counts.b[8*i:])
		if all {
			c = 0
		} else {
			c -= l.counts[i]
		}
		w.diff = binary.LittleEndian.AppendUint64(w.diff, c)
	}
	v.counts.b = w.diff
	if all {
		v.count, v.sum = 0, 0
		return
	}
	v.count -= uint64(l.v)
	v.sum -= l.sum
}

// growHistogram adds v to the sums of all series of a histogram and queues the
// point, as grow does.
func (w *walk) growHistogram(m *metric, st *stream, t int64, v *histogramValue, fold bool) {
	first := len(w.samples)
	written := false
	st.h.each(v, func(s *series, x float64) {
		sum, write := w.accumulate(m, s, t, x)
		if write {
			w.sample(m, s, t, sum)
			written = written || s == st.h.count
		}
	})
	if len(w.samples) == first {
		w.tally.folded++
		return
	}
	w.queue(point{m: m, t: t, delta: true, fold: fold || !written}, first)
}
