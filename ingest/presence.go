package ingest

import (
	"context"
	"math"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
)

// presence is what is known of a series at the time of a sample.
type presence uint8

const (
	unknown presence = iota
	absent
	same  // the very sample is there
	other // another value is
)

// look finds out what the series holds at the time of the sample: a second value
// there would vanish in the store without an error when it is late or comes in the
// same commit. ask puts the question to the store where the answer is not at hand.
func (w *walk) look(ctx context.Context, sm *sample, ask bool) presence {
	s := sm.s
	if s.epoch != w.cache.epoch {
		s.epoch, s.ref, s.inOrder, s.late = w.cache.epoch, 0, false, nil
	}
	found, v := true, 0.0
	switch {
	case s.ready && s.readyT == sm.t:
		v = s.readyV
	case s.inOrder && sm.t > s.newest:
		found = false
	case s.inOrder && sm.t == s.newest:
		// The same once more does no harm, and brings back what was lost before it
		// was durable. Not so a histogram: the store may have laid it out anew, and
		// takes it for another one then.
		if v = s.value; sm.hist == 0 && sameValue(v, sm.v) {
			found = false
		}
	case s.inOrder || ask:
		var known bool
		if v, found, known = s.holds().at(sm.t); !known {
			if v, found = w.stored(ctx, sm); found {
				s.late.put(sm.t, v)
			}
		}
	default:
		return unknown
	}
	switch {
	case !found:
		return absent
	case sameValue(v, sm.v):
		return same
	}
	return other
}

// sameValue compares as the store does.
func sameValue(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }

// querier is opened by the first late sample of a request.
type querier struct {
	q      storage.Querier
	failed bool
}

// The kinds of samples of chunkenc, whose package only store may import.
const (
	floatSample          = 1
	histogramSample      = 2
	floatHistogramSample = 3
)

// stored returns what the store holds for the series at the time of the sample,
// of a histogram its fingerprint.
// A store that cannot be read there does not keep the sample out.
func (w *walk) stored(ctx context.Context, sm *sample) (float64, bool) {
	if w.o.Queryable == nil || w.querier.failed {
		return 0, false
	}
	if w.querier.q == nil {
		mint, maxt := sm.t, sm.t
		for i := range w.samples {
			mint, maxt = min(mint, w.samples[i].t), max(maxt, w.samples[i].t)
		}
		q, err := w.o.Queryable.Querier(mint, maxt)
		if err != nil {
			w.unreadable(err)
			return 0, false
		}
		w.querier.q = q
	}
	set := w.querier.q.Select(ctx, false, nil, exactly(sm.s.labels)...)
	for set.Next() {
		one := set.At()
		if !labels.Equal(one.Labels(), sm.s.labels) {
			continue
		}
		it := one.Iterator(nil)
		kind := it.Seek(sm.t)
		if kind != 0 && it.AtT() == sm.t {
			switch kind {
			case floatSample:
				_, v := it.At()
				return v, true
			case histogramSample:
				_, h := it.AtHistogram(nil)
				return math.Float64frombits(w.fingerprint(hist{h: h})), true
			case floatHistogramSample:
				_, f := it.AtFloatHistogram(nil)
				return math.Float64frombits(w.fingerprint(hist{f: f})), true
			}
		}
		if err := it.Err(); err != nil {
			w.unreadable(err)
		}
		return 0, false
	}
	if err := set.Err(); err != nil {
		w.unreadable(err)
	}
	return 0, false
}

// exactly selects the series that have these labels, and those that have more.
func exactly(ls labels.Labels) []*labels.Matcher {
	var matchers []*labels.Matcher
	ls.Range(func(l labels.Label) {
		matchers = append(matchers, labels.MustNewMatcher(labels.MatchEqual, l.Name, l.Value))
	})
	return matchers
}

func (w *walk) unreadable(err error) {
	w.querier.failed = true
	w.o.Logger.Warn("late points are stored without a look at what is there", "err", err)
}

func (w *walk) closeQuerier() {
	if w.querier.q != nil {
		if err := w.querier.q.Close(); err != nil {
			w.o.Logger.Warn("a querier did not close", "err", err)
		}
	}
	w.querier = querier{}
}
