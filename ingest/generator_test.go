package ingest

import (
	"math"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"pgregory.net/rapid"
)

// generator draws requests from small alphabets, so that what can collide does.
type generator struct {
	t *rapid.T
	// tick makes the times of delta points ascend.
	tick int64
}

func draw[T any](g *generator, name string, from ...T) T {
	return rapid.SampledFrom(from).Draw(g.t, name)
}

func (g *generator) attributes(m pcommon.Map, keys ...string) {
	for range draw(g, "attributes", 0, 1, 1, 2, 3) {
		key := draw(g, "key", keys...)
		switch draw(g, "type", "str", "str", "str", "int", "bool", "double", "bytes", "slice", "empty", "odd") {
		case "str":
			m.PutStr(key, draw(g, "value", "a", "b", "ä", ""))
		case "int":
			m.PutInt(key, draw[int64](g, "value", 0, -7, math.MaxInt64))
		case "bool":
			m.PutBool(key, true)
		case "double":
			m.PutDouble(key, draw(g, "value", 0.5, 1e-7, 1e21, 1e6, math.Inf(1), math.NaN()))
		case "bytes":
			m.PutEmptyBytes(key).FromRaw([]byte{1, 0xff, 3})
		case "slice":
			m.PutEmptySlice(key).AppendEmpty().SetStr("x")
		case "empty":
			m.PutEmpty(key)
		case "odd":
			m.PutStr(key, "a\x00b")
		}
	}
}

func (g *generator) request() pmetric.Metrics {
	md := pmetric.NewMetrics()
	for range draw(g, "resources", 1, 1, 2) {
		rm := md.ResourceMetrics().AppendEmpty()
		// A resource without a collision: what target_info makes of one is tested
		// by itself.
		g.attributes(rm.Resource().Attributes(), "service.name", "service.instance.id", "service.namespace",
			"k8s.node.name", "host.name", "os.type", "k8s.pod.name")
		rm.Resource().Attributes().RemoveIf(func(_ string, v pcommon.Value) bool {
			return !isScalar(v) || v.AsString() == "a\x00b"
		})
		for range draw(g, "scopes", 0, 1, 1, 2) {
			sm := rm.ScopeMetrics().AppendEmpty()
			sm.Scope().SetName(draw(g, "scope", "", "one", "two"))
			for range draw(g, "metrics", 0, 1, 2, 3) {
				g.metric(sm.Metrics().AppendEmpty())
			}
		}
	}
	return md
}

var pointKeys = []string{"hw.id", "hw_id", "hw.type", "k8s.node.name", "k8s_node_name", "job", "instance", "channel",
	"le", "__name__", "", "5", "_x", "a..b", "..name.."}

func (g *generator) metric(m pmetric.Metric) {
	m.SetName(draw(g, "name", "hw.power", "hw_power", "hw.power_watts", "hw.energy", "hw.energy_count", "5xx", "", "up", "wattloop.x"))
	m.SetUnit(draw(g, "unit", "W", "J", "", "1", "{x}", "By/s"))
	temporality := draw(g, "temporality", cumulative, cumulative, delta, pmetric.AggregationTemporalityUnspecified)
	points := draw(g, "points", 0, 1, 1, 2, 3)
	switch draw(g, "kind", "gauge", "gauge", "sum", "sum", "histogram", "exponential", "summary", "none") {
	case "gauge":
		g.numbers(m.SetEmptyGauge().DataPoints(), points, false)
	case "sum":
		s := m.SetEmptySum()
		s.SetIsMonotonic(draw(g, "monotonic", true, false))
		s.SetAggregationTemporality(temporality)
		g.numbers(s.DataPoints(), points, temporality == delta)
	case "histogram":
		h := m.SetEmptyHistogram()
		h.SetAggregationTemporality(temporality)
		for range points {
			g.histogram(h.DataPoints().AppendEmpty(), temporality == delta)
		}
	case "exponential":
		h := m.SetEmptyExponentialHistogram()
		h.SetAggregationTemporality(temporality)
		for range points {
			g.exponential(h.DataPoints().AppendEmpty(), temporality == delta)
		}
	case "summary":
		s := m.SetEmptySummary()
		for range points {
			g.summary(s.DataPoints().AppendEmpty())
		}
	}
}

