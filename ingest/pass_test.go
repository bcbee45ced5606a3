package ingest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/wattloop/wattloop/ingest"
)

// passRig is a server that passes requests to answer.
func passRig(t *testing.T, answer ingest.PassFunc) (*httptest.Server, *grpc.ClientConn) {
	t.Helper()
	r := ingest.NewReceiver(ingest.Options{Pass: answer})
	s := ingest.NewServer(r.Channel("relay").Live())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := s.GRPC()
	go g.Serve(l)
	t.Cleanup(g.Stop)
	web := httptest.NewServer(s.Handler())
	t.Cleanup(web.Close)
	cc, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	return web, cc
}

var passed = []struct {
	signal       ingest.Signal
	path, method string
}{
	{ingest.SignalMetrics, "/v1/metrics", "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"},
	{ingest.SignalTraces, "/v1/traces", "/opentelemetry.proto.collector.trace.v1.TraceService/Export"},
	{ingest.SignalLogs, "/v1/logs", "/opentelemetry.proto.collector.logs.v1.LogsService/Export"},
}

// unknownFields is a message of nothing but fields that no message has.
func unknownFields(t *testing.T, n int) (*emptypb.Empty, []byte) {
	t.Helper()
	wire := append([]byte{0xfa, 0x3f}, 0x80, 0x10) // field 1023, 2048 bytes
	wire = append(wire, bytes.Repeat([]byte{byte(n), 0xff}, 1024)...)
	m := &emptypb.Empty{}
	if err := proto.Unmarshal(wire, m); err != nil {
		t.Fatal(err)
	}
	return m, wire
}

// All signals go on byte for byte over both transports, forged identity, unknown
// fields and all, and so do the responses (S2-65).
func TestPassUnchanged(t *testing.T) {
	var got []byte
	var gotSignal ingest.Signal
	_, response := unknownFields(t, 99)
	web, cc := passRig(t, func(_ context.Context, s ingest.Signal, wire []byte) ([]byte, error) {
		got, gotSignal = bytes.Clone(wire), s
		return response, nil
	})
	for i, p := range passed {
		m, wire := unknownFields(t, i)
		back := &emptypb.Empty{}
		if err := cc.Invoke(t.Context(), p.method, m, back); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, wire) || gotSignal != p.signal || !bytes.Equal(back.ProtoReflect().GetUnknown(), response) {
			t.Errorf("gRPC %s: %d bytes of %s go on, %d come back", p.signal, len(got), gotSignal, len(back.ProtoReflect().GetUnknown()))
		}
		for _, path := range []string{p.path, "/api/v1/otlp" + p.path} {
			got = nil
			resp, err := http.Post(web.URL+path, "application/x-protobuf", bytes.NewReader(wire))
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != 200 || !bytes.Equal(got, wire) || gotSignal != p.signal || !bytes.Equal(body, response) {
				t.Errorf("HTTP %s: %d, %d bytes of %s go on, %d come back", path, resp.StatusCode, len(got), gotSignal, len(body))
			}
		}
	}
}

