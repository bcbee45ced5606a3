package ingest

import (
	"encoding/binary"
	"math"
	"strconv"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
)

// quantileLabel tells the series of a summary apart.
const quantileLabel = "quantile"

// summaryValue is what a SummaryDataPoint says. The numbers of its quantiles lie in
// walk.bounds, their values in walk.counts.
type summaryValue struct {
	attrs      attributeBytes
	start, end uint64 // Unix nanoseconds
	count      uint64
	sum        float64
	stale      bool
	quantiles  int
}

// summaryPoint reads one SummaryDataPoint and queues its samples.
func (w *walk) summaryPoint(b []byte) error {
	var v summaryValue
	if err := w.readSummary(b, &v); err != nil {
		return err
	}
	e, t, err := w.find(v.end, v.attrs.b)
	if e == nil || err != nil {
		return err
	}
	m, h := &w.me.v, e.v.h
	why := fine
	switch {
	case v.quantiles > maxBuckets:
		why = bucketLimit
	case !v.stale && (v.sum != v.sum || math.IsInf(v.sum, 0)):
		why = notFinite
	case !h.ready, h.bounds != string(w.bounds) && !(v.stale && v.quantiles == 0):
		why = w.layOutSummary(h)
	}
	for s := range e.v.all() {
		if why == fine && !w.free(m, s) {
			why = nameCollision
		}
	}
	switch {
	case why != fine:
		w.tally.reject(why, 1, m.name, "")
	case v.stale && w.src.stamp != nil: // others may go on in the same series
		w.tally.folded++
	case v.stale:
		w.endHistogram(m, h, t, v.quantiles)
	case w.src.stamp != nil:
		w.addWorkloadSummary(m, &e.v, t, &v)
	default:
		w.addSummary(m, h, t, &v)
	}
	return nil
}

// addSummary queues the samples of a point, the count first.
func (w *walk) addSummary(m *metric, h *histogram, t int64, v *summaryValue) {
	first := len(w.samples)
	w.sample(m, h.count, t, float64(v.count))
	w.sample(m, h.sum, t, v.sum)
	for i, s := range h.bucket {
		w.sample(m, s, t, w.quantile(i))
	}
	h.filled = len(h.bucket)
	w.queue(point{m: m, t: t}, first)
}

// quantile is the value of quantile i of the point at hand.
func (w *walk) quantile(i int) float64 {
	x := math.Float64frombits(binary.LittleEndian.Uint64(w.counts[8*i:]))
	if x != x { // no observation in the window
		x = math.Float64frombits(value.NormalNaN)
	}
	return x
}

// addWorkloadSummary adds what a summary of a workload counts beyond the point
// before to its count and sum; its quantiles, of which there is no right one over
// several actors (S2-81), are those of the newest point.
func (w *walk) addWorkloadSummary(m *metric, st *stream, t int64, v *summaryValue) {
	l := w.admitCumulative(m, st, st.h.count)
	if l == nil {
		return
	}
	count := float64(v.count)
	do := l.step(v.start, v.end, w.alone(l), count < l.v, count == l.v && v.sum == l.sum)
	by := [2]float64{count, v.sum}
	switch do {
	case stepWhole:
	case stepGrown:
		by = [2]float64{count - l.v, v.sum - l.sum}
	case stepBaseline:
		by = [2]float64{}
		w.tally.windows[windowBaseline]++
	default:
		w.notAdded(m, st, t, do)
		return
	}
	l.start, l.end, l.v, l.sum, l.bounds = v.start, v.end, count, v.sum, 1 // so that the journal has the sum
	first := len(w.samples)
	for i, s := range []*series{st.h.count, st.h.sum} {
		if sum, write := w.accumulate(m, s, t, by[i]); write {
			w.sample(m, s, t, sum)
		}
	}
	if len(w.samples) == first {
		w.tally.folded++
		return
	}
	for i, s := range st.h.bucket {
		w.sample(m, s, t, w.quantile(i))
	}
	st.h.filled = len(st.h.bucket)
	w.queue(point{m: m, t: t, delta: true, fold: do == stepBaseline}, first)
}

// readSummary decodes a point without looking anything up.
func (w *walk) readSummary(b []byte, v *summaryValue) error {
	w.bounds, w.counts = w.bounds[:0], w.counts[:0]
	f := fields{b: b}
	for from := 0; f.next(); from = len(b) - len(f.b) {
		switch {
		case f.num == 7 && f.typ == wireBytes:
			v.attrs.add(w, b, from, len(b)-len(f.b))
		case f.num == 3 && f.typ == wireFixed8:
			v.end = f.val
		case f.num == 4 && f.typ == wireFixed8:
			v.count = f.val
		case f.num == 5 && f.typ == wireFixed8:
			v.sum = math.Float64frombits(f.val)
		case f.num == 6 && f.typ == wireBytes:
			if err := w.readQuantile(f.data); err != nil {
				return err
			}
			v.quantiles++
		case f.num == 8 && f.typ == wireVarint:
			v.stale = f.val&1 != 0
		case f.num == 2 && f.typ == wireFixed8:
			v.start = f.val
		case f.num <= 8 && f.num != 1:
			return undecodable("a field of a summary point has the wrong wire type")
		}
	}
	if f.broken {
		return undecodable("a summary point is cut short or malformed")
	}
	return nil
}

// readQuantile decodes one ValueAtQuantile.
func (w *walk) readQuantile(b []byte) error {
	if err := w.more(); err != nil {
		return err
	}
	var quantile, x uint64
	f := fields{b: b}
	for f.next() {
		switch {
		case f.num == 1 && f.typ == wireFixed8:
			quantile = f.val
		case f.num == 2 && f.typ == wireFixed8:
			x = f.val
		case f.num <= 2:
			return undecodable("a field of a quantile has the wrong wire type")
		}
	}
	if f.broken {
		return undecodable("a quantile is cut short or malformed")
	}
	w.bounds = binary.LittleEndian.AppendUint64(w.bounds, quantile)
	w.counts = binary.LittleEndian.AppendUint64(w.counts, x)
	return nil
}

// layOutSummary finds the series for a set of quantiles.
func (w *walk) layOutSummary(h *histogram) reason {
	stored := w.me.v.stored
	made := histogram{list: h.list, bounds: string(w.bounds), ready: true}
	seen := make(map[float64]bool, len(w.bounds)/8)
	for i := 0; i < len(w.bounds); i += 8 {
		q := math.Float64frombits(binary.LittleEndian.Uint64(w.bounds[i:])) + 0 // no -0
		if !(q >= 0 && q <= 1) || seen[q] {
			return badSummary
		}
		seen[q] = true
		s, why := w.lookup(h.list, stored, labels.Label{Name: quantileLabel, Value: strconv.FormatFloat(q, 'f', -1, 64)})
		if why != fine {
			return why
		}
		made.bucket = append(made.bucket, s)
	}
	var why reason
	if made.count, why = w.lookup(h.list, stored+"_count", noLabel); why != fine {
		return why
	}
	if made.sum, why = w.lookup(h.list, stored+"_sum", noLabel); why != fine {
		return why
	}
	made.sum.falls = true
	*h = made
	return fine
}
