package ingest_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"testing"
)

// A :path without its slash, which slips past rules written for paths
// (CVE-2026-33186), reaches no handler. No client library sends one, so the frames
// of HTTP/2 (RFC 9113) are written here by hand.
func TestRawPath(t *testing.T) {
	r := newRig(t, nil)
	r.at(60)
	const service = "opentelemetry.proto.collector.metrics.v1.MetricsService"
	f := func(path, want string) {
		t.Helper()
		conn, err := net.Dial("tcp", r.grpc)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		message := gauge(60)
		data := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
		var out bytes.Buffer
		out.WriteString("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
		frame(&out, 4, 0, 0, nil) // SETTINGS
		frame(&out, 1, 4, 1, fields(":method", "POST", ":scheme", "http", ":authority", "localhost", ":path", path,
			"content-type", "application/grpc", "te", "trailers")) // HEADERS, END_HEADERS
		frame(&out, 0, 1, 1, data) // DATA, END_STREAM
		if _, err := conn.Write(out.Bytes()); err != nil {
			t.Fatal(err)
		}
		if got := grpcStatus(t, conn); got != want {
			t.Errorf(":path %q: grpc-status %s; want %s", path, got, want)
		}
	}
	f("/"+service+"/Export", "0")
	before := r.metric("wattloop_ingest_points_total")
	f(service+"/Export", "12") // UNIMPLEMENTED
	f("//"+service+"/Export", "12")
	f("/"+service+"/Export/", "12")
	f(service, "12")
	if after := r.metric("wattloop_ingest_points_total"); after != before {
		t.Errorf("%g points came in; want %g", after, before)
	}
}

func frame(out *bytes.Buffer, kind, flags byte, stream uint32, payload []byte) {
	n := len(payload)
	out.Write([]byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags})
	out.Write(binary.BigEndian.AppendUint32(nil, stream))
	out.Write(payload)
}

// fields writes header fields as literals with new names, never indexed and not
// Huffman-coded (RFC 7541, 6.2.3).
func fields(pairs ...string) []byte {
	var b []byte
	for i, s := range pairs {
		if i%2 == 0 {
			b = append(b, 0x10)
		}
		b = append(append(b, byte(len(s))), s...)
	}
	return b
}

// grpcStatus reads frames until the trailers. It looks for the code alone: the
// server's header block is indexed, in which the name grpc-status is a literal
// where it comes first, Huffman-coded.
func grpcStatus(t *testing.T, conn net.Conn) string {
	t.Helper()
	for {
		head := make([]byte, 9)
		if _, err := io.ReadFull(conn, head); err != nil {
			t.Fatalf("no trailers: %v", err)
		}
		payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(conn, payload); err != nil {
			t.Fatal(err)
		}
		if head[3] != 1 || head[4]&1 == 0 { // HEADERS that end the stream
			continue
		}
		name := []byte{0x9a, 0xca, 0xc8, 0xb2, 0x12, 0x34, 0xda, 0x8f} // grpc-status
		at := bytes.Index(payload, name)
		if at < 0 {
			t.Fatalf("no grpc-status in %x", payload)
		}
		value := payload[at+len(name):]
		switch n := value[0]; {
		case n == 0x81 && value[1] == 0x07: // Huffman "0" and its padding
			return "0"
		case n == 0x82 && value[1] == 0x08 && value[2] == 0xbf:
			return "12"
		case n&0x80 == 0:
			return string(value[1 : 1+n])
		}
		t.Fatalf("grpc-status in %x", payload)
	}
}

// A stream that is open and has not sent its message holds a place of its channel
// and memory for it, and both are free once it is reset. The answer to a PING says
// that the server has read what came before.
func TestSilentStream(t *testing.T) {
	r := newRig(t, nil)
	conn, err := net.Dial("tcp", r.grpc)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var out bytes.Buffer
	out.WriteString("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	frame(&out, 4, 0, 0, nil)
	const streams = 3
	for i := range uint32(streams) {
		frame(&out, 1, 4, 2*i+1, fields(":method", "POST", ":scheme", "http", ":authority", "localhost",
			":path", exportMethod, "content-type", "application/grpc", "te", "trailers"))
		frame(&out, 0, 0, 2*i+1, []byte{0, 0, 0x40, 0, 0, 1, 2, 3}) // 3 bytes of 4 MiB
	}
	ping := func() {
		t.Helper()
		frame(&out, 6, 0, 0, make([]byte, 8))
		if _, err := out.WriteTo(conn); err != nil {
			t.Fatal(err)
		}
		for head := make([]byte, 9); head[3] != 6 || head[4] != 1; {
			if _, err := io.ReadFull(conn, head); err != nil {
				t.Fatal(err)
			}
			if _, err := io.CopyN(io.Discard, conn, int64(head[0])<<16|int64(head[1])<<8|int64(head[2])); err != nil {
				t.Fatal(err)
			}
		}
	}
	ping()
	if n := r.server.InFlight(); n != streams<<20 {
		t.Errorf("%d bytes count as in flight; want 1 MiB for each of %d streams", n, streams)
	}
	for i := range uint32(streams) {
		frame(&out, 3, 0, 2*i+1, []byte{0, 0, 0, 8})
	}
	ping()
	for ctx := t.Context(); r.server.InFlight() != 0; { // the handlers end by themselves
		if ctx.Err() != nil {
			t.Fatal("the streams that were reset still hold memory")
		}
		runtime.Gosched()
	}
}
