package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"google.golang.org/protobuf/encoding/protowire"
)

// nest is an attribute whose value is a list in a list, n deep.
func nest(n int) []byte {
	any := appendField(nil, 1, []byte("x"))
	for range n {
		any = appendField(nil, 5, appendField(nil, 1, any))
	}
	return appendField(appendField(nil, 1, []byte("k")), 2, any)
}

// reliability.md, nested AnyValue: the request at depth 1, a point's attribute at 7.
func TestDepth(t *testing.T) {
	at := func(path string, kv []byte) []byte {
		point := protowire.AppendFixed64(protowire.AppendTag(nil, 3, protowire.Fixed64Type), base*1e6)
		point = protowire.AppendFixed64(protowire.AppendTag(point, 4, protowire.Fixed64Type), 0)
		var resource, scope []byte
		switch path {
		case "resource":
			resource = appendField(nil, 1, kv)
		case "scope":
			scope = appendField(nil, 3, kv)
		case "point":
			point = appendField(point, 7, kv)
		case "exemplar":
			point = appendField(point, 5, appendField(nil, 7, kv))
		}
		metric := appendField(appendField(nil, 5, appendField(nil, 1, point)), 1, []byte("m"))
		if path == "metadata" {
			metric = appendField(metric, 12, kv)
		}
		return appendField(nil, 1, appendField(appendField(nil, 2, appendField(appendField(nil, 2, metric), 1, scope)), 1, resource))
	}
	// The depth of an AnyValue that holds no list, by where it is.
	for path, depth := range map[string]int{"resource": 5, "scope": 6, "point": 8, "exemplar": 9, "metadata": 6} {
		for _, lists := range []int{0, (maxDepth - depth) / 2, (maxDepth-depth)/2 + 1, 1000} {
			b := newBed(t, nil)
			_, err := b.r.Export(context.Background(), at(path, nest(lists)))
			deepest := depth + 2*lists
			if deepest <= maxDepth && err != nil {
				t.Errorf("%s, depth %d: %v", path, deepest, err)
			}
			if deepest > maxDepth {
				wantDecodeError(t, err)
			}
		}
	}
	// What took a second and 256 MiB of stack elsewhere is refused where it begins.
	_, err := newBed(t, nil).r.Export(context.Background(), at("point", bytes.Repeat([]byte{0x12, 0x80, 0x80, 0x80, 0x01, 0x2a}, 1<<18)))
	wantDecodeError(t, err)
}

// reliability.md section 2, "Small-message amplification": the bounds on messages
// and points.
func TestCounts(t *testing.T) {
	b := newBed(t, nil)
	export := func(wire []byte) (Result, error) { return b.r.Export(context.Background(), wire) }
	empties := func(n int) []byte { return bytes.Repeat([]byte{0x0a, 0x00}, n) }
	if _, err := export(empties(10_000)); err != nil {
		t.Error(err)
	}
	_, err := export(empties(10_001))
	wantDecodeError(t, err)
	_, err = export(empties(maxMessages + 1))
	wantDecodeError(t, err)
	points := func(n int) []byte {
		metric := appendField(appendField(nil, 5, empties(n)), 1, []byte("m"))
		return appendField(nil, 1, appendField(nil, 2, appendField(nil, 2, metric)))
	}
	res, err := export(points(maxPoints + 2))
	if err != nil {
		t.Fatal(err)
	}
	checkResult(t, res, 0, 0, map[string]int64{"bad_time": maxPoints, "points_limit": 2})
	_, err = export(points(maxMessages))
	wantDecodeError(t, err)
}

// A text that is not UTF-8 in a resource or a scope spoils the request, one in a
// description, which is not stored, nothing.
func TestInvalidText(t *testing.T) {
	b := newBed(t, nil)
	for _, c := range []struct {
		num  int
		data []byte
		bad  bool
	}{
		{1, appendField(nil, 1, stringAttribute("k", "\xff")), true},
		{1, appendField(nil, 1, stringAttribute("\xff", "v")), true},
		{2, appendField(nil, 1, appendField(nil, 1, []byte("\xff"))), true},
		{2, appendField(nil, 1, appendField(nil, 3, stringAttribute("k", "\xff"))), true},
		{2, appendField(nil, 2, appendField(nil, 2, []byte("\xff"))), false},
	} {
		_, err := b.r.Export(context.Background(), appendField(nil, 1, appendField(nil, c.num, c.data)))
		if c.bad {
			wantDecodeError(t, err)
		} else if err != nil {
			t.Error(err)
		}
	}
}

// Each prefix of a request is a request or an error, and never more than was sent.
func TestCut(t *testing.T) {
	p := newPayload(node...)
	p.gauge("hw.power", "W", 0, 1, "hw.id", "cpu0")
	p.histogram("h", 0, []float64{0.5, 10}, 1, 2, 3).SetSum(1)
	wire := wireOf(t, p.md)
	for i := range wire {
		b := newBed(t, nil)
		if _, err := b.r.Export(context.Background(), wire[:i]); i > 0 && err == nil {
			t.Errorf("the first %d of %d bytes are taken for a request", i, len(wire))
		}
		b.close()
	}
}

