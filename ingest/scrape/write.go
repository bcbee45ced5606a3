package scrape

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/prometheus/prometheus/storage"

	"github.com/wattloop/wattloop/ingest"
)

// writer appends rounds of one target.
type writer struct {
	store  storage.Appendable
	sync   func(context.Context) error // nil: there is nothing to wait for
	growth ingest.Growth
}

// written is what one round gave the store.
type written struct {
	values int   // of the page
	newest int64 // of them; math.MinInt64 without any
	all    int64 // newest of all that was appended
	done   []*sample
	ended  []*series
}

// write appends the round in one commit: the samples of its page, or none of
// them, the marks of the series that have ended, and the report. An error means
// that nothing was stored, or that it is not durable.
func (w *writer) write(ctx context.Context, b *book, r *round, took time.Duration) (written, error) {
	out := written{newest: math.MinInt64, all: math.MinInt64}
	app := w.store.Appender(ctx)
	watched := w.growth.Begin()
	err := w.appendAll(app, b, r, took, &out, watched)
	if err != nil {
		return written{}, errors.Join(fmt.Errorf("not stored: %w", err), app.Rollback())
	}
	if err := app.Commit(); err != nil {
		return written{}, fmt.Errorf("not stored: %w", err)
	}
	if watched {
		w.growth.Tell(out.all)
	}
	for _, sm := range out.done {
		sm.s.live, sm.s.stamped, sm.s.asked = sm.s.live || !sm.stamped, sm.stamped && !sm.ends, true
	}
	for _, s := range out.ended {
		s.live = false
	}
	for _, s := range r.unsure {
		s.asked = true
	}
	b.tidy(r.err != nil)
	if w.sync != nil {
		if err := w.sync(ctx); err != nil {
			return out, fmt.Errorf("not durable: %w", err)
		}
	}
	return out, nil
}

func (w *writer) appendAll(app storage.Appender, b *book, r *round, took time.Duration, out *written, watched bool) error {
	grew := func(s *series, t int64) {
		out.all = max(out.all, t)
		if watched {
			w.growth.Add(&s.touch, s.labels)
		}
	}
	if r.err == nil {
		for i := range r.samples {
			sm := &r.samples[i]
			why, err := appendSample(app, sm)
			if err != nil {
				return err
			}
			if why != fine {
				r.refuse(why, sm.s, sm.v)
				continue
			}
			grew(sm.s, sm.t)
			out.done = append(out.done, sm)
			if !sm.ends {
				out.values++
				out.newest = max(out.newest, sm.t)
			}
		}
	}
	if err := w.endAll(app, b, r, out, grew); err != nil {
		return err
	}
	up := 1.0
	if r.err != nil {
		up = 0
	}
	return appendReport(app, b, r.at, [numReports]float64{up, took.Seconds(), float64(r.total), float64(r.kept), float64(r.added)}, grew)
}

// endAll marks the end of the series that have no value any more. A mark never
// comes behind a newer sample.
func (w *writer) endAll(app storage.Appender, b *book, r *round, out *written, grew func(*series, int64)) error {
	app.SetOptions(&storage.AppendOptions{DiscardOutOfOrder: true})
	defer app.SetOptions(nil)
	if r.err == nil {
		for _, s := range r.unsure {
			if known, ok := app.(storage.GetRef); ok {
				if ref, _ := known.GetRef(s.labels, s.labels.Hash()); ref != 0 {
					s.live = true
				}
			}
		}
	}
	for _, s := range b.ended(r.err != nil) {
		why, err := appendSample(app, &sample{s: s, t: r.at, v: ending()})
		if err != nil {
			return err
		}
		if why == fine {
			grew(s, r.at)
		}
		out.ended = append(out.ended, s)
	}
	return nil
}

// appendReport writes the series that the scraper makes itself.
func appendReport(app storage.Appender, b *book, t int64, values [numReports]float64, grew func(*series, int64)) error {
	for i := range b.report {
		s := &b.report[i]
		why, err := appendSample(app, &sample{s: s, t: t, v: values[i]})
		if err != nil {
			return err
		}
		if why == fine {
			grew(s, t)
		}
	}
	return nil
}

// end writes the marks of a target that is gone, with those of its report.
func (w *writer) end(ctx context.Context, b *book, t int64) error {
	b.scrape++
	app := w.store.Appender(ctx)
	watched := w.growth.Begin()
	grew := func(s *series, _ int64) {
		if watched {
			w.growth.Add(&s.touch, s.labels)
		}
	}
	var values [numReports]float64
	for i := range values {
		values[i] = ending()
	}
	r := &round{at: t, err: errors.New("gone")}
	err := w.endAll(app, b, r, &written{}, grew)
	if err == nil {
		app.SetOptions(&storage.AppendOptions{DiscardOutOfOrder: true})
		err = appendReport(app, b, t, values, grew)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("not stored: %w", err), app.Rollback())
	}
	if err := app.Commit(); err != nil {
		return fmt.Errorf("not stored: %w", err)
	}
	if watched {
		w.growth.Tell(t)
	}
	return nil
}

// appendSample appends one sample with its exemplars, or says why not. An error is
// the store's, and nothing of the round can be kept then.
func appendSample(app storage.Appender, sm *sample) (reason, error) {
	s := sm.s
	var ref storage.SeriesRef
	var err error
	if sm.h != nil || sm.fh != nil {
		ref, err = app.AppendHistogram(s.ref, s.labels, sm.t, sm.h, sm.fh)
	} else {
		ref, err = app.Append(s.ref, s.labels, sm.t, sm.v)
	}
	switch {
	case err == nil:
		s.ref = ref
	case errors.Is(err, storage.ErrDuplicateSampleForTimestamp):
		return duplicate, nil
	case errors.Is(err, storage.ErrOutOfOrderSample):
		return outOfOrder, nil
	case errors.Is(err, storage.ErrOutOfBounds), errors.Is(err, storage.ErrTooOldSample):
		return tooOld, nil
	default:
		return fine, err
	}
	for _, e := range sm.exemplars {
		// Those that are there already, and what the store has no room for, are no loss.
		_, _ = app.AppendExemplar(ref, s.labels, e)
	}
	return fine, nil
}
