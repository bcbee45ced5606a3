package ingest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// onwardMetrics are the points that went onward, summed by name.
func onwardMetrics(t *testing.T, up *upstream) map[string]float64 {
	t.Helper()
	points := map[string]float64{}
	for _, f := range up.got {
		if f.Signal != SignalMetrics || f.Plane != PlaneWorkload {
			t.Errorf("%s of the %s plane", f.Signal, f.Plane)
		}
		for _, rm := range metricsOf(t, f.Wire).ResourceMetrics().All() {
			for _, sm := range rm.ScopeMetrics().All() {
				for _, m := range sm.Metrics().All() {
					list := pmetric.NewNumberDataPointSlice()
					switch m.Type() {
					case pmetric.MetricTypeGauge:
						list = m.Gauge().DataPoints()
					case pmetric.MetricTypeSum:
						list = m.Sum().DataPoints()
					}
					for _, p := range list.All() {
						points[m.Name()] += p.DoubleValue()
					}
				}
			}
		}
	}
	up.got = nil
	return points
}

// What the store has of a workload's metrics goes onward, and nothing else:
// neither what was refused nor what is known as a retry, whose value has gone
// on before.
func TestWorkloadMetricsOnward(t *testing.T) {
	b, a, up := workload(t, actor, nil)
	b.at(60)
	p := newPayload("process.pid", "7", "service.name", "x")
	p.gauge("g", "", 1000, 1)
	p.gauge("future", "", 999_000_000, 1)
	p.gauge("up", "", 1000, 1)
	p.sum("d", "", delta, 1000, 2000, 3)
	p.sum("d", "", delta, 2000, 3000, 4)
	p.sum("negative", "", delta, 1000, 2000, -3)
	wire := wireOf(t, p.md)
	res, err := a.Export(t.Context(), wire)
	if err != nil {
		t.Fatal(err)
	}
	checkResult(t, res, 3, 0, map[string]int64{"future": 1, "negative": 1, "reserved_name": 1})
	wantResource := map[string]any{}
	for _, x := range a.src.stamp.metric {
		wantResource[x.key] = x.value
	}
	wantResource[serviceName] = "cart-svc" // and process.pid is gone
	if d := cmp.Diff(wantResource, metricsOf(t, up.got[0].Wire).ResourceMetrics().At(0).Resource().Attributes().AsRaw()); d != "" {
		t.Errorf("resource (-want +got):\n%s", d)
	}
	if d := cmp.Diff(map[string]float64{"g": 1, "d": 7}, onwardMetrics(t, up)); d != "" {
		t.Errorf("first (-want +got):\n%s", d)
	}
	// The same once more: a gauge says the same again, a delta would count twice.
	if _, err := a.Export(t.Context(), wire); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]float64{"g": 1}, onwardMetrics(t, up)); d != "" {
		t.Errorf("retry (-want +got):\n%s", d)
	}
	// Where nothing is left, nothing goes on.
	p = newPayload()
	p.gauge("up", "", 1000, 1)
	if _, err := a.Export(t.Context(), wireOf(t, p.md)); err != nil {
		t.Fatal(err)
	}
	if len(up.got) != 0 {
		t.Errorf("%d requests of refused points forwarded", len(up.got))
	}
}

