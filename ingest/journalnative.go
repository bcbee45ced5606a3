package ingest

import (
	"encoding/binary"

	native "github.com/prometheus/prometheus/model/histogram"
)

// appendNative writes a histogram of floats as the journal holds it.
func appendNative(b []byte, f *native.FloatHistogram) []byte {
	b = binary.AppendVarint(b, int64(f.Schema))
	for _, v := range []float64{f.ZeroThreshold, f.ZeroCount, f.Count, f.Sum} {
		b = appendFloat(b, v)
	}
	b = appendSide(b, f.PositiveSpans, f.PositiveBuckets)
	return appendSide(b, f.NegativeSpans, f.NegativeBuckets)
}

func appendSide(b []byte, spans []native.Span, buckets []float64) []byte {
	b = binary.AppendUvarint(b, uint64(len(spans)))
	for _, s := range spans {
		b = binary.AppendUvarint(binary.AppendVarint(b, int64(s.Offset)), uint64(s.Length))
	}
	for _, v := range buckets {
		b = appendFloat(b, v)
	}
	return b
}

// native reads one, and refuses what could not be added to.
func (e *entries) native() *native.FloatHistogram {
	f := &native.FloatHistogram{Schema: int32(e.varint())}
	f.ZeroThreshold, f.ZeroCount, f.Count, f.Sum = e.float(), e.float(), e.float(), e.float()
	f.PositiveSpans, f.PositiveBuckets = e.side()
	f.NegativeSpans, f.NegativeBuckets = e.side()
	if e.bad || f.Schema < -4 || f.Schema > 8 || f.Validate() != nil {
		e.bad = true
		return nil
	}
	return f
}

func (e *entries) side() (spans []native.Span, buckets []float64) {
	n := e.uvarint()
	if n > maxBuckets {
		e.bad = true
		return nil, nil
	}
	total := uint64(0)
	for range n {
		s := native.Span{Offset: int32(e.varint())}
		length := e.uvarint()
		if total += length; length > maxBuckets || total > 2*maxBuckets {
			e.bad = true
			return nil, nil
		}
		s.Length = uint32(length)
		spans = append(spans, s)
	}
	for range total {
		buckets = append(buckets, e.float())
	}
	return spans, buckets
}
