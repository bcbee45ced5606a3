package ingest

import (
	"context"
	"math"
	"slices"
	"strings"

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
		info := s.labels.Get(metricLabel) == targetInfoName
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
		if s.labels.Get(metricLabel) == targetInfoName {
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
