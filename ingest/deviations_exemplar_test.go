package ingest

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// prepareExemplars takes out of the only point of m the exemplars that are left
// out, and of the others what is no label. It returns how many those were.
func prepareExemplars(m pmetric.Metric, now int64) (refused int64) {
	var list pmetric.ExemplarSlice
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		list = m.Gauge().DataPoints().At(0).Exemplars()
	case pmetric.MetricTypeSum:
		list = m.Sum().DataPoints().At(0).Exemplars()
	case pmetric.MetricTypeHistogram:
		list = m.Histogram().DataPoints().At(0).Exemplars()
	case pmetric.MetricTypeExponentialHistogram:
		list = m.ExponentialHistogram().DataPoints().At(0).Exemplars()
	default:
		return 0
	}
	list.RemoveIf(func(e pmetric.Exemplar) bool {
		gone := e.ValueType() == pmetric.ExemplarValueTypeEmpty || (&expectation{now: now}).refuseTime(e.Timestamp()) != ""
		attrs := e.FilteredAttributes()
		attrs.RemoveIf(func(key string, v pcommon.Value) bool {
			return !isScalar(v) || v.AsString() == "" || key == "__name__" ||
				key == "trace_id" && !e.TraceID().IsEmpty() || key == "span_id" && !e.SpanID().IsEmpty()
		})
		for key, v := range attrs.All() {
			gone = gone || key == "" || !plain(key) || !plain(v.AsString())
		}
		if gone {
			refused++
		}
		return gone
	})
	for i := 1; i < list.Len(); i++ { // few: insertion
		for j := i; j > 0 && valueOf(list.At(j)) < valueOf(list.At(j-1)); j-- {
			swap := pmetric.NewExemplar()
			list.At(j).CopyTo(swap)
			list.At(j - 1).CopyTo(list.At(j))
			swap.CopyTo(list.At(j - 1))
		}
	}
	return refused
}

func valueOf(e pmetric.Exemplar) float64 {
	if e.ValueType() == pmetric.ExemplarValueTypeInt {
		return float64(e.IntValue())
	}
	return e.DoubleValue()
}

// ofGauge adds the exemplars of the one point of a gauge, as those of a sum.
func (x *expectation) ofGauge(md pmetric.Metrics, got *captured) {
	sum := pmetric.NewMetrics()
	md.CopyTo(sum)
	m := sum.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0)
	if m.Type() != pmetric.MetricTypeGauge {
		return
	}
	dp := pmetric.NewNumberDataPoint()
	m.Gauge().DataPoints().At(0).CopyTo(dp)
	m.SetName("any")
	s := m.SetEmptySum()
	s.SetAggregationTemporality(cumulative)
	dp.CopyTo(s.DataPoints().AppendEmpty())
	other, err := convert(sum, x.strategy)
	if err != nil {
		x.t.Fatalf("the oracle refuses a gauge as a sum: %v", err)
	}
	got.exemplars, got.of = other.exemplars, other.of
}
