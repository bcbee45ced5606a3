package ingest

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	native "github.com/prometheus/prometheus/model/histogram"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"
)

const actorLatency = `{__name__="h_seconds", ate_actor_template_name="tpl", channel="ch1", instance="ch1", job="tpl"}`

// exponential sends one value, in seconds.
func (b *actorBed) exponential(temporality pmetric.AggregationTemporality, start, end int64, scale, offset int32, accepted, folded int64, why string, counts ...uint64) {
	b.t.Helper()
	p := newPayload()
	dp := p.exponential("h", end*1000, temporality, scale, offset, counts...)
	dp.SetStartTimestamp(pcommon.Timestamp((base + start*1000) * 1e6))
	b.take(p, accepted, folded, why)
}

// S2-73, S2-74, S2-77, S2-80: a cumulative exponential histogram counts from the
// activation, only what is the actor's own, and never back, over any number of
// deaths of the process.
func TestExponentialOfActors(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		d := newDurableBed(t)
		d.at(1000)
		actor, at := "", 0.0
		again := func() {
			if restarts && actor != "" {
				d.restart()
				d.activate(actor, at, at)
			}
		}
		activate := func(uid string, seconds float64) {
			actor, at = uid, seconds
			d.activate(uid, seconds, seconds)
		}
		send := func(start, end int64, scale int32, accepted, folded int64, why string, counts ...uint64) {
			t.Helper()
			again()
			d.exponential(cumulative, start, end, scale, 0, accepted, folded, why, counts...)
		}
		activate("a", 100)
		send(100, 110, 1, 1, 0, "", 1, 2)
		send(100, 120, 1, 1, 0, "", 1, 2, 4)
		send(100, 120, 1, 0, 1, "", 1, 2, 4)          // a retry
		send(100, 115, 1, 0, 1, "", 1, 2, 1)          // late
		send(100, 120, 1, 0, 0, "duplicate", 1, 3, 3) // another of the same time
		send(100, 130, 0, 1, 0, "", 4, 4)             // coarser, and one more
		send(100, 140, 0, 1, 0, "", 1)                // less is a reset
		activate("b", 150)
		send(-500, 160, 0, 0, 1, "", 100, 100) // what it was restored with
		send(-500, 170, 0, 1, 0, "", 101, 102)
		d.check(actorLatency, tv{base + 110_000, wants(1, 1, 1, 2)}, tv{base + 120_000, wants(1, 1, 1, 2, 4)},
			tv{base + 130_000, wants(0, 1, 4, 4)}, tv{base + 140_000, wants(0, 1, 5, 4)},
			tv{base + 160_000, wants(0, 1, 5, 4)}, tv{base + 170_000, wants(0, 1, 6, 6)})
	}
}

// A delta stream of exponential histograms goes on over deaths of the process, and
// knows a retry; without its journal it goes on from what is stored.
func TestExponentialSumsOutliveTheProcess(t *testing.T) {
	d := newDurableBed(t)
	d.at(1000)
	d.activate("a", 100, 100)
	d.exponential(delta, 100, 110, 2, -3, 1, 0, "", 1, 0, 5)
	for range 2 {
		d.restart()
		d.activate("a", 100, 100)
		d.exponential(delta, 100, 110, 2, -3, 0, 1, "", 1, 0, 5)
		d.exponential(delta, 100, 110, 2, -3, 0, 0, "duplicate", 5, 0, 1)
	}
	d.exponential(delta, 110, 120, 2, -3, 1, 0, "", 2)
	d.start(t.TempDir())
	d.activate("a", 100, 100)
	d.exponential(delta, 120, 130, 2, -3, 1, 0, "", 0, 1)
	d.check(actorLatency, tv{base + 110_000, wants(2, -2, 1, 0, 5)}, tv{base + 120_000, wants(2, -2, 3, 0, 5)}, tv{base + 130_000, wants(2, -2, 3, 1, 5)})
}