// FuzzExport: no input stops the receiver, and one that pdata can read is
// accounted for to the point.
func FuzzExport(f *testing.F) {
	p := newPayload(node...)
	p.gauge("hw.power", "W", 0, 1, "hw.id", "cpu0")
	p.sum("app.requests", "", delta, -1000, 0, 5)
	f.Add(wireOf(f, p.md))
	p = newPayload("service.name", "x")
	dp := p.histogram("h", 0, []float64{0.5, 10}, 1, 2, 3)
	dp.SetSum(1)
	dp.Exemplars().AppendEmpty().FilteredAttributes().PutStr("a", "b")
	p.metric("s", "").SetEmptySummary().DataPoints().AppendEmpty()
	f.Add(wireOf(f, p.md))
	f.Add(appendField(nil, 1, appendField(nil, 1, appendField(nil, 1, nest(3)))))
	r := NewReceiver(Options{Appendable: nowhere{}, NoTimeGate: true})
	f.Fuzz(func(t *testing.T, wire []byte) {
		checkFuzzed(t, wire, func() (Result, error) { return r.Export(context.Background(), wire) })
	})
}

// FuzzExportJSON is the same for JSON, whose every document ends as wire bytes
// that protobuf can read.
func FuzzExportJSON(f *testing.F) {
	f.Add([]byte(`{"resourceMetrics":[{"resource":{"attributes":[{"key":"a","value":{"intValue":"1"}}]},"scopeMetrics":[{"metrics":[{"name":"g","gauge":{"dataPoints":[{"timeUnixNano":1760000060000000000,"asDouble":"NaN"}]}}]}]}]}`))
	f.Add([]byte(`{"resource_metrics":[{"scope_metrics":[{"metrics":[{"name":"\u00e4","sum":{"aggregation_temporality":1,"data_points":[{"time_unix_nano":"1","as_int":1e0}]}}]}]}],"x":[{"y":[null,true,-0.5e+7]}]}`))
	f.Add([]byte(`{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"h","histogram":{"dataPoints":[{"bucketCounts":["1",2],"explicitBounds":[0.5]}]}}]}]}]}`))
	r := NewReceiver(Options{Appendable: nowhere{}, NoTimeGate: true})
	f.Fuzz(func(t *testing.T, body []byte) {
		wire, err := wireFromJSON(body)
		if err != nil {
			wantDecodeError(t, err)
			return
		}
		if err := pmetricotlp.NewExportRequest().UnmarshalProto(wire); err != nil {
			t.Fatalf("pdata does not read what was made of it: %v", err)
		}
		checkFuzzed(t, wire, func() (Result, error) { return r.ExportJSON(context.Background(), body) })
	})
}

func checkFuzzed(t *testing.T, wire []byte, export func() (Result, error)) {
	req := pmetricotlp.NewExportRequest()
	readable := req.UnmarshalProto(wire) == nil
	res, err := export()
	if err != nil {
		var de *DecodeError
		if !errors.As(err, &de) {
			t.Fatalf("%v is no *DecodeError", err)
		}
		return
	}
	sent := res.Accepted + res.Folded + res.Rejected
	if readable && sent != int64(req.Metrics().DataPointCount()) {
		t.Fatalf("accepted %d, folded %d, rejected %d; sent %d", res.Accepted, res.Folded, res.Rejected, req.Metrics().DataPointCount())
	}
	if strings.ToValidUTF8(res.Message, "") != res.Message || len(res.Message) > math.MaxInt16 {
		t.Fatalf("message %q", res.Message)
	}
}

// Work on a request grows with its size, not with the square of it: a resource in
// a hundred thousand pieces, and as many attributes.
func TestHostileShapes(t *testing.T) {
	const n = 100_000
	b := newBed(t, nil)
	var pieces, attrs []byte
	for i := range n {
		kv := stringAttribute(fmt.Sprintf("k%d", i), "v")
		pieces = appendField(pieces, 1, appendField(nil, 1, kv))
		attrs = appendField(attrs, 7, kv)
	}
	point := protowire.AppendFixed64(protowire.AppendTag(nil, 4, protowire.Fixed64Type), 0)
	point = protowire.AppendFixed64(protowire.AppendTag(point, 3, protowire.Fixed64Type), base*1e6)
	metric := func(point []byte) []byte {
		return appendField(nil, 2, appendField(nil, 2, appendField(appendField(nil, 5, appendField(nil, 1, point)), 1, []byte("m"))))
	}
	// Too many messages for one point, both.
	for _, rm := range [][]byte{append(pieces, metric(point)...), metric(append(attrs, point...))} {
		_, err := b.r.Export(context.Background(), appendField(nil, 1, rm))
		wantDecodeError(t, err)
	}
	if n := len(b.stored()); n != 0 {
		t.Errorf("%d series; want none", n)
	}
}
