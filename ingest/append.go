package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/prometheus/prometheus/storage"
)

// sample waits for the appender.
type sample struct {
	s    *series
	t    int64
	v    float64 // of a histogram: its fingerprint
	hist int32   // which of walk.hists it is, from 1; 0 for a float
	is   presence
	done bool // the appender has it
}

// point is a point of the request whose samples wait for the appender.
type point struct {
	m        *metric
	r        *resource
	t        int64
	first, n int32 // in walk.samples
	decision int32 // of what becomes of it onward
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
	p.decision = w.decisionOf()
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
	if len(w.pending)+len(w.exemplars.kept) == 0 {
		return w.keep()
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
	if err := w.keep(); err != nil {
		return errors.Join(err, app.Rollback())
	}
	if len(w.exemplars.kept) > 0 {
		w.appendExemplars(app)
	}
	if w.appended+len(w.exemplars.kept) == 0 {
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

// committed remembers what is in the store now.
func (w *walk) committed(sm *sample) {
	s := sm.s
	if !sm.done {
		return
	}
	if s.late != nil {
		s.late.put(sm.t, sm.v)
	}
	if gap := sm.t - s.newest; s.inOrder && gap > 0 && (w.gap == 0 || gap < w.gap) {
		w.gap = gap
	}
	if !s.inOrder || sm.t >= s.newest {
		s.inOrder, s.newest, s.value = true, sm.t, sm.v
	}
}

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
		w.dropped(p.decision)
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
		// The appender does not say of a histogram that it is late.
		ask := len(samples) > 1 || sm.hist != 0
		if sm.is = w.look(ctx, sm, ask); sm.is == other {
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
	if sm.hist != 0 {
		x := w.hists[sm.hist-1]
		return app.AppendHistogram(sm.s.ref, sm.s.labels, sm.t, x.h, x.f)
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
