package ingest

import (
	"math"
	"slices"
	"strings"

	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// deviation is one place where we do other than the converter, on purpose, with
// the line of reliability.md (or of another page) that asks for it. The list is
// closed: what is not on it must be equal.
type deviation struct{ what, line string }

var deviations = []deviation{
	{"future, too_old, bad_time", `"Far-future / ancient timestamps | accept [now - out-of-order window, now + 60 s]; ts=0 or > MaxInt64 rejected"`},
	{"not_finite, negative", `"Inf/NaN stored only for gauges ...; negative monotonic => reject"`},
	{"negative", `checklist.md, S0-114: "neither reads negative power"`},
	{"no_value", `architecture.md, what must never happen, 8: "A gap becomes a zero"`},
	{"invalid_utf8, bad_text", `"Invalid UTF-8, NUL, control, bidi | reject"`},
	{"label_limit, bad_name", `"64 labels, name 128 B, value 1 KiB, metric 256 B; over = reject point"`},
	{"label_collision", `"collision inside one point = reject point (never a;b join)"`},
	{"name_collision", `"Metric-name collision ...: detect within a request: reject later ones with reason"`},
	{"duplicate", `0.9 "Duplicate timestamps with other values ... are dropped silently"`},
	{"reserved_name, channel", `"reserved set (k8s.*, ..., channel, ...)", decisions.md X26`},
	{"an empty value", `as label_collision: k.a="1" and k_a="" become "1;" in the converter; an empty value is no label`},
	{"bad_label, bad_temporality", `"sent = stored + folded + rejected": the converter drops the metric with an error`},
	{"bad_scale", `the converter drops the whole metric with an error: one point must not take the others along`},
	{"bad_buckets", `P5: a bucket beyond the greatest number has no bounds in the store`},
	{"count_mismatch", `the TSDB refuses such a histogram, and the request with it`},
	{"bucket_limit", `reliability.md section 2: nothing that a sender chooses is without a bound`},
	{"bad_summary", `as bad_histogram: two equal quantiles are two values of one series at one time`},
	{"zero_threshold", `metrics.proto: "ZeroThreshold may be optionally set to convey the width of the zero region"; the converter takes its default`},
	{"what lies in the zero bucket", `P5: the library's addition leaves out a bucket that lies there, so a delta point counts it as zero`},
	{"gauge exemplars", `metrics.proto has them on every NumberDataPoint; the converter reads those of sums alone`},
	{"unsorted exemplars", `metrics.proto gives them no order; the converter takes them to be in that of their values`},
	{"exemplars", `S2-39: an exemplar without a number or a time, far ahead, or with text that is no text is left out, its point is not`},
	{"bad_histogram", `P5: two equal bounds are two values of one series at one time`},
	{"promoted", `"Data-point k8s_node_name=evil over trusted resource k8s.node.name: stored label evil"`},
	{"not scalar", `"drop non-scalar attribute values before AsString"`},
	{"NaN", `"stale marker bits from the wire normalised to quiet NaN"`},
	{"delta", `decisions.md X2: "one accumulator turns delta into cumulative"`},
	{"target_info", `performance.md: "write when it changed, else at half the lookback"; a;b joins as above`},
}

func countPoints(m pmetric.Metric) int {
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		return m.Gauge().DataPoints().Len()
	case pmetric.MetricTypeSum:
		return m.Sum().DataPoints().Len()
	case pmetric.MetricTypeHistogram:
		return m.Histogram().DataPoints().Len()
	case pmetric.MetricTypeExponentialHistogram:
		return m.ExponentialHistogram().DataPoints().Len()
	case pmetric.MetricTypeSummary:
		return m.Summary().DataPoints().Len()
	}
	return 0
}

