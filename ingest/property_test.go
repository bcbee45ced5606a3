package ingest

import (
	"context"
	"fmt"
	"math"
	"slices"
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
