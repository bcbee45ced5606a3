package ingest

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
)

// Bounds on exemplars. A store keeps few of them.
const (
	maxExemplarRunes    = exemplar.ExemplarMaxLabelSetLength // OpenMetrics's, over all names and values
	maxRequestExemplars = 10_000
)

// Labels of what an exemplar says of its trace.
const (
	traceLabel = "trace_id"
	spanLabel  = "span_id"
)

// fate is what becomes of an exemplar. Those of a point that does not come as far
// as the store go with it, and are in nobody's count.
type fate uint8

const (
	exemplarStored    fate = iota
	exemplarShortened      // stored with its trace alone: the rest is too long
	exemplarInvalid
	exemplarOutOfOrder // older than what its series may still take
	exemplarRefused    // its point was, by the store
	exemplarLimit
	numFates
)

// fateWords are the values of the label result.
var fateWords = [numFates]string{"stored", "shortened", "invalid", "out_of_order", "refused", "limit"}

// exemplars are those of one request.
type exemplars struct {
	// raw are the Exemplar messages of the point numbered point, which is walk.points
	// only while that point has some; refused is the tally's before it, pending the
	// number of points that were queued.
	raw     [][]byte
	point   int
	refused int64
	pending int

	kept   []keptExemplar
	counts [numFates]int64
}

type keptExemplar struct {
	s        *series
	e        exemplar.Exemplar
	fate     fate
	first, n int32 // its point's samples in walk.samples; none for a folded one
}

func (x *exemplars) reset() {
	clear(x.raw)
	clear(x.kept)
	x.raw, x.kept, x.point = x.raw[:0], x.kept[:0], 0
	x.counts = [numFates]int64{}
}

// exemplar notes one of the exemplars of the point that is being read.
func (w *walk) exemplar(b []byte) error {
	n, invalid, err := scan(msgExemplar, b, 7)
	if w.messages += n; err != nil {
		return err
	}
	x := &w.exemplars
	if x.point != w.points {
		x.point, x.raw, x.refused, x.pending = w.points, x.raw[:0], w.tally.refused, len(w.pending)
	}
	if invalid {
		b = nil
	}
	x.raw = append(x.raw, b)
	return nil
}

// keepExemplars queues the exemplars of the point that was read last, unless the
// point was refused.
func (w *walk) keepExemplars() {
	x := &w.exemplars
	if w.tally.refused != x.refused {
		return
	}
	st := &w.last.v
	var p point
	if len(w.pending) > x.pending {
		p = w.pending[len(w.pending)-1]
	}
	for _, b := range x.raw {
		if len(x.kept) == maxRequestExemplars {
			x.counts[exemplarLimit]++
			continue
		}
		e, fate := w.readExemplar(b)
		if fate > exemplarShortened {
			x.counts[fate]++
			continue
		}
		s := st.s
		if st.h != nil {
			s = st.h.seriesOf(e.Value, w.counted)
		}
		x.kept = append(x.kept, keptExemplar{s, e, fate, p.first, p.n})
	}
}

// seriesOf is the bucket that a value falls into, among the n that its point has.
func (h *histogram) seriesOf(v float64, n int) *series {
	for i, s := range h.bucket[:min(n, len(h.bucket))] {
		if s != nil && v <= math.Float64frombits(binary.LittleEndian.Uint64([]byte(h.bounds[8*i:8*i+8]))) {
			return s
		}
	}
	return h.inf
}

// readExemplar decodes an Exemplar message that scan has passed; nil stands for
// one that it has not.
func (w *walk) readExemplar(b []byte) (exemplar.Exemplar, fate) {
	e := exemplar.Exemplar{HasTs: true}
	var trace, span []byte
	var nanos uint64
	set := false
	for f := (fields{b: b}); f.next(); {
		switch f.num {
		case 2:
			nanos = f.val
		case 3:
			e.Value, set = math.Float64frombits(f.val), true
		case 6:
			e.Value, set = float64(int64(f.val)), true
		case 4:
			span = f.data
		case 5:
			trace = f.data
		}
	}
	// One exemplar far ahead would keep all later ones of its series out.
	t, why := w.gate.check(nanos)
	switch e.Ts = t; {
	case why == tooOld:
		return e, exemplarOutOfOrder
	case why != fine, !set, len(trace) > 16, len(span) > 8:
		return e, exemplarInvalid
	}
	var list []labels.Label
	if slices.ContainsFunc(trace, notZero) {
		list = append(list, labels.Label{Name: traceLabel, Value: hex.EncodeToString(trace)})
	}
	if slices.ContainsFunc(span, notZero) {
		list = append(list, labels.Label{Name: spanLabel, Value: hex.EncodeToString(span)})
	}
	own := len(list)
	for _, a := range w.strip(attributes(b, 7)) {
		switch {
		case !a.scalar, a.value == "", a.key == metricLabel, has(list[:own], a.key):
			continue
		case a.key == "", !plain(a.key), !plain(a.value), has(list, a.key):
			return e, exemplarInvalid
		}
		list = append(list, labels.Label{Name: a.key, Value: a.value})
	}
	runes := 0
	for _, l := range list {
		runes += utf8.RuneCountInString(l.Name) + utf8.RuneCountInString(l.Value)
	}
	fate := exemplarStored
	if runes > maxExemplarRunes {
		list, fate = list[:own], exemplarShortened
	}
	e.Labels = labels.New(list...)
	return e, fate
}

func notZero(b byte) bool { return b != 0 }

// appendExemplars gives the exemplars to the store, those of one series in the
// order of their time. What it does not take is no fault of the request.
func (w *walk) appendExemplars(app storage.Appender) {
	x := &w.exemplars
	slices.SortStableFunc(x.kept, func(a, b keptExemplar) int { return exemplar.Compare(a.e, b.e) })
	for i := range x.kept {
		k := &x.kept[i]
		if slices.ContainsFunc(w.samples[k.first:k.first+k.n], func(sm sample) bool { return !sm.done && sm.is != same }) {
			x.counts[exemplarRefused]++
			continue
		}
		_, err := app.AppendExemplar(k.s.ref, k.s.labels, k.e)
		switch {
		case err == nil:
			x.counts[k.fate]++
		case errors.Is(err, storage.ErrOutOfOrderExemplar):
			x.counts[exemplarOutOfOrder]++
		default:
			x.counts[exemplarRefused]++
		}
	}
}