// The upstream's refusal is the sender's: every code of gRPC with its details, and
// over HTTP a status that an OTLP sender repeats exactly where OTLP lets it.
func TestPassRefusals(t *testing.T) {
	var refusal error
	web, cc := passRig(t, func(context.Context, ingest.Signal, []byte) ([]byte, error) { return nil, refusal })
	f := func(c codes.Code, retry time.Duration, wantHTTP int, wantAfter string) {
		t.Helper()
		st := status.New(c, "the upstream's word")
		if retry > 0 {
			st, _ = st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(retry)}, &errdetails.ErrorInfo{Reason: "r"})
		}
		refusal = st.Err()
		err := cc.Invoke(t.Context(), passed[1].method, &emptypb.Empty{}, &emptypb.Empty{})
		if diff := cmp.Diff(st.Proto(), status.Convert(err).Proto(), protocmp.Transform()); diff != "" {
			t.Errorf("gRPC %s: %s", c, diff)
		}
		resp, err := http.Post(web.URL+"/v1/logs", "application/x-protobuf", nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		var said statuspb.Status
		if err := proto.Unmarshal(body, &said); err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != wantHTTP || resp.Header.Get("Retry-After") != wantAfter || codes.Code(said.Code) != c || said.Message != "the upstream's word" {
			t.Errorf("HTTP %s: %d, Retry-After %q, %v; want %d, %q", c, resp.StatusCode, resp.Header.Get("Retry-After"), &said, wantHTTP, wantAfter)
		}
	}
	for _, c := range []codes.Code{codes.Unavailable, codes.Aborted, codes.Canceled, codes.DeadlineExceeded, codes.OutOfRange, codes.DataLoss} {
		f(c, 0, 503, "")
		f(c, 2500*time.Millisecond, 503, "3")
	}
	f(codes.ResourceExhausted, 0, 413, "")
	f(codes.ResourceExhausted, time.Millisecond, 429, "1")
	f(codes.InvalidArgument, 0, 400, "")
	f(codes.InvalidArgument, time.Second, 400, "")
	f(codes.Unauthenticated, 0, 401, "")
	f(codes.PermissionDenied, 0, 403, "")
	f(codes.Unimplemented, 0, 404, "")
	f(codes.NotFound, 0, 404, "")
	for _, c := range []codes.Code{codes.Unknown, codes.AlreadyExists, codes.FailedPrecondition, codes.Internal} {
		f(c, 0, 500, "")
	}
	// An error that is none of gRPC's.
	refusal = fmt.Errorf("odd")
	if err := cc.Invoke(t.Context(), passed[0].method, &emptypb.Empty{}, &emptypb.Empty{}); status.Code(err) != codes.Unknown {
		t.Errorf("an error without a code: %v", err)
	}
}

// S2-71: what cannot go on unchanged, or is over 4 MiB, is refused here, and never
// asked of the upstream.
func TestPassRefusesHere(t *testing.T) {
	asked := 0
	web, cc := passRig(t, func(context.Context, ingest.Signal, []byte) ([]byte, error) { asked++; return nil, nil })
	f := func(mediaType string, body []byte, want int) {
		t.Helper()
		resp, err := http.Post(web.URL+"/v1/traces", mediaType, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s, %d bytes: %d %s; want %d", mediaType, len(body), resp.StatusCode, text, want)
		}
	}
	f("application/json", []byte("{}"), 415)
	f("text/plain", nil, 415)
	f("application/x-protobuf", make([]byte, 4<<20+1), 413)
	big := &emptypb.Empty{}
	if err := proto.Unmarshal(append([]byte{0xfa, 0x3f, 0x80, 0x80, 0x80, 0x02}, make([]byte, 4<<20)...), big); err != nil {
		t.Fatal(err)
	}
	if err := cc.Invoke(t.Context(), passed[0].method, big, &emptypb.Empty{}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("gRPC, beyond 4 MiB: %v; want ResourceExhausted", err)
	}
	if err := cc.Invoke(t.Context(), "/x.Y/Export", &emptypb.Empty{}, &emptypb.Empty{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("gRPC, another method: %v; want Unimplemented", err)
	}
	if asked != 0 {
		t.Errorf("the upstream was asked %d times", asked)
	}
	f("application/x-protobuf", []byte(strings.Repeat("\x00", 4<<20)), 200) // the largest there is
}

// S2-71: what a socket of the node holds at once is bounded, in requests and in
// bytes; who comes beyond that is told to come again, and the upstream not asked.
func TestPassIsBounded(t *testing.T) {
	asked := 0
	r := ingest.NewReceiver(ingest.Options{Pass: func(context.Context, ingest.Signal, []byte) ([]byte, error) { asked++; return nil, nil }})
	ch, err := r.AddChannel(ingest.ChannelOptions{Name: "workload"})
	if err != nil {
		t.Fatal(err)
	}
	s := ingest.NewServer(ch.Live())
	web := httptest.NewServer(s.Handler())
	defer web.Close()
	post := func() int {
		t.Helper()
		resp, err := http.Post(web.URL+"/v1/logs", "application/x-protobuf", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	free := s.Occupy(64 << 20)
	if code := post(); code != 503 {
		t.Errorf("with 64 MiB in flight: %d; want 503", code)
	}
	free()
	var leave []func()
	for range 256 {
		l, err := ch.Enter()
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, l)
	}
	if code := post(); code != 429 {
		t.Errorf("with 256 requests at a time: %d; want 429", code)
	}
	if asked != 0 {
		t.Errorf("the upstream was asked %d times", asked)
	}
	leave[0]()
	if code := post(); code != 200 || asked != 1 {
		t.Errorf("with room: %d, %d asked; want 200 and one", code, asked)
	}
}
