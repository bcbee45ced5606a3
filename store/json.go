package store

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// maxAnswer bounds an answer in bytes.
const maxAnswer = 10 << 20

var errAnswerTooLong = errors.New("answer is longer than 10 MiB: ask for fewer series, a longer step or an aggregate")

// appendData writes the field data of Prometheus's HTTP API. Numbers are
// strings there, so that NaN, +Inf and -Inf have a place; encoding/json would
// refuse them. Times are seconds with three decimals at most.
func appendData(b []byte, v parser.Value) ([]byte, error) {
	b = append(b, `{"resultType":"`...)
	b = append(b, v.Type()...)
	b = append(b, `","result":`...)
	var err error
	switch v := v.(type) {
	case promql.Scalar:
		b = appendPoint(b, v.T, v.V)
	case promql.String:
		b = append(appendTime(append(b, '['), v.T), ',')
		b = append(appendString(b, v.V), ']')
	case promql.Vector:
		b, err = appendVector(b, v)
	case promql.Matrix:
		b, err = appendMatrix(b, v)
	default:
		return nil, fmt.Errorf("BUG: PromQL gave a %T", v)
	}
	return append(b, '}'), err
}

func appendVector(b []byte, v promql.Vector) ([]byte, error) {
	b = append(b, '[')
	for i, s := range v {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendLabels(append(b, `{"metric":`...), s.Metric)
		if s.H == nil {
			b = appendPoint(append(b, `,"value":`...), s.T, s.F)
		} else {
			b = appendHistogramPoint(append(b, `,"histogram":`...), s.T, s.H)
		}
		b = append(b, '}')
		if len(b) > maxAnswer {
			return nil, errAnswerTooLong
		}
	}
	return append(b, ']'), nil
}

func appendMatrix(b []byte, m promql.Matrix) ([]byte, error) {
	b = append(b, '[')
	for i, s := range m {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendLabels(append(b, `{"metric":`...), s.Metric)
		for j, p := range s.Floats {
			b = appendPoint(append(b, next(j, `,"values":[`)...), p.T, p.F)
		}
		if len(s.Floats) > 0 {
			b = append(b, ']')
		}
		for j, p := range s.Histograms {
			b = appendHistogramPoint(append(b, next(j, `,"histograms":[`)...), p.T, p.H)
		}
		if len(s.Histograms) > 0 {
			b = append(b, ']')
		}
		b = append(b, '}')
		if len(b) > maxAnswer {
			return nil, errAnswerTooLong
		}
	}
	return append(b, ']'), nil
}

func next(i int, first string) string {
	if i == 0 {
		return first
	}
	return ","
}

func appendPoint(b []byte, t int64, v float64) []byte {
	b = append(appendTime(append(b, '['), t), ',')
	return append(appendNumber(b, v), ']')
}

func appendHistogramPoint(b []byte, t int64, h *histogram.FloatHistogram) []byte {
	b = append(appendTime(append(b, '['), t), ',')
	return append(appendHistogram(b, h), ']')
}

// appendHistogram writes count, sum and the buckets that are not empty, each as
// boundaries, lower, upper, count; boundaries says which bounds belong to the
// bucket: 0 the upper, 1 the lower, 2 none, 3 both.
func appendHistogram(b []byte, h *histogram.FloatHistogram) []byte {
	b = appendNumber(append(b, `{"count":`...), h.Count)
	b = appendNumber(append(b, `,"sum":`...), h.Sum)
	n := 0
	for it := h.AllBucketIterator(); it.Next(); {
		k := it.At()
		if k.Count == 0 {
			continue
		}
		boundaries := byte('2')
		switch {
		case k.LowerInclusive && k.UpperInclusive:
			boundaries = '3'
		case k.LowerInclusive:
			boundaries = '1'
		case k.UpperInclusive:
			boundaries = '0'
		}
		b = append(append(b, next(n, `,"buckets":[`)...), '[', boundaries, ',')
		b = append(appendNumber(b, k.Lower), ',')
		b = append(appendNumber(b, k.Upper), ',')
		b = append(appendNumber(b, k.Count), ']')
		n++
	}
	if n > 0 {
		b = append(b, ']')
	}
	return append(b, '}')
}

func appendLabels(b []byte, ls labels.Labels) []byte {
	b = append(b, '{')
	n := 0
	ls.Range(func(l labels.Label) {
		b = append(b, next(n, "")...)
		b = append(appendString(b, l.Name), ':')
		b = appendString(b, l.Value)
		n++
	})
	return append(b, '}')
}

func appendTime(b []byte, t int64) []byte {
	if t < 0 {
		b, t = append(b, '-'), -t
	}
	b = strconv.AppendInt(b, t/1000, 10)
	if ms := t % 1000; ms != 0 {
		b = append(b, '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10))
	}
	return b
}

func appendNumber(b []byte, v float64) []byte {
	format := byte('f')
	if abs := math.Abs(v); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	return append(strconv.AppendFloat(append(b, '"'), v, format, -1, 64), '"')
}

// appendString writes a JSON string. Stored labels may hold any bytes; what is
// no UTF-8 becomes U+FFFD, so that every parser takes the answer.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < ' ' || r == 0x7f || r == 0x2028 || r == 0x2029:
			b = append(b, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}
