package ingest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	"metric":    {5: "data", 7: "data", 9: "histogram", 10: "exponential", 11: "summary"},
	"data":      {1: "point"},
	"histogram": {1: "hpoint"},
	"point":     {5: "exemplar", 7: "kv"},
	"hpoint":    {8: "exemplar", 9: "kv"},
	"exemplar":  {7: "kv"},
	"kv":        {2: "any"},

	"exponential": {1: "epoint"},
	"epoint":      {1: "kv", 8: "buckets", 9: "buckets", 11: "exemplar"},
	"summary":     {1: "spoint"},
	"spoint":      {6: "quantile", 7: "kv"},
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
		h := m.SetEmptyExponentialHistogram()
		h.SetAggregationTemporality(temporality)
		for range points {
			g.exponential(h.DataPoints().AppendEmpty(), temporality == delta)
		}
	case "summary":
		s := m.SetEmptySummary()
		for range points {
			g.summary(s.DataPoints().AppendEmpty())
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
		g.exemplars(dp.Exemplars())
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

// exponential draws a histogram that is sound but for one thing at most.
func (g *generator) exponential(dp pmetric.ExponentialHistogramDataPoint, isDelta bool) {
	dp.SetTimestamp(g.time(isDelta))
	g.attributes(dp.Attributes(), pointKeys...)
	g.exemplars(dp.Exemplars())
	dp.SetScale(draw[int32](g, "scale", -4, 0, 3, 8, 9, 20, 31))
	dp.SetZeroCount(draw[uint64](g, "zeros", 0, 3))
	if draw(g, "has sum", true, true, false) {
		dp.SetSum(draw(g, "sum", 0, 2.5, -1))
	}
	sides := []pmetric.ExponentialHistogramDataPointBuckets{dp.Positive(), dp.Negative()}
	for _, side := range sides {
		side.SetOffset(draw[int32](g, "offset", 0, 0, -3, 5, -60))
		side.BucketCounts().FromRaw(draw(g, "counts", nil, nil, []uint64{2}, []uint64{0}, []uint64{1, 0, 0, 3}, []uint64{0, 4, 0, 0, 0, 0, 1, 0}))
		for _, n := range side.BucketCounts().AsRaw() {
			dp.SetCount(dp.Count() + n)
		}
	}
	dp.SetCount(dp.Count() + dp.ZeroCount())
	if isDelta {
		return
	}
	switch draw(g, "shape", "", "", "", "", "stale", "scale", "count", "sum", "threshold", "width", "above", "below", "many") {
	case "stale":
		dp.SetFlags(dp.Flags().WithNoRecordedValue(true))
	case "scale":
		dp.SetScale(draw[int32](g, "bad scale", -5, math.MinInt32))
	case "count":
		dp.SetCount(dp.Count() + draw[uint64](g, "more", 1, 1<<63, math.MaxUint64))
	case "sum":
		dp.SetSum(draw(g, "bad sum", math.NaN(), math.Inf(-1)))
	case "threshold":
		dp.SetZeroThreshold(draw(g, "threshold", 0, 1e-200, 0.5, 1e9))
	case "width":
		dp.SetZeroThreshold(draw(g, "bad threshold", -1, math.NaN(), math.Inf(1)))
	case "above":
		sides[0].SetOffset(math.MaxInt32 - 10)
	case "below":
		sides[1].SetOffset(math.MinInt32)
	case "many":
		sides[0].BucketCounts().FromRaw(make([]uint64, draw(g, "buckets", 1024, 1025, 5000)))
		dp.SetCount(dp.ZeroCount())
		for _, n := range sides[1].BucketCounts().AsRaw() {
			dp.SetCount(dp.Count() + n)
		}
	}
}

func (g *generator) summary(dp pmetric.SummaryDataPoint) {
	dp.SetTimestamp(g.time(false))
	g.attributes(dp.Attributes(), append(pointKeys, "quantile")...)
	dp.SetCount(draw[uint64](g, "count", 0, 7))
	dp.SetSum(draw(g, "sum", 0, 12.5, 12.5, math.NaN()))
	quantiles := draw(g, "quantiles", 0, 1, 2)
	if quantiles > 0 && draw(g, "stale", false, false, true) { // a bare one is tested by itself
		dp.SetFlags(dp.Flags().WithNoRecordedValue(true))
	}
	for range quantiles {
		q := dp.QuantileValues().AppendEmpty()
		q.SetQuantile(draw(g, "quantile", 0, 0.5, 0.99, 1, 1e-9, 1.5, -0.1, math.NaN()))
		q.SetValue(draw(g, "quantile value", 0, 3.25, math.NaN(), math.Inf(1)))
	}
}

func (g *generator) exemplars(list pmetric.ExemplarSlice) {
	for range draw(g, "exemplars", 0, 0, 0, 1, 2) {
		e := list.AppendEmpty()
		e.SetTimestamp(pcommon.Timestamp((base + draw[int64](g, "exemplar time", 0, 1, -1000, 60_001, -base)) * 1e6))
		switch draw(g, "exemplar value", "double", "int", "none") {
		case "double":
			e.SetDoubleValue(draw(g, "exemplar double", 0.25, 7, -1, math.Inf(1)))
		case "int":
			e.SetIntValue(draw[int64](g, "exemplar int", 0, 11))
		}
		g.attributes(e.FilteredAttributes(), "user.id", "trace_id", "", "__name__", "a\u202eb", strings.Repeat("ä", 100), "k8s.node.name")
		if draw(g, "traced", true, false) {
			e.SetTraceID(pcommon.TraceID{1, 2, 15: 16})
			e.SetSpanID(pcommon.SpanID{7: 8})
		}
	}
}

func (g *generator) histogram(dp pmetric.HistogramDataPoint, isDelta bool) {
	dp.SetTimestamp(g.time(isDelta))
	g.attributes(dp.Attributes(), pointKeys...)
	g.exemplars(dp.Exemplars())
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

// checkCases runs a property on at least floor random cases, a part of them with
// -short, and says how many those were.
func checkCases(t *testing.T, floor int, property func(*rapid.T)) {
	t.Helper()
	if testing.Short() {
		floor /= 20
	}
	cases := 0
	for cases < floor && !t.Failed() {
		before := cases
		rapid.Check(t, func(rt *rapid.T) {
			cases++
			property(rt)
		})
		if cases == before {
			break
		}
	}
	t.Logf("%d cases", cases)
	if cases < floor {
		t.Errorf("%d cases; want %d", cases, floor)
	}
}

// encodings are ways to write one request: as protobuf, and nil as JSON.
func encodings(rt *rapid.T) func([]byte) []byte {
	shuffled := func(n int) []int { return rapid.Permutation(ascending(n)).Draw(rt, "order") }
	return map[string]func([]byte) []byte{
		"as pdata writes": func(b []byte) []byte { return b },
		"turned":          func(b []byte) []byte { return reorder(b, "request", descending) },
		"shuffled":        func(b []byte) []byte { return reorder(b, "request", shuffled) },
		"json":            nil,
	}[rapid.SampledFrom([]string{"as pdata writes", "turned", "shuffled", "json"}).Draw(rt, "encoding")]
}

// TestOracle sends generated requests in several orders of fields, and as JSON,
// under each of the four translations of names: the store holds what Prometheus's
// converter makes of them but for the list of deviations, and what was sent is what
// was accepted, folded and rejected (P5 of reliability.md, S2-37, S2-80). One case
// in fifty runs on a real TSDB, the others in memory.
func TestOracle(t *testing.T) {
	if len(deviations) == 0 {
		t.Fatal("the list of deviations is empty")
	}
	checkCases(t, 10_000, func(rt *rapid.T) {
		g := &generator{t: rt}
		x := newExpectation(rt, draw(g, "strategy", Namings()...))
		x.now = base
		var requests []pmetric.Metrics
		for range rapid.IntRange(1, 4).Draw(rt, "requests") {
			md := g.request()
			requests = append(requests, md)
			x.request(md)
		}
		encode := encodings(rt)
		run := func(b *bed) {
			var results []Result
			for _, md := range requests {
				res, err := exportAs(b.r, md, encode)
				if err != nil {
					rt.Fatal(err)
				}
				results = append(results, res)
			}
			x.check(b.stored(), results)
		}
		naming := func(o *Options) { o.Naming = x.strategy }
		if rapid.IntRange(0, 49).Draw(rt, "real TSDB if 49") == 49 {
			b := newBed(t, naming)
			defer b.close()
			run(b)
			return
		}
		b, mem := newMemBed(t, naming)
		run(b)
		x.checkExemplars(mem.exemplars, b.r.Channel("default").m)
	})
}

// What is known of a stream changes nothing of what becomes of its points: a
// receiver that has forgotten all streams before each request stores the same.
func TestFastIsSlow(t *testing.T) {
	checkCases(t, 10_000, func(rt *rapid.T) {
		g := &generator{t: rt}
		naming := func(o *Options) { o.Naming = draw(g, "strategy", Namings()...) }
		fast, fastMem := newMemBed(t, naming)
		slow, slowMem := newMemBed(t, func(o *Options) { o.Naming = fast.r.o.Naming })
		var sent []pmetric.Metrics
		for range rapid.IntRange(2, 5).Draw(rt, "requests") {
			md := g.request()
			if len(sent) > 0 && draw(g, "again", true, false) {
				md = g.later(sent[len(sent)-1])
			}
			sent = append(sent, md)
			encode := encodings(rt)
			got, err := exportAs(fast.r, md, encode)
			if err != nil {
				rt.Fatal(err)
			}
			slow.r.w.cache.dropStreams(math.MaxInt64)
			want, err := exportAs(slow.r, md, encode)
			if err != nil {
				rt.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				rt.Fatalf("fast (+) and slow (-) answer differently:\n%s", diff)
			}
		}
		bits := cmp.Comparer(func(a, b tv) bool { return a.t == b.t && sameValue(a.v, b.v) })
		if diff := cmp.Diff(slow.stored(), fast.stored(), bits); diff != "" {
			rt.Fatalf("fast (+) and slow (-) store differently:\n%s", diff)
		}
		if diff := cmp.Diff(slowMem.exemplars, fastMem.exemplars); diff != "" {
			rt.Fatalf("fast (+) and slow (-) keep other exemplars:\n%s", diff)
		}
	})
}

// later is the request once more, one second on, or for delta points at the next
// times: what an interval that comes twice does is tested by itself.
func (g *generator) later(md pmetric.Metrics) pmetric.Metrics {
	again := pmetric.NewMetrics()
	md.CopyTo(again)
	for _, rm := range again.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				for i := range countPoints(m) {
					dp := timed(m, i)
					if isDelta(m) {
						dp.SetTimestamp(g.time(true))
					} else {
						dp.SetTimestamp(dp.Timestamp() + 1e9)
					}
				}
			}
		}
	}
	return again
}

// timed is point i of a metric.
func timed(m pmetric.Metric, i int) interface {
	Timestamp() pcommon.Timestamp
	SetTimestamp(pcommon.Timestamp)
} {
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		return m.Gauge().DataPoints().At(i)
	case pmetric.MetricTypeSum:
		return m.Sum().DataPoints().At(i)
	case pmetric.MetricTypeHistogram:
		return m.Histogram().DataPoints().At(i)
	case pmetric.MetricTypeExponentialHistogram:
		return m.ExponentialHistogram().DataPoints().At(i)
	}
	return m.Summary().DataPoints().At(i)
}

func exportAs(r *Receiver, md pmetric.Metrics, encode func([]byte) []byte) (Result, error) {
	req := pmetricotlp.NewExportRequestFromMetrics(md)
	if encode == nil {
		body, err := req.MarshalJSON()
		if err != nil {
			return Result{}, fmt.Errorf("pdata: %w", err)
		}
		return r.ExportJSON(context.Background(), body)
	}
	wire, err := req.MarshalProto()
	if err != nil {
		return Result{}, fmt.Errorf("pdata: %w", err)
	}
	return r.Export(context.Background(), encode(wire))
}
