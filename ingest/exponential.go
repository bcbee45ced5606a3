package ingest

import (
	"encoding/binary"
	"math"
	"math/bits"

	native "github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"
)

// Bounds on exponential histograms. A bucket is a byte or two on the wire and
// eight in memory, here and in the store.
const (
	maxBuckets        = 1024    // on a side of one point, and of a running sum
	maxRequestBuckets = 2 << 20 // in one request
)

// defaultZeroThreshold is the width of the zero bucket where the sender states
// none: Prometheus's.
const defaultZeroThreshold = 1e-128

// exponentialValue is what an ExponentialHistogramDataPoint says.
type exponentialValue struct {
	attrs              attributeBytes
	start, end         uint64 // Unix nanoseconds
	count, zeroCount   uint64
	sum, zeroThreshold float64
	scale              int32
	hasSum, stale      bool
	positive, negative joined
}

// exponentialPoint reads one ExponentialHistogramDataPoint and queues its sample,
// a native histogram.
func (w *walk) exponentialPoint(b []byte) error {
	var v exponentialValue
	if err := w.readExponential(b, &v); err != nil {
		return err
	}
	e, t, err := w.find(v.end, v.attrs.b)
	if e == nil || err != nil {
		return err
	}
	m, s := &w.me.v, e.v.s
	switch {
	case v.stale && w.src.stamp != nil: // others may go on in the same series
		w.tally.folded++
		return nil
	case v.stale:
		w.addHistogram(m, s, t, staleHistogram(m.temporality))
		return nil
	}
	h, why, err := w.nativeOf(&v)
	switch {
	case err != nil:
		return err
	case why != fine:
		w.tally.reject(why, 1, m.name, "")
	case m.temporality == temporalityDelta:
		w.addDeltaExponential(m, &e.v, t, &v, summable(h.ToFloat(nil)))
	case w.src.stamp != nil:
		w.addCumulativeExponential(m, &e.v, t, &v, summable(h.ToFloat(nil)))
	default:
		w.addHistogram(m, s, t, hist{h: h})
	}
	return nil
}

// readExponential decodes a point without looking anything up.
func (w *walk) readExponential(b []byte, v *exponentialValue) error {
	f := fields{b: b}
	for from := 0; f.next(); from = len(b) - len(f.b) {
		switch {
		case f.num == 1 && f.typ == wireBytes:
			v.attrs.add(w, b, from, len(b)-len(f.b))
		case f.num == 2 && f.typ == wireFixed8:
			v.start = f.val
		case f.num == 3 && f.typ == wireFixed8:
			v.end = f.val
		case f.num == 4 && f.typ == wireFixed8:
			v.count = f.val
		case f.num == 5 && f.typ == wireFixed8:
			v.sum, v.hasSum = math.Float64frombits(f.val), true
		case f.num == 6 && f.typ == wireVarint:
			v.scale = unzigzag(f.val)
		case f.num == 7 && f.typ == wireFixed8:
			v.zeroCount = f.val
		case f.num == 8 && f.typ == wireBytes:
			v.positive.add(f.data)
		case f.num == 9 && f.typ == wireBytes:
			v.negative.add(f.data)
		case f.num == 10 && f.typ == wireVarint:
			v.stale = f.val&1 != 0
		case f.num == 14 && f.typ == wireFixed8:
			v.zeroThreshold = math.Float64frombits(f.val)
		case f.num == 11 && f.typ == wireBytes:
			if err := w.exemplar(f.data); err != nil {
				return err
			}
		case (f.num == 12 || f.num == 13) && f.typ == wireFixed8: // min, max: no series
		case f.num <= 14:
			return undecodable("a field of an exponential histogram point has the wrong wire type")
		}
		if f.num == 8 || f.num == 9 {
			if err := w.more(); err != nil {
				return err
			}
		}
	}
	if f.broken {
		return undecodable("an exponential histogram point is cut short or malformed")
	}
	return nil
}

// unzigzag reads a sint32.
func unzigzag(v uint64) int32 { return int32(uint32(v)>>1) ^ -int32(uint32(v)&1) }

