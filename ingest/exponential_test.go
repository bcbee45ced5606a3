package ingest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	native "github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

func (p *payload) exponential(name string, ms int64, temporality pmetric.AggregationTemporality, scale, offset int32, counts ...uint64) pmetric.ExponentialHistogramDataPoint {
	h := p.metric(name, "s").SetEmptyExponentialHistogram()
	h.SetAggregationTemporality(temporality)
	dp := h.DataPoints().AppendEmpty()
	dp.SetTimestamp(pcommon.Timestamp((base + ms) * 1e6))
	dp.SetStartTimestamp(pcommon.Timestamp((base + ms - 1000) * 1e6))
	dp.SetScale(scale)
	dp.Positive().SetOffset(offset)
	dp.Positive().BucketCounts().FromRaw(counts)
	for _, n := range counts {
		dp.SetCount(dp.Count() + n)
	}
	dp.SetSum(float64(dp.Count()))
	return dp
}

const latency = `{__name__="h_seconds", instance="edge-a", job="hwexp", k8s_node_name="edge-a"}`

// wants is a histogram of positive buckets that begin at index first.
func wants(schema, first int32, counts ...float64) float64 {
	f := &native.FloatHistogram{Schema: schema, ZeroThreshold: defaultZeroThreshold,
		PositiveSpans: []native.Span{{Offset: first, Length: uint32(len(counts))}}, PositiveBuckets: counts}
	for _, n := range counts {
		f.Count += n
	}
	f.Sum = f.Count
	return printOf(f)
}

// S2-80: delta exponential histograms add up, over the coarser of two scales; a
// retry is folded, a late one added, and min and max give no series.
func TestExponentialDelta(t *testing.T) {
	b := newBed(t, nil)
	send := func(ms int64, scale, offset int32, counts ...uint64) Result {
		p := newPayload(node...)
		dp := p.exponential("h", ms, delta, scale, offset, counts...)
		dp.SetMin(0.1)
		dp.SetMax(9)
		return b.export(p.md)
	}
	checkResult(t, send(-9000, 1, 0, 1, 2, 3), 1, 0, nil)
	checkResult(t, send(-5000, 1, 0, 1), 1, 0, nil)
	checkResult(t, send(-5000, 1, 0, 1), 0, 1, nil)    // a retry
	checkResult(t, send(-7000, 1, 0, 4), 0, 1, nil)    // late
	checkResult(t, send(-3000, 0, 0, 0, 1), 1, 0, nil) // coarser
	checkResult(t, send(-1000, 2, 0, 1), 1, 0, nil)    // finer
	checkResult(t, send(-1000, 2, 0, 2), 0, 0, map[string]int64{"duplicate": 1})
	b.check(latency,
		tv{base - 9000, wants(1, 1, 1, 2, 3)}, tv{base - 5000, wants(1, 1, 2, 2, 3)},
		tv{base - 3000, wants(0, 1, 8, 4)}, tv{base - 1000, wants(0, 1, 9, 4)})
	if n := len(b.stored()); n != 2 {
		t.Errorf("%d series; want this and target_info", n)
	}
}

// A running sum never has more buckets than a point may have, wherever its points
// lie.
func TestExponentialSumIsBounded(t *testing.T) {
	b := newBed(t, nil)
	const points = 20
	for i := range int32(points) {
		p := newPayload(node...)
		p.exponential("h", int64(i-100)*1000, delta, 8, (i-points/2)*8000, slices.Repeat([]uint64{1}, maxBuckets)...)
		checkResult(t, b.export(p.md), 1, 0, nil)
	}
	for _, s := range b.r.w.cache.series {
		if s.sum == nil {
			continue
		}
		if n := len(s.sum.f.PositiveBuckets); n > maxBuckets || s.sum.f.Count != points*maxBuckets {
			t.Errorf("%d buckets, %v counted; want %d and %d", n, s.sum.f.Count, maxBuckets, points*maxBuckets)
		}
	}
}

// A second value at one time is refused, the same once more is accepted: in order
// and late, before and after what is known of the series is gone.
func TestExponentialDuplicates(t *testing.T) {
	for _, forget := range []bool{false, true} {
		b := newBed(t, nil)
		send := func(accepted int64, ms int64, counts ...uint64) {
			t.Helper()
			p := newPayload(node...)
			p.exponential("h", ms, cumulative, 0, 0, counts...)
			var reasons map[string]int64
			if accepted == 0 {
				reasons = map[string]int64{"duplicate": 1}
			}
			checkResult(t, b.export(p.md), accepted, 0, reasons)
			if forget {
				b.r.forget()
			}
		}
		send(1, -9000, 1, 2)
		send(1, -8000, 1, 2, 0, 0, 0, 0, 7)
		send(1, -7000, 2) // a reset
		send(1, -7000, 2)
		send(0, -7000, 3)
		send(1, -8000, 1, 2, 0, 0, 0, 0, 7)
		send(0, -8000, 1, 2, 0, 0, 0, 7)
		send(1, -7500, 5)
		send(0, -7500, 6)
		b.check(latency, tv{base - 9000, wants(0, 1, 1, 2)}, tv{base - 8000, wants(0, 1, 1, 2, 0, 0, 0, 0, 7)},
			tv{base - 7500, wants(0, 1, 5)}, tv{base - 7000, wants(0, 1, 2)})
	}
}

