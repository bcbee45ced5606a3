package ingest

import (
	"encoding/binary"
	"math"
	"slices"
)

// metric writes one Metric without the points that were refused, and reports
// whether any is left.
func (s *stamper) metric(b []byte) bool {
	at := s.open(2, len(b))
	var h header
	var data joined
	f := fields{b: b}
	for from := 0; f.next(); from = len(b) - len(f.b) {
		if !h.take(&f, &data) {
			s.field(msgMetric, &f, b[from:len(b)-len(f.b)])
		}
	}
	if h.kind != 0 && s.metricData(&h, data.b) {
		s.close(at)
		return true
	}
	s.cancel(at)
	return false
}

// metricData writes the name, the unit and the data of a metric.
func (s *stamper) metricData(h *header, b []byte) (any bool) {
	points, err := h.data(b)
	if err != nil || points == 0 {
		return false
	}
	coming := s.decisions[min(s.next, len(s.decisions)):min(s.next+points, len(s.decisions))]
	if slices.ContainsFunc(coming, func(d decision) bool { return d.act == actDelta }) {
		h.temporality = temporalityDelta
	}
	s.text(1, string(h.name))
	if len(h.unit) > 0 {
		s.text(3, string(h.unit))
	}
	at := s.open(uint32(h.kind), len(b))
	for f := (fields{b: b}); f.next(); {
		if f.num != 1 {
			continue
		}
		d := s.decision()
		if d.act == actDrop {
			continue
		}
		any = true
		p := s.open(1, len(f.data))
		s.point(h.kind, f.data, &d)
		s.close(p)
	}
	if h.kind != kindGauge && h.kind != kindSummary && h.temporality != 0 {
		s.varint(2, uint64(h.temporality))
	}
	if h.kind == kindSum && h.monotonic {
		s.varint(3, 1)
	}
	s.close(at)
	return any
}

// point writes one point of any kind.
func (s *stamper) point(k kind, b []byte, d *decision) {
	m := pointMessage(k)
	var start, time uint64
	whole := false // the number was an integer
	f := fields{b: b}
	for from := 0; f.next(); from = len(b) - len(f.b) {
		switch {
		case f.num == 2 && f.typ == wireFixed8:
			start = f.val
		case f.num == 3 && f.typ == wireFixed8:
			time = f.val
		case d.act == actDelta && turned(k, f.num):
			whole = f.num == 6
		default:
			s.field(m, &f, b[from:len(b)-len(f.b)])
		}
	}
	if start = s.start(d, start, time); start != 0 {
		s.fixed(2, start)
	}
	if time != 0 {
		s.fixed(3, time)
	}
	switch {
	case d.act != actDelta:
	case k == kindSum:
		s.number(d.value, whole)
	case d.hist != nil:
		s.histogram(k, d.hist)
	}
}

// start is the start of a point onward: never before the activation's, whatever
// was frozen into the image that the actor came from (S2-76).
func (s *stamper) start(d *decision, start, time uint64) uint64 {
	switch {
	case d.start != 0:
		return d.start
	case start == 0 || start >= s.since:
		return start
	}
	return min(s.since, time)
}

// turned reports whether a field of a cumulative point has another value, or
// none, in the delta that it is turned into: the least and the greatest value
// are those of all that was counted.
func turned(k kind, num uint32) bool {
	switch k {
	case kindSum:
		return num == 4 || num == 6
	case kindHistogram:
		return num >= 4 && num <= 6 || num == 11 || num == 12
	case kindExpHistogram:
		return num >= 4 && num <= 9 || num >= 12 && num <= 14
	}
	return false
}

// number writes the value of a sum, as an integer where it was one and is one.
func (s *stamper) number(v float64, whole bool) {
	if whole && v == math.Trunc(v) && math.Abs(v) <= 1<<53 {
		s.fixed(6, uint64(int64(v)))
		return
	}
	s.fixed(4, math.Float64bits(v))
}

func (s *stamper) histogram(k kind, h *histogramDelta) {
	s.fixed(4, h.count)
	if h.hasSum {
		s.fixed(5, math.Float64bits(h.sum))
	}
	if k == kindHistogram {
		at := s.open(6, 8*len(h.counts))
		for _, n := range h.counts {
			s.out = binary.LittleEndian.AppendUint64(s.out, n)
		}
		s.close(at)
		return
	}
	s.varint(6, zigzag(h.scale))
	s.fixed(7, h.zero)
	s.buckets(8, &h.positive)
	s.buckets(9, &h.negative)
	if h.zeroThreshold != 0 {
		s.fixed(14, math.Float64bits(h.zeroThreshold))
	}
}

func (s *stamper) buckets(num uint32, b *exponentialBuckets) {
	at := s.open(num, len(b.counts)+8)
	s.varint(1, zigzag(b.offset))
	counts := s.open(2, len(b.counts))
	for _, n := range b.counts {
		s.out = binary.AppendUvarint(s.out, n)
	}
	s.close(counts)
	s.close(at)
}

func zigzag(v int32) uint64 { return uint64(uint32(v<<1) ^ uint32(v>>31)) }

func (s *stamper) varint(num uint32, v uint64) {
	s.out = binary.AppendUvarint(s.out, uint64(num)<<3|wireVarint)
	s.out = binary.AppendUvarint(s.out, v)
}

func (s *stamper) fixed(num uint32, v uint64) {
	s.out = binary.AppendUvarint(s.out, uint64(num)<<3|wireFixed8)
	s.out = binary.LittleEndian.AppendUint64(s.out, v)
}
