package store

import (
	"context"
	"fmt"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/promql/parser"
)

// maxExemplars is how many exemplars are held, over all series; the newest push
// the oldest out. They are in memory and in the log, never in a block.
const maxExemplars = 10_000

// ExemplarsJSON answers with the exemplars, from start to end in Unix
// milliseconds, both included, of the series that the selectors in expr match:
// the field data of Prometheus's /api/v1/query_exemplars. Errors are *QueryError.
func (db *DB) ExemplarsJSON(ctx context.Context, expr string, start, end int64) ([]byte, error) {
	if err := guardLength(expr); err != nil {
		return nil, badData(err)
	}
	tree, err := parser.NewParser(parser.Options{EnableExperimentalFunctions: true}).ParseExpr(expr)
	if err == nil {
		err = guard(tree)
	}
	if err != nil {
		return nil, badData(err)
	}
	ctx, cancel := context.WithTimeout(ctx, peopleTimeout)
	defer cancel()
	leaveLane, err := db.lanes.enter(ctx)
	if err != nil {
		return nil, failed(err)
	}
	defer leaveLane()
	s, leave, err := db.enter(nil)
	if err != nil {
		return nil, failed(err)
	}
	defer leave()
	q, err := s.tsdb.ExemplarQuerier(ctx)
	if err != nil {
		return nil, &QueryError{Internal, fmt.Errorf("store: %s: %w", db.o.Path, err)}
	}
	found, err := q.Select(start, end, parser.ExtractSelectors(tree)...)
	if err != nil {
		return nil, &QueryError{Internal, fmt.Errorf("store: %s: %w", db.o.Path, err)}
	}
	data, err := appendExemplars(nil, found)
	if err != nil {
		return nil, failed(err)
	}
	return data, nil
}

func appendExemplars(b []byte, found []exemplar.QueryResult) ([]byte, error) {
	b = append(b, '[')
	for i, r := range found {
		b = append(b, next(i, "")...)
		b = append(appendLabels(append(b, `{"seriesLabels":`...), r.SeriesLabels), `,"exemplars":[`...)
		for j, e := range r.Exemplars {
			b = append(b, next(j, "")...)
			b = appendLabels(append(b, `{"labels":`...), e.Labels)
			b = appendNumber(append(b, `,"value":`...), e.Value)
			b = append(appendTime(append(b, `,"timestamp":`...), e.Ts), '}')
		}
		b = append(b, "]}"...)
		if len(b) > maxAnswer {
			return nil, errAnswerTooLong
		}
	}
	return append(b, ']'), nil
}
