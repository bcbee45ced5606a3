package store

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"pgregory.net/rapid"
)

// What promql's own marshalling says, this one says: the same tree, numbers
// equal as numbers (promql writes 1e300 with its 301 digits).
func TestDataIsPromQLsOwn(t *testing.T) {
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "\"", "\\", "\n", "\x00", "<&>", "\u2028", "\x7f"}))
	number := rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{0, math.Copysign(0, -1), 1e-6, 9.99e-7, 1e21, 9.99e20, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, math.SmallestNonzeroFloat64}))
	// A float64 of seconds holds the milliseconds of these years exactly.
	when := rapid.Int64Range(-1e12, 4e12)
	rapid.Check(t, func(t *rapid.T) {
		metric := func() labels.Labels {
			return labels.FromMap(rapid.MapOfN(text, text, 0, 4).Draw(t, "labels"))
		}
		h := func() *histogram.FloatHistogram {
			n := rapid.Float64Range(0, 9)
			return &histogram.FloatHistogram{
				Count: n.Draw(t, "count"), Sum: number.Draw(t, "sum"), ZeroThreshold: 0.01, ZeroCount: n.Draw(t, "zero"),
				PositiveSpans: []histogram.Span{{Offset: 3, Length: 2}}, PositiveBuckets: []float64{n.Draw(t, "p"), 0},
				NegativeSpans: []histogram.Span{{Offset: -2, Length: 1}}, NegativeBuckets: []float64{n.Draw(t, "n")},
			}
		}
		var v parser.Value
		switch rapid.IntRange(0, 3).Draw(t, "type") {
		case 0:
			v = promql.Scalar{T: when.Draw(t, "t"), V: number.Draw(t, "v")}
		case 1:
			v = promql.String{T: when.Draw(t, "t"), V: text.Draw(t, "v")}
		case 2:
			vec := promql.Vector{}
			for range rapid.IntRange(0, 3).Draw(t, "samples") {
				s := promql.Sample{Metric: metric(), T: when.Draw(t, "t"), F: number.Draw(t, "v")}
				if rapid.Bool().Draw(t, "histogram") {
					s.H = h()
				}
				vec = append(vec, s)
			}
			v = vec
		case 3:
			m := promql.Matrix{}
			for range rapid.IntRange(0, 3).Draw(t, "series") {
				s := promql.Series{Metric: metric()}
				for range rapid.IntRange(0, 3).Draw(t, "floats") {
					s.Floats = append(s.Floats, promql.FPoint{T: when.Draw(t, "t"), F: number.Draw(t, "v")})
				}
				for range rapid.IntRange(0, 2).Draw(t, "histograms") {
					s.Histograms = append(s.Histograms, promql.HPoint{T: when.Draw(t, "t"), H: h()})
				}
				m = append(m, s)
			}
			v = m
		}
		got, err := appendData(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(map[string]any{"resultType": v.Type(), "result": v})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tree(t, want), tree(t, got), cmp.Comparer(func(a, b string) bool { return sameText(a, b) })); diff != "" {
			t.Fatalf("-promql +store\n%s", diff)
		}
	})
}

func tree(t *rapid.T, data []byte) any {
	var v any
	d := json.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	return v
}

func sameText(a, b string) bool {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	return a == b || errX == nil && errY == nil && math.Float64bits(x) == math.Float64bits(y)
}
