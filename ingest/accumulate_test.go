package ingest

import (
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

const requests = `{__name__="app_requests_total", instance="edge-a", job="hwexp", k8s_node_name="edge-a"}`

// deltas sends one point of app.requests a request.
type deltaSender struct {
	*bed
	attrs []string
}

func (d deltaSender) send(start, end int64, v float64, accepted, folded int64, why string) {
	d.t.Helper()
	p := newPayload(append(node, d.attrs...)...)
	p.sum("app.requests", "{request}", delta, start*1000, end*1000, v)
	var reasons map[string]int64
	if why != "" {
		reasons = map[string]int64{why: 1}
	}
	checkResult(d.t, d.export(p.md), accepted, folded, reasons)
}

// C01, C03, S2-75, S2-79: each delta counts once, whatever comes late or twice.
func TestDelta(t *testing.T) {
	b := newBed(t, nil)
	b.at(600)
	d := deltaSender{b, nil}
	d.send(0, 60, 5, 1, 0, "")
	d.send(60, 120, 7, 1, 0, "")
	d.send(60, 120, 7, 0, 1, "")          // a retry
	d.send(0, 60, 5, 0, 1, "")            // a retry of an older one
	d.send(60, 120, 8, 0, 0, "duplicate") // another value of the same interval
	d.send(100, 120, 7, 0, 0, "duplicate")
	d.send(180, 240, 9, 1, 0, "") // a gap is lost data, no reset
	d.send(120, 180, 4, 0, 1, "") // and here is what filled it
	d.send(120, 180, 4, 0, 1, "") // once
	d.send(150, 200, 3, 0, 0, "out_of_order")
	d.send(0, 130, 3, 0, 0, "out_of_order")
	d.send(0, 300, 1, 1, 0, "") // one start for ever: it adds
	b.check(requests, tv{base + 60_000, 5}, tv{base + 120_000, 12}, tv{base + 240_000, 21}, tv{base + 300_000, 26})
}

// What is late beyond what is remembered may have been counted: it is refused.
func TestDeltaBeyondMemory(t *testing.T) {
	b := newBed(t, nil)
	b.at(1000)
	d := deltaSender{b, nil}
	for i := int64(1); i <= 20; i += 2 {
		d.send(i*10, i*10+10, 1, 1, 0, "")
	}
	d.send(180, 190, 1, 0, 1, "")
	d.send(20, 30, 1, 0, 0, "out_of_order")
	d.send(0, 195, 1, 0, 0, "out_of_order")
}

// A window that was forgotten is refused also where an older one, which came
// late, has taken its place for a while. Found by TestStormProperty.
func TestDeltaForgottenForALateOne(t *testing.T) {
	b := newBed(t, nil)
	b.at(1000)
	d := deltaSender{b, nil}
	d.send(10, 20, 1, 1, 0, "")
	d.send(30, 40, 1, 1, 0, "") // it will be pushed out
	for i := int64(4); i < 10; i++ {
		d.send(i*10, i*10+10, 1, 1, 0, "")
	}
	d.send(20, 30, 1, 0, 1, "") // late
	d.send(100, 110, 1, 1, 0, "")
	d.send(110, 120, 1, 1, 0, "")
	d.send(30, 40, 1, 0, 0, "out_of_order")
	if got := b.values(requests); got[len(got)-1].v != 11 {
		t.Errorf("%v; want 11 at the end", got)
	}
}

// A late point without a start has no interval.
func TestDeltaWithoutStart(t *testing.T) {
	b := newBed(t, nil)
	b.at(600)
	d := deltaSender{b, nil}
	d.send(-base/1000, 60, 5, 1, 0, "")
	d.send(-base/1000, 120, 7, 1, 0, "")
	d.send(-base/1000, 90, 7, 0, 0, "out_of_order")
	b.check(requests, tv{base + 60_000, 5}, tv{base + 120_000, 12})
}

// S2-72, S2-75: two senders that give one series add up, also at one time.
func TestDeltaOfTwoSenders(t *testing.T) {
	b := newBed(t, nil)
	b.at(600)
	one, two := deltaSender{b, []string{"k8s.pod.uid", "1"}}, deltaSender{b, []string{"k8s.pod.uid", "2"}}
	one.send(0, 60, 5, 1, 0, "")
	two.send(0, 60, 10, 0, 1, "")
	two.send(60, 110, 100, 1, 0, "")
	one.send(60, 100, 1000, 0, 1, "")
	one.send(100, 160, 0, 1, 0, "")
	b.check(requests, tv{base + 60_000, 5}, tv{base + 110_000, 115}, tv{base + 160_000, 1115})
	// In one request they are one sample.
	b = newBed(t, nil)
	p := newPayload(append(node, "k8s.pod.uid", "1")...)
	p.sum("app.requests", "{request}", delta, -1000, 0, 5)
	p.resource(append(node, "k8s.pod.uid", "2")...)
	p.sum("app.requests", "{request}", delta, -1000, 0, 10)
	checkResult(t, b.export(p.md), 1, 1, nil)
	b.check(requests, tv{base, 15})
}

// An UpDownCounter may be delta, and goes down.
func TestDeltaUpDown(t *testing.T) {
	b := newBed(t, nil)
	for i, v := range []float64{4, -3, -2} {
		p := newPayload(node...)
		s := p.metric("queue.depth", "{item}").SetEmptySum()
		s.SetAggregationTemporality(delta)
		dp := s.DataPoints().AppendEmpty()
		dp.SetTimestamp(pcommon.Timestamp((base + int64(i)*1000) * 1e6))
		dp.SetIntValue(int64(v))
		checkResult(t, b.export(p.md), 1, 0, nil)
	}
	b.check(`{__name__="queue_depth", instance="edge-a", job="hwexp", k8s_node_name="edge-a"}`,
		tv{base, 4}, tv{base + 1000, 1}, tv{base + 2000, -1})
}

// The two kinds of sum in one series of a request hide each other.
func TestMixedTemporality(t *testing.T) {
	b := newBed(t, nil)
	p := newPayload(node...)
	p.sum("app.requests", "{request}", delta, -1000, 0, 5)
	p.sum("app.requests", "{request}", cumulative, -1000, 0, 50)
	checkResult(t, b.export(p.md), 1, 0, map[string]int64{"name_collision": 1})
	b.check(requests, tv{base, 5})
}

// deltaHistogram sends one point with two bounds.
func (b *bed) deltaHistogram(ms int64, bounds []float64, counts ...uint64) Result {
	b.t.Helper()
	p := newPayload(node...)
	h := p.metric("h", "").SetEmptyHistogram()
	h.SetAggregationTemporality(delta)
	dp := h.DataPoints().AppendEmpty()
	dp.SetStartTimestamp(pcommon.Timestamp((base + ms - 1000) * 1e6))
	dp.SetTimestamp(pcommon.Timestamp((base + ms) * 1e6))
	dp.ExplicitBounds().FromRaw(bounds)
	dp.BucketCounts().FromRaw(counts)
	for _, n := range counts {
		dp.SetCount(dp.Count() + n)
	}
	dp.SetSum(float64(10 * dp.Count()))
	return b.export(p.md)
}

// S2-80: delta histograms add up bucket by bucket; other bounds start anew.
func TestDeltaHistogram(t *testing.T) {
	b := newBed(t, nil)
	checkResult(t, b.deltaHistogram(0, []float64{1, 2}, 1, 2, 3), 1, 0, nil)
	checkResult(t, b.deltaHistogram(1000, []float64{1, 2}, 4, 0, 1), 1, 0, nil)
	checkResult(t, b.deltaHistogram(1000, []float64{1, 2}, 4, 0, 1), 0, 1, nil)
	checkResult(t, b.deltaHistogram(-1000, []float64{1, 2}, 1, 0, 0), 0, 1, nil)
	checkResult(t, b.deltaHistogram(2000, []float64{1}, 7, 0), 1, 0, nil)
	series := func(name, le string) string {
		if le != "" {
			return `{__name__="` + name + `", instance="edge-a", job="hwexp", k8s_node_name="edge-a", le="` + le + `"}`
		}
		return `{__name__="` + name + `", instance="edge-a", job="hwexp", k8s_node_name="edge-a"}`
	}
	b.check(series("h_count", ""), tv{base, 6}, tv{base + 1000, 11}, tv{base + 2000, 7})
	b.check(series("h_sum", ""), tv{base, 60}, tv{base + 1000, 110}, tv{base + 2000, 70})
	b.check(series("h_bucket", "1"), tv{base, 1}, tv{base + 1000, 5}, tv{base + 2000, 7})
	b.check(series("h_bucket", "2"), tv{base, 3}, tv{base + 1000, 7})
	b.check(series("h_bucket", "+Inf"), tv{base, 6}, tv{base + 1000, 11}, tv{base + 2000, 7})
}

// A request that cannot be read leaves the sums as they were.
func TestDeltaUndone(t *testing.T) {
	b := newBed(t, nil)
	d := deltaSender{b, nil}
	d.send(-60, -30, 5, 1, 0, "")
	p := newPayload(node...)
	p.sum("app.requests", "{request}", delta, -30_000, 0, 7)
	wire := wireOf(t, p.md)
	_, err := b.r.Export(t.Context(), append(wire, 0x0a, 0x7f)) // cut short behind it
	wantDecodeError(t, err)
	d.send(-30, 0, 7, 1, 0, "")
	b.check(requests, tv{base - 30_000, 5}, tv{base, 12})
}
