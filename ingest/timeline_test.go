package ingest_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"pgregory.net/rapid"

	"github.com/wattloop/wattloop/ingest"
)

// allKinds is a request with a point of each kind at each of the times, in
// seconds.
func allKinds(seconds ...int) pmetric.Metrics {
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	rm.Resource().Attributes().PutStr("k8s.node.name", "edge-a")
	ms := rm.ScopeMetrics().AppendEmpty().Metrics()
	named := func(name string) pmetric.Metric { m := ms.AppendEmpty(); m.SetName(name); m.SetUnit("W"); return m }
	gauge := named("gauge").SetEmptyGauge()
	sum := named("sum").SetEmptySum()
	sum.SetIsMonotonic(true)
	sum.SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
	hist := named("hist").SetEmptyHistogram()
	hist.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	exp := named("exp").SetEmptyExponentialHistogram()
	exp.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	summary := named("summary").SetEmptySummary()
	for i, s := range seconds {
		ts := pcommon.Timestamp(s) * 1e9
		p := gauge.DataPoints().AppendEmpty()
		p.SetTimestamp(ts)
		p.SetDoubleValue(float64(i))
		sum.DataPoints().AppendEmpty().SetTimestamp(ts)
		hist.DataPoints().AppendEmpty().SetTimestamp(ts)
		exp.DataPoints().AppendEmpty().SetTimestamp(ts)
		summary.DataPoints().AppendEmpty().SetTimestamp(ts)
	}
	return md
}

func marshal(t interface{ Fatal(...any) }, md pmetric.Metrics) []byte {
	b, err := pmetricotlp.NewExportRequestFromMetrics(md).MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func unmarshal(t interface{ Fatal(...any) }, wire []byte) pmetric.Metrics {
	req := pmetricotlp.NewExportRequest()
	if err := req.UnmarshalProto(wire); err != nil {
		t.Fatal(err)
	}
	return req.Metrics()
}

func TestTimelineOrdersPointsByTime(t *testing.T) {
	var line ingest.Timeline
	late, early := allKinds(1760000010, 1760000005), allKinds(1760000001)
	whole := marshal(t, early)
	for i, b := range [][]byte{marshal(t, late), whole} {
		if err := line.Add("rec", ingest.Request{Body: b, Number: i + 1}); err != nil {
			t.Fatal(err)
		}
	}
	got := line.Instants()
	var times []int64
	for _, in := range got {
		times = append(times, in.TS)
	}
	if want := []int64{1760000001000, 1760000005000, 1760000010000}; !slices.Equal(times, want) {
		t.Fatalf("instants at %v; want %v", times, want)
	}
	if !bytes.Equal(got[0].Wire, whole) {
		t.Error("a request of one time was not kept as it was")
	}
	md := unmarshal(t, got[1].Wire)
	if n := md.DataPointCount(); n != 5 {
		t.Errorf("the part at +5 has %d points; want one of each kind", n)
	}
	rm := md.ResourceMetrics().At(0)
	if v, _ := rm.Resource().Attributes().Get("k8s.node.name"); v.Str() != "edge-a" {
		t.Errorf("the part lost its resource: %v", rm.Resource().Attributes().AsRaw())
	}
	s := rm.ScopeMetrics().At(0).Metrics().At(1)
	if s.Name() != "sum" || s.Unit() != "W" || !s.Sum().IsMonotonic() || s.Sum().AggregationTemporality() != pmetric.AggregationTemporalityDelta {
		t.Errorf("the part's second metric is %s %s, monotonic %t, %s", s.Name(), s.Unit(), s.Sum().IsMonotonic(), s.Sum().AggregationTemporality())
	}
}

// Whatever the requests, no point is lost or made twice, each part has one
// time, and the parts are in order.
func TestTimelineKeepsEveryPoint(t *testing.T) {
	ingest.CheckCases(t, 10_000, func(t *rapid.T) {
		var line ingest.Timeline
		sent := 0
		for i := range rapid.IntRange(1, 5).Draw(t, "requests") {
			md := allKinds(rapid.SliceOfN(rapid.IntRange(1760000000, 1760000020), 0, 6).Draw(t, "seconds")...)
			sent += md.DataPointCount()
			if err := line.Add("rec", ingest.Request{Body: marshal(t, md), Number: i + 1}); err != nil {
				t.Fatal(err)
			}
		}
		got, last := 0, int64(0)
		for _, in := range line.Instants() {
			md := unmarshal(t, in.Wire)
			got += md.DataPointCount()
			if in.TS < last {
				t.Fatalf("instant %d after %d", in.TS, last)
			}
			last = in.TS
			for _, p := range md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Gauge().DataPoints().All() {
				if ms := int64(p.Timestamp() / 1e6); ms != in.TS {
					t.Fatalf("a point of %d lies in the part of %d", ms, in.TS)
				}
			}
		}
		if got != sent {
			t.Fatalf("%d points come out; %d went in", got, sent)
		}
	})
}

func TestTimelineRefuses(t *testing.T) {
	var line ingest.Timeline
	for name, q := range map[string]ingest.Request{
		"protobuf": {Body: []byte{0x0a, 0xff}},
		"nesting":  {Body: deepRequest(1000)},
		"json":     {Body: []byte(`{"resourceMetrics": [`), JSON: true},
	} {
		if err := line.Add("rec", q); err == nil {
			t.Errorf("%s: a damaged request was taken", name)
		}
	}
	if n := len(line.Instants()); n != 0 {
		t.Errorf("%d instants of damaged requests", n)
	}
}

// deepRequest is a request with an attribute whose value nests arrays that deep.
func deepRequest(depth int) []byte {
	field := func(num byte, b []byte) []byte {
		return append(binary.AppendUvarint([]byte{num<<3 | 2}, uint64(len(b))), b...)
	}
	var value []byte
	for range depth {
		value = field(5, field(1, value)) // AnyValue.array_value.values
	}
	return field(1, field(1, field(1, field(2, value)))) // resource_metrics.resource.attributes.value
}
