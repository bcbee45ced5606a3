package ingest

import (
	"bytes"
	"testing"

	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"pgregory.net/rapid"
)

// One resource has one canonical form as protobuf, as JSON and with its
// attributes in another order, and two resources have two.
func TestCanonical(t *testing.T) {
	cases, least := 0, 10_000
	if testing.Short() {
		least = 1_000
	}
	check := func(t *rapid.T) {
		cases++
		keys := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "host.name", "k8s.node.name", "z", ""}), 0, 6, rapid.ID[string]).Draw(t, "keys")
		req := pmetricotlp.NewExportRequest()
		r := req.Metrics().ResourceMetrics().AppendEmpty().Resource().Attributes()
		mirror := pmetricotlp.NewExportRequest()
		other := mirror.Metrics().ResourceMetrics().AppendEmpty().Resource().Attributes()
		kinds := map[string]int{}
		for _, k := range keys {
			kinds[k] = rapid.IntRange(0, 5).Draw(t, "kind")
			switch kinds[k] {
			case 0:
				r.PutStr(k, rapid.StringOfN(rapid.RuneFrom([]rune("xyé")), 0, 200, -1).Draw(t, "text"))
			case 1:
				r.PutInt(k, rapid.Int64().Draw(t, "int"))
			case 2:
				r.PutDouble(k, rapid.Float64().Draw(t, "double"))
			case 3:
				r.PutBool(k, rapid.Bool().Draw(t, "bool"))
			case 4:
				m := r.PutEmptyMap(k)
				m.PutStr("p", "1")
				m.PutStr("q", "")
			case 5:
				s := r.PutEmptySlice(k)
				s.AppendEmpty().SetStr("one")
				s.AppendEmpty().SetInt(0)
			}
		}
		for i := len(keys) - 1; i >= 0; i-- {
			v, _ := r.Get(keys[i])
			v.CopyTo(other.PutEmpty(keys[i]))
		}
		resourceOf := func(wire []byte) []byte {
			return canonicalForm(msgResource, fieldOf(fieldOf(wire, 1), 1), nil)
		}
		wire, err := req.MarshalProto()
		if err != nil {
			t.Fatal(err)
		}
		js, err := req.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		fromJSON, err := wireFromJSON(js)
		if err != nil {
			t.Fatal(err)
		}
		turned, err := mirror.MarshalProto()
		if err != nil {
			t.Fatal(err)
		}
		want := resourceOf(wire)
		if got := resourceOf(fromJSON); !bytes.Equal(got, want) {
			t.Fatalf("from JSON %x, from protobuf %x", got, want)
		}
		if got := resourceOf(turned); !bytes.Equal(got, want) {
			t.Fatalf("in the other order %x, before %x", got, want)
		}
		if got := canonicalForm(msgResource, want, nil); !bytes.Equal(got, want) {
			t.Fatalf("the canonical form of %x is %x", want, got)
		}
		r.PutStr("a", "changed")
		changed, err := req.MarshalProto()
		if err != nil {
			t.Fatal(err)
		}
		if v, ok := other.Get("a"); (!ok || v.AsString() != "changed" || kinds["a"] != 0) && bytes.Equal(resourceOf(changed), want) {
			t.Fatalf("%x stands for two resources", want)
		}
	}
	for cases < least && !t.Failed() {
		rapid.Check(t, check)
	}
	t.Logf("%d cases", cases)
	if cases < least {
		t.Errorf("%d cases; want at least %d", cases, least)
	}
}

// One delta window that comes as protobuf, as JSON and with its attributes in
// another order is counted once (S2-79).
func TestRetryInAnotherEncoding(t *testing.T) {
	b := newBed(t, nil)
	p := newPayload("k8s.node.name", "n1", "service.name", "s")
	p.sum("m", "", delta, -1000, 0, 5, "x", "1", "y", "2")
	turned := newPayload("service.name", "s", "k8s.node.name", "n1")
	turned.sum("m", "", delta, -1000, 0, 5, "y", "2", "x", "1")
	js, err := pmetricotlp.NewExportRequestFromMetrics(p.md).MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	checkResult(t, b.export(p.md), 1, 0, nil)
	checkResult(t, b.export(turned.md), 0, 1, nil)
	got, err := b.r.ExportJSON(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	checkResult(t, got, 0, 1, nil)
	next := newPayload("k8s.node.name", "n1", "service.name", "s")
	next.sum("m", "", delta, 0, 1000, 3, "x", "1", "y", "2")
	checkResult(t, b.export(next.md), 1, 0, nil)
	b.check(`{__name__="m_total", job="s", k8s_node_name="n1", x="1", y="2"}`, tv{base, 5}, tv{base + 1000, 8})
}
