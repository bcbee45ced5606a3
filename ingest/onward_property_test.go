package ingest

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"pgregory.net/rapid"
)

// What goes onward of a counter adds up to what the store has of it, however
// actors come, go and move between channels, whatever they send twice, late or
// from a start before their activation, and whether in delta or cumulative: an
// upstream that adds deltas up and the store agree (S2-72 to S2-79, X21). Every delta
// onward begins where the activation does, or later.
func TestOnwardAddsUp(t *testing.T) {
	b, first, up := workload(t, Identity{PodUID: "w0"}, func(o *Options) { o.MaxSeries = 1_000_000 })
	first.End()
	var channels []*Channel
	for i := range 2 {
		ch, err := b.r.AddChannel(ChannelOptions{Name: fmt.Sprintf("c%d", i), Class: Workload, Limits: Limits{Series: 1_000_000}})
		if err != nil {
			t.Fatal(err)
		}
		channels = append(channels, ch)
	}
	b.at(300)
	cases, requests, least := 0, 0, 10_000
	if testing.Short() {
		least = 500
	}
	check := func(rt *rapid.T) {
		cases++
		name := fmt.Sprintf("m%d", cases)
		histograms, suffix := rapid.Bool().Draw(rt, "histograms"), "_total"
		if histograms {
			suffix = "_count"
		}
		live := make([]*Activation, len(channels))
		defer func() {
			for _, a := range live {
				if a != nil {
					a.End()
				}
			}
		}()
		var since [2]int64
		onward := map[string]float64{}
		var before []byte
		up.got = nil
		for range rapid.IntRange(1, 12).Draw(rt, "requests") {
			i := rapid.IntRange(0, 1).Draw(rt, "channel")
			if a := live[i]; a == nil || rapid.IntRange(0, 3).Draw(rt, "move") == 0 {
				if a != nil {
					a.End()
				}
				uid := fmt.Sprintf("%s-%d", name, rapid.IntRange(0, 2).Draw(rt, "actor"))
				since[i] = rapid.Int64Range(0, 6).Draw(rt, "since") * 10_000
				at := time.UnixMilli(base + since[i])
				a, err := channels[i].Activate(Identity{ActorUID: uid, PodUID: fmt.Sprintf("w%d", i)}, at, at)
				if err != nil {
					t.Fatal(err)
				}
				live[i] = a
			}
			wire := before
			if wire == nil || rapid.IntRange(0, 4).Draw(rt, "retry") > 0 {
				p := newPayload()
				for range rapid.IntRange(1, 3).Draw(rt, "points") {
					temporality := rapid.SampledFrom([]pmetric.AggregationTemporality{delta, cumulative}).Draw(rt, "temporality")
					start := rapid.Int64Range(0, 9).Draw(rt, "start") * 10_000
					end := start + rapid.Int64Range(0, 4).Draw(rt, "length")*10_000
					v, k := rapid.IntRange(-1, 9).Draw(rt, "value"), rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "k")
					if histograms {
						p.counted(name, temporality, start, end, max(v, 0), k)
					} else {
						p.sum(name, "", temporality, start, end, float64(v), "k", k)
					}
				}
				wire = wireOf(t, p.md)
			}
			before = wire
			if _, err := live[i].Export(t.Context(), wire); err != nil {
				t.Fatal(err)
			}
			requests++
			for _, f := range up.got {
				addOnward(rt, t, f, onward, base+since[i])
			}
			up.got = nil
		}
		// A late value is in the sum and waits for the next sample: here it is.
		for i, a := range live {
			if a == nil {
				continue
			}
			p := newPayload()
			for _, k := range []string{"a", "b"} {
				if histograms {
					p.counted(name, delta, 200_000, 200_000+int64(i), 0, k)
				} else {
					p.sum(name, "", delta, 200_000, 200_000+int64(i), 0, "k", k)
				}
			}
			if _, err := a.Export(t.Context(), wireOf(t, p.md)); err != nil {
				t.Fatal(err)
			}
		}
		stored := b.lastByK(name + suffix)
		for series, v := range onward {
			if stored[series] != v {
				rt.Fatalf("%s: %g went onward, %g is stored", series, v, stored[series])
			}
		}
		for series, v := range stored {
			if onward[series] != v {
				rt.Fatalf("%s: %g went onward, %g is stored", series, onward[series], v)
			}
		}
	}
	for cases < least {
		rapid.Check(t, check)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d cases, %d requests", cases, requests)
}

