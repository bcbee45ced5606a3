package engine

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
)

// seriesWriter appends a step's facts. A series that ends gets a staleness
// marker, so that a gap is a gap at once.
type seriesWriter struct {
	store storage.Appendable
	live  map[string]*written // by the bytes of the labels
	buf   []byte
}

// written is a series that the last step had.
type written struct {
	labels labels.Labels
	ref    storage.SeriesRef
	step   int64
}

func newSeriesWriter(store storage.Appendable) *seriesWriter {
	return &seriesWriter{store: store, live: map[string]*written{}}
}

// write appends the facts of the step at ts. After an error the markers that
// were due are tried again with the next step that is written whole.
func (w *seriesWriter) write(ctx context.Context, ts int64, c change) error {
	if w.store == nil {
		return nil
	}
	app := w.store.Appender(ctx)
	var refused errorCount
	add := func(s *written, v float64) {
		ref, err := app.Append(s.ref, s.labels, ts, v)
		if err != nil {
			refused.add(err)
			return
		}
		s.ref = ref
	}
	for _, f := range c.facts() {
		s := w.series(f.labels)
		s.step = ts
		if !f.stands {
			add(s, f.value)
		}
	}
	ended := w.ended(ts, c)
	for _, s := range ended {
		add(s, math.Float64frombits(value.StaleNaN))
	}
	err := app.Commit()
	if err == nil {
		for _, s := range ended {
			delete(w.live, string(s.labels.Bytes(w.buf)))
		}
	}
	return errors.Join(refused.err(), err)
}

// ended are the series that the step at ts does not go on with.
func (w *seriesWriter) ended(ts int64, c change) []*written {
	var out []*written
	if c.before == nil {
		for _, s := range w.live {
			if s.step != ts {
				out = append(out, s)
			}
		}
		return out
	}
	for _, f := range c.before.facts() {
		if s := w.live[string(f.labels.Bytes(w.buf))]; s != nil && s.step != ts {
			s.step = ts
			out = append(out, s)
		}
	}
	return out
}

// series finds or makes what is remembered of a series.
func (w *seriesWriter) series(ls labels.Labels) *written {
	w.buf = ls.Bytes(w.buf)
	s := w.live[string(w.buf)]
	if s == nil {
		s = &written{labels: ls}
		w.live[string(w.buf)] = s
	}
	return s
}

// errorCount keeps the first of many errors.
type errorCount struct {
	first error
	n     int
}

func (c *errorCount) add(err error) {
	if c.n == 0 {
		c.first = err
	}
	c.n++
}

func (c *errorCount) err() error {
	if c.n < 2 {
		return c.first
	}
	return fmt.Errorf("%w; %d samples in all", c.first, c.n)
}
