package remote

import (
	"encoding/binary"
	"errors"
	"math"

	writev2 "github.com/prometheus/client_golang/exp/api/remote/genproto/v2"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/wattloop/wattloop/store"
)

// A record of the queue is the number of its entries as a varint, and the entries.
// An entry is a varint that holds its kind in the two lowest bits and above them
// the number of its series, which counts from 0 in each file; a number that was
// not met yet is followed by the number of labels and their names and values. What
// follows hangs on the kind:
//
//	sample     time (zigzag varint, since the entry before), value (8 bytes)
//	histogram  time, length, message of Remote Write 2.0
//	exemplar   time, value (8 bytes), number of labels, names and values
//
// A text is its number as a varint, which counts from 1 in each file, or 0 and the
// text, which then gets the next number.
const (
	kindSample = iota
	kindHistogram
	kindExemplar
)

// recordKind is the kind of the records in the queue.
const recordKind = 1

// encoder writes records; what it has written it need not write again to the same
// file.
type encoder struct {
	segment uint64
	texts   map[string]uint64
	series  map[storage.SeriesRef]uint64
	buf     []byte
	last    int64
}

// record writes a batch for a file.
func (e *encoder) record(segment uint64, b store.Batch) []byte {
	if segment != e.segment || e.texts == nil {
		e.segment, e.texts, e.series = segment, map[string]uint64{}, map[storage.SeriesRef]uint64{}
	}
	e.buf, e.last = binary.AppendUvarint(e.buf[:0], uint64(len(b))), 0
	for i := range b {
		e.entry(&b[i])
	}
	return e.buf
}

// forget has the next record say everything anew.
func (e *encoder) forget() { e.texts = nil }

func (e *encoder) entry(s *store.Stored) {
	kind := uint64(kindSample)
	switch {
	case s.Exemplar != nil:
		kind = kindExemplar
	case s.H != nil || s.FH != nil:
		kind = kindHistogram
	}
	n, known := e.series[s.Ref]
	if !known {
		n = uint64(len(e.series))
		e.series[s.Ref] = n
	}
	e.uvarint(n<<2 | kind)
	if !known {
		e.labels(s.Labels)
	}
	t := s.T
	if s.Exemplar != nil {
		t = s.Exemplar.Ts
	}
	e.buf = binary.AppendVarint(e.buf, t-e.last)
	e.last = t
	switch kind {
	case kindSample:
		e.float(s.V)
	case kindHistogram:
		wire, _ := histogramMessage(s).MarshalVT() // which fails on no message of this kind
		e.uvarint(uint64(len(wire)))
		e.buf = append(e.buf, wire...)
	case kindExemplar:
		e.float(s.Exemplar.Value)
		e.labels(s.Exemplar.Labels)
	}
}

func (e *encoder) uvarint(v uint64) { e.buf = binary.AppendUvarint(e.buf, v) }
func (e *encoder) float(v float64) {
	e.buf = binary.LittleEndian.AppendUint64(e.buf, math.Float64bits(v))
}

func (e *encoder) labels(ls labels.Labels) {
	e.uvarint(uint64(ls.Len()))
	ls.Range(func(l labels.Label) {
		e.text(l.Name)
		e.text(l.Value)
	})
}

func (e *encoder) text(s string) {
	n, known := e.texts[s]
	if known {
		e.uvarint(n)
		return
	}
	e.texts[s] = uint64(len(e.texts) + 1)
	e.uvarint(0)
	e.uvarint(uint64(len(s)))
	e.buf = append(e.buf, s...)
}

// entry is one entry as it was read.
type entry struct {
	series int // in decoder.series
	kind   byte
	t      int64
	v      float64
	wire   []byte // of a histogram
	labels []int  // of an exemplar, in decoder.texts
}

// decoder reads the records of one file, from the first on.
type decoder struct {
	segment uint64
	texts   []string
	series  [][]int // the labels, names and values by turns, in texts
}

var errEntry = errors.New("a record that this version does not understand")