// time draws one near the clock, sometimes one that the gate refuses. Times of
// delta points ascend: what late ones do is tested by itself.
func (g *generator) time(isDelta bool) pcommon.Timestamp {
	if isDelta {
		g.tick += 1000
		return pcommon.Timestamp((base - 20*60_000 + g.tick) * 1e6)
	}
	ms := draw[int64](g, "time", 0, 1, 1000, -1000, -60_000, -20*60_000, 60_000, 60_001, -30*60_000-1, -base)
	return pcommon.Timestamp((base + ms) * 1e6)
}

func (g *generator) numbers(dps pmetric.NumberDataPointSlice, n int, isDelta bool) {
	for range n {
		dp := dps.AppendEmpty()
		dp.SetTimestamp(g.time(isDelta))
		g.attributes(dp.Attributes(), pointKeys...)
		g.exemplars(dp.Exemplars())
		switch draw(g, "value", "double", "double", "int", "none", "stale") {
		case "double":
			dp.SetDoubleValue(draw(g, "double", 0, 1, 2.5, -5, math.NaN(), math.Inf(1), math.Copysign(0, -1)))
		case "int":
			dp.SetIntValue(draw[int64](g, "int", 0, 3, -4, math.MaxInt64))
		case "stale":
			if !isDelta {
				dp.SetFlags(dp.Flags().WithNoRecordedValue(true))
			}
		}
	}
}

// exponential draws a histogram that is sound but for one thing at most.
func (g *generator) exponential(dp pmetric.ExponentialHistogramDataPoint, isDelta bool) {
	dp.SetTimestamp(g.time(isDelta))
	g.attributes(dp.Attributes(), pointKeys...)
	g.exemplars(dp.Exemplars())
	dp.SetScale(draw[int32](g, "scale", -4, 0, 3, 8, 9, 20, 31))
	dp.SetZeroCount(draw[uint64](g, "zeros", 0, 3))
	if draw(g, "has sum", true, true, false) {
		dp.SetSum(draw(g, "sum", 0, 2.5, -1))
	}
	sides := []pmetric.ExponentialHistogramDataPointBuckets{dp.Positive(), dp.Negative()}
	for _, side := range sides {
		side.SetOffset(draw[int32](g, "offset", 0, 0, -3, 5, -60))
		side.BucketCounts().FromRaw(draw(g, "counts", nil, nil, []uint64{2}, []uint64{0}, []uint64{1, 0, 0, 3}, []uint64{0, 4, 0, 0, 0, 0, 1, 0}))
		for _, n := range side.BucketCounts().AsRaw() {
			dp.SetCount(dp.Count() + n)
		}
	}
	dp.SetCount(dp.Count() + dp.ZeroCount())
	if isDelta {
		return
	}
	switch draw(g, "shape", "", "", "", "", "stale", "scale", "count", "sum", "threshold", "width", "above", "below", "many") {
	case "stale":
		dp.SetFlags(dp.Flags().WithNoRecordedValue(true))
	case "scale":
		dp.SetScale(draw[int32](g, "bad scale", -5, math.MinInt32))
	case "count":
		dp.SetCount(dp.Count() + draw[uint64](g, "more", 1, 1<<63, math.MaxUint64))
	case "sum":
		dp.SetSum(draw(g, "bad sum", math.NaN(), math.Inf(-1)))
	case "threshold":
		dp.SetZeroThreshold(draw(g, "threshold", 0, 1e-200, 0.5, 1e9))
	case "width":
		dp.SetZeroThreshold(draw(g, "bad threshold", -1, math.NaN(), math.Inf(1)))
	case "above":
		sides[0].SetOffset(math.MaxInt32 - 10)
	case "below":
		sides[1].SetOffset(math.MinInt32)
	case "many":
		sides[0].BucketCounts().FromRaw(make([]uint64, draw(g, "buckets", 1024, 1025, 5000)))
		dp.SetCount(dp.ZeroCount())
		for _, n := range sides[1].BucketCounts().AsRaw() {
			dp.SetCount(dp.Count() + n)
		}
	}
}