// single copies a metric with its point i alone, and returns the point's
// attributes.
func single(m, to pmetric.Metric, i int) (attrs pcommon.Map, why string) {
	to.SetName(m.Name())
	to.SetUnit(m.Unit())
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		dp := to.SetEmptyGauge().DataPoints().AppendEmpty()
		m.Gauge().DataPoints().At(i).CopyTo(dp)
		return dp.Attributes(), ""
	case pmetric.MetricTypeSum:
		s := to.SetEmptySum()
		s.SetIsMonotonic(m.Sum().IsMonotonic())
		s.SetAggregationTemporality(m.Sum().AggregationTemporality())
		dp := s.DataPoints().AppendEmpty()
		m.Sum().DataPoints().At(i).CopyTo(dp)
		return dp.Attributes(), ""
	case pmetric.MetricTypeHistogram:
		h := to.SetEmptyHistogram()
		h.SetAggregationTemporality(m.Histogram().AggregationTemporality())
		dp := h.DataPoints().AppendEmpty()
		m.Histogram().DataPoints().At(i).CopyTo(dp)
		return dp.Attributes(), ""
	case pmetric.MetricTypeExponentialHistogram:
		h := to.SetEmptyExponentialHistogram()
		h.SetAggregationTemporality(m.ExponentialHistogram().AggregationTemporality())
		dp := h.DataPoints().AppendEmpty()
		m.ExponentialHistogram().DataPoints().At(i).CopyTo(dp)
		return dp.Attributes(), ""
	}
	dp := to.SetEmptySummary().DataPoints().AppendEmpty()
	m.Summary().DataPoints().At(i).CopyTo(dp)
	return dp.Attributes(), ""
}

func identity(m pmetric.Metric) string {
	id := m.Name() + "\x00" + m.Unit() + "\x00" + m.Type().String()
	switch m.Type() {
	case pmetric.MetricTypeSum:
		if m.Sum().IsMonotonic() {
			id += "+"
		}
		return id + m.Sum().AggregationTemporality().String()
	case pmetric.MetricTypeHistogram:
		return id + m.Histogram().AggregationTemporality().String()
	case pmetric.MetricTypeExponentialHistogram:
		return id + m.ExponentialHistogram().AggregationTemporality().String()
	}
	return id
}

func isDelta(m pmetric.Metric) bool {
	switch m.Type() {
	case pmetric.MetricTypeSum:
		return m.Sum().AggregationTemporality() == delta
	case pmetric.MetricTypeHistogram:
		return m.Histogram().AggregationTemporality() == delta
	case pmetric.MetricTypeExponentialHistogram:
		return m.ExponentialHistogram().AggregationTemporality() == delta
	}
	return false
}

// refuse says which deviation refuses a point, in the order in which they are
// looked at.
func (x *expectation) refuse(res pcommon.Resource, m pmetric.Metric, attrs pcommon.Map) string {
	if why := x.refuseMetric(m); why != "" {
		return why
	}
	var stamp pcommon.Timestamp
	value := ""
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		dp := m.Gauge().DataPoints().At(0)
		stamp = dp.Timestamp()
		power := m.Name() == "hw.power" || m.Name() == "hw.host.power" || strings.HasPrefix(m.Name(), "joulie.") && strings.HasSuffix(m.Name(), ".power")
		switch {
		case dp.Flags().NoRecordedValue():
		case dp.ValueType() == pmetric.NumberDataPointValueTypeEmpty:
			value = "no_value"
		case power && (dp.DoubleValue() < 0 || dp.IntValue() < 0):
			value = "negative"
		}
	case pmetric.MetricTypeSum:
		dp := m.Sum().DataPoints().At(0)
		stamp = dp.Timestamp()
		v := dp.DoubleValue()
		if dp.ValueType() == pmetric.NumberDataPointValueTypeInt {
			v = float64(dp.IntValue())
		}
		switch {
		case dp.Flags().NoRecordedValue():
		case dp.ValueType() == pmetric.NumberDataPointValueTypeEmpty:
			value = "no_value"
		case math.IsNaN(v) || math.IsInf(v, 0):
			value = "not_finite"
		case v < 0 && m.Sum().IsMonotonic():
			value = "negative"
		}
	case pmetric.MetricTypeHistogram:
		dp := m.Histogram().DataPoints().At(0)
		stamp = dp.Timestamp()
		bounds := dp.ExplicitBounds().AsRaw()
		for i := range bounds {
			if bounds[i] != bounds[i] || i > 0 && bounds[i] <= bounds[i-1] {
				value = "bad_histogram"
			}
		}
		if dp.HasSum() && (math.IsNaN(dp.Sum()) || math.IsInf(dp.Sum(), 0)) && !dp.Flags().NoRecordedValue() {
			value = "not_finite"
		}
	case pmetric.MetricTypeExponentialHistogram:
		dp := m.ExponentialHistogram().DataPoints().At(0)
		stamp = dp.Timestamp()
		value = refuseExponential(dp)
	case pmetric.MetricTypeSummary:
		dp := m.Summary().DataPoints().At(0)
		stamp = dp.Timestamp()
		value = refuseSummary(dp)
	}
	if why := x.refuseTime(stamp); why != "" {
		return why
	}
	own := map[pmetric.MetricType]string{pmetric.MetricTypeHistogram: "le", pmetric.MetricTypeSummary: "quantile"}[m.Type()]
	if why := x.refuseAttributes(res, attrs, own); why != "" {
		return why
	}
	return value
}

