package ingest

import (
	"math"
	"testing"

	native "github.com/prometheus/prometheus/model/histogram"
)

// FuzzJournal feeds the reader: it must not panic, nor remember more than the
// bytes can hold, and what it has read it must write again.
func FuzzJournal(f *testing.F) {
	a := newAccumulator(&Options{MaxSeries: 10}, newMetrics(nil))
	f.Add(a.snapshot())
	a.addSum(&runningSum{labels: labelsOf("__name__", "a", "b", "c"), total: total{v: 1, t: 2, any: true}})
	st := &streamState{key: streamKey{1}, past: past{&deltas{}, &lastValue{start: 1, end: 2, v: 3, bounds: 4, counts: []uint64{5}}}}
	for i := range uint64(12) {
		st.count(i, i+1, 2)
	}
	a.streams[st.key] = st
	f.Add(a.snapshot())
	f.Add(a.snapshot()[:40])
	a.addSum(&runningSum{labels: labelsOf("__name__", "n"), total: total{t: 2, any: true, f: &native.FloatHistogram{Schema: 3, Count: 3, Sum: 4,
		PositiveSpans: []native.Span{{Offset: -2, Length: 2}}, PositiveBuckets: []float64{1, 2}}}})
	f.Add(a.snapshot())
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, payload := range [][]byte{nil, b} {
			a := newAccumulator(&Options{MaxSeries: 10}, newMetrics(nil))
			r := reading{a: &a, series: map[uint64]*runningSum{}, streams: map[uint64]*streamState{}}
			if payload == nil {
				_, _ = r.file(b)
			} else {
				_ = r.record(payload) // past the checksum
			}
			first := a.snapshot()
			if len(first) > 20*len(b)+200 {
				t.Errorf("%d bytes became %d", len(b), len(first))
			}
			again := newAccumulator(&Options{MaxSeries: 10}, newMetrics(nil))
			r = reading{a: &again, series: map[uint64]*runningSum{}, streams: map[uint64]*streamState{}}
			if torn, err := r.file(first); torn || err != nil || !r.ended {
				t.Fatalf("what was written cannot be read: torn %v, %v", torn, err)
			}
			if len(again.streams) != len(a.streams) {
				t.Errorf("%d streams became %d", len(a.streams), len(again.streams))
			}
			for key, s := range a.streams {
				if o := again.streams[key]; s.deltas != nil && s.n > 0 && (o.deltas == nil || o.n != s.n || !sameRing(o.deltas, s.deltas)) {
					t.Errorf("stream %x: %+v became %+v", key, s.deltas, o.deltas)
				}
			}
		}
	})
}

func sameRing(a, b *deltas) bool {
	for i := range a.ring {
		x, y := a.ring[i], b.ring[i]
		if x.start != y.start || x.end != y.end || math.Float64bits(x.v) != math.Float64bits(y.v) {
			return false
		}
	}
	return true
}
