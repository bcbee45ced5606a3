package remote

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// Queryable asks the server for each selector of each query.
func (c *Client) Queryable() storage.Queryable {
	return storage.QueryableFunc(func(mint, maxt int64) (storage.Querier, error) {
		return &querier{mint: mint, maxt: maxt, fetch: c.fetch}, nil
	})
}

// Steps is Queryable for rules, which ask for the same samples several times at
// one instant: what was read for the newest instant answers the next question of
// that instant. A server that failed is left alone for a second, so that one that
// is gone costs a step one timeout.
func (c *Client) Steps() storage.Queryable {
	s := &step{c: c}
	return storage.QueryableFunc(func(mint, maxt int64) (storage.Querier, error) {
		return &querier{mint: mint, maxt: maxt, fetch: func(ctx context.Context, q question) (*answer, error) {
			return s.ask(ctx, maxt, q)
		}}, nil
	})
}

type querier struct {
	mint, maxt int64
	fetch      func(context.Context, question) (*answer, error)
}

// Select fetches at once; the set is sorted, asked for or not.
func (q *querier) Select(ctx context.Context, _ bool, hints *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	want := question{matchers, q.mint, q.maxt}
	if hints != nil {
		want.start, want.end = max(want.start, hints.Start), min(want.end, hints.End)
	}
	if want.end < want.start {
		return storage.EmptySeriesSet()
	}
	a, err := q.fetch(ctx, want)
	if err != nil {
		return storage.ErrSeriesSet(err)
	}
	return &set{of: a}
}

// LabelValues and LabelNames are not asked for by PromQL.
func (q *querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (q *querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (q *querier) Close() error { return nil }

const (
	// restAfter is how long a server that failed is left alone.
	restAfter = time.Second
	// mostBack is how far an instant may lie before the newest one without meaning
	// that the clock was set back.
	mostBack = 2 * time.Hour
)

// step remembers what was read for the newest instant.
type step struct {
	c *Client

	mu       sync.Mutex // held over a question: one at a time
	at       int64
	known    map[string]*answer
	failed   error // since failedAt
	failedAt time.Time
}

// ask answers a question of a query whose instant is at.
func (s *step) ask(ctx context.Context, at int64, q question) (*answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at > s.at || s.at-at > mostBack.Milliseconds() {
		s.at, s.known = at, map[string]*answer{}
	}
	id := q.id()
	if at == s.at {
		if a := s.known[id]; a != nil {
			return a, nil
		}
	}
	if since := s.c.o.Clock().Sub(s.failedAt); s.failed != nil && since >= 0 && since < restAfter {
		return nil, s.failed
	}
	a, err := s.c.fetch(ctx, q)
	switch {
	case err == nil:
		s.failed = nil
		if at == s.at { // else an earlier instant, asked for by the way
			s.known[id] = a
		}
	case ctx.Err() == nil && isDown(err):
		s.failed, s.failedAt = err, s.c.o.Clock()
	}
	return a, err
}

func (q question) id() string {
	var b strings.Builder
	b.WriteString(strconv.FormatInt(q.start, 10) + " " + strconv.FormatInt(q.end, 10))
	for _, m := range q.matchers {
		b.WriteString(" " + m.String())
	}
	return b.String()
}
