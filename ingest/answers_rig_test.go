package ingest_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/storage"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
)

// failingCommit is a store whose log cannot be written.
type failingCommit struct{ storage.Appendable }

func (f failingCommit) Appender(ctx context.Context) storage.Appender {
	return failingAppender{f.Appendable.Appender(ctx)}
}

type failingAppender struct{ storage.Appender }

func (a failingAppender) Commit() error {
	return errors.Join(errors.New("write to WAL: no space left on device"), a.Appender.Rollback())
}

// gauge is a request with one hw.power point, of value 1, at each T0 + seconds;
// each point is of a series of its own.
func gauge(seconds ...int) []byte {
	wire, err := pmetricotlp.NewExportRequestFromMetrics(gaugeMetrics(seconds)).MarshalProto()
	if err != nil {
		panic(err)
	}
	return wire
}

func gaugeJSON(seconds ...int) []byte {
	body, err := pmetricotlp.NewExportRequestFromMetrics(gaugeMetrics(seconds)).MarshalJSON()
	if err != nil {
		panic(err)
	}
	return body
}

func gaugeMetrics(seconds []int) pmetric.Metrics { return gaugesOf(1, seconds) }

// gaugeOf is gauge with another value.
func gaugeOf(value float64, seconds ...int) []byte {
	wire, err := pmetricotlp.NewExportRequestFromMetrics(gaugesOf(value, seconds)).MarshalProto()
	if err != nil {
		panic(err)
	}
	return wire
}

func gaugesOf(value float64, seconds []int) pmetric.Metrics {
	md := pmetric.NewMetrics()
	m := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName("hw.power")
	m.SetUnit("W")
	points := m.SetEmptyGauge().DataPoints()
	for i, s := range seconds {
		p := points.AppendEmpty()
		p.Attributes().PutStr("hw.id", "cpu"+strconv.Itoa(i))
		p.SetTimestamp(pcommon.Timestamp((t0 + s) * 1e9))
		p.SetDoubleValue(value)
	}
	return md
}

// lengths wraps b in one length-delimited field after the other, innermost
// first.
func lengths(b []byte, fields ...byte) []byte {
	for _, field := range fields {
		n := len(b)
		head := []byte{field<<3 | 2}
		for ; n >= 0x80; n >>= 7 {
			head = append(head, byte(n)|0x80)
		}
		b = append(append(head, byte(n)), b...)
	}
	return b
}

// nested is a request whose resource has an attribute of lists in lists, depth
// deep. It is built from the inside without copying at each level.
func nested(depth int) []byte {
	sizes := make([]int, depth) // of what is inside each level, outermost last
	size := 0
	for i := range sizes {
		sizes[i] = size
		inner := 1 + varintLen(size) + size // values of the list
		size = 1 + varintLen(inner) + inner // the list in its AnyValue
	}
	b := make([]byte, 0, size+64)
	for i := depth - 1; i >= 0; i-- {
		inner := 1 + varintLen(sizes[i]) + sizes[i]
		b = appendVarint(append(b, 5<<3|2), inner)
		b = appendVarint(append(b, 1<<3|2), sizes[i])
	}
	kv := append(lengths([]byte("k"), 1), lengths(b, 2)...)
	return lengths(kv, 1, 1, 1)
}

func varintLen(n int) int { return len(appendVarint(nil, n)) }

func appendVarint(b []byte, n int) []byte {
	for ; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

func nestedJSON(depth int) []byte {
	return []byte(`{"resourceMetrics":[{"resource":{"attributes":[{"key":"k","value":` +
		strings.Repeat(`{"arrayValue":{"values":[`, depth) + strings.Repeat(`]}}`, depth) + `}]}}]}`)
}

// resourceValue is a request whose resource has one attribute of the given value.
func resourceValue(value string) []byte {
	kv := append(lengths([]byte("k"), 1), lengths([]byte(value), 1, 2)...)
	return lengths(kv, 1, 1, 1)
}

func resourceValueJSON(value string) []byte {
	return []byte(`{"resourceMetrics":[{"resource":{"attributes":[{"key":"k","value":{"stringValue":"` + value + `"}}]}}]}`)
}

func zip(b []byte) []byte {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		panic(err)
	}
	if _, err := w.Write(b); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return out.Bytes()
}

// badPoints is a good point, one with a label that is too long, and one with a
// text that is no UTF-8, or that has a control character where JSON must say it.
func badPoints(wire bool) []byte {
	md := gaugesOf(1, []int{60, 60, 60})
	points := md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Gauge().DataPoints()
	points.At(1).Attributes().PutStr("k", strings.Repeat("x", 1025))
	points.At(2).Attributes().PutStr("k", map[bool]string{true: "\xff", false: "\x00"}[wire])
	req := pmetricotlp.NewExportRequestFromMetrics(md)
	body, err := req.MarshalProto()
	if !wire {
		body, err = req.MarshalJSON()
	}
	if err != nil {
		panic(err)
	}
	return body
}
