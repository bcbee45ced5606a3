package ingest

import (
	"encoding/binary"
	"math"
)

// histogramValue is what a HistogramDataPoint says.
type histogramValue struct {
	attrs          attributeBytes
	start, end     uint64 // Unix nanoseconds
	count          uint64
	sum            float64
	hasSum         bool
	stale          bool
	counts, bounds numbers
}

// readHistogram decodes a point without looking anything up.
func (w *walk) readHistogram(b []byte, v *histogramValue) error {
	f := fields{b: b}
	for from := 0; f.next(); from = len(b) - len(f.b) {
		var err error
		switch {
		case f.num == 9 && f.typ == wireBytes:
			v.attrs.add(w, b, from, len(b)-len(f.b))
		case f.num == 3 && f.typ == wireFixed8:
			v.end = f.val
		case f.num == 4 && f.typ == wireFixed8:
			v.count = f.val
		case f.num == 5 && f.typ == wireFixed8:
			v.sum, v.hasSum = math.Float64frombits(f.val), true
		case f.num == 6:
			err = v.counts.add(&f, &w.counts)
		case f.num == 7:
			err = v.bounds.add(&f, &w.bounds)
		case f.num == 2 && f.typ == wireFixed8:
			v.start = f.val
		case f.num == 10 && f.typ == wireVarint:
			v.stale = f.val&1 != 0
		case f.num == 8 && f.typ == wireBytes:
			err = w.exemplar(f.data)
		case (f.num == 11 || f.num == 12) && f.typ == wireFixed8: // min, max: no series
		case f.num <= 12 && f.num != 1:
			err = undecodable("a field of a histogram point has the wrong wire type")
		}
		if err != nil {
			return err
		}
	}
	if f.broken {
		return undecodable("a histogram point is cut short or malformed")
	}
	return nil
}

// numbers collects the 8-byte numbers of a repeated field, packed or one by one.
// One packed field is used where it lies; more are copied together.
type numbers struct {
	b      []byte
	copied bool
}

func (n *numbers) add(f *fields, scratch *[]byte) error {
	switch {
	case f.typ == wireBytes && len(f.data)%8 == 0:
	case f.typ == wireFixed8:
	default:
		return undecodable("a list of numbers has the wrong wire type or length")
	}
	if len(n.b) == 0 && f.typ == wireBytes {
		n.b = f.data
		return nil
	}
	if !n.copied {
		*scratch, n.copied = append((*scratch)[:0], n.b...), true
	}
	if f.typ == wireBytes {
		*scratch = append(*scratch, f.data...)
	} else {
		*scratch = binary.LittleEndian.AppendUint64(*scratch, f.val)
	}
	n.b = *scratch
	return nil
}
