package store

import (
	"context"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// Last is the newest sample of one series.
type Last struct {
	Metric labels.Labels
	T      int64 // Unix milliseconds
	V      float64
	// Interval is the time since the sample before it, in milliseconds, 0 where
	// there is none.
	Interval int64
}

// Newest is the newest number of each series that the matchers select, among the
// samples from from to to, Unix milliseconds. A series that has ended has none. It
// is of what this store holds, not of what is asked beside it.
func (db *DB) Newest(ctx context.Context, from, to int64, matchers ...*labels.Matcher) ([]Last, error) {
	q, err := db.Querier(from, to)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	var out []Last
	set := q.Select(ctx, false, nil, matchers...)
	var it chunkenc.Iterator
	for set.Next() {
		s := Last{Metric: set.At().Labels()}
		ended := true
		it = set.At().Iterator(it)
		for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
			if kind != chunkenc.ValFloat {
				continue
			}
			t, v := it.At()
			if ended = value.IsStaleNaN(v); ended {
				continue
			}
			if s.T != 0 {
				s.Interval = t - s.T
			}
			s.T, s.V = t, v
		}
		if it.Err() != nil {
			return nil, it.Err()
		}
		if !ended {
			out = append(out, s)
		}
	}
	return out, set.Err()
}