// nativeOf makes the native histogram of a point, or says why there is none. A
// scale above what a store holds is brought down to it; what lies below the least
// cannot be told apart there.
func (w *walk) nativeOf(v *exponentialValue) (*native.Histogram, reason, error) {
	positive, err := w.readBuckets(v.positive.b, nil)
	if err != nil {
		return nil, fine, err
	}
	negative, err := w.readBuckets(v.negative.b, positive.counts)
	if err != nil {
		return nil, fine, err
	}
	w.buckets += len(positive.counts) + len(negative.counts)
	threshold := max(defaultZeroThreshold, v.zeroThreshold)
	switch {
	case len(positive.counts) > maxBuckets, len(negative.counts) > maxBuckets, w.buckets > maxRequestBuckets:
		return nil, bucketLimit, nil
	case v.scale < native.ExponentialSchemaMin:
		return nil, badScale, nil
	case v.sum != v.sum || math.IsInf(v.sum, 0):
		return nil, notFinite, nil
	case threshold != threshold || math.IsInf(threshold, 1) || v.zeroThreshold < 0:
		return nil, badBuckets, nil
	}
	h := &native.Histogram{
		Schema: min(v.scale, native.ExponentialSchemaMax), Count: v.count, Sum: v.sum,
		ZeroCount: v.zeroCount, ZeroThreshold: threshold,
	}
	down := uint32(v.scale - h.Schema)
	total, carry := v.zeroCount, uint64(0)
	for _, side := range []struct {
		from    buckets
		spans   *[]native.Span
		buckets *[]int64
	}{{positive, &h.PositiveSpans, &h.PositiveBuckets}, {negative, &h.NegativeSpans, &h.NegativeBuckets}} {
		for _, n := range side.from.counts {
			var over uint64
			total, over = bits.Add64(total, n, 0)
			carry |= over
		}
		var ok bool
		if *side.spans, *side.buckets, ok = side.from.layOut(h.Schema, down); !ok {
			return nil, badBuckets, nil
		}
	}
	if carry != 0 || total != v.count || total > math.MaxInt64 {
		return nil, countMismatch, nil
	}
	return h, fine, nil
}

// buckets are one side of an exponential histogram as sent: counts side by side,
// the first at offset.
type buckets struct {
	offset int32
	counts []uint64
}

// readBuckets decodes a side into the scratch behind what before holds of it.
func (w *walk) readBuckets(b []byte, before []uint64) (buckets, error) {
	var side buckets
	w.wide = append(w.wide[:0], before...)
	add := func(n uint64) { // one too many is kept: it says so
		if len(w.wide)-len(before) <= maxBuckets {
			w.wide = append(w.wide, n)
		}
	}
	for f := (fields{b: b}); ; {
		if !f.next() {
			if f.broken {
				return side, undecodable("buckets are cut short or malformed")
			}
			break
		}
		switch {
		case f.num == 1 && f.typ == wireVarint:
			side.offset = unzigzag(f.val)
		case f.num == 2 && f.typ == wireVarint:
			add(f.val)
		case f.num == 2 && f.typ == wireBytes:
			for data := f.data; len(data) > 0; {
				n, size := binary.Uvarint(data)
				if size <= 0 {
					return side, undecodable("a bucket count is malformed")
				}
				add(n)
				data = data[size:]
			}
		case f.num <= 2:
			return side, undecodable("a field of buckets has the wrong wire type")
		}
	}
	side.counts = w.wide[len(before):]
	return side, nil
}

// layOut gives a side as the store has it: the buckets that hold something, each
// as the difference from the one before, with small gaps filled. 2^down buckets of
// the sender make one. It is false when a bucket lies where no float64 does.
func (b buckets) layOut(schema int32, down uint32) (spans []native.Span, deltas []int64, ok bool) {
	lowest, highest := int64(-1075)<<max(schema, 0)>>max(-schema, 0)-1, int64(1024)<<max(schema, 0)>>max(-schema, 0)
	const smallGap = 2 // cheaper to fill than to jump over
	next := int64(0)   // index behind the last bucket
	before := uint64(0)
	for i := 0; i < len(b.counts); {
		// The store's bucket i ends where the sender's bucket i begins.
		at := (int64(b.offset)+int64(i))>>down + 1
		var n uint64
		for ; i < len(b.counts) && (int64(b.offset)+int64(i))>>down+1 == at; i++ {
			n += b.counts[i]
		}
		if n == 0 {
			continue
		}
		if at < lowest || at > highest {
			return nil, nil, false
		}
		if gap := at - next; len(spans) == 0 || gap > smallGap {
			spans = append(spans, native.Span{Offset: int32(gap)})
		} else {
			for range gap {
				deltas, before = append(deltas, -int64(before)), 0
				spans[len(spans)-1].Length++
			}
		}
		deltas, before = append(deltas, int64(n-before)), n
		spans[len(spans)-1].Length++
		next = at + 1
	}
	return spans, deltas, true
}

// staleHistogram ends a series of native histograms. It is of the kind that the
// series holds, so that the store need not begin a new chunk for it.
func staleHistogram(temporality uint8) hist {
	marker := math.Float64frombits(value.StaleNaN)
	if temporality == temporalityDelta {
		return hist{f: &native.FloatHistogram{Sum: marker}}
	}
	return hist{h: &native.Histogram{Sum: marker}}
}