// C06: a point without a recorded value ends the series, cumulative or delta, and
// a delta series goes on where it was.
func TestExponentialEnds(t *testing.T) {
	marker := math.Float64frombits(value.StaleNaN)
	for _, temporality := range []pmetric.AggregationTemporality{cumulative, delta} {
		b := newBed(t, nil)
		for i, stale := range []bool{false, true, false} {
			p := newPayload(node...)
			p.exponential("h", int64(i-9)*1000, temporality, 0, 0, 1)
			if stale {
				dp := p.md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).ExponentialHistogram().DataPoints().At(0)
				dp.SetFlags(dp.Flags().WithNoRecordedValue(true))
			}
			checkResult(t, b.export(p.md), 1, 0, nil)
		}
		after := 1.0
		if temporality == delta {
			after = 2
		}
		b.check(latency, tv{base - 9000, wants(0, 1, 1)}, tv{base - 8000, marker}, tv{base - 7000, wants(0, 1, after)})
	}
}

// What no histogram can be is refused alone, by its own reason.
func TestExponentialRefused(t *testing.T) {
	b := newBed(t, nil)
	p := newPayload(node...)
	point := func() pmetric.ExponentialHistogramDataPoint { return p.exponential("h", 0, cumulative, 0, 0, 1) }
	p.exponential("h", 0, cumulative, -5, 0, 1)
	p.exponential("h", 0, cumulative, 0, math.MaxInt32, 1, 1)
	p.exponential("h", 0, cumulative, 8, 1024<<8, 1)
	p.exponential("h", 0, cumulative, 8, 0, make([]uint64, maxBuckets+1)...)
	point().SetCount(2)
	point().SetSum(math.Inf(1))
	point().SetZeroThreshold(-1)
	p.exponential("h", 0, pmetric.AggregationTemporalityUnspecified, 0, 0, 1)
	dp := p.exponential("h", 0, cumulative, math.MaxInt32, -4, 1, 2, 0, 4) // the finest there is
	dp.SetZeroCount(3)
	dp.SetCount(10)
	dp.SetZeroThreshold(0.25)
	dp.Negative().BucketCounts().FromRaw([]uint64{0, 0})
	res := b.export(p.md)
	checkResult(t, res, 1, 0, map[string]int64{"bad_scale": 1, "bad_buckets": 3, "bucket_limit": 1, "count_mismatch": 1, "not_finite": 1, "bad_temporality": 1})
	if !strings.Contains(res.Message, "the scale of an exponential histogram is below -4") {
		t.Error(res.Message)
	}
	b.check(latency, tv{base, printOf(&native.FloatHistogram{Schema: 8, Count: 10, Sum: 7, ZeroCount: 3, ZeroThreshold: 0.25,
		PositiveSpans: []native.Span{{Offset: 0, Length: 1}}, PositiveBuckets: []float64{7}})})
}

// A marker without quantiles ends every series of its summary.
func TestSummary(t *testing.T) {
	b := newBed(t, nil)
	send := func(ms int64, stale bool, quantiles ...float64) Result {
		p := newPayload(node...)
		dp := p.metric("rpc", "s").SetEmptySummary().DataPoints().AppendEmpty()
		dp.SetTimestamp(pcommon.Timestamp((base + ms) * 1e6))
		dp.SetFlags(dp.Flags().WithNoRecordedValue(stale))
		dp.SetCount(4)
		dp.SetSum(8)
		for i, q := range quantiles {
			at := dp.QuantileValues().AppendEmpty()
			at.SetQuantile(q)
			at.SetValue(float64(i))
		}
		return b.export(p.md)
	}
	checkResult(t, send(-2000, false, 0.5, 0.99), 1, 0, nil)
	checkResult(t, send(-1000, true), 1, 0, nil)
	checkResult(t, send(0, false, 0.5, 0.5), 0, 0, map[string]int64{"bad_summary": 1})
	checkResult(t, send(0, false, 50), 0, 0, map[string]int64{"bad_summary": 1})
	marker := tv{base - 1000, math.Float64frombits(value.StaleNaN)}
	const rest = `instance="edge-a", job="hwexp", k8s_node_name="edge-a"`
	for series, v := range map[string]float64{
		`{__name__="rpc_seconds", ` + rest + `, quantile="0.5"}`: 0, `{__name__="rpc_seconds", ` + rest + `, quantile="0.99"}`: 1,
		`{__name__="rpc_seconds_sum", ` + rest + `}`: 8, `{__name__="rpc_seconds_count", ` + rest + `}`: 4,
	} {
		b.check(series, tv{base - 2000, v}, marker)
	}
	if n := len(b.stored()); n != 5 {
		t.Errorf("%d series; want these and target_info", n)
	}
}

// The buckets of one request are bounded together: many small points must not
// become gigabytes.
func TestBucketsOfARequest(t *testing.T) {
	b, _ := newMemBed(t, func(*Options) {})
	p := newPayload(node...)
	h := p.metric("h", "s").SetEmptyExponentialHistogram()
	h.SetAggregationTemporality(cumulative)
	const points = maxRequestBuckets/maxBuckets + 5
	for i := range points {
		dp := h.DataPoints().AppendEmpty()
		dp.SetTimestamp(base * 1e6)
		dp.Positive().BucketCounts().FromRaw(make([]uint64, maxBuckets))
		put(dp.Attributes(), []string{"i", fmt.Sprint(i)})
	}
	checkResult(t, b.export(p.md), points-5, 0, map[string]int64{"bucket_limit": 5})
}
