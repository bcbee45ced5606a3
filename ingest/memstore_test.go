package ingest

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/exemplar"
	native "github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// memStore takes samples by the rules of a TSDB with an out-of-order window, and
// holds them in memory: a property can look at ten thousand of them.
type memStore struct {
	series    []*memSeries
	byLabels  map[string]storage.SeriesRef // from 1
	exemplars map[string]bool
}

type memSeries struct {
	labels  labels.Labels
	samples []memSample // in the order of their time
}

// memSample is one sample; f is in place of v.
type memSample struct {
	t int64
	v float64
	f *native.FloatHistogram
}

func (s memSample) T() int64                   { return s.t }
func (s memSample) ST() int64                  { return 0 }
func (s memSample) F() float64                 { return s.v }
func (s memSample) H() *native.Histogram       { return nil }
func (s memSample) FH() *native.FloatHistogram { return s.f }
func (s memSample) Copy() chunks.Sample        { return s }
func (s memSample) same(o memSample) bool      { return sameValue(s.number(), o.number()) }
func (s memSample) number() float64            { return oracleSample{v: s.v, f: s.f}.number() }
func (s memSample) Type() chunkenc.ValueType {
	if s.f != nil {
		return chunkenc.ValFloatHistogram
	}
	return chunkenc.ValFloat
}

// newMemBed is newBed over one.
func newMemBed(t *testing.T, change func(*Options)) (*bed, *memStore) {
	m := &memStore{byLabels: map[string]storage.SeriesRef{}, exemplars: map[string]bool{}}
	b := &bed{t: t, mem: m, now: base}
	o := Options{Appendable: m, Queryable: m, Clock: func() time.Time { return time.UnixMilli(b.now) }}
	change(&o)
	b.r = NewReceiver(o)
	return b, m
}

func (m *memStore) Appender(context.Context) storage.Appender { return &memAppender{m: m} }

func (m *memStore) Querier(mint, maxt int64) (storage.Querier, error) {
	return memQuerier{m: m, mint: mint, maxt: maxt}, nil
}

type memQuerier struct {
	storage.LabelQuerier
	m          *memStore
	mint, maxt int64
}

func (memQuerier) Close() error { return nil }

func (q memQuerier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	var found []storage.Series
	for _, s := range q.m.series {
		if slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.labels.Get(m.Name)) }) {
			continue
		}
		var samples []chunks.Sample
		for _, sm := range s.samples {
			if sm.t >= q.mint && sm.t <= q.maxt {
				samples = append(samples, sm)
			}
		}
		found = append(found, storage.NewListSeries(s.labels, samples))
	}
	slices.SortFunc(found, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
	return &memSet{storage.EmptySeriesSet(), found, -1}
}

type memSet struct {
	storage.SeriesSet
	list []storage.Series
	at   int
}

func (s *memSet) Next() bool         { s.at++; return s.at < len(s.list) }
func (s *memSet) At() storage.Series { return s.list[s.at] }

type memAppender struct {
	storage.Appender
	m       *memStore
	inOrder bool
	staged  []staged
}

type staged struct {
	ref storage.SeriesRef
	s   memSample
}

func (a *memAppender) SetOptions(o *storage.AppendOptions) { a.inOrder = o.DiscardOutOfOrder }
func (a *memAppender) Rollback() error                     { return nil }

func (a *memAppender) Append(ref storage.SeriesRef, ls labels.Labels, t int64, v float64) (storage.SeriesRef, error) {
	return a.append(ref, ls, memSample{t, v, nil}, a.inOrder)
}

func (a *memAppender) AppendHistogram(ref storage.SeriesRef, ls labels.Labels, t int64, h *native.Histogram, f *native.FloatHistogram) (storage.SeriesRef, error) {
	if h != nil {
		if err := h.Validate(); err != nil {
			return 0, err
		}
		f = h.ToFloat(nil)
	}
	if err := f.Validate(); err != nil {
		return 0, err
	}
	return a.append(ref, ls, memSample{t, 0, f}, false)
}

func (a *memAppender) append(ref storage.SeriesRef, ls labels.Labels, s memSample, inOrder bool) (storage.SeriesRef, error) {
	if ref == 0 {
		ref = a.m.byLabels[ls.String()]
	}
	if ref == 0 {
		a.m.series = append(a.m.series, &memSeries{labels: ls})
		ref = storage.SeriesRef(len(a.m.series))
		a.m.byLabels[ls.String()] = ref
	}
	if held := a.m.series[ref-1].samples; len(held) > 0 {
		newest := held[len(held)-1]
		switch {
		case s.t == newest.t && !s.same(newest):
			return 0, storage.ErrDuplicateSampleForTimestamp
		case s.t < newest.t && inOrder:
			return 0, storage.ErrOutOfOrderSample
		}
	}
	a.staged = append(a.staged, staged{ref, s})
	return ref, nil
}

func (a *memAppender) AppendExemplar(ref storage.SeriesRef, ls labels.Labels, e exemplar.Exemplar) (storage.SeriesRef, error) {
	if ref == 0 {
		return 0, fmt.Errorf("no series %s", ls)
	}
	a.m.exemplars[exemplarText(ls, e)] = true
	return ref, nil
}

// Commit keeps the first of two samples of one time, as a TSDB does.
func (a *memAppender) Commit() error {
	for _, st := range a.staged {
		s := a.m.series[st.ref-1]
		at, there := slices.BinarySearchFunc(s.samples, st.s.t, func(held memSample, t int64) int { return cmp.Compare(held.t, t) })
		if !there {
			s.samples = slices.Insert(s.samples, at, st.s)
		}
	}
	return nil
}

var _ storage.Queryable = (*memStore)(nil)

func (m *memStore) stored(t testing.TB) map[string][]tv {
	return readAll(t, m, math.MinInt64, math.MaxInt64)
}
