package ingest

import (
	"context"

	"github.com/prometheus/prometheus/model/exemplar"
	native "github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
)

// nowhere takes samples and keeps none: what is sent elsewhere is not kept here.
type nowhere struct{}

func (nowhere) Appender(context.Context) storage.Appender { return nowhereAppender{} }

type nowhereAppender struct{ storage.Appender }

func (nowhereAppender) Append(ref storage.SeriesRef, _ labels.Labels, _ int64, _ float64) (storage.SeriesRef, error) {
	return max(ref, 1), nil
}

func (nowhereAppender) AppendHistogram(ref storage.SeriesRef, _ labels.Labels, _ int64, _ *native.Histogram, _ *native.FloatHistogram) (storage.SeriesRef, error) {
	return max(ref, 1), nil
}

func (nowhereAppender) AppendExemplar(ref storage.SeriesRef, _ labels.Labels, _ exemplar.Exemplar) (storage.SeriesRef, error) {
	return ref, nil
}

func (nowhereAppender) SetOptions(*storage.AppendOptions) {}
func (nowhereAppender) Commit() error                     { return nil }
func (nowhereAppender) Rollback() error                   { return nil }