// counted adds a histogram with n values in one of two buckets.
func (p *payload) counted(name string, temporality pmetric.AggregationTemporality, start, ms int64, n int, k string) {
	h := p.metric(name, "").SetEmptyHistogram()
	h.SetAggregationTemporality(temporality)
	dp := h.DataPoints().AppendEmpty()
	dp.SetStartTimestamp(pcommon.Timestamp((base + start) * 1e6))
	dp.SetTimestamp(pcommon.Timestamp((base + ms) * 1e6))
	dp.SetCount(uint64(n))
	dp.SetSum(float64(n))
	dp.SetMin(0)
	dp.ExplicitBounds().FromRaw([]float64{0.5})
	dp.BucketCounts().FromRaw([]uint64{uint64(n) / 2, uint64(n) - uint64(n)/2})
	dp.Attributes().PutStr("k", k)
}

// addOnward adds the deltas of a request up, by writer and k.
func addOnward(rt *rapid.T, t *testing.T, f Forwarded, sums map[string]float64, since int64) {
	add := func(writer pcommon.Value, temporality pmetric.AggregationTemporality, p anyPoint, v float64) {
		if temporality != delta {
			rt.Fatalf("goes onward as %s", temporality)
		}
		if int64(p.StartTimestamp()) < since*1e6 || p.StartTimestamp() > p.Timestamp() {
			rt.Fatalf("from %d to %d, in an activation since %d", p.StartTimestamp(), p.Timestamp(), since)
		}
		k, _ := p.Attributes().Get("k")
		sums[writer.Str()+" "+k.Str()] += v
	}
	for _, rm := range metricsOf(t, f.Wire).ResourceMetrics().All() {
		writer, _ := rm.Resource().Attributes().Get(serviceInstance)
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				if m.Type() == pmetric.MetricTypeSum {
					for _, p := range m.Sum().DataPoints().All() {
						add(writer, m.Sum().AggregationTemporality(), p, p.DoubleValue())
					}
					continue
				}
				for _, p := range m.Histogram().DataPoints().All() {
					buckets := uint64(0)
					for _, n := range p.BucketCounts().All() {
						buckets += n
					}
					if buckets != p.Count() || p.Sum() != float64(p.Count()) {
						rt.Fatalf("count %d, sum %g, buckets %d", p.Count(), p.Sum(), buckets)
					}
					add(writer, m.Histogram().AggregationTemporality(), p, float64(p.Count()))
				}
			}
		}
	}
}

// lastByK is the newest value of each series of a metric, by instance and the
// label k.
func (b *bed) lastByK(name string) map[string]float64 {
	values := map[string]float64{}
	q, err := b.db.Querier(math.MinInt64, math.MaxInt64)
	if err != nil {
		b.t.Fatal(err)
	}
	defer q.Close()
	set := q.Select(context.Background(), false, nil, labels.MustNewMatcher(labels.MatchEqual, metricLabel, name))
	for set.Next() {
		ls := set.At().Labels()
		it := set.At().Iterator(nil)
		for it.Next() != chunkenc.ValNone {
			_, values[strings.Join([]string{ls.Get("instance"), ls.Get("k")}, " ")] = it.At()
		}
	}
	if set.Err() != nil {
		b.t.Fatal(set.Err())
	}
	return values
}
