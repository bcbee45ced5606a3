package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
)

// sample waits for the appender.
type sample struct {
	s    *series
	t    int64
	v    float64
	is   presence
	done bool // the appender has it
}

// point is a point of the request whose samples wait for the appender.
type point struct {
	m        *metric
	r        *resource
	t        int64
	first, n int32 // in walk.samples
	delta    bool  // its value is in a running sum: never lost, at worst folded
	fold     bool  // counts as folded even when its samples are stored
}

// open resets what a series keeps for one request.
func (w *walk) open(s *series) {
	if s.req != w.n {
		s.req, s.owner, s.last, s.ready, s.used = w.n, nil, -1, false, w.now
	}
}

// free reports whether the metric may write to the series in this request: two
// metrics in one series would hide each other's samples.
func (w *walk) free(m *metric, s *series) bool {
	w.open(s)
	return s.owner == nil || s.owner.same(m)
}

// sample queues one sample of the point that queue will close.
func (w *walk) sample(m *metric, s *series, t int64, v float64) {
	w.open(s)
	w.disorder = w.disorder || s.last >= 0 && t < s.lastT
	s.owner, s.last, s.lastT = m, int32(len(w.samples)), t
	w.samples = append(w.samples, sample{s: s, t: t, v: v})
}

// queue closes a point whose samples begin at first.
func (w *walk) queue(p point, first int) {
	p.r, p.first, p.n = &w.re.v, int32(first), int32(len(w.samples)-first)
	w.disorder = w.disorder || p.t < w.lastT
	w.lastT = p.t
	w.pending = append(w.pending, p)
}

// add queues a point with one sample.
func (w *walk) add(m *metric, s *series, t int64, v float64) {
	if !w.free(m, s) {
		w.tally.reject(nameCollision, 1, m.name, "")
		return
	}
	first := len(w.samples)
	w.sample(m, s, t, v)
	w.queue(point{m: m, t: t}, first)
}

// commit gives what is queued to the store. An error means that nothing of the
// request may count as stored.
func (w *walk) commit(ctx context.Context) error {
	if len(w.pending) == 0 {
		return nil
	}
	if w.disorder {
		// The appender compares with what is committed, not with what it holds: of
		// two samples of one series the later must come last.
		slices.SortStableFunc(w.pending, func(a, b point) int { return cmp.Compare(a.t, b.t) })
	}
	defer w.closeQuerier()
	failed := true
	defer func() {
		if failed { // what the appender had made is gone
			w.cache.epoch++
		}
	}()
	app := w.o.Appendable.Appender(ctx)
	w.discarding = false
	for i := range w.pending {
		if err := w.appendPoint(ctx, app, &w.pending[i]); err != nil {
			return errors.Join(fmt.Errorf("otlp: append: %w", err), app.Rollback())
		}
	}
	if w.appended == 0 {
		failed = false
		return app.Rollback()
	}
	if err := app.Commit(); err != nil {
		return fmt.Errorf("otlp: commit: %w", err)
	}
	failed = false
	for i := range w.samples {
		w.committed(&w.samples[i])
	}
	return nil
}

// committed remembers the newest sample of a series.
func (w *walk) committed(sm *sample) {
	s := sm.s
	if sm.done && (!s.inOrder || sm.t >= s.newest) {
		s.inOrder, s.newest, s.value = true, sm.t, sm.v
	}
}

// presence is what is known of a series at the time of a sample.
type presence uint8

const (
	unknown presence = iota
	absent
	same  // the very sample is there
	other // another value is
)

// appendPoint appends the samples of one point, all or, but for a store that
// refuses one of them by itself, none.
func (w *walk) appendPoint(ctx context.Context, app storage.Appender, p *point) error {
	why, err := w.appendSamples(ctx, app, w.samples[p.first:p.first+p.n])
	switch {
	case err != nil:
		return err
	case p.fold, p.delta && why != fine:
		w.tally.folded++
	case why != fine:
		w.tally.reject(why, 1, p.m.name, "")
		return nil
	default:
		w.tally.accepted++
	}
	w.newestAccepted = max(w.newestAccepted, p.t)
	if p.r.info != nil {
		return w.writeTargetInfo(ctx, app, p.r.info, p.t)
	}
	return nil
}

func (w *walk) appendSamples(ctx context.Context, app storage.Appender, samples []sample) (why reason, err error) {
	for i := range samples {
		sm := &samples[i]
		if sm.is = w.look(ctx, sm, len(samples) > 1); sm.is == other {
			return duplicate, nil
		}
	}
	for i := range samples {
		if why, err = w.appendSample(ctx, app, &samples[i]); why != fine || err != nil {
			return why, err
		}
	}
	return fine, nil
}

