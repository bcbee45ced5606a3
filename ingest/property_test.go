package ingest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"
)

// The fields of each message that hold messages, for reorder.
var nested = map[string]map[protowire.Number]string{
	"request":   {1: "resources"},
	"resources": {1: "resource", 2: "scopes"},
	"resource":  {1: "kv"},
	"scopes":    {1: "scope", 2: "metric"},
	"scope":     {3: "kv"},
	"metric":    {5: "data", 7: "data", 9: "histogram", 10: "", 11: ""},
	"data":      {1: "point"},
	"histogram": {1: "hpoint"},
	"point":     {7: "kv"},
	"hpoint":    {9: "kv"},
	"kv":        {2: "any"},
}

// reorder writes a message with its fields in another order: order gives the
// position of each field. Equal numbers keep theirs, as protobuf demands of
// repeated fields.
func reorder(b []byte, kind string, order func(n int) []int) []byte {
	type field struct {
		num protowire.Number
		raw []byte
	}
	var list []field
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		size := protowire.ConsumeFieldValue(num, typ, b[n:])
		raw := b[:n+size]
		if child := nested[kind][num]; child != "" {
			data, _ := protowire.ConsumeBytes(b[n:])
			raw = appendField(nil, int(num), reorder(data, child, order))
		}
		list = append(list, field{num, raw})
		b = b[n+size:]
	}
	positions := order(len(list))
	var out []byte
	moved := make([]field, len(list))
	for i, at := range positions {
		moved[at] = list[i]
	}
	// Where a number comes more than once, its fields take their places in turn.
	next := map[protowire.Number][]field{}
	for _, f := range list {
		next[f.num] = append(next[f.num], f)
	}
	for _, f := range moved {
		out = append(out, next[f.num][0].raw...)
		next[f.num] = next[f.num][1:]
	}
	return out
}

