package ingest

import (
	"math"

	native "github.com/prometheus/prometheus/model/histogram"
)

// addDeltaExponential adds a point to the running sum of its series. Scales and
// zero thresholds that differ are brought to the coarser one.
func (w *walk) addDeltaExponential(m *metric, st *stream, t int64, v *exponentialValue, f *native.FloatHistogram) {
	// The same interval twice is a retry only when it counts the same, also in
	// another process: the journal has this number.
	w.print = printHistogram(w.print[:0], f)
	mark := float64(boundsHash(w.print) >> 12)
	if w.admit(m, st, st.s, deltaPoint{t, v.start, v.end, mark}) {
		w.growExponential(m, st.s, t, f, false)
	}
}

// growExponential is grow for an exponential histogram.
func (w *walk) growExponential(m *metric, s *series, t int64, by *native.FloatHistogram, fold bool) {
	first := len(w.samples)
	if sum, write := w.accumulateHistogram(m, s, t, by); write {
		w.histogramSample(m, s, t, hist{f: sum.Copy()})
		w.queue(point{m: m, t: t, delta: true, fold: fold}, first)
		return
	}
	w.tally.folded++
}

// accumulateHistogram is accumulate for a native histogram. What was the sum before
// is left as it was, for undo.
func (w *walk) accumulateHistogram(m *metric, s *series, t int64, by *native.FloatHistogram) (sum *native.FloatHistogram, write bool) {
	a := w.sumOf(m, s)
	if math.IsInf(by.Sum, 0) {
		by = by.Copy()
		by.Sum = 0
	}
	if a.f != nil {
		a.f = addHistograms(a.f, by)
	}
	if a.f == nil || math.IsInf(a.f.Sum, 0) {
		a.f = by
	}
	if !a.any || t > a.t {
		a.any, a.t = true, t
		return a.f, true
	}
	if s.req == w.n && s.last >= 0 && w.samples[s.last].hist != 0 {
		w.setHistogram(&w.samples[s.last], hist{f: a.f.Copy()})
	}
	return a.f, false
}

// summable gives f with its buckets outside its zero bucket: what lies within is
// counted there, since addition leaves it out. f is not to be used any more.
func summable(f *native.FloatHistogram) *native.FloatHistogram {
	positive, negative := f.PositiveBucketIterator(), f.NegativeBucketIterator()
	if !(positive.Next() && positive.At().Lower < f.ZeroThreshold) && !(negative.Next() && negative.At().Upper > -f.ZeroThreshold) {
		return f
	}
	wide := &native.FloatHistogram{Schema: f.Schema, ZeroThreshold: f.ZeroThreshold}
	f.ZeroThreshold = 0
	return addHistograms(f, wide)
}

// addHistograms gives a + b, and coarsens it until it has no more buckets than a
// point may have: the points of one stream can lie anywhere.
func addHistograms(a, b *native.FloatHistogram) *native.FloatHistogram {
	a, b = atOneScale(a, b)
	sum, _, _, err := a.Add(b)
	for err == nil && max(len(sum.PositiveBuckets), len(sum.NegativeBuckets)) > maxBuckets {
		err = sum.ReduceResolution(sum.Schema - 1)
	}
	if err != nil {
		panic("BUG: ingest: the sum of two exponential histograms: " + err.Error())
	}
	return sum
}

// addCumulativeExponential adds what one point of a workload's exponential
// histogram counts beyond the one before.
func (w *walk) addCumulativeExponential(m *metric, st *stream, t int64, v *exponentialValue, f *native.FloatHistogram) {
	l := w.admitCumulative(m, st, st.s)
	if l == nil {
		return
	}
	more := bucketsOf(f) - l.size()
	if !w.sums.roomForCounts(w.src.channel, more) {
		w.tally.reject(seriesLimit, 1, m.name, "")
		return
	}
	less := l.h == nil || f.DetectReset(l.h)
	same := l.h != nil && w.fingerprint(hist{f: f}) == w.fingerprint(hist{f: l.h})
	do := l.step(v.start, v.end, w.alone(l), less, same)
	by := f
	switch do {
	case stepWhole:
	case stepGrown:
		by = subtractHistograms(f, l.h)
	case stepBaseline:
		by = &native.FloatHistogram{Schema: f.Schema, ZeroThreshold: f.ZeroThreshold}
	default:
		w.notAdded(m, st, t, do)
		return
	}
	if d := w.turned(l, v.start, do); w.decisions != nil && d.act == actDelta {
		d.hist = exponentialDelta(by, v.hasSum)
	}
	w.sums.resized(st.state, more)
	l.start, l.end, l.v, l.h = v.start, v.end, f.Count, f
	w.growExponential(m, st.s, t, by, do == stepBaseline)
}

// subtractHistograms gives a - b, where b is an earlier value of a.
func subtractHistograms(a, b *native.FloatHistogram) *native.FloatHistogram {
	a, b = atOneScale(a, b)
	diff, _, _, err := a.Sub(b)
	if err != nil {
		panic("BUG: ingest: the difference of two exponential histograms: " + err.Error())
	}
	return diff.Compact(0)
}

// atOneScale gives copies at the coarser of the two scales. The library would do it
// too, but after it has brought the zero buckets to one width: what then lies in
// both a bucket and the zero bucket would count twice.
func atOneScale(a, b *native.FloatHistogram) (*native.FloatHistogram, *native.FloatHistogram) {
	a, b = a.Copy(), b.Copy()
	finer, to := a, b.Schema
	if b.Schema > a.Schema {
		finer, to = b, a.Schema
	}
	if finer.Schema > to {
		if err := finer.ReduceResolution(to); err != nil {
			panic("BUG: ingest: an exponential histogram at a coarser scale: " + err.Error())
		}
	}
	return a, b
}

func bucketsOf(f *native.FloatHistogram) int {
	return len(f.PositiveBuckets) + len(f.NegativeBuckets)
}

// exponentialDelta is a histogram as OTLP writes it.
func exponentialDelta(f *native.FloatHistogram, hasSum bool) *histogramDelta {
	return &histogramDelta{
		count: uint64(f.Count), sum: f.Sum, hasSum: hasSum,
		scale: f.Schema, zero: uint64(f.ZeroCount), zeroThreshold: f.ZeroThreshold,
		positive: denseBuckets(f.PositiveSpans, f.PositiveBuckets),
		negative: denseBuckets(f.NegativeSpans, f.NegativeBuckets),
	}
}

// denseBuckets lays buckets side by side. They span no more than the point did
// that they come from.
func denseBuckets(spans []native.Span, buckets []float64) exponentialBuckets {
	var out exponentialBuckets
	at, n := int32(0), 0
	for _, span := range spans {
		at += span.Offset
		for range span.Length {
			if c := buckets[n]; c > 0 {
				if out.counts == nil {
					out.offset = at - 1 // the sender's bucket begins where the store's one before ends
				}
				out.counts = append(out.counts, make([]uint64, int(at-1-out.offset)-len(out.counts))...)
				out.counts = append(out.counts, uint64(c))
			}
			at, n = at+1, n+1
		}
	}
	return out
}
