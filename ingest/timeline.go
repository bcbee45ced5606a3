package ingest

import (
	"fmt"
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
)

// Instant is what a recording holds of one time: a request whose points all
// have it.
type Instant struct {
	TS    int64  // Unix milliseconds; 0 for a request without points, or for points without a time
	Wire  []byte // an ExportMetricsServiceRequest
	Place string // where the recorded request begins, for messages
}

// Timeline puts the points of recorded requests into the order of their time,
// whatever order and whatever batches they were sent in. It holds all of them
// in memory, as protobuf.
type Timeline struct{ instants []Instant }

// Add takes one request of a recording called name. It does not keep q.
func (t *Timeline) Add(name string, q Request) error {
	at := place(name, q.Line, q.Offset)
	wire := slices.Clone(q.Body)
	if q.JSON {
		var err error
		if wire, err = wireFromJSON(q.Body); err != nil {
			return err // the reader puts the place before it
		}
	}
	// pdata builds what it reads on the stack, so a recording that nests without
	// end is refused before.
	if _, _, err := scan(msgRequest, wire, 0); err != nil {
		return err
	}
	req := pmetricotlp.NewExportRequest()
	if err := req.UnmarshalProto(wire); err != nil {
		return err
	}
	s := splitter{byTime: map[pcommon.Timestamp]*slice{}}
	s.walk(req.Metrics())
	if len(s.byTime) <= 1 {
		for ts := range s.byTime {
			t.instants = append(t.instants, Instant{milliseconds(ts), wire, at})
		}
		if len(s.byTime) == 0 {
			t.instants = append(t.instants, Instant{0, wire, at})
		}
		return nil
	}
	for ts, sl := range s.byTime {
		part, err := pmetricotlp.NewExportRequestFromMetrics(sl.md).MarshalProto()
		if err != nil {
			return fmt.Errorf("split by time: %w", err)
		}
		t.instants = append(t.instants, Instant{milliseconds(ts), part, at})
	}
	return nil
}

// Instants are all requests in the order of their points' time; those of one
// time are in the order in which they were added.
func (t *Timeline) Instants() []Instant {
	slices.SortStableFunc(t.instants, func(a, b Instant) int {
		switch {
		case a.TS < b.TS:
			return -1
		case a.TS > b.TS:
			return 1
		}
		return 0
	})
	return t.instants
}

func milliseconds(ts pcommon.Timestamp) int64 { return int64(uint64(ts) / 1e6) }

// splitter deals the points of a request out by their time.
type splitter struct {
	byTime map[pcommon.Timestamp]*slice
}

// slice is the part of a request that has one time.
type slice struct {
	md     pmetric.Metrics
	rm     pmetric.ResourceMetrics
	sm     pmetric.ScopeMetrics
	metric pmetric.Metric
	at     [3]int // resource, scope and metric that rm, sm and metric copy, from 1
}

func (s *splitter) walk(md pmetric.Metrics) {
	for i, rm := range md.ResourceMetrics().All() {
		for j, sm := range rm.ScopeMetrics().All() {
			for k, m := range sm.Metrics().All() {
				to := func(ts pcommon.Timestamp) pmetric.Metric { return s.metric(ts, [3]int{i + 1, j + 1, k + 1}, rm, sm, m) }
				deal(m, to)
			}
		}
	}
}

// deal copies each point of m into the metric that to gives for its time.
func deal(m pmetric.Metric, to func(pcommon.Timestamp) pmetric.Metric) {
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		for _, p := range m.Gauge().DataPoints().All() {
			p.CopyTo(to(p.Timestamp()).Gauge().DataPoints().AppendEmpty())
		}
	case pmetric.MetricTypeSum:
		for _, p := range m.Sum().DataPoints().All() {
			p.CopyTo(to(p.Timestamp()).Sum().DataPoints().AppendEmpty())
		}
	case pmetric.MetricTypeHistogram:
		for _, p := range m.Histogram().DataPoints().All() {
			p.CopyTo(to(p.Timestamp()).Histogram().DataPoints().AppendEmpty())
		}
	case pmetric.MetricTypeExponentialHistogram:
		for _, p := range m.ExponentialHistogram().DataPoints().All() {
			p.CopyTo(to(p.Timestamp()).ExponentialHistogram().DataPoints().AppendEmpty())
		}
	case pmetric.MetricTypeSummary:
		for _, p := range m.Summary().DataPoints().All() {
			p.CopyTo(to(p.Timestamp()).Summary().DataPoints().AppendEmpty())
		}
	case pmetric.MetricTypeEmpty: // no points
	}
}

// metric is the copy of m in the part of ts, made at its first point.
func (s *splitter) metric(ts pcommon.Timestamp, at [3]int, rm pmetric.ResourceMetrics, sm pmetric.ScopeMetrics, m pmetric.Metric) pmetric.Metric {
	sl := s.byTime[ts]
	if sl == nil {
		sl = &slice{md: pmetric.NewMetrics()}
		s.byTime[ts] = sl
	}
	if sl.at[0] != at[0] {
		sl.rm = sl.md.ResourceMetrics().AppendEmpty()
		rm.Resource().CopyTo(sl.rm.Resource())
		sl.rm.SetSchemaUrl(rm.SchemaUrl())
	}
	if sl.at[0] != at[0] || sl.at[1] != at[1] {
		sl.sm = sl.rm.ScopeMetrics().AppendEmpty()
		sm.Scope().CopyTo(sl.sm.Scope())
		sl.sm.SetSchemaUrl(sm.SchemaUrl())
	}
	if sl.at != at {
		sl.metric = sl.sm.Metrics().AppendEmpty()
		copyHeader(m, sl.metric)
	}
	sl.at = at
	return sl.metric
}

// copyHeader copies all of a metric but its points.
func copyHeader(m, to pmetric.Metric) {
	to.SetName(m.Name())
	to.SetUnit(m.Unit())
	to.SetDescription(m.Description())
	m.Metadata().CopyTo(to.Metadata())
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		to.SetEmptyGauge()
	case pmetric.MetricTypeSum:
		s := to.SetEmptySum()
		s.SetIsMonotonic(m.Sum().IsMonotonic())
		s.SetAggregationTemporality(m.Sum().AggregationTemporality())
	case pmetric.MetricTypeHistogram:
		to.SetEmptyHistogram().SetAggregationTemporality(m.Histogram().AggregationTemporality())
	case pmetric.MetricTypeExponentialHistogram:
		to.SetEmptyExponentialHistogram().SetAggregationTemporality(m.ExponentialHistogram().AggregationTemporality())
	case pmetric.MetricTypeSummary:
		to.SetEmptySummary()
	case pmetric.MetricTypeEmpty:
	}
}