func refuseExponential(dp pmetric.ExponentialHistogramDataPoint) string {
	positive, negative := dp.Positive().BucketCounts().AsRaw(), dp.Negative().BucketCounts().AsRaw()
	sum := dp.ZeroCount()
	for _, n := range append(slices.Clone(positive), negative...) {
		sum += n
	}
	switch {
	case dp.Flags().NoRecordedValue():
		return ""
	case len(positive) > 1024 || len(negative) > 1024:
		return "bucket_limit"
	case dp.Scale() < -4:
		return "bad_scale"
	case math.IsNaN(dp.Sum()) || math.IsInf(dp.Sum(), 0):
		return "not_finite"
	case !(dp.ZeroThreshold() >= 0) || math.IsInf(dp.ZeroThreshold(), 0),
		beyond(dp.Scale(), dp.Positive()) || beyond(dp.Scale(), dp.Negative()):
		return "bad_buckets"
	case sum != dp.Count():
		return "count_mismatch"
	}
	return ""
}

// beyond reports whether a bucket that is not empty begins above the greatest
// float64, or ends below the least above 0.
func beyond(scale int32, b pmetric.ExponentialHistogramDataPointBuckets) bool {
	for i, n := range b.BucketCounts().AsRaw() {
		index := float64(b.Offset()) + float64(i)
		low, high := math.Ldexp(index, -int(scale)), math.Ldexp(index+1, -int(scale)) // exponents of 2
		if n > 0 && (low >= 1024 || high < -1075) {
			return true
		}
	}
	return false
}

func refuseSummary(dp pmetric.SummaryDataPoint) string {
	if !dp.Flags().NoRecordedValue() && (math.IsNaN(dp.Sum()) || math.IsInf(dp.Sum(), 0)) {
		return "not_finite"
	}
	seen := map[float64]bool{}
	for _, q := range dp.QuantileValues().All() {
		if v := q.Quantile(); !(v >= 0 && v <= 1) || seen[v] {
			return "bad_summary"
		}
		seen[q.Quantile()] = true
	}
	return ""
}

func (x *expectation) refuseMetric(m pmetric.Metric) string {
	temporality := cumulative
	t := otlptranslator.Metric{Name: m.Name(), Unit: m.Unit(), Type: otlptranslator.MetricTypeGauge}
	switch m.Type() {
	case pmetric.MetricTypeSum:
		temporality = m.Sum().AggregationTemporality()
		t.Type = otlptranslator.MetricTypeNonMonotonicCounter
		if m.Sum().IsMonotonic() {
			t.Type = otlptranslator.MetricTypeMonotonicCounter
		}
	case pmetric.MetricTypeHistogram:
		temporality = m.Histogram().AggregationTemporality()
		t.Type = otlptranslator.MetricTypeHistogram
	case pmetric.MetricTypeExponentialHistogram:
		temporality = m.ExponentialHistogram().AggregationTemporality()
		t.Type = otlptranslator.MetricTypeExponentialHistogram
	case pmetric.MetricTypeSummary:
		t.Type = otlptranslator.MetricTypeSummary
	}
	namer := otlptranslator.NewMetricNamer("", x.strategy)
	name, err := namer.Build(t)
	switch {
	case temporality != cumulative && temporality != delta:
		return "bad_temporality"
	case err != nil || name == "":
		return "bad_name"
	case takesSeries(name):
		return "reserved_name"
	}
	return ""
}

