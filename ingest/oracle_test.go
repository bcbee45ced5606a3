package ingest

import (
	"context"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/otlptranslator"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/exemplar"
	native "github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
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
	samples   []oracleSample
	exemplars []exemplar.Exemplar // and of which of samples they are
	of        []int
}

type oracleSample struct {
	labels labels.Labels
	t      int64
	v      float64
	f      *native.FloatHistogram // in place of v
}

// printOf stands for a native histogram among the samples: one number for those
// that are equal, a stale one's is that of the marker.
func printOf(f *native.FloatHistogram) float64 {
	w := walk{seed: testSeed}
	bits := w.fingerprint(hist{f: f})
	if bits != value.StaleNaN {
		bits &= 1<<62 - 1 // no NaN
	}
	return math.Float64frombits(bits)
}

var testSeed = maphash.MakeSeed()

func (c *captured) Append(_ storage.SeriesRef, ls labels.Labels, _, t int64, v float64, h *native.Histogram, _ *native.FloatHistogram, o storage.AOptions) (storage.SeriesRef, error) {
	s := oracleSample{ls, t, v, nil}
	if h != nil {
		s.f = h.ToFloat(nil)
		s.f.CounterResetHint = native.UnknownCounterReset
	}
	c.samples = append(c.samples, s)
	for _, e := range o.Exemplars {
		c.exemplars, c.of = append(c.exemplars, e), append(c.of, len(c.samples)-1)
	}
	return 1, nil
}

func exemplarText(ls labels.Labels, e exemplar.Exemplar) string {
	return fmt.Sprintf("%s %s %v %d", ls, e.Labels, e.Value, e.Ts)
}

func oracleSettings(strategy Naming) prometheusremotewrite.Settings {
	o := config.DefaultOTLPConfig
	o.TranslationStrategy = strategy
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
func convert(md pmetric.Metrics, strategy Naming) (*captured, error) {
	c := &captured{}
	_, err := prometheusremotewrite.NewPrometheusConverter(c).FromMetrics(context.Background(), md, oracleSettings(strategy))
	return c, err
}

// expectation is what the oracle and the list of deviations make of requests that
// are sent in turn.
type expectation struct {
	t         rapid.TB
	now       int64 // 0 without a gate
	strategy  Naming
	label     otlptranslator.LabelNamer
	series    map[string][]tv
	infos     map[string]bool
	exemplars map[string]bool
	reasons   map[string]int64
	points    int64
	invalid   int64                   // exemplars
	sums      map[string]oracleSample // delta
}

func newExpectation(t rapid.TB, strategy Naming) *expectation {
	return &expectation{t: t, strategy: strategy, series: map[string][]tv{}, infos: map[string]bool{}, reasons: map[string]int64{},
		exemplars: map[string]bool{}, sums: map[string]oracleSample{},
		//lint:ignore SA1019 a default Prometheus sets it
		label: otlptranslator.LabelNamer{UTF8Allowed: !strategy.ShouldEscape(), UnderscoreLabelSanitization: true, PreserveMultipleUnderscores: true}}
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
		x.prepare(res, attrs)
		refused := prepareExemplars(om, x.now)
		got, err := convert(one, x.strategy)
		if err != nil {
			x.t.Fatalf("the oracle refuses what no deviation names: %v", err)
		}
		x.widen(om, got.samples)
		x.ofGauge(one, got)
		why = x.add(identity(m), isDelta(m), got.samples, owners)
		if why == "" {
			for i, e := range got.exemplars {
				x.exemplars[exemplarText(got.samples[got.of[i]].labels, e)] = true
			}
		}
		if why != "name_collision" { // which is seen before the point comes to the store
			x.invalid += refused
		}
	}
}

// add applies the deviations between points: collisions, duplicates, sums.
func (x *expectation) add(owner string, delta bool, samples []oracleSample, owners map[string]string) (why string) {
	own := slices.DeleteFunc(slices.Clone(samples), func(s oracleSample) bool {
		info := s.labels.Get(metricLabel) == targetInfoName
		return info
	})
	for _, s := range own {
		if by, ok := owners[s.labels.String()]; ok && by != owner {
			x.reasons["name_collision"]++
			return "name_collision"
		}
	}
	for _, s := range own {
		owners[s.labels.String()] = owner
	}
	clash := false
	for _, s := range own {
		for _, old := range x.series[s.labels.String()] {
			clash = clash || !delta && old.t == s.t && !sameValue(old.v, s.number())
		}
	}
	if clash {
		x.reasons["duplicate"]++
		return "duplicate"
	}
	for _, s := range own {
		key := s.labels.String()
		if delta {
			s = x.sums[key].plus(s)
			x.sums[key] = s
		}
		pt := tv{s.t, s.number()}
		if !slices.ContainsFunc(x.series[key], func(old tv) bool { return old.t == pt.t }) {
			x.series[key] = append(x.series[key], pt)
		}
	}
	for _, s := range samples {
		if s.labels.Get(metricLabel) == targetInfoName {
			x.infos[s.labels.String()] = true
		}
	}
	return ""
}

// plus is the running sum after one more delta.
func (s oracleSample) plus(d oracleSample) oracleSample {
	switch {
	case d.f == nil:
		d.v += s.v
	case s.f != nil: // TestSumsKeepTheCount says that these two are right
		d.f = addHistograms(s.f, summable(d.f))
	default:
		d.f = summable(d.f)
	}
	return d
}

// number is what stands for the sample where it is compared.
func (s oracleSample) number() float64 {
	if s.f != nil {
		return printOf(s.f)
	}
	return quiet(s.v)
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

// checkExemplars compares with what came to the store, and with the counts.
func (x *expectation) checkExemplars(got map[string]bool, m *channelMetrics) {
	x.t.Helper()
	if diff := cmp.Diff(x.exemplars, got); diff != "" {
		x.t.Errorf("exemplars (-want +got):\n%s", diff)
	}
	if n := testutil.ToFloat64(m.exemplars[exemplarInvalid]); n != float64(x.invalid) {
		x.t.Errorf("%v exemplars counted as invalid; want %d", n, x.invalid)
	}
}
