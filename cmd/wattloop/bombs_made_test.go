package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
)

// target is a door that bombs are thrown at.
type target struct {
	client *http.Client
	url    string
	dial   func(context.Context) (net.Conn, error)
}

// bomb is one way to hurt a receiver.
type bomb struct {
	name  string
	rpc   bool // of HTTP/2
	holds bool // keeps connections
	throw func(context.Context, target)
}

// bombs are those of reliability.md section 2.
func bombs() []bomb {
	const js = "application/json"
	send := func(name string, body []byte, encoding, path string, media ...string) bomb {
		return bomb{name: name, throw: func(ctx context.Context, to target) {
			post(ctx, to.client, to.url+path, body, encoding, media...)
		}}
	}
	squeezed := squeeze(64 << 20) // three times what may come of a body
	all := []bomb{
		send("gzip 1000:1", squeezed, "gzip", "/v1/metrics"),
		send("gzip 1000:1, JSON", squeezed, "gzip", "/v1/metrics", js),
		send("gzip 1000:1, traces", squeezed, "gzip", "/v1/traces"),
		send("20 MiB of zeros", make([]byte, 20<<20), "", "/v1/metrics"),
		send("4 MiB of empty resources", bytes.Repeat([]byte{0x0a, 0}, 2<<20), "", "/v1/metrics"),
		send("4 MiB of empty points", emptyPoints(4<<20), "", "/v1/metrics"),
		send("4 MiB of empty spans", bytes.Repeat([]byte{0x0a, 0}, 2<<20), "", "/v1/traces"),
		send("JSON, 20 MiB of empties", []byte(`{"resourceMetrics":[`+strings.Repeat(`{},`, 20<<20/3-20)+`{}]}`), "", "/v1/metrics", js),
		send("JSON, 20 MiB of empty logs", []byte(`{"resourceLogs":[`+strings.Repeat(`{},`, 20<<20/3-20)+`{}]}`), "", "/v1/logs", js),
		send("JSON, 20 MiB of numbers", []byte(`{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"h","histogram":{"dataPoints":[{"explicitBounds":[`+
			strings.Repeat(`0,`, 10<<20-200)+`0]}]}}]}]}]}`), "", "/v1/metrics", js),
		send("JSON, brackets", bytes.Repeat([]byte("["), 19<<20), "", "/v1/metrics", js),
		send("JSON, a long key", []byte(`{"`+strings.Repeat("k", 19<<20)+`":1}`), "", "/v1/metrics", js),
		send("header flood", nil, "", "/v1/metrics", "application/x-protobuf; a="+strings.Repeat("a", 40<<10)),
		{name: "giant attributes", throw: func(ctx context.Context, to target) {
			post(ctx, to.client, to.url+"/v1/metrics", giantAttributes(), "")
		}},
		{name: "cardinality explosion", throw: func(ctx context.Context, to target) {
			post(ctx, to.client, to.url+"/v1/metrics", explosion(), "")
		}},
		{name: "cardinality, deltas", throw: func(ctx context.Context, to target) {
			post(ctx, to.client, to.url+"/v1/metrics", explodingDeltas(), "")
		}},
		{name: "slowloris", holds: true, throw: slowloris},
		{name: "streams that never send", holds: true, throw: silentStreams},
		{name: "rapid reset", rpc: true, throw: rapidReset},
		{name: "HTTP/2 header flood", rpc: true, throw: h2Headers},
	}
	for _, depth := range []int{33, 1000, 400_000, 1_000_000, 3_000_000} {
		all = append(all,
			send(fmt.Sprintf("nested %d deep", depth), nestedValue(depth), "", "/v1/metrics"),
			send(fmt.Sprintf("nested %d deep, JSON", depth), []byte(`{"resourceMetrics":[{"resource":{"attributes":[{"key":"k","value":`+
				strings.Repeat(`{"arrayValue":{"values":[`, depth)), "", "/v1/metrics", js))
	}
	return all
}

// squeeze is n zeros, compressed.
func squeeze(n int64) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := io.CopyN(w, zeros{}, n); err != nil {
		panic("BUG: " + err.Error())
	}
	if err := w.Close(); err != nil {
		panic("BUG: " + err.Error())
	}
	return out.Bytes()
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// field is a length-delimited field of protobuf.
func field(num byte, body []byte) []byte {
	return append(binary.AppendUvarint([]byte{num<<3 | 2}, uint64(len(body))), body...)
}

func emptyPoints(n int) []byte {
	points := bytes.Repeat([]byte{0x0a, 0}, n/2)
	return field(1, field(2, field(2, append(field(1, []byte("m")), field(5, points)...))))
}

// nestedValue is a resource with an attribute of lists in lists, built from the
// inside; too deep for its size it becomes 20 MiB and more.
func nestedValue(depth int) []byte {
	var heads [][]byte
	size := 0
	for range depth {
		inner := binary.AppendUvarint([]byte{1<<3 | 2}, uint64(size))
		size += len(inner)
		outer := binary.AppendUvarint([]byte{5<<3 | 2}, uint64(size))
		size += len(outer)
		heads = append(heads, inner, outer)
	}
	slices.Reverse(heads)
	value := bytes.Join(heads, nil)
	return field(1, field(1, field(1, append(field(1, []byte("k")), field(2, value)...))))
}