// A point that the store itself refuses, late and with another value, does not
// go on.
func TestStoreRefusesOnward(t *testing.T) {
	b, a, up := workload(t, actor, nil)
	b.at(60)
	for _, v := range []float64{1, 2} {
		p := newPayload()
		p.gauge("g", "", 1000, v)
		p.gauge("h", "", int64(1000+v), v)
		if _, err := a.Export(t.Context(), wireOf(t, p.md)); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(map[string]float64{"g": 1, "h": 3}, onwardMetrics(t, up)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// S2-76, X21: no start before the activation's goes on, and none after its point.
func TestStartsOnward(t *testing.T) {
	s := &stamper{since: 100}
	f := func(d decision, start, time, want uint64) {
		t.Helper()
		if got := s.start(&d, start, time); got != want {
			t.Errorf("start %d of a point at %d becomes %d; want %d", start, time, got, want)
		}
	}
	f(decision{}, 0, 200, 0)
	f(decision{}, 50, 200, 100)
	f(decision{}, 150, 200, 150)
	f(decision{}, 50, 80, 80)
	f(decision{start: 120}, 50, 200, 120)
}

// What is turned into a delta has its value, its start and its temporality, and
// keeps the rest: attributes, bounds, exemplars. The least and the greatest
// value, which are those of all that was counted, go.
func TestTurned(t *testing.T) {
	_, a, _ := workload(t, actor, nil)
	p := newPayload()
	dp := p.sum("double", "J", cumulative, 0, 2000, 42.5, "k", "v")
	dp.Exemplars().AppendEmpty().SetDoubleValue(1)
	p.sum("int", "", cumulative, 0, 2000, 0).SetIntValue(42)
	p.sum("broken", "", cumulative, 0, 2000, 0).SetIntValue(42)
	stale := p.sum("ended", "", cumulative, 0, 2000, 0)
	stale.SetFlags(pmetric.DefaultDataPointFlags.WithNoRecordedValue(true))
	h := p.metric("h", "s").SetEmptyHistogram()
	h.SetAggregationTemporality(cumulative)
	hp := h.DataPoints().AppendEmpty()
	hp.SetTimestamp(pcommon.Timestamp(base*1e6 + 2e9))
	hp.SetCount(9)
	hp.SetSum(90)
	hp.SetMin(1)
	hp.SetMax(50)
	hp.ExplicitBounds().FromRaw([]float64{0.5, 1})
	hp.BucketCounts().FromRaw([]uint64{4, 3, 2})
	e := p.metric("e", "s").SetEmptyExponentialHistogram()
	e.SetAggregationTemporality(cumulative)
	ep := e.DataPoints().AppendEmpty()
	ep.SetTimestamp(pcommon.Timestamp(base*1e6 + 2e9))
	ep.SetScale(3)
	ep.SetCount(9)
	ep.SetSum(90)
	ep.SetMax(7)
	ep.SetZeroCount(4)
	ep.Positive().SetOffset(5)
	ep.Positive().BucketCounts().FromRaw([]uint64{300, 2})

	const start = base*1e6 + 1e9
	s := a.newStamper(SignalMetrics)
	s.decisions = []decision{
		{act: actDelta, start: start, value: 1.5},
		{act: actDelta, start: start, value: 2},
		{act: actDelta, start: start, value: 0.25},
		{act: actKeep},
		{act: actDelta, start: start, hist: &histogramDelta{count: 3, sum: 30, hasSum: true, counts: []uint64{1, 0, 2}}},
		{act: actDelta, start: start, hist: &histogramDelta{count: 301, scale: -2, zero: 1, zeroThreshold: 0.1,
			positive: exponentialBuckets{-7, []uint64{300, 0}}, negative: exponentialBuckets{3, []uint64{1}}}},
	}
	s.rewrite(&metricLevels, shuffle(msgRequest, wireOf(t, p.md), ascending, nil))

	w := newPayload()
	put(w.md.ResourceMetrics().At(0).Resource().Attributes(), []string{serviceName, "cart-svc"})
	for _, x := range a.src.stamp.metric {
		w.md.ResourceMetrics().At(0).Resource().Attributes().PutStr(x.key, x.value)
	}
	dp = w.sum("double", "J", delta, 1000, 2000, 1.5, "k", "v")
	dp.Exemplars().AppendEmpty().SetDoubleValue(1)
	w.sum("int", "", delta, 1000, 2000, 0).SetIntValue(2)
	w.sum("broken", "", delta, 1000, 2000, 0.25)
	stale.CopyTo(w.sum("ended", "", cumulative, 0, 0, 0))
	h = w.metric("h", "s").SetEmptyHistogram()
	h.SetAggregationTemporality(delta)
	hp = h.DataPoints().AppendEmpty()
	hp.SetStartTimestamp(start)
	hp.SetTimestamp(base*1e6 + 2e9)
	hp.SetCount(3)
	hp.SetSum(30)
	hp.ExplicitBounds().FromRaw([]float64{0.5, 1})
	hp.BucketCounts().FromRaw([]uint64{1, 0, 2})
	e = w.metric("e", "s").SetEmptyExponentialHistogram()
	e.SetAggregationTemporality(delta)
	ep = e.DataPoints().AppendEmpty()
	ep.SetStartTimestamp(start)
	ep.SetTimestamp(base*1e6 + 2e9)
	ep.SetScale(-2)
	ep.SetCount(301)
	ep.SetZeroCount(1)
	ep.SetZeroThreshold(0.1)
	ep.Positive().SetOffset(-7)
	ep.Positive().BucketCounts().FromRaw([]uint64{300, 0})
	ep.Negative().SetOffset(3)
	ep.Negative().BucketCounts().FromRaw([]uint64{1})
	toJSON := func(md pmetric.Metrics) string {
		b, err := (&pmetric.JSONMarshaler{}).MarshalMetrics(md)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if d := cmp.Diff(toJSON(w.md), toJSON(metricsOf(t, s.out))); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