// What goes onward of a cumulative histogram is what it adds.
func TestExponentialOnward(t *testing.T) {
	up := &upstream{}
	b := newActorBed(t, func(o *Options) { o.Onward = up }, "")
	b.at(1000)
	b.activate("a", 100, 100)
	b.exponential(cumulative, 100, 110, 3, -4, 1, 0, "", 1, 2)
	b.exponential(cumulative, 100, 120, 3, -4, 1, 0, "", 1, 4, 0, 0, 0, 6)
	var got []pmetric.ExponentialHistogramDataPoint
	for _, f := range up.got {
		req := pmetricotlp.NewExportRequest()
		if err := req.UnmarshalProto(f.Wire); err != nil {
			t.Fatal(err)
		}
		h := req.Metrics().ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).ExponentialHistogram()
		if h.AggregationTemporality() != delta {
			t.Errorf("temporality %v", h.AggregationTemporality())
		}
		got = append(got, h.DataPoints().At(0))
	}
	if len(got) != 2 {
		t.Fatalf("%d requests onward; want 2", len(got))
	}
	for i, want := range []struct {
		start  int64
		count  uint64
		offset int32
		counts []uint64
	}{{100, 3, -4, []uint64{1, 2}}, {110, 8, -3, []uint64{2, 0, 0, 0, 6}}} {
		dp := got[i]
		if dp.Count() != want.count || dp.Sum() != float64(want.count) || dp.Scale() != 3 || dp.Positive().Offset() != want.offset ||
			!cmp.Equal(dp.Positive().BucketCounts().AsRaw(), want.counts) || int64(dp.StartTimestamp()) != (base+want.start*1000)*1e6 {
			t.Errorf("point %d: from %v, scale %d, count %d, sum %v, offset %d, %v; want %+v", i, dp.StartTimestamp(), dp.Scale(), dp.Count(), dp.Sum(),
				dp.Positive().Offset(), dp.Positive().BucketCounts().AsRaw(), want)
		}
	}
}

// A summary of a workload counts on over actors; its quantiles are the newest's.
func TestSummaryOfActors(t *testing.T) {
	b := newActorBed(t, nil, "")
	b.at(1000)
	send := func(start, end int64, count uint64, sum, median float64, accepted, folded int64) {
		t.Helper()
		p := newPayload()
		dp := p.metric("rpc", "s").SetEmptySummary().DataPoints().AppendEmpty()
		dp.SetStartTimestamp(pcommon.Timestamp((base + start*1000) * 1e6))
		dp.SetTimestamp(pcommon.Timestamp((base + end*1000) * 1e6))
		dp.SetCount(count)
		dp.SetSum(sum)
		q := dp.QuantileValues().AppendEmpty()
		q.SetQuantile(0.5)
		q.SetValue(median)
		b.take(p, accepted, folded, "")
	}
	b.activate("a", 100, 100)
	send(100, 110, 4, 8, 2, 1, 0)
	send(100, 120, 6, 9, 1, 1, 0)
	send(100, 120, 6, 9, 1, 0, 1)
	b.activate("b", 150, 150)
	send(-500, 160, 100, 200, 7, 0, 1)
	send(-500, 170, 101, 205, 5, 1, 0)
	const rest = `, ate_actor_template_name="tpl", channel="ch1", instance="ch1", job="tpl"`
	at := func(v ...float64) (list []tv) {
		for i, x := range v {
			list = append(list, tv{base + []int64{110_000, 120_000, 160_000, 170_000}[i], x})
		}
		return list
	}
	b.check(`{__name__="rpc_seconds_count"`+rest+`}`, at(4, 6, 6, 7)...)
	b.check(`{__name__="rpc_seconds_sum"`+rest+`}`, at(8, 9, 9, 14)...)
	b.check(`{__name__="rpc_seconds"`+rest+`, quantile="0.5"}`, at(2, 1, 7, 5)...)
}

