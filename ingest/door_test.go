package ingest_test

import (
	"bytes"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/wattloop/wattloop/access"
	"github.com/wattloop/wattloop/ingest"
)

// A path without its slash once went past an interceptor's rules and still found
// its handler (CVE-2026-33186). Here it finds nothing, whoever sends it, and what
// is no method of ours is refused before anything of its message is read.
func TestOddMethodsReachNobody(t *testing.T) {
	const token = "push-push-push-push-push-push-push"
	guard, err := access.NewGuard(access.Config{Credentials: []access.Credential{{Roles: []access.Role{access.Push}, Token: token}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, guard := range map[string]*access.Guard{"open": nil, "asks": guard} {
		r := newRig(t, func(o *ingest.Options) { o.Guard = guard })
		r.at(60)
		f := func(path, authorization, want string) {
			t.Helper()
			if got := rawCall(t, r.grpc, path, authorization, gauge(60)); got != want {
				t.Errorf("%s, %q, %q: grpc-status %s; want %s", name, path, authorization, got, want)
			}
		}
		const ok, unimplemented, unauthenticated = "0", "12", "16"
		for _, bearer := range []string{"", "Bearer " + token} {
			f(exportMethod[1:], bearer, unimplemented)
			f("/"+exportMethod, bearer, unimplemented)
			f(exportMethod+"/", bearer, unimplemented)
			f(exportMethod+"?x", bearer, unimplemented)
			f("/OpenTelemetry"+exportMethod[len("/opentelemetry"):], bearer, unimplemented)
			f("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", bearer, unimplemented)
			f("/nothing.Like/It", bearer, unimplemented)
			f("*", bearer, unimplemented)
		}
		r.check(`count({__name__=~"hw_.+"})`, 60, none)
		if guard != nil {
			f(exportMethod, "", unauthenticated)
			r.check(`count({__name__=~"hw_.+"})`, 60, none)
		}
		f(exportMethod, map[bool]string{true: "Bearer " + token}[guard != nil], ok)
		r.check(`count({__name__=~"hw_.+"})`, 60, 1)
	}
}

// rawCall makes one gRPC call by frames, since a client's library sends no odd
// path, and returns the grpc-status.
func rawCall(t *testing.T, addr, path, authorization string, message []byte) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	fr := http2.NewFramer(conn, conn)
	fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := fr.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	var head bytes.Buffer
	enc := hpack.NewEncoder(&head)
	fields := [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", path}, {":authority", "localhost"},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	}
	if authorization != "" {
		fields = append(fields, [2]string{"authorization", authorization})
	}
	for _, f := range fields {
		if err := enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			t.Fatal(err)
		}
	}
	if err := fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
	n := len(message)
	body := append([]byte{0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, message...)
	_ = fr.WriteData(1, true, body) // who has answered already may have closed
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			t.Fatalf("%q: no answer: %v", path, err)
		}
		if h, ok := f.(*http2.MetaHeadersFrame); ok {
			for _, field := range h.Fields {
				if field.Name == "grpc-status" {
					return field.Value
				}
			}
		}
	}
}