// takesSeries reports whether a name is wattloop's own, also when it is read with
// underscores for dots.
func takesSeries(name string) bool {
	name = strings.ReplaceAll(name, ".", "_")
	return name == "up" || name == targetInfoName || slices.ContainsFunc([]string{"wattloop_", "joulie_twin_", "scrape_", "ALERTS"},
		func(p string) bool { return strings.HasPrefix(name, p) })
}

func (x *expectation) refuseTime(stamp pcommon.Timestamp) string {
	ms := int64(stamp / 1e6)
	switch {
	case stamp == 0 || stamp > math.MaxInt64:
		return "bad_time"
	case x.now != 0 && ms > x.now+60_000:
		return "future"
	case x.now != 0 && ms < x.now-1800_000:
		return "too_old"
	}
	return ""
}

func (x *expectation) refuseAttributes(res pcommon.Resource, attrs pcommon.Map, own string) string {
	held := x.resourceLabels(res)
	seen := map[string]bool{}
	for key, v := range attrs.All() {
		if key == "__name__" || !isScalar(v) || v.AsString() == "" {
			continue
		}
		name, err := x.label.Build(key)
		switch {
		case err != nil:
			return "bad_label"
		case name == "__name__":
			return "label_collision"
		case len(v.AsString()) > 1024:
			return "label_limit"
		case strings.ContainsAny(v.AsString(), "\x00\n\u202e"):
			return "bad_text"
		}
		if name == "channel" {
			name = "exported_channel"
		}
		if held[name] {
			continue
		}
		if seen[name] || name == own {
			return "label_collision"
		}
		seen[name] = true
	}
	return ""
}

func isScalar(v pcommon.Value) bool {
	return v.Type() != pcommon.ValueTypeMap && v.Type() != pcommon.ValueTypeSlice
}

// resourceLabels are the labels that a resource gives to each of its points.
func (x *expectation) resourceLabels(res pcommon.Resource) map[string]bool {
	held := map[string]bool{}
	labels := map[string]string{"service.name": "job", "service.instance.id": "instance"}
	for _, key := range []string{"k8s.node.name", "host.name"} {
		labels[key], _ = x.label.Build(key)
	}
	for key, label := range labels {
		if v, ok := res.Attributes().Get(key); ok && isScalar(v) && v.AsString() != "" {
			held[label] = true
		}
	}
	return held
}

// prepare takes out of a point, and of its resource's copy, what the deviations
// keep from the labels.
func (x *expectation) prepare(res pcommon.Resource, attrs pcommon.Map) {
	held := x.resourceLabels(res)
	attrs.RemoveIf(func(key string, v pcommon.Value) bool {
		name, err := x.label.Build(key)
		return !isScalar(v) || v.AsString() == "" || err == nil && held[name]
	})
	if v, ok := attrs.Get("channel"); ok {
		attrs.PutStr("exported_channel", v.AsString())
		attrs.Remove("channel")
	}
}

// widen gives the oracle's histogram the zero threshold of its point.
func (x *expectation) widen(m pmetric.Metric, samples []oracleSample) {
	if m.Type() != pmetric.MetricTypeExponentialHistogram {
		return
	}
	for i := range samples {
		if f := samples[i].f; f != nil {
			f.ZeroThreshold = max(f.ZeroThreshold, m.ExponentialHistogram().DataPoints().At(0).ZeroThreshold())
		}
	}
}