// What the journal writes of a histogram it reads back, and nothing that the store
// would not take.
func TestJournalHistogram(t *testing.T) {
	checkCases(t, 10_000, func(rt *rapid.T) {
		count := rapid.OneOf(rapid.Map(rapid.IntRange(0, 9), func(n int) float64 { return float64(n) }), rapid.Float64Range(0, 1e300))
		side := func() (spans []native.Span, buckets []float64) {
			for i := range rapid.IntRange(0, 3).Draw(rt, "spans") {
				spans = append(spans, native.Span{Offset: rapid.Int32Range(-int32(9*(1-min(i, 1))), 9).Draw(rt, "offset"), Length: rapid.Uint32Range(0, 4).Draw(rt, "length")})
				for range spans[i].Length {
					buckets = append(buckets, count.Draw(rt, "bucket"))
				}
			}
			return spans, buckets
		}
		f := &native.FloatHistogram{Schema: rapid.Int32Range(-4, 8).Draw(rt, "schema"), Sum: rapid.Float64().Draw(rt, "sum"),
			ZeroThreshold: 1e-128, ZeroCount: count.Draw(rt, "zero"), Count: count.Draw(rt, "count")}
		f.PositiveSpans, f.PositiveBuckets = side()
		f.NegativeSpans, f.NegativeBuckets = side()
		b := appendNative(nil, f)
		e := entries{b: b}
		if got := e.native(); e.bad || len(e.b) > 0 || !cmp.Equal(got, f) {
			rt.Fatalf("%v reads back as %v", f, got)
		}
		cut := entries{b: b[:rapid.IntRange(0, len(b)-1).Draw(rt, "cut")]}
		if cut.native(); !cut.bad {
			rt.Fatal("a histogram that is cut short is read")
		}
	})
}

// Whatever scales, places and zero thresholds are added, nothing that was counted
// is lost, and the sum is one that the store takes and no larger than a point.
func TestSumsKeepTheCount(t *testing.T) {
	w := newWalk(&Options{Naming: Namings()[0]}, newMetrics(nil))
	checkCases(t, 10_000, func(rt *rapid.T) {
		point := func() *native.FloatHistogram {
			v := exponentialValue{scale: rapid.Int32Range(-4, 20).Draw(rt, "scale"), zeroCount: rapid.Uint64Range(0, 9).Draw(rt, "zeros"),
				zeroThreshold: rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(0, 1e10), rapid.Float64Range(0, math.MaxFloat64)).Draw(rt, "threshold")}
			v.count = v.zeroCount
			side := func() []byte {
				offset := rapid.Int32Range(-1000, 1000).Draw(rt, "offset")
				counts := rapid.SliceOfN(rapid.Uint64Range(0, 1<<40), 0, 300).Draw(rt, "counts")
				b := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), zigzag(offset))
				for _, n := range counts {
					v.count += n
					b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), n)
				}
				return b
			}
			v.positive.b, v.negative.b = side(), side()
			h, why, err := w.nativeOf(&v)
			if err != nil || why != fine && why != badBuckets {
				rt.Fatal(why, err)
			}
			if h == nil {
				return &native.FloatHistogram{ZeroThreshold: defaultZeroThreshold}
			}
			if err := h.Validate(); err != nil {
				rt.Fatal(err)
			}
			return summable(h.ToFloat(nil))
		}
		a, b := point(), point()
		sum := addHistograms(a, b)
		counted := sum.ZeroCount
		for _, n := range append(slices.Clone(sum.PositiveBuckets), sum.NegativeBuckets...) {
			counted += n
		}
		if err := sum.Validate(); err != nil || sum.Count != a.Count+b.Count || counted != sum.Count || bucketsOf(sum) > 2*maxBuckets {
			rt.Fatalf("%v + %v = %v, %v: %v counted of %v", a, b, sum, err, counted, a.Count+b.Count)
		}
		// A zero bucket that grows at the same time may read as a reset.
		if a.ZeroThreshold == b.ZeroThreshold && (sum.DetectReset(a) || sum.DetectReset(b)) {
			rt.Fatalf("%v + %v = %v goes back", a, b, sum)
		}
		if sum.DetectReset(a) {
			return
		}
		if d := subtractHistograms(sum, a); d.Count != b.Count {
			rt.Fatalf("(%v + %v) - %v = %v", a, b, a, d)
		}
	})
}