func gauges(name string, n int, attrs func(i int, m pcommon.Map)) []byte {
	md := pmetric.NewMetrics()
	m := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName(name)
	points := m.SetEmptyGauge().DataPoints()
	now := pcommon.NewTimestampFromTime(time.Now())
	for i := range n {
		p := points.AppendEmpty()
		p.SetTimestamp(now)
		p.SetDoubleValue(1)
		attrs(i, p.Attributes())
	}
	return wireOf(md)
}

func wireOf(md pmetric.Metrics) []byte {
	b, err := pmetricotlp.NewExportRequestFromMetrics(md).MarshalProto()
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return b
}

func honestRequest(at time.Time, name string) []byte {
	return gauges("honest.gauge", honestPoints, func(i int, m pcommon.Map) { m.PutStr("id", fmt.Sprintf("%s-%d", name, i)) })
}

func giantAttributes() []byte {
	return gauges("giant", 30, func(i int, m pcommon.Map) {
		m.PutStr(fmt.Sprint("k", time.Now().UnixNano()), strings.Repeat("v", 100<<10))
		m.PutStr(strings.Repeat("k", 10<<10), "v")
	})
}

func explosion() []byte {
	return gauges("explosion", 5000, func(i int, m pcommon.Map) { m.PutInt("id", time.Now().UnixNano()+int64(i)<<40) })
}

func explodingDeltas() []byte {
	md := pmetric.NewMetrics()
	now := time.Now()
	for i := range 1000 {
		rm := md.ResourceMetrics().AppendEmpty()
		rm.Resource().Attributes().PutInt("pid", now.UnixNano()+int64(i)<<40)
		m := rm.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
		m.SetName("deltas")
		s := m.SetEmptySum()
		s.SetIsMonotonic(true)
		s.SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
		p := s.DataPoints().AppendEmpty()
		p.SetStartTimestamp(pcommon.NewTimestampFromTime(now.Add(-time.Second)))
		p.SetTimestamp(pcommon.NewTimestampFromTime(now))
		p.SetIntValue(1)
	}
	return wireOf(md)
}

// hold opens n connections, says something on each, and waits until they are
// closed or the time is over.
func hold(ctx context.Context, to target, n int, text []byte) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	for range n {
		conn, err := to.dial(ctx)
		if err != nil {
			return
		}
		defer conn.Close()
		if _, err := conn.Write(text); err != nil {
			continue
		}
	}
	<-ctx.Done()
}

func slowloris(ctx context.Context, to target) {
	hold(ctx, to, 400, []byte("POST /v1/metrics HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 20000000\r\n\r\n{"))
}

// h2 begins a connection of HTTP/2 (RFC 9113).
func h2() *bytes.Buffer {
	out := bytes.NewBufferString("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	frame(out, 4, 0, 0, nil) // SETTINGS
	return out
}

func frame(out *bytes.Buffer, kind, flags byte, stream uint32, payload []byte) {
	n := len(payload)
	out.Write([]byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags})
	out.Write(binary.BigEndian.AppendUint32(nil, stream))
	out.Write(payload)
}

// exportFields are the headers of an Export, as literals (RFC 7541, 6.2.3).
func exportFields(more ...string) []byte {
	var b []byte
	for i, s := range append([]string{":method", "POST", ":scheme", "http", ":authority", "localhost",
		":path", "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export", "content-type", "application/grpc", "te", "trailers"}, more...) {
		if i%2 == 0 {
			b = append(b, 0x10)
		}
		b = append(append(b, byte(len(s))), s...)
	}
	return b
}

// rapidReset opens streams, sends, and takes them back at once (CVE-2023-44487).
func rapidReset(ctx context.Context, to target) {
	out := h2()
	body := explosion()
	data := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
	for i := range uint32(300) {
		frame(out, 1, 4, 2*i+1, exportFields())
		frame(out, 0, 1, 2*i+1, data[:min(len(data), 16<<10)])
		frame(out, 3, 0, 2*i+1, []byte{0, 0, 0, 8}) // RST_STREAM, CANCEL
	}
	talk(ctx, to, out.Bytes())
}

// silentStreams opens streams and sends the begin of a large message.
func silentStreams(ctx context.Context, to target) {
	out := h2()
	for i := range uint32(16) {
		frame(out, 1, 4, 2*i+1, exportFields())
		frame(out, 0, 0, 2*i+1, append(binary.BigEndian.AppendUint32([]byte{0}, 4<<20), 1, 2, 3))
	}
	hold(ctx, to, 40, out.Bytes())
}

// h2Headers sends a header block without an end (a CONTINUATION flood).
func h2Headers(ctx context.Context, to target) {
	out := h2()
	frame(out, 1, 0, 1, exportFields())
	for range 2000 {
		frame(out, 9, 0, 1, exportFields("x", strings.Repeat("y", 100))[200:])
	}
	talk(ctx, to, out.Bytes())
}

// talk writes and reads until the other end has had enough.
func talk(ctx context.Context, to target, text []byte) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	conn, err := to.dial(ctx)
	if err != nil {
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := conn.Write(text); err != nil {
		return
	}
	_ = conn.(interface{ CloseWrite() error }).CloseWrite() // what comes back is all that counts
	_, _ = io.Copy(io.Discard, conn)
}
