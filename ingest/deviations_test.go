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
	{"no_value", `architecture.md, what must never happen, 8: "A gap becomes a zero"`},
	{"invalid_utf8, bad_text", `"Invalid UTF-8, NUL, control, bidi | reject"`},
	{"label_limit, bad_name", `"64 labels, name 128 B, value 1 KiB, metric 256 B; over = reject point"`},
	{"label_collision", `"collision inside one point = reject point (never a;b join)"`},
	{"name_collision", `"Metric-name collision ...: detect within a request: reject later ones with reason"`},
	{"duplicate", `0.9 "Duplicate timestamps with other values ... are dropped silently"`},
	{"reserved_name, channel", `"reserved set (k8s.*, ..., channel, ...)", decisions.md X26`},
	{"an empty value", `as label_collision: k.a="1" and k_a="" become "1;" in the converter; an empty value is no label`},
	{"bad_label, bad_temporality", `"sent = stored + folded + rejected": the converter drops the metric with an error`},
	{"unsupported_*", `the issue: "kinds that come later are counted as such by reason"`},
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
		return attrs, "unsupported_exponential_histogram"
	}
	return attrs, "unsupported_summary"
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
	}
	return id
}

func isDelta(m pmetric.Metric) bool {
	switch m.Type() {
	case pmetric.MetricTypeSum:
		return m.Sum().AggregationTemporality() == delta
	case pmetric.MetricTypeHistogram:
		return m.Histogram().AggregationTemporality() == delta
	}
	return false
}

// refuse says which deviation refuses a point, in the order in which they are
// looked at.
func (x *expectation) refuse(res pcommon.Resource, m pmetric.Metric, attrs pcommon.Map) string {
	if why := refuseMetric(m); why != "" {
		return why
	}
	var stamp pcommon.Timestamp
	value := ""
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		dp := m.Gauge().DataPoints().At(0)
		stamp = dp.Timestamp()
		if dp.ValueType() == pmetric.NumberDataPointValueTypeEmpty && !dp.Flags().NoRecordedValue() {
			value = "no_value"
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
	}
	if why := x.refuseTime(stamp); why != "" {
		return why
	}
	if why := refuseAttributes(res, attrs, m.Type() == pmetric.MetricTypeHistogram); why != "" {
		return why
	}
	return value
}

func refuseMetric(m pmetric.Metric) string {
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
	}
	namer := otlptranslator.NewMetricNamer("", otlptranslator.UnderscoreEscapingWithSuffixes)
	name, err := namer.Build(t)
	switch {
	case temporality != cumulative && temporality != delta:
		return "bad_temporality"
	case err != nil:
		return "bad_name"
	case name == "up" || name == targetInfoName || slices.ContainsFunc([]string{"wattloop_", "joulie_twin_", "scrape_", "ALERTS"},
		func(p string) bool { return strings.HasPrefix(name, p) }):
		return "reserved_name"
	}
	return ""
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

//lint:ignore SA1019 a default Prometheus sets it
var oracleLabels = otlptranslator.LabelNamer{UnderscoreLabelSanitization: true, PreserveMultipleUnderscores: true}

func refuseAttributes(res pcommon.Resource, attrs pcommon.Map, isHistogram bool) string {
	held := resourceLabels(res)
	seen := map[string]bool{}
	for key, v := range attrs.All() {
		if key == "__name__" || !isScalar(v) || v.AsString() == "" {
			continue
		}
		name, err := oracleLabels.Build(key)
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
		if seen[name] || isHistogram && name == "le" {
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
func resourceLabels(res pcommon.Resource) map[string]bool {
	held := map[string]bool{}
	for key, label := range map[string]string{"k8s.node.name": "k8s_node_name", "host.name": "host_name",
		"service.name": "job", "service.instance.id": "instance"} {
		if v, ok := res.Attributes().Get(key); ok && isScalar(v) && v.AsString() != "" {
			held[label] = true
		}
	}
	return held
}

// prepare takes out of a point, and of its resource's copy, what the deviations
// keep from the labels.
func prepare(res pcommon.Resource, attrs pcommon.Map) {
	held := resourceLabels(res)
	attrs.RemoveIf(func(key string, v pcommon.Value) bool {
		name, err := oracleLabels.Build(key)
		return !isScalar(v) || v.AsString() == "" || err == nil && held[name]
	})
	if v, ok := attrs.Get("channel"); ok {
		attrs.PutStr("exported_channel", v.AsString())
		attrs.Remove("channel")
	}
}
