package ingest

import (
	"context"
	"math"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/otlptranslator"
	"github.com/prometheus/prometheus/config"
	native "github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/remote/otlptranslator/prometheusremotewrite"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"pgregory.net/rapid"
)

// The oracle is Prometheus's own converter with the settings of a Prometheus
// whose OTLP section holds only the promoted attributes.

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

// captured is what the converter appends.
type captured struct {
	storage.AppenderV2
	samples []oracleSample
}

type oracleSample struct {
	labels labels.Labels
	t      int64
	v      float64
}

func (c *captured) Append(_ storage.SeriesRef, ls labels.Labels, _, t int64, v float64, _ *native.Histogram, _ *native.FloatHistogram, _ storage.AOptions) (storage.SeriesRef, error) {
	c.samples = append(c.samples, oracleSample{ls, t, v})
	return 1, nil
}

func oracleSettings() prometheusremotewrite.Settings {
	o := config.DefaultOTLPConfig
	o.PromoteResourceAttributes = []string{"k8s.node.name", "host.name"}
	return prometheusremotewrite.Settings{
		AddMetricSuffixes:                    o.TranslationStrategy.ShouldAddSuffixes(),
		AllowUTF8:                            !o.TranslationStrategy.ShouldEscape(),
		PromoteResourceAttributes:            prometheusremotewrite.NewPromoteResourceAttributes(o),
		AllowDeltaTemporality:                true,
		LabelNameUnderscoreSanitization:      o.LabelNameUnderscoreSanitization,
		LabelNamePreserveMultipleUnderscores: o.LabelNamePreserveMultipleUnderscores,
	}
}

// convert runs the converter on one request.
func convert(md pmetric.Metrics) ([]oracleSample, error) {
	c := &captured{}
	_, err := prometheusremotewrite.NewPrometheusConverter(c).FromMetrics(context.Background(), md, oracleSettings())
	return c.samples, err
}

// expectation is what the oracle and the list of deviations make of requests that
// are sent in turn.
type expectation struct {
	t       rapid.TB
	now     int64 // 0 without a gate
	series  map[string][]tv
	infos   map[string]bool
	reasons map[string]int64
	points  int64
	folded  int64
	sums    map[string]float64 // delta
	newest  map[string]int64
}

func newExpectation(t rapid.TB) *expectation {
	return &expectation{t: t, series: map[string][]tv{}, infos: map[string]bool{}, reasons: map[string]int64{},
		sums: map[string]float64{}, newest: map[string]int64{}}
}

// request takes each point of a request to the oracle alone.
func (x *expectation) request(md pmetric.Metrics) {
	owners := map[string]string{}
	for _, rm := range md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				x.metric(rm.Resource(), m, owners)
			}
		}
	}
}

func (x *expectation) metric(res pcommon.Resource, m pmetric.Metric, owners map[string]string) {
	for i := range countPoints(m) {
		x.points++
		one := pmetric.NewMetrics()
		rm := one.ResourceMetrics().AppendEmpty()
		res.CopyTo(rm.Resource())
		om := rm.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
		attrs, why := single(m, om, i)
		if why == "" {
			why = x.refuse(res, om, attrs)
		}
		if why != "" {
			x.reasons[why]++
			continue
		}
		prepare(res, attrs)
		samples, err := convert(one)
		if err != nil {
			x.t.Fatalf("the oracle refuses what no deviation names: %v", err)
		}
		x.add(identity(m), isDelta(m), samples, owners)
	}
}

// add applies the deviations between points: collisions, duplicates, sums.
func (x *expectation) add(owner string, delta bool, samples []oracleSample, owners map[string]string) {
	own := slices.DeleteFunc(slices.Clone(samples), func(s oracleSample) bool {
		info := s.labels.Get(model.MetricNameLabel) == targetInfoName
		return info
	})
	for _, s := range own {
		if by, ok := owners[s.labels.String()]; ok && by != owner {
			x.reasons["name_collision"]++
			return
		}
	}
	for _, s := range own {
		owners[s.labels.String()] = owner
	}
	clash := false
	for _, s := range own {
		for _, old := range x.series[s.labels.String()] {
			clash = clash || !delta && old.t == s.t && !sameValue(old.v, quiet(s.v))
		}
	}
	if clash {
		x.reasons["duplicate"]++
		return
	}
	for _, s := range own {
		key := s.labels.String()
		if delta {
			x.sums[key] += s.v
			s.v = x.sums[key]
		}
		pt := tv{s.t, quiet(s.v)}
		if !slices.ContainsFunc(x.series[key], func(old tv) bool { return old.t == pt.t }) {
			x.series[key] = append(x.series[key], pt)
		}
	}
	for _, s := range samples {
		if s.labels.Get(model.MetricNameLabel) == targetInfoName {
			x.infos[s.labels.String()] = true
		}
	}
}

// quiet is the one NaN that we store beside the stale marker.
func quiet(v float64) float64 {
	if v != v && math.Float64bits(v) != 0x7ff0000000000002 {
		return math.Float64frombits(0x7ff8000000000001)
	}
	return v
}

// check compares with what is stored.
func (x *expectation) check(got map[string][]tv, res []Result) {
	x.t.Helper()
	infos := map[string]bool{}
	for key, samples := range got {
		if strings.Contains(key, `__name__="target_info"`) {
			infos[key] = true
			for _, s := range samples {
				if s.v != 1 {
					x.t.Errorf("%s holds %v; want 1", key, s)
				}
			}
			continue
		}
		want := slices.Clone(x.series[key])
		slices.SortFunc(want, func(a, b tv) int { return int(a.t - b.t) })
		if !slices.EqualFunc(samples, want, func(a, b tv) bool { return a.t == b.t && sameValue(a.v, b.v) }) {
			x.t.Errorf("%s\nholds %v\nwant  %v", key, samples, want)
		}
	}
	for key := range x.series {
		if _, ok := got[key]; !ok {
			x.t.Errorf("%s is missing", key)
		}
	}
	for key := range x.infos {
		if !infos[key] {
			x.t.Errorf("%s is missing", key)
		}
	}
	if len(infos) > len(x.infos) {
		x.t.Errorf("target_info series %v; want %v", infos, x.infos)
	}
	var sum Result
	reasons := map[string]int64{}
	for _, r := range res {
		sum.Accepted += r.Accepted
		sum.Folded += r.Folded
		sum.Rejected += r.Rejected
		for why, n := range r.ByReason {
			reasons[why] += n
		}
	}
	for why := range x.reasons {
		reasons[why] += 0
	}
	for why, n := range reasons {
		if n != x.reasons[why] {
			x.t.Errorf("%d rejected as %s; want %d", n, why, x.reasons[why])
		}
	}
	if got := sum.Accepted + sum.Folded + sum.Rejected; got != x.points {
		x.t.Errorf("accepted %d + folded %d + rejected %d; sent %d", sum.Accepted, sum.Folded, sum.Rejected, x.points)
	}
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

var oracleLabels = otlptranslator.LabelNamer{UnderscoreLabelSanitization: true, PreserveMultipleUnderscores: true} //nolint:staticcheck // as Prometheus

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