func (g *generator) summary(dp pmetric.SummaryDataPoint) {
	dp.SetTimestamp(g.time(false))
	g.attributes(dp.Attributes(), append(pointKeys, "quantile")...)
	dp.SetCount(draw[uint64](g, "count", 0, 7))
	dp.SetSum(draw(g, "sum", 0, 12.5, 12.5, math.NaN()))
	quantiles := draw(g, "quantiles", 0, 1, 2)
	if quantiles > 0 && draw(g, "stale", false, false, true) { // a bare one is tested by itself
		dp.SetFlags(dp.Flags().WithNoRecordedValue(true))
	}
	for range quantiles {
		q := dp.QuantileValues().AppendEmpty()
		q.SetQuantile(draw(g, "quantile", 0, 0.5, 0.99, 1, 1e-9, 1.5, -0.1, math.NaN()))
		q.SetValue(draw(g, "quantile value", 0, 3.25, math.NaN(), math.Inf(1)))
	}
}

func (g *generator) exemplars(list pmetric.ExemplarSlice) {
	for range draw(g, "exemplars", 0, 0, 0, 1, 2) {
		e := list.AppendEmpty()
		e.SetTimestamp(pcommon.Timestamp((base + draw[int64](g, "exemplar time", 0, 1, -1000, 60_001, -base)) * 1e6))
		switch draw(g, "exemplar value", "double", "int", "none") {
		case "double":
			e.SetDoubleValue(draw(g, "exemplar double", 0.25, 7, -1, math.Inf(1)))
		case "int":
			e.SetIntValue(draw[int64](g, "exemplar int", 0, 11))
		}
		g.attributes(e.FilteredAttributes(), "user.id", "trace_id", "", "__name__", "a\u202eb", strings.Repeat("ä", 100), "k8s.node.name")
		if draw(g, "traced", true, false) {
			e.SetTraceID(pcommon.TraceID{1, 2, 15: 16})
			e.SetSpanID(pcommon.SpanID{7: 8})
		}
	}
}

func (g *generator) histogram(dp pmetric.HistogramDataPoint, isDelta bool) {
	dp.SetTimestamp(g.time(isDelta))
	g.attributes(dp.Attributes(), pointKeys...)
	g.exemplars(dp.Exemplars())
	counts := []uint64{draw[uint64](g, "count", 0, 1, 2), 2, 3}
	dp.BucketCounts().FromRaw(counts)
	dp.ExplicitBounds().FromRaw([]float64{0.5, 10})
	dp.SetCount(counts[0] + 5)
	dp.SetSum(draw(g, "sum", 0.5, -1, math.Inf(1)))
	if isDelta {
		return
	}
	switch draw(g, "shape", "", "", "", "stale", "unsorted", "twice", "+Inf", "-Inf", "short") {
	case "stale":
		dp.SetFlags(dp.Flags().WithNoRecordedValue(true))
	case "unsorted":
		dp.ExplicitBounds().FromRaw([]float64{10, 0.5})
	case "twice":
		dp.ExplicitBounds().FromRaw([]float64{10, 10})
	case "+Inf":
		dp.ExplicitBounds().FromRaw([]float64{0.5, math.Inf(1)})
	case "-Inf":
		dp.ExplicitBounds().FromRaw([]float64{math.Inf(-1), 10})
	case "short":
		dp.BucketCounts().FromRaw(counts[:1])
	}
}
