package ingest

import (
	"math"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
)

// numberPoint reads one NumberDataPoint of a gauge or a sum.
func (w *walk) numberPoint(b []byte) error {
	var (
		start, nanos, bits, flags uint64
		set                       uint32 // field that holds the number
		attrs                     attributeBytes
	)
	f := fields{b: b}
	for from := 0; f.next(); from = len(b) - len(f.b) {
		switch {
		case f.num == 7 && f.typ == wireBytes:
			attrs.add(w, b, from, len(b)-len(f.b))
		case f.num == 3 && f.typ == wireFixed8:
			nanos = f.val
		case (f.num == 4 || f.num == 6) && f.typ == wireFixed8:
			set, bits = f.num, f.val
		case f.num == 2 && f.typ == wireFixed8:
			start = f.val
		case f.num == 8 && f.typ == wireVarint:
			flags = f.val
		case f.num == 5 && f.typ == wireBytes:
			if err := w.exemplar(f.data); err != nil {
				return err
			}
		case f.num <= 8 && f.num != 1:
			return undecodable("a field of a point has the wrong wire type")
		}
	}
	if f.broken {
		return undecodable("a point is cut short or malformed")
	}
	e, t, err := w.find(nanos, attrs.b)
	if e == nil || err != nil {
		return err
	}
	m := &w.me.v
	var v float64
	switch {
	case flags&1 != 0 && w.src.stamp != nil:
		w.endShared(m, &e.v, t)
		return nil
	case flags&1 != 0: // no recorded value: the series ends here (C06)
		w.add(m, e.v.s, t, math.Float64frombits(value.StaleNaN))
		return nil
	case set == 0:
		w.tally.reject(noValue, 1, m.name, "")
		return nil
	case set == 4:
		v = math.Float64frombits(bits)
	default:
		v = float64(int64(bits))
	}
	if v != v {
		// A NaN in a payload is a number, never the marker that ends a series.
		v = math.Float64frombits(value.NormalNaN)
	}
	switch {
	case m.power && v < 0:
		w.tally.reject(negative, 1, m.name, "")
		return nil
	case m.kind == kindGauge:
	case v != v || math.IsInf(v, 0):
		w.tally.reject(notFinite, 1, m.name, "")
		return nil
	case m.monotonic && v < 0:
		w.tally.reject(negative, 1, m.name, "")
		return nil
	case m.temporality == temporalityDelta:
		w.addDelta(m, &e.v, deltaPoint{t, start, nanos, v})
		return nil
	case m.monotonic && w.src.stamp != nil:
		w.addCumulative(m, &e.v, t, start, nanos, v)
		return nil
	}
	if w.src.stamp != nil {
		w.addShared(m, &e.v, t, v)
		return nil
	}
	w.add(m, e.v.s, t, v)
	return nil
}

// attributeBytes collects the attribute fields of a point, tags included. They
// nearly always lie side by side; where they do not, they are copied.
type attributeBytes struct {
	b    []byte
	end  int
	copy bool
}

func (a *attributeBytes) add(w *walk, b []byte, from, to int) {
	switch {
	case a.b == nil:
		a.b, a.end = b[from:to], to
	case from == a.end && !a.copy:
		a.b, a.end = b[to-len(a.b)-(to-from):to], to
	default:
		if !a.copy {
			w.key, a.copy = append(w.key[:0], a.b...), true
		}
		w.key = append(w.key, b[from:to]...)
		a.b = w.key
	}
}

// find checks a point's time and finds its stream. A nil entry means that the
// point was refused and counted.
func (w *walk) find(nanos uint64, attrs []byte) (*entry[stream], int64, error) {
	m := &w.me.v
	t, why := w.gate.check(nanos)
	if why != fine {
		n, _, err := scan(msgAttributes, attrs, 6)
		w.messages += n - 1
		what := ""
		if w.tally.rejected[why] == 0 {
			what = w.gate.explain(why, t, w.now)
		}
		w.tally.reject(why, 1, m.name, what)
		return nil, 0, err
	}
	e := m.streams.find(w.last, attrs)
	if e == nil {
		st, err := w.newStream(attrs)
		if err != nil {
			return nil, 0, err
		}
		if st.bad == seriesLimit || st.bad == newSeriesLimit { // may pass: not remembered
			w.tally.reject(st.bad, 1, m.name, "")
			return nil, 0, nil
		}
		e = m.streams.add(&w.cache, w.last, attrs)
		e.v = st
	}
	w.last = e
	w.messages += int(e.v.messages)
	e.used = w.now
	if e.v.bad != fine {
		w.tally.reject(e.v.bad, 1, m.name, "")
		return nil, 0, nil
	}
	return e, t, nil
}

// maxRefusedSeries is how many series of one request may be kept out by the limits
// before its unknown streams are refused unread. Below it each is looked at, since
// it may be a known series written otherwise.
const maxRefusedSeries = 1000

// newStream decodes the attributes of a point that is not in the cache.
func (w *walk) newStream(attrs []byte) (stream, error) {
	n, invalid, err := scan(msgAttributes, attrs, 6)
	if err != nil {
		return stream{}, err
	}
	st := stream{messages: int32(n - 1)}
	if invalid {
		st.bad = invalidUTF8
		return st, nil
	}
	if w.refusedSeries >= maxRefusedSeries {
		st.bad = w.refusedWhy
		return st, nil
	}
	m := &w.me.v
	attr := w.strip(attributes(attrs, attributeField(m.kind)))
	switch m.kind {
	case kindHistogram:
		st.h, st.bad = w.newHistogram(attr, labels.BucketLabel)
		return st, nil
	case kindSummary:
		st.h, st.bad = w.newHistogram(attr, quantileLabel)
		return st, nil
	}
	list, bad := w.naming.pointLabels(w.re.v.base, attr, "")
	if st.bad = bad; bad == fine {
		st.s, st.bad = w.lookup(list, m.stored, noLabel)
	}
	return st, nil
}

// attributeField is the number of the attributes in a point.
func attributeField(k kind) uint32 {
	switch k {
	case kindHistogram:
		return 9
	case kindExpHistogram:
		return 1
	}
	return 7
}

// strip deletes from a workload's attributes what is the channel's to say.
func (w *walk) strip(attrs []attribute) []attribute {
	if w.src.stamp == nil {
		return attrs
	}
	return w.src.stamp.strip(attrs)
}
