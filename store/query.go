package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/timestamp"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// Sample is one value of one series. T is Unix milliseconds.
type Sample struct {
	Metric labels.Labels
	T      int64
	V      float64
}

// Instant runs a PromQL expression for the rules at ts, Unix milliseconds. A
// scalar comes as one sample without labels; ranges and strings are refused. An
// answer that PromQL itself would only warn of (histograms among it, mixed
// inputs) comes with an error beside the samples: it is no basis to act on.
// Errors are *QueryError.
func (db *DB) Instant(ctx context.Context, expr string, ts int64) ([]Sample, error) {
	return db.instant(ctx, db.o.Beside.Rules, expr, ts)
}

// InstantOwn is Instant over this store alone, whatever is asked beside it.
func (db *DB) InstantOwn(ctx context.Context, expr string, ts int64) ([]Sample, error) {
	return db.instant(ctx, nil, expr, ts)
}

func (db *DB) instant(ctx context.Context, beside storage.Queryable, expr string, ts int64) ([]Sample, error) {
	var out []Sample
	err := db.run(ctx, beside, func(ctx context.Context, q storage.Queryable) error {
		query, err := db.lanes.rules.NewInstantQuery(ctx, q, nil, expr, timestamp.Time(ts))
		if err != nil {
			return badData(err)
		}
		defer query.Close()
		res := query.Exec(ctx)
		if res.Err != nil {
			return res.Err
		}
		out, err = samples(res.Value)
		if err == nil {
			err = warned(expr, res.Warnings)
		}
		return err
	})
	return out, err
}

func samples(v parser.Value) ([]Sample, error) {
	switch v := v.(type) {
	case promql.Scalar:
		return []Sample{{T: v.T, V: v.V}}, nil
	case promql.Vector:
		out := make([]Sample, 0, len(v))
		for _, s := range v {
			if s.H == nil {
				out = append(out, Sample{Metric: s.Metric, T: s.T, V: s.F})
			}
		}
		if n := len(v) - len(out); n > 0 {
			return out, &QueryError{Execution, fmt.Errorf("%d of %d results are histograms, which have no single value: use histogram_quantile, histogram_sum or histogram_count", n, len(v))}
		}
		return out, nil
	default:
		return nil, badData(fmt.Errorf("expression gives a %s: want a vector or a scalar", v.Type()))
	}
}

func warned(expr string, notes annotations.Annotations) error {
	if len(notes) == 0 {
		return nil
	}
	warnings, _ := notes.AsStrings(expr, 3, 1)
	if len(warnings) == 0 {
		return nil
	}
	slices.Sort(warnings)
	return &QueryError{Execution, errors.New(strings.Join(warnings, "; "))}
}

// Answer is the answer to a person's query.
type Answer struct {
	// Data is {"resultType":...,"result":...} as Prometheus's HTTP API has it
	// in its field data.
	Data            []byte
	Warnings, Infos []string // sorted; each stands beside data in that API
}

// QueryJSON answers an ad-hoc query at ts, Unix milliseconds. No timeout means
// 30 s, and 2 min is the most. Errors are *QueryError.
func (db *DB) QueryJSON(ctx context.Context, expr string, ts int64, timeout time.Duration) (Answer, error) {
	return db.adHoc(ctx, expr, timeout, func(ctx context.Context, q storage.Queryable) (promql.Query, error) {
		return db.lanes.people.NewInstantQuery(ctx, q, nil, expr, timestamp.Time(ts))
	})
}

// QueryRangeJSON answers an ad-hoc query at start, start+step, ... end, in Unix
// milliseconds, at most 11,000 points. The timeout is QueryJSON's. Errors are
// *QueryError.
func (db *DB) QueryRangeJSON(ctx context.Context, expr string, start, end int64, step, timeout time.Duration) (Answer, error) {
	if err := guardRange(start, end, step); err != nil {
		return Answer{}, badData(err)
	}
	return db.adHoc(ctx, expr, timeout, func(ctx context.Context, q storage.Queryable) (promql.Query, error) {
		return db.lanes.people.NewRangeQuery(ctx, q, nil, expr, timestamp.Time(start), timestamp.Time(end), step)
	})
}

func (db *DB) adHoc(ctx context.Context, expr string, timeout time.Duration, open func(context.Context, storage.Queryable) (promql.Query, error)) (Answer, error) {
	if err := guardLength(expr); err != nil {
		return Answer{}, badData(err)
	}
	if timeout <= 0 {
		timeout = peopleTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, min(timeout, peopleTimeoutMax))
	defer cancel()
	leave, err := db.lanes.enter(ctx)
	if err != nil {
		return Answer{}, failed(err)
	}
	defer leave()

	var a Answer
	err = db.run(ctx, db.o.Beside.People, func(ctx context.Context, q storage.Queryable) error {
		query, err := open(ctx, q)
		if err != nil {
			return badData(err)
		}
		defer query.Close() // takes the points back: Data is written before
		res := query.Exec(ctx)
		if res.Err != nil {
			return res.Err
		}
		a.Data, err = appendData(nil, res.Value)
		a.Warnings, a.Infos = res.Warnings.AsStrings(expr, 10, 10)
		slices.Sort(a.Warnings)
		slices.Sort(a.Infos)
		return err
	})
	if err != nil {
		return Answer{}, err
	}
	return a, nil
}

// run lends f the open TSDB, which stays open until f returns, together with what
// is asked beside it. A store that is closing or reopening cancels f's context.
func (db *DB) run(ctx context.Context, beside storage.Queryable, f func(context.Context, storage.Queryable) error) error {
	lent, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s, leave, err := db.enter(cancel)
	if err != nil {
		return failed(err)
	}
	defer leave()
	err = f(lent, together(s.tsdb, beside))
	switch {
	case err == nil:
		return nil
	case lent.Err() != nil && ctx.Err() == nil: // the store wanted it back
		return failed(context.Cause(lent))
	}
	return failed(err)
}
