package ingest

import (
	"encoding/binary"
	"hash/maphash"
	"math"

	native "github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"
)

// hist is a native histogram, of whole numbers or of floats: one of the two is
// set. The store may change what it is given, so nothing else may hold it.
type hist struct {
	h *native.Histogram
	f *native.FloatHistogram
}

// histogramSample queues one native histogram of the point that queue will close.
func (w *walk) histogramSample(m *metric, s *series, t int64, x hist) {
	w.hists = append(w.hists, x)
	w.sample(m, s, t, math.Float64frombits(w.fingerprint(x)))
	w.samples[len(w.samples)-1].hist = int32(len(w.hists))
}

// setHistogram replaces what a queued sample holds.
func (w *walk) setHistogram(sm *sample, x hist) {
	w.hists[sm.hist-1] = x
	sm.v = math.Float64frombits(w.fingerprint(x))
}

// addHistogram queues a point with one native histogram.
func (w *walk) addHistogram(m *metric, s *series, t int64, x hist) {
	if !w.free(m, s) {
		w.tally.reject(nameCollision, 1, m.name, "")
		return
	}
	first := len(w.samples)
	w.histogramSample(m, s, t, x)
	w.queue(point{m: m, t: t}, first)
}

// fingerprint stands for a histogram where samples are compared: equal for equal
// ones, however their buckets are laid out, and whether of whole numbers or of
// floats. Its seed is the process's own, so that nobody can look for two that
// share one. A stale marker's is that of the marker among floats.
func (w *walk) fingerprint(x hist) uint64 {
	f := x.f
	if f == nil {
		if value.IsStaleNaN(x.h.Sum) {
			return value.StaleNaN
		}
		f = x.h.ToFloat(&w.float)
	}
	if value.IsStaleNaN(f.Sum) {
		return value.StaleNaN
	}
	w.print = printHistogram(w.print[:0], f)
	return maphash.Bytes(w.seed, w.print)
}

// printHistogram writes what makes a histogram equal to another one.
func printHistogram(b []byte, f *native.FloatHistogram) []byte {
	for _, v := range []uint64{uint64(f.Schema), math.Float64bits(f.Sum), math.Float64bits(f.Count),
		math.Float64bits(f.ZeroCount), math.Float64bits(f.ZeroThreshold)} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	b = appendBuckets(b, f.PositiveSpans, f.PositiveBuckets)
	b = append(b, 0)
	return appendBuckets(b, f.NegativeSpans, f.NegativeBuckets)
}

// appendBuckets writes the index and the count of each bucket that is not empty.
func appendBuckets(b []byte, spans []native.Span, buckets []float64) []byte {
	at, n := int32(0), 0
	for _, span := range spans {
		at += span.Offset
		for range span.Length {
			if buckets[n] != 0 {
				b = binary.LittleEndian.AppendUint32(b, uint32(at))
				b = binary.LittleEndian.AppendUint64(b, math.Float64bits(buckets[n]))
			}
			at, n = at+1, n+1
		}
	}
	return b
}