// look finds out what the series holds at the time of the sample: a second value
// there would vanish in the store without an error when it is late or comes in the
// same commit. ask puts the question to the store where the answer is not at hand.
func (w *walk) look(ctx context.Context, sm *sample, ask bool) presence {
	s := sm.s
	if s.epoch != w.cache.epoch {
		s.epoch, s.ref, s.inOrder = w.cache.epoch, 0, false
	}
	found, v := true, 0.0
	switch {
	case s.ready && s.readyT == sm.t:
		v = s.readyV
	case s.inOrder && sm.t > s.newest:
		found = false
	case s.inOrder && sm.t == s.newest:
		// The same once more does no harm, and brings back what was lost before it
		// was durable.
		if v = s.value; sameValue(v, sm.v) {
			found = false
		}
	case s.inOrder || ask:
		v, found = w.stored(ctx, sm)
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

// appendSample appends one sample or says why not.
func (w *walk) appendSample(ctx context.Context, app storage.Appender, sm *sample) (reason, error) {
	if sm.is == unknown {
		// A series that was not met since the store was opened: the store is asked
		// whether the sample is late.
		ref, err := w.appendAs(app, sm, true)
		if !errors.Is(err, storage.ErrOutOfOrderSample) {
			return w.appendedAs(sm, ref, err)
		}
		sm.is = w.look(ctx, sm, true)
	}
	switch sm.is {
	case same:
		return fine, nil
	case other:
		return duplicate, nil
	}
	ref, err := w.appendAs(app, sm, false)
	return w.appendedAs(sm, ref, err)
}

// appendAs appends with or without leave to be out of order.
func (w *walk) appendAs(app storage.Appender, sm *sample, inOrder bool) (storage.SeriesRef, error) {
	if inOrder != w.discarding {
		app.SetOptions(&storage.AppendOptions{DiscardOutOfOrder: inOrder})
		w.discarding = inOrder
	}
	return app.Append(sm.s.ref, sm.s.labels, sm.t, sm.v)
}

func (w *walk) appendedAs(sm *sample, ref storage.SeriesRef, err error) (reason, error) {
	switch {
	case err == nil:
		sm.s.ref = ref // another one when the store had let go of the series
		sm.s.ready, sm.s.readyT, sm.s.readyV = true, sm.t, sm.v
		sm.done = true
		w.appended++
		w.newest = max(w.newest, sm.t)
		return fine, nil
	case errors.Is(err, storage.ErrTooOldSample), errors.Is(err, storage.ErrOutOfBounds):
		return tooOld, nil
	case errors.Is(err, storage.ErrOutOfOrderSample):
		return outOfOrder, nil
	case errors.Is(err, storage.ErrDuplicateSampleForTimestamp):
		return duplicate, nil
	}
	return fine, err
}

// querier is opened by the first late sample of a request.
type querier struct {
	q      storage.Querier
	failed bool
}

// floatSample is chunkenc.ValFloat, whose package only store may import.
const floatSample = 1

// stored returns what the store holds for the series at the time of the sample.
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
	var matchers []*labels.Matcher
	sm.s.labels.Range(func(l labels.Label) {
		matchers = append(matchers, labels.MustNewMatcher(labels.MatchEqual, l.Name, l.Value))
	})
	set := w.querier.q.Select(ctx, false, nil, matchers...)
	for set.Next() {
		one := set.At()
		if !labels.Equal(one.Labels(), sm.s.labels) {
			continue
		}
		it := one.Iterator(nil)
		if it.Seek(sm.t) == floatSample {
			if t, v := it.At(); t == sm.t {
				return v, true
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

// grown lists the rules that select what was appended, each once.
func (w *walk) grown() []int32 {
	watch := &w.o.Watch
	if watch.Grew == nil || watch.Rules == nil || watch.Gen == nil || w.appended == 0 {
		return nil
	}
	gen := watch.Gen()
	var rules []int32
	for i := range w.samples {
		if w.samples[i].done {
			rules = w.touch(rules, w.samples[i].s, gen)
		}
	}
	return rules
}

// touch adds the rules of one series that are not listed yet.
func (w *walk) touch(rules []int32, s *series, gen uint64) []int32 {
	if !s.touched || s.touchGen != gen {
		s.touch, s.touchGen, s.touched = w.o.Watch.Rules(s.labels), gen, true
	}
	for _, rule := range s.touch {
		if int(rule) >= len(w.marks) {
			w.marks = append(w.marks, make([]uint64, int(rule)+1-len(w.marks))...)
		}
		if w.marks[rule] != w.n {
			w.marks[rule] = w.n
			rules = append(rules, rule)
		}
	}
	return rules
}
