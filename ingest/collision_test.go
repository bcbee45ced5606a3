package ingest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// reliability.md section 2, "Label-name collision": a million pairs of keys of one
// point that may give one label, on a node channel and a workload's. Such a point
// is refused; no two values are ever joined, and no label of the channel's or of the
// resource's changes.
func TestCollidingPairs(t *testing.T) {
	cases, each := 1_000_000, 1000
	if testing.Short() {
		cases = 20_000
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	words := []string{"a", "b", "k8s", "node", "name", "job", "le", "0", "é", "A"}
	gaps := []string{".", "_", "-", "/", " ", "__", "", "..", "\u200b"}
	key := func(words []string) string {
		var b strings.Builder
		for i, w := range words {
			if i > 0 || dice.IntN(4) == 0 {
				b.WriteString(gaps[dice.IntN(len(gaps))])
			}
			b.WriteString(w)
		}
		return b.String()
	}
	b, mem := newMemBed(t, func(o *Options) {
		o.Naming, o.MaxSeries = otlptranslator.UnderscoreEscapingWithSuffixes, 1<<30
		o.Promote = []string{"k8s.node.name"}
	})
	ch, err := b.r.AddChannel(ChannelOptions{Name: "w", Class: Workload, Limits: Limits{Series: 1 << 20, NewSeries: -1}})
	if err != nil {
		t.Fatal(err)
	}
	a, err := ch.Activate(actor, instant(0), instant(0))
	if err != nil {
		t.Fatal(err)
	}
	refused, done := 0, 0
	for done < cases {
		node, worker := newPayload("k8s.node.name", "edge-a", "service.name", "x"), newPayload("service.name", "x")
		var want int64 // refused on the node channel
		points := [2]pmetric.NumberDataPointSlice{}
		for i, p := range []*payload{node, worker} {
			points[i] = p.metric("g", "").SetEmptyGauge().DataPoints()
		}
		for range each {
			var some []string
			for range 1 + dice.IntN(2) + dice.IntN(10)/9 {
				some = append(some, words[dice.IntN(len(words))])
			}
			keys := [2]string{key(some), key(some)}
			dp := pmetric.NewNumberDataPoint()
			dp.SetTimestamp(pcommon.Timestamp(base * 1e6))
			dp.SetDoubleValue(1)
			dp.Attributes().PutStr(keys[0], "v1")
			dp.Attributes().PutStr(keys[1], "v2")
			dp.CopyTo(points[1].AppendEmpty())
			if clash, resource := clashing(b.r, keys); !resource {
				dp.CopyTo(points[0].AppendEmpty())
				if clash {
					want++
				}
			}
		}
		for i, export := range []func(context.Context, []byte) (Result, error){b.r.Export, a.Export} {
			res, err := export(t.Context(), wireOf(t, []*payload{node, worker}[i].md))
			if n := points[i].Len(); err != nil || res.Accepted+res.Rejected != int64(n) {
				t.Fatalf("%d points: %+v, %v", n, res, err)
			}
			if i == 0 && res.Rejected != want {
				t.Fatalf("%d of %d refused; want %d: %s", res.Rejected, points[0].Len(), want, res.Message)
			}
			refused += int(res.Rejected)
			done += points[i].Len()
		}
	}
	for _, s := range mem.series {
		ls := s.labels
		want := map[string]string{"k8s_node_name": "edge-a"}
		if ls.Get("channel") != "" {
			want = map[string]string{"k8s_node_name": "edge-a", "channel": "w", "instance": "pod-uid", "job": "shop-ns/cart-svc"}
		} else {
			want["job"] = "x"
		}
		if strings.Contains(fmt.Sprint(ls), ";") {
			t.Errorf("joined: %s", ls)
		}
		for name, v := range want {
			if ls.Get(name) != v {
				t.Errorf("%s: %s is not %s", ls, name, v)
			}
		}
	}
	t.Logf("%d cases, %d refused, %d series", done, refused, len(mem.series))
	if refused < done/20 {
		t.Error("the pairs are too tame")
	}
}

// clashing says whether a point with both keys is to be refused, by the library's
// own translation, and whether one of them is a label of its resource, which
// stands.
func clashing(r *Receiver, keys [2]string) (clash, resource bool) {
	var names [2]string
	for i, key := range keys {
		name, err := r.w.naming.label.Build(key)
		if resource = resource || name == "job" || name == "k8s_node_name"; err != nil || name == metricLabel {
			return true, resource
		}
		names[i] = name
	}
	return keys[0] != keys[1] && names[0] == names[1], resource
}
