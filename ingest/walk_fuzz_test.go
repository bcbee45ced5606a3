package ingest

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/prometheus/prometheus/storage"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
)

// everyKind is a request with points of all five kinds, sound and not.
func everyKind(temporality pmetric.AggregationTemporality) pmetric.Metrics {
	p := newPayload(node...)
	e := p.gauge("g", "W", 0, math.NaN(), "k8s.node.name", "x").Exemplars().AppendEmpty()
	e.SetTimestamp(base * 1e6)
	e.SetDoubleValue(1)
	e.SetTraceID(pcommon.TraceID{1})
	e.FilteredAttributes().PutStr("user", "u")
	p.sum("c", "J", temporality, -1000, 0, 3, "a", "b")
	h := p.histogram("h", 0, []float64{0.5, 10}, 1, 2, 3)
	e.CopyTo(h.Exemplars().AppendEmpty())
	x := p.exponential("e", 0, temporality, 9, -7, 1, 0, 0, 0, 5)
	e.CopyTo(x.Exemplars().AppendEmpty())
	x.SetZeroThreshold(0.25)
	x.Negative().BucketCounts().FromRaw([]uint64{1 << 40})
	x.SetCount(6 + 1<<40)
	s := p.metric("s", "s").SetEmptySummary().DataPoints().AppendEmpty()
	s.SetTimestamp(base * 1e6)
	s.QuantileValues().AppendEmpty().SetQuantile(0.5)
	return p.md
}

// FuzzWalk: whatever comes, each point of a request is accepted, folded or
// rejected once, on a node channel and on a workload's, and a retry of it is
// counted once more; nothing that the store is given is refused by it as no
// histogram.
func FuzzWalk(f *testing.F) {
	for _, temporality := range []pmetric.AggregationTemporality{cumulative, delta} {
		f.Add(wireOf(f, everyKind(temporality)))
		f.Add(reorder(wireOf(f, everyKind(temporality)), "request", descending))
	}
	var ways []func(context.Context, []byte) (Result, error)
	for _, naming := range Namings() {
		m := &memStore{byLabels: map[string]storage.SeriesRef{}, exemplars: map[string]bool{}}
		r := NewReceiver(Options{Appendable: m, Queryable: m, NoTimeGate: true, Naming: naming, Clock: func() time.Time { return time.UnixMilli(base) }})
		ch, err := r.AddChannel(ChannelOptions{Name: "actor", Class: Workload})
		if err != nil {
			f.Fatal(err)
		}
		a, err := ch.Activate(actor, time.UnixMilli(base), time.UnixMilli(0))
		if err != nil {
			f.Fatal(err)
		}
		ways = append(ways, r.Export, a.Export)
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		if _, _, err := scan(msgRequest, wire, 0); err != nil {
			return
		}
		req := pmetricotlp.NewExportRequest()
		if req.UnmarshalProto(wire) != nil {
			return
		}
		sent := int64(req.Metrics().DataPointCount())
		for _, export := range ways {
			for range 2 {
				res, err := export(t.Context(), wire)
				if err != nil {
					wantDecodeError(t, err)
					continue
				}
				if got := res.Accepted + res.Folded + res.Rejected; got != sent {
					t.Errorf("accepted %d + folded %d + rejected %d; sent %d (%s)", res.Accepted, res.Folded, res.Rejected, sent, res.Message)
				}
			}
		}
	})
}
