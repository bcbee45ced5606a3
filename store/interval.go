package store

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

const (
	intervalSpan    = time.Hour
	intervalSamples = 20
	// A lone gap beyond PromQL's lookback is a series that came back after an
	// outage, and no way to export.
	longestLoneGap = 5 * time.Minute
)

// Interval measures how often the series of a selector get a sample: of each
// series the median gap between its newest 20 samples of the hour before ts
// (Unix milliseconds), of those the largest. A series with one gap proves little,
// since one sample may have been lost: it counts where no series has more. 0
// means unknown: no series has two samples, or the two are further apart than
// the lookback. Errors are *QueryError.
func (db *DB) Interval(ctx context.Context, selector string, ts int64) (time.Duration, error) {
	matchers, err := parser.NewParser(parser.Options{}).ParseMetricSelector(selector)
	if err != nil {
		return 0, badData(err)
	}
	var largest, lone int64
	err = db.run(ctx, db.o.Beside.Rules, func(ctx context.Context, qs storage.Queryable) error {
		from := ts - intervalSpan.Milliseconds()
		q, err := qs.Querier(from, ts)
		if err != nil {
			return err
		}
		defer q.Close()
		set := q.Select(ctx, false, &storage.SelectHints{Start: from, End: ts}, matchers...)
		var it chunkenc.Iterator
		for set.Next() {
			it = set.At().Iterator(it)
			gap, of, err := medianGap(it)
			switch {
			case err != nil:
				return err
			case of == 1:
				lone = max(lone, gap)
			default:
				largest = max(largest, gap)
			}
		}
		return set.Err()
	})
	return time.Duration(cmp.Or(largest, lone)) * time.Millisecond, err
}

// medianGap is in milliseconds, and of how many gaps; 0 for fewer than two
// samples.
func medianGap(it chunkenc.Iterator) (gap int64, of int, err error) {
	var ring [intervalSamples]int64
	n := 0
	for vt := it.Next(); vt != chunkenc.ValNone; vt = it.Next() {
		t := it.AtT()
		if vt == chunkenc.ValFloat {
			if _, v := it.At(); value.IsStaleNaN(v) {
				continue
			}
		}
		ring[n%intervalSamples] = t
		n++
	}
	if n < 2 {
		return 0, 0, it.Err()
	}
	newest := ring[:min(n, intervalSamples)]
	slices.Sort(newest)
	gaps := make([]int64, len(newest)-1)
	for i := range gaps {
		gaps[i] = newest[i+1] - newest[i]
	}
	slices.Sort(gaps)
	if len(gaps) == 1 && gaps[0] > longestLoneGap.Milliseconds() {
		return 0, 0, it.Err()
	}
	return (gaps[(len(gaps)-1)/2] + gaps[len(gaps)/2]) / 2, len(gaps), it.Err()
}
