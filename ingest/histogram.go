package ingest

import (
	"encoding/binary"
	"iter"
	"math"
	"strconv"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
)

// histogram is the series of one classic histogram: _count, _sum, and _bucket
// for each bound and for +Inf; or of one summary: _count, _sum, and one for each
// quantile.
type histogram struct {
	list   []labels.Label // without the metric name
	bounds string         // wire bytes of the bounds, or quantiles, that buckets stand for
	ready  bool           // count, inf and buckets are there
	count  *series
	inf    *series   // nil for a summary
	sum    *series   // nil until a point has a sum
	bucket []*series // nil for a bound of +Inf, which the count stands for
	filled int       // buckets that have had a count
}

// newHistogram gives a histogram without series yet. own is the label that tells
// them apart.
func (w *walk) newHistogram(attrs []attribute, own string) (*histogram, reason) {
	list, why := w.naming.pointLabels(w.re.v.base, attrs, own)
	if why != fine {
		return nil, why
	}
	return &histogram{list: list}, fine
}

// histogramPoint reads one HistogramDataPoint and queues its samples.
func (w *walk) histogramPoint(b []byte) error {
	var v histogramValue
	if err := w.readHistogram(b, &v); err != nil {
		return err
	}
	e, t, err := w.find(v.end, v.attrs.b)
	if e == nil || err != nil {
		return err
	}
	m, h := &w.me.v, e.v.h
	w.counted = len(v.counts.b) / 8
	if !v.stale && v.hasSum && (v.sum != v.sum || math.IsInf(v.sum, 0)) {
		w.tally.reject(notFinite, 1, m.name, "")
		return nil
	}
	changed := h.ready && h.bounds != string(v.bounds.b)
	if v.stale && len(v.bounds.b) == 0 {
		changed = false // a marker often comes bare: it ends what is there
	}
	if !h.ready || changed {
		if why := w.layOut(h, v.bounds.b); why != fine {
			w.tally.reject(why, 1, m.name, "")
			return nil
		}
	}
	if v.hasSum && h.sum == nil {
		var why reason
		if h.sum, why = w.lookup(h.list, m.stored+"_sum", noLabel); why != fine {
			w.tally.reject(why, 1, m.name, "")
			return nil
		}
		h.sum.falls = true
	}
	for s := range e.v.all() {
		if !w.free(m, s) {
			w.tally.reject(nameCollision, 1, m.name, "")
			return nil
		}
	}
	switch {
	case v.stale && w.src.stamp != nil: // others may go on in the same series
		w.tally.folded++
	case v.stale:
		w.endHistogram(m, h, t, w.counted)
	case m.temporality == temporalityDelta:
		w.addDeltaHistogram(m, &e.v, t, &v, changed)
	case w.src.stamp != nil:
		w.addCumulativeHistogram(m, &e.v, t, &v)
	default:
		first := len(w.samples)
		h.each(&v, func(s *series, x float64) { w.sample(m, s, t, x) })
		w.queue(point{m: m, t: t}, first)
	}
	return nil
}

// layOut finds the series for a set of bounds.
func (w *walk) layOut(h *histogram, bounds []byte) reason {
	stored := w.me.v.stored
	made := histogram{list: h.list, bounds: string(bounds), ready: true, sum: h.sum}
	before := math.Inf(-1)
	for i := 0; i < len(bounds); i += 8 {
		bound := math.Float64frombits(binary.LittleEndian.Uint64(bounds[i:]))
		if !(bound > before) && !(i == 0 && math.IsInf(bound, -1)) {
			return badHistogram
		}
		before = bound
		if math.IsInf(bound, 1) {
			made.bucket = append(made.bucket, nil)
			continue
		}
		s, why := w.bucket(h, stored, strconv.FormatFloat(bound, 'f', -1, 64))
		if why != fine {
			return why
		}
		made.bucket = append(made.bucket, s)
	}
	var why reason
	if made.inf, why = w.bucket(h, stored, "+Inf"); why != fine {
		return why
	}
	if made.count, why = w.lookup(h.list, stored+"_count", noLabel); why != fine {
		return why
	}
	*h = made
	return fine
}

func (w *walk) bucket(h *histogram, stored, le string) (*series, reason) {
	return w.lookup(h.list, stored+"_bucket", labels.Label{Name: labels.BucketLabel, Value: le})
}

// each hands out the samples of a point, the count first: it stands for the
// point when the store refuses it.
func (h *histogram) each(v *histogramValue, do func(*series, float64)) {
	do(h.count, float64(v.count))
	if v.hasSum {
		do(h.sum, v.sum)
	}
	var below uint64
	for i, s := range h.bucket[:min(len(h.bucket), len(v.counts.b)/8)] {
		below += binary.LittleEndian.Uint64(v.counts.b[8*i:])
		if s != nil {
			do(s, float64(below))
		}
		h.filled = max(h.filled, i+1)
	}
	do(h.inf, float64(v.count))
}

// all yields the series of a stream, the one that stands for its points first.
func (st *stream) all() iter.Seq[*series] {
	return func(yield func(*series) bool) {
		h := st.h
		if h == nil {
			yield(st.s)
			return
		}
		if !yield(h.count) || h.sum != nil && !yield(h.sum) {
			return
		}
		for _, s := range h.bucket {
			if s != nil && !yield(s) {
				return
			}
		}
		if h.inf != nil {
			yield(h.inf)
		}
	}
}

// addDeltaHistogram adds a point to the running sums of all its series. Other
// bounds than before start them anew, as a counter's reset: counts over different
// bounds do not add up.
func (w *walk) addDeltaHistogram(m *metric, st *stream, t int64, v *histogramValue, changed bool) {
	h := st.h
	if !w.admit(m, st, h.count, deltaPoint{t, v.start, v.end, float64(v.count)}) {
		return
	}
	// On a workload channel others may add to the same series, which must not go
	// back for that.
	if changed && w.src.stamp == nil {
		for s := range st.all() {
			w.sumOf(m, s).v = 0
		}
	}
	w.growHistogram(m, st, t, v, false)
}

// endHistogram queues a stale marker for each series of the histogram or the summary that has
// samples, or would have had with this point's n bucket counts.
func (w *walk) endHistogram(m *metric, h *histogram, t int64, n int) {
	marker := math.Float64frombits(value.StaleNaN)
	first := len(w.samples)
	w.sample(m, h.count, t, marker)
	if h.sum != nil {
		w.sample(m, h.sum, t, marker)
	}
	for _, s := range h.bucket[:min(len(h.bucket), max(n, h.filled))] {
		if s != nil {
			w.sample(m, s, t, marker)
		}
	}
	if h.inf != nil {
		w.sample(m, h.inf, t, marker)
	}
	w.queue(point{m: m, t: t}, first)
}
