package ingest_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"
)

// C17: the media type is parsed, not compared; what cannot be read is 415 and
// not guessed at.
func TestContentTypeC17(t *testing.T) {
	r := newRig(t, nil)
	r.at(60)
	f := func(file string, want int, stored any) {
		t.Helper()
		got := r.raw(caseFile(t, "C17-otlp-content-type-parameters/"+file))
		if got.code != want {
			t.Errorf("%s: %d %s; want %d", file, got.code, got.body, want)
		}
		if ct := got.header.Get("Content-Type"); ct != "application/json" {
			t.Errorf("%s: answered as %s; want application/json", file, ct)
		}
		if want == http.StatusOK && got.body != "{}" {
			t.Errorf("%s: answer %s; want {}", file, got.body)
		}
		r.check(`hw_power_watts`, 60, stored)
	}
	f("3-text.http", http.StatusUnsupportedMediaType, none)
	f("4-encoding-br.http", http.StatusUnsupportedMediaType, none)
	f("1-charset.http", http.StatusOK, 250)
	f("2-case.http", http.StatusOK, 250)
	f("5-identity.http", http.StatusOK, 250)
}

// raw sends the text of a request over a connection of its own.
func (r *rig) raw(request []byte) reply {
	r.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(request); err != nil {
		r.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return readReply(r.t, resp)
}

// C18: all members of a gzip body are read, not the first alone.
func TestGzipTwoMembersC18(t *testing.T) {
	r := newRig(t, nil)
	r.at(60)
	r.rejected(r.post(caseFile(t, "C18-otlp-gzip-two-members/body.json.gz"),
		"Content-Type", "application/json", "Content-Encoding", "gzip"), "")
	r.check(`hw_power_watts{hw_id="cpu0"}`, 60, 120)
	r.check(`hw_power_watts{hw_id="gpu0"}`, 60, 330)
	r.check(nodePower, 60, 450)
}

// C19: a small body that inflates to 64 MiB is refused by its ratio, before it
// costs its size, alone and twenty at once.
func TestGzipBombC19(t *testing.T) {
	r := newRig(t, nil)
	r.at(60)
	bomb := caseFile(t, "C19-otlp-gzip-bomb/bomb-64MiB.json.gz")
	headers := []string{"Content-Type", "application/json", "Content-Encoding", "gzip"}

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if got := r.post(bomb, headers...); got.code != http.StatusRequestEntityTooLarge {
		t.Errorf("%d %s; want 413", got.code, got.body)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 2*20<<20 {
		t.Errorf("%d bytes were allocated; want at most twice the limit of 20 MiB", n)
	}

	var wg sync.WaitGroup
	replies := make([]reply, 20)
	for i := range replies {
		wg.Go(func() { replies[i] = r.post(bomb, headers...) })
	}
	wg.Wait()
	for _, got := range replies {
		if got.code != http.StatusRequestEntityTooLarge {
			t.Errorf("%d %s; want 413", got.code, got.body)
		}
	}
	if n := r.server.InFlight(); n != 0 {
		t.Errorf("%d bytes still count as in flight", n)
	}

	// The like over gRPC: 8 MiB compress to a message far below its limit.
	_, err := r.call(t.Context(), exportMethod, make([]byte, 8<<20), grpc.UseCompressor(gzip.Name), grpc.MaxCallSendMsgSize(9<<20))
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("gRPC: %v; want RESOURCE_EXHAUSTED", err)
	}

	r.rejected(r.postJSON(caseFile(t, "C19-otlp-gzip-bomb/req-after.json")), "")
	r.check(`hw_power_watts`, 60, 250)
}

// C21: a message over 4 MiB is refused for good: an answer that asked for a
// repeat would have it come again for ever. Nothing of it is stored, it is
// counted, and the next export is fine.
func TestGRPCMessageTooLargeC21(t *testing.T) {
	r := newRig(t, nil)
	r.at(60)
	wire := bigGauge(t, 60000)
	if len(wire) <= 4<<20 {
		t.Fatalf("the message has %d bytes; want more than 4 MiB", len(wire))
	}
	_, err := r.call(context.Background(), exportMethod, wire, grpc.MaxCallSendMsgSize(32<<20))
	st := status.Convert(err)
	if st.Code() != codes.ResourceExhausted {
		t.Errorf("%v; want RESOURCE_EXHAUSTED", err)
	}
	for _, d := range st.Details() {
		if _, ok := d.(*errdetails.RetryInfo); ok {
			t.Errorf("%v asks for a repeat", err)
		}
	}
	if got := r.metric("wattloop_ingest_requests_total", `transport="grpc"`, `answer="resource_exhausted"`); got != 1 {
		t.Errorf("refused requests counted: %v; want 1", got)
	}
	r.check(`count(big_gauge_ratio)`, 60, none)

	out, err := r.call(context.Background(), exportMethod, bigGauge(t, 10))
	if err != nil || len(out) != 0 {
		t.Errorf("next export: %q, %v; want a full success", out, err)
	}
	r.check(`count(big_gauge_ratio)`, 60, 10)
}

// bigGauge is the request of C21's gen.py with n points, as protobuf.
func bigGauge(t *testing.T, n int) []byte {
	t.Helper()
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	for _, kv := range [][2]string{{"k8s.node.name", "edge-a"}, {"service.instance.id", "edge-a"}, {"service.name", "hwexp"}} {
		rm.Resource().Attributes().PutStr(kv[0], kv[1])
	}
	m := rm.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName("big.gauge")
	m.SetUnit("1")
	points := m.SetEmptyGauge().DataPoints()
	points.EnsureCapacity(n)
	for i := range n {
		p := points.AppendEmpty()
		p.Attributes().PutStr("hw.id", fmt.Sprintf("gpu%06d-%s", i, strings.Repeat("x", 40)))
		p.Attributes().PutStr("hw.type", "gpu")
		p.SetTimestamp((t0 + 60) * 1e9)
		p.SetDoubleValue(1)
	}
	wire, err := pmetricotlp.NewExportRequestFromMetrics(md).MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(wire)
}
