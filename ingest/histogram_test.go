package ingest

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/prometheus/prometheus/model/value"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"google.golang.org/protobuf/encoding/protowire"
)

func (p *payload) histogram(name string, ms int64, bounds []float64, counts ...uint64) pmetric.HistogramDataPoint {
	h := p.metric(name, "s").SetEmptyHistogram()
	h.SetAggregationTemporality(cumulative)
	dp := h.DataPoints().AppendEmpty()
	dp.SetTimestamp(pcommon.Timestamp((base + ms) * 1e6))
	dp.ExplicitBounds().FromRaw(bounds)
	dp.BucketCounts().FromRaw(counts)
	for _, n := range counts {
		dp.SetCount(dp.Count() + n)
	}
	return dp
}

// A marker without bounds ends every series of its histogram (C06).
func TestHistogramEnds(t *testing.T) {
	b := newBed(t, nil)
	p := newPayload(node...)
	p.histogram("h", 0, []float64{0.5, 10}, 1, 2, 3).SetSum(9)
	checkResult(t, b.export(p.md), 1, 0, nil)
	p = newPayload(node...)
	dp := p.histogram("h", 1000, nil)
	dp.SetFlags(dp.Flags().WithNoRecordedValue(true))
	checkResult(t, b.export(p.md), 1, 0, nil)
	stored := b.stored()
	n := 0
	for key, samples := range stored {
		if len(samples) == 2 && value.IsStaleNaN(samples[1].v) {
			n++
		} else if len(samples) != 1 || samples[0].v != 1 {
			t.Errorf("%s holds %v", key, samples)
		}
	}
	if n != 5 {
		t.Errorf("%d series ended of 5: %v", n, stored)
	}
}

// A point of which one bucket clashes with what is stored leaves nothing behind,
// late or not, known or not.
func TestHistogramClash(t *testing.T) {
	for _, forget := range []bool{false, true} {
		b := newBed(t, nil)
		send := func(ms int64, counts ...uint64) Result {
			p := newPayload(node...)
			p.histogram("h", ms, []float64{0.5, 10}, counts...)
			res := b.export(p.md)
			if forget {
				b.r.forget()
			}
			return res
		}
		send(0, 1, 2, 3)
		send(1000, 2, 2, 3)
		before := len(b.stored())
		for _, ms := range []int64{0, 1000} {
			checkResult(t, send(ms, 3, 1, 2+uint64(ms/1000)), 0, 0, map[string]int64{"duplicate": 1})
		}
		if got := len(b.stored()); got != before {
			t.Errorf("%d series; want %d", got, before)
		}
		b.check(`{__name__="h_seconds_count", instance="edge-a", job="hwexp", k8s_node_name="edge-a"}`, tv{base, 6}, tv{base + 1000, 7})
		b.check(`{__name__="h_seconds_bucket", instance="edge-a", job="hwexp", k8s_node_name="edge-a", le="0.5"}`, tv{base, 1}, tv{base + 1000, 2})
	}
}

// Lists of numbers come packed, one by one, or in several packs.
func TestRepeatedNumbers(t *testing.T) {
	point := func(add func(b []byte, num protowire.Number, values ...uint64) []byte) []byte {
		b := protowire.AppendFixed64(protowire.AppendTag(nil, 3, protowire.Fixed64Type), base*1e6)
		b = protowire.AppendFixed64(protowire.AppendTag(b, 4, protowire.Fixed64Type), 6)
		b = add(b, 6, 1, 2, 3)
		b = add(b, 7, math.Float64bits(0.5), math.Float64bits(10))
		data := appendField(protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), 2), 1, b)
		metric := appendField(appendField(nil, 9, data), 1, []byte("h"))
		return appendField(nil, 1, appendField(nil, 2, appendField(nil, 2, metric)))
	}
	packed := func(b []byte, num protowire.Number, values ...uint64) []byte {
		var data []byte
		for _, v := range values {
			data = binary.LittleEndian.AppendUint64(data, v)
		}
		return appendField(b, int(num), data)
	}
	single := func(b []byte, num protowire.Number, values ...uint64) []byte {
		for _, v := range values {
			b = protowire.AppendFixed64(protowire.AppendTag(b, num, protowire.Fixed64Type), v)
		}
		return b
	}
	for name, add := range map[string]func([]byte, protowire.Number, ...uint64) []byte{
		"packed": packed,
		"single": single,
		"packs": func(b []byte, num protowire.Number, values ...uint64) []byte {
			return packed(packed(b, num, values[0]), num, values[1:]...)
		},
		"mixed": func(b []byte, num protowire.Number, values ...uint64) []byte {
			return single(packed(b, num, values[0]), num, values[1:]...)
		},
	} {
		b := newBed(t, nil)
		for range 2 {
			res, err := b.r.Export(t.Context(), point(add))
			if err != nil {
				t.Fatal(name, err)
			}
			checkResult(t, res, 1, 0, nil)
		}
		b.check(`{__name__="h_bucket", le="0.5"}`, tv{base, 1})
		b.check(`{__name__="h_bucket", le="10"}`, tv{base, 3})
		b.check(`{__name__="h_bucket", le="+Inf"}`, tv{base, 6})
	}
	_, err := newBed(t, nil).r.Export(t.Context(), point(func(b []byte, num protowire.Number, _ ...uint64) []byte {
		return appendField(b, int(num), make([]byte, 9))
	}))
	wantDecodeError(t, err)
}

// An attribute le is the bucket's own label.
func TestHistogramLe(t *testing.T) {
	b := newBed(t, nil)
	p := newPayload(node...)
	put(p.histogram("h", 0, nil, 1).Attributes(), []string{"le", "1"})
	p.histogram("h", 0, []float64{2, 1}, 1, 1, 1)
	p.histogram("h", 0, []float64{math.NaN()}, 1, 1)
	p.histogram("h", 0, nil, 1).SetSum(math.NaN())
	p.histogram("h", 0, nil, 1)
	checkResult(t, b.export(p.md), 1, 0, map[string]int64{"label_collision": 1, "bad_histogram": 2, "not_finite": 1})
}