func ascending(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

func descending(n int) []int {
	list := ascending(n)
	slices.Reverse(list)
	return list
}

// generator draws requests from small alphabets, so that what can collide does.
type generator struct {
	t *rapid.T
	// tick makes the times of delta points ascend.
	tick int64
}

func draw[T any](g *generator, name string, from ...T) T {
	return rapid.SampledFrom(from).Draw(g.t, name)
}

func (g *generator) attributes(m pcommon.Map, keys ...string) {
	for range draw(g, "attributes", 0, 1, 1, 2, 3) {
		key := draw(g, "key", keys...)
		switch draw(g, "type", "str", "str", "str", "int", "bool", "double", "bytes", "slice", "empty", "odd") {
		case "str":
			m.PutStr(key, draw(g, "value", "a", "b", "ä", ""))
		case "int":
			m.PutInt(key, draw[int64](g, "value", 0, -7, math.MaxInt64))
		case "bool":
			m.PutBool(key, true)
		case "double":
			m.PutDouble(key, draw(g, "value", 0.5, 1e-7, 1e21, 1e6, math.Inf(1), math.NaN()))
		case "bytes":
			m.PutEmptyBytes(key).FromRaw([]byte{1, 0xff, 3})
		case "slice":
			m.PutEmptySlice(key).AppendEmpty().SetStr("x")
		case "empty":
			m.PutEmpty(key)
		case "odd":
			m.PutStr(key, "a\x00b")
		}
	}
}

func (g *generator) request() pmetric.Metrics {
	md := pmetric.NewMetrics()
	for range draw(g, "resources", 1, 1, 2) {
		rm := md.ResourceMetrics().AppendEmpty()
		// A resource without a collision: what target_info makes of one is tested
		// by itself.
		g.attributes(rm.Resource().Attributes(), "service.name", "service.instance.id", "service.namespace",
			"k8s.node.name", "host.name", "os.type", "k8s.pod.name")
		rm.Resource().Attributes().RemoveIf(func(_ string, v pcommon.Value) bool {
			return !isScalar(v) || v.AsString() == "a\x00b"
		})
		for range draw(g, "scopes", 0, 1, 1, 2) {
			sm := rm.ScopeMetrics().AppendEmpty()
			sm.Scope().SetName(draw(g, "scope", "", "one", "two"))
			for range draw(g, "metrics", 0, 1, 2, 3) {
				g.metric(sm.Metrics().AppendEmpty())
			}
		}
	}
	return md
}

var pointKeys = []string{"hw.id", "hw_id", "hw.type", "k8s.node.name", "k8s_node_name", "job", "instance", "channel",
	"le", "__name__", "", "5", "_x", "a..b", "..name.."}

func (g *generator) metric(m pmetric.Metric) {
	m.SetName(draw(g, "name", "hw.power", "hw_power", "hw.power_watts", "hw.energy", "hw.energy_count", "5xx", "", "up", "wattloop.x"))
	m.SetUnit(draw(g, "unit", "W", "J", "", "1", "{x}", "By/s"))
	temporality := draw(g, "temporality", cumulative, cumulative, delta, pmetric.AggregationTemporalityUnspecified)
	points := draw(g, "points", 0, 1, 1, 2, 3)
	switch draw(g, "kind", "gauge", "gauge", "sum", "sum", "histogram", "exponential", "summary", "none") {
	case "gauge":
		g.numbers(m.SetEmptyGauge().DataPoints(), points, false)
	case "sum":
		s := m.SetEmptySum()
		s.SetIsMonotonic(draw(g, "monotonic", true, false))
		s.SetAggregationTemporality(temporality)
		g.numbers(s.DataPoints(), points, temporality == delta)
	case "histogram":
		h := m.SetEmptyHistogram()
		h.SetAggregationTemporality(temporality)
		for range points {
			g.histogram(h.DataPoints().AppendEmpty(), temporality == delta)
		}
	case "exponential":
		for range points {
			m.SetEmptyExponentialHistogram().DataPoints().AppendEmpty().SetScale(3)
		}
	case "summary":
		for range points {
			m.SetEmptySummary().DataPoints().AppendEmpty().QuantileValues().AppendEmpty().SetQuantile(0.5)
		}
	}
}

// time draws one near the clock, sometimes one that the gate refuses. Times of
// delta points ascend: what late ones do is tested by itself.
func (g *generator) time(isDelta bool) pcommon.Timestamp {
	if isDelta {
		g.tick += 1000
		return pcommon.Timestamp((base - 20*60_000 + g.tick) * 1e6)
	}
	ms := draw[int64](g, "time", 0, 1, 1000, -1000, -60_000, -20*60_000, 60_000, 60_001, -30*60_000-1, -base)
	return pcommon.Timestamp((base + ms) * 1e6)
}

func (g *generator) numbers(dps pmetric.NumberDataPointSlice, n int, isDelta bool) {
	for range n {
		dp := dps.AppendEmpty()
		dp.SetTimestamp(g.time(isDelta))
		g.attributes(dp.Attributes(), pointKeys...)
		switch draw(g, "value", "double", "double", "int", "none", "stale") {
		case "double":
			dp.SetDoubleValue(draw(g, "double", 0, 1, 2.5, -5, math.NaN(), math.Inf(1), math.Copysign(0, -1)))
		case "int":
			dp.SetIntValue(draw[int64](g, "int", 0, 3, -4, math.MaxInt64))
		case "stale":
			if !isDelta {
				dp.SetFlags(dp.Flags().WithNoRecordedValue(true))
			}
		}
	}
}

func (g *generator) histogram(dp pmetric.HistogramDataPoint, isDelta bool) {
	dp.SetTimestamp(g.time(isDelta))
	g.attributes(dp.Attributes(), pointKeys...)
	counts := []uint64{draw[uint64](g, "count", 0, 1, 2), 2, 3}
	dp.BucketCounts().FromRaw(counts)
	dp.ExplicitBounds().FromRaw([]float64{0.5, 10})
	dp.SetCount(counts[0] + 5)
	dp.SetSum(draw(g, "sum", 0.5, -1, math.Inf(1)))
	if isDelta {
		return
	}
	switch draw(g, "shape", "", "", "", "stale", "unsorted", "twice", "+Inf", "-Inf", "short") {
	case "stale":
		dp.SetFlags(dp.Flags().WithNoRecordedValue(true))
	case "unsorted":
		dp.ExplicitBounds().FromRaw([]float64{10, 0.5})
	case "twice":
		dp.ExplicitBounds().FromRaw([]float64{10, 10})
	case "+Inf":
		dp.ExplicitBounds().FromRaw([]float64{0.5, math.Inf(1)})
	case "-Inf":
		dp.ExplicitBounds().FromRaw([]float64{math.Inf(-1), 10})
	case "short":
		dp.BucketCounts().FromRaw(counts[:1])
	}
}

// TestOracle sends generated requests in several orders of fields, and as JSON:
// the store holds what Prometheus's converter makes of them but
// for the list of deviations, and what was sent is what was accepted, folded and
// rejected (P5 of reliability.md).
func TestOracle(t *testing.T) {
	if len(deviations) == 0 {
		t.Fatal("the list of deviations is empty")
	}
	rapid.Check(t, func(rt *rapid.T) {
		g := &generator{t: rt}
		x := newExpectation(rt)
		x.now = base
		var requests []pmetric.Metrics
		for range rapid.IntRange(1, 4).Draw(rt, "requests") {
			md := g.request()
			requests = append(requests, md)
			x.request(md)
		}
		shuffled := func(n int) []int { return rapid.Permutation(ascending(n)).Draw(rt, "order") }
		encodings := map[string]func([]byte) []byte{
			"as pdata writes": func(b []byte) []byte { return b },
			"turned":          func(b []byte) []byte { return reorder(b, "request", descending) },
			"shuffled":        func(b []byte) []byte { return reorder(b, "request", shuffled) },
			"json":            nil,
		}
		name := draw(g, "encoding", "as pdata writes", "turned", "shuffled", "json")
		b := newBed(t, nil)
		defer b.close()
		var results []Result
		for _, md := range requests {
			res, err := exportAs(b, md, encodings[name])
			if err != nil {
				rt.Fatalf("%s: %v", name, err)
			}
			results = append(results, res)
		}
		x.check(b.stored(), results)
	})
}

func exportAs(b *bed, md pmetric.Metrics, encode func([]byte) []byte) (Result, error) {
	req := pmetricotlp.NewExportRequestFromMetrics(md)
	if encode == nil {
		body, err := req.MarshalJSON()
		if err != nil {
			return Result{}, fmt.Errorf("pdata: %w", err)
		}
		return b.r.ExportJSON(context.Background(), body)
	}
	wire, err := req.MarshalProto()
	if err != nil {
		return Result{}, fmt.Errorf("pdata: %w", err)
	}
	return b.r.Export(context.Background(), encode(wire))
}