// record appends the entries of a record.
func (d *decoder) record(segment uint64, wire []byte, to []entry) ([]entry, error) {
	if segment != d.segment {
		*d = decoder{segment: segment}
	}
	r := reader{b: wire}
	last := int64(0)
	for n := r.uvarint(); n > 0 && r.err == nil; n-- {
		head := r.uvarint()
		e := entry{kind: byte(head & 3), series: int(head >> 2)}
		switch {
		case head>>2 == uint64(len(d.series)):
			if ls := d.labels(&r); r.err == nil {
				d.series = append(d.series, ls)
			}
		case head>>2 > uint64(len(d.series)):
			r.err = errEntry
		}
		last += r.varint()
		e.t = last
		switch e.kind {
		case kindSample:
			e.v = r.float()
		case kindHistogram:
			e.wire = r.bytes(r.uvarint())
		case kindExemplar:
			e.v = r.float()
			e.labels = d.labels(&r)
		default:
			r.err = errEntry
		}
		if r.err == nil {
			to = append(to, e)
		}
	}
	return to, r.err
}

func (d *decoder) labels(r *reader) []int {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.err = errEntry
		return nil
	}
	out := make([]int, 0, 2*n)
	for range 2 * n {
		k := r.uvarint()
		switch {
		case r.err != nil:
			return nil
		case k == 0:
			d.texts = append(d.texts, string(r.bytes(r.uvarint())))
			k = uint64(len(d.texts))
		case k > uint64(len(d.texts)):
			r.err = errEntry
			return nil
		}
		out = append(out, int(k-1))
	}
	return out
}

// reader reads a record; after an error it gives zeros.
type reader struct {
	b   []byte
	err error
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	r.skip(n)
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	r.skip(n)
	return v
}

func (r *reader) skip(n int) {
	if n <= 0 {
		r.b, r.err = nil, errEntry
		return
	}
	r.b = r.b[n:]
}

func (r *reader) bytes(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.b, r.err = nil, errEntry
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) float() float64 {
	b := r.bytes(8)
	if b == nil {
		return 0
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(b))
}

// entriesOf is how many entries a record holds.
func entriesOf(wire []byte) int64 {
	n, _ := binary.Uvarint(wire)
	return int64(n)
}

// histogramMessage is a histogram as Remote Write 2.0 has it.
func histogramMessage(s *store.Stored) *writev2.Histogram {
	if s.FH != nil {
		h := s.FH
		return &writev2.Histogram{
			Count: &writev2.Histogram_CountFloat{CountFloat: h.Count}, Sum: h.Sum, Schema: h.Schema, ZeroThreshold: h.ZeroThreshold,
			ZeroCount:     &writev2.Histogram_ZeroCountFloat{ZeroCountFloat: h.ZeroCount},
			PositiveSpans: spans(h.PositiveSpans), PositiveCounts: h.PositiveBuckets,
			NegativeSpans: spans(h.NegativeSpans), NegativeCounts: h.NegativeBuckets,
			ResetHint: writev2.Histogram_ResetHint(h.CounterResetHint), CustomValues: h.CustomValues, Timestamp: s.T,
		}
	}
	h := s.H
	return &writev2.Histogram{
		Count: &writev2.Histogram_CountInt{CountInt: h.Count}, Sum: h.Sum, Schema: h.Schema, ZeroThreshold: h.ZeroThreshold,
		ZeroCount:     &writev2.Histogram_ZeroCountInt{ZeroCountInt: h.ZeroCount},
		PositiveSpans: spans(h.PositiveSpans), PositiveDeltas: h.PositiveBuckets,
		NegativeSpans: spans(h.NegativeSpans), NegativeDeltas: h.NegativeBuckets,
		ResetHint: writev2.Histogram_ResetHint(h.CounterResetHint), CustomValues: h.CustomValues, Timestamp: s.T,
	}
}

func spans(in []histogram.Span) []*writev2.BucketSpan {
	out := make([]*writev2.BucketSpan, len(in))
	for i, s := range in {
		out[i] = &writev2.BucketSpan{Offset: s.Offset, Length: s.Length}
	}
	return out
}
