package ingest_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wattloop/wattloop/ingest"
)

// queue is an upstream that counts, or has no room.
type queue struct {
	mu   sync.Mutex
	n    map[ingest.Signal]int
	full bool
}

func (q *queue) Forward(_ context.Context, f ingest.Forwarded) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.full {
		return ingest.ErrNoRoom
	}
	q.n[f.Signal]++
	return nil
}

// S2-20: traces and logs over gRPC and HTTP, in protobuf and JSON: acked once
// they are in the queue, and to be sent again while it is full.
func TestRecordsOverTransports(t *testing.T) {
	q := &queue{n: map[ingest.Signal]int{}}
	r := newRig(t, func(o *ingest.Options) { o.Onward = q })
	td := ptrace.NewTraces()
	td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty().SetName("op")
	ld := plog.NewLogs()
	ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty().Body().SetStr("b")
	traces, err := ptraceotlp.NewExportRequestFromTraces(td).MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	logs, err := plogotlp.NewExportRequestFromLogs(ld).MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	tracesJSON, err := ptraceotlp.NewExportRequestFromTraces(td).MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	logsJSON, err := plogotlp.NewExportRequestFromLogs(ld).MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	for _, full := range []bool{false, true} {
		q.full = full
		for _, c := range []struct {
			path, typ string
			body      []byte
		}{
			{"/v1/traces", "application/x-protobuf", traces}, {"/v1/traces", "application/json", tracesJSON},
			{"/v1/logs", "application/x-protobuf", logs}, {"/v1/logs", "application/json", logsJSON},
		} {
			got := r.do(http.MethodPost, c.path, bytes.NewReader(c.body), "Content-Type", c.typ)
			switch {
			case got.header.Get("Content-Type") != c.typ:
				t.Errorf("%s %s: answered in %s", c.path, c.typ, got.header.Get("Content-Type"))
			case full && (got.code != 503 || got.header.Get("Retry-After") == "" || !strings.Contains(got.body, "the queue to the upstream is full")):
				t.Errorf("%s %s with a full queue: %+v; want 503 with Retry-After", c.path, c.typ, got)
			case !full && (got.code != 200 || got.body != "" && got.body != "{}"):
				t.Errorf("%s %s: %+v; want 200 and nothing rejected", c.path, c.typ, got)
			}
		}
		for service, body := range map[string][]byte{"trace.v1.TraceService": traces, "logs.v1.LogsService": logs} {
			_, err := r.call(t.Context(), "/opentelemetry.proto.collector."+service+"/Export", body)
			if !full {
				if err != nil {
					t.Errorf("%s: %v", service, err)
				}
				continue
			}
			st, _ := status.FromError(err)
			if st.Code() != codes.Unavailable || len(st.Details()) != 1 {
				t.Errorf("%s with a full queue: %v; want UNAVAILABLE with RetryInfo", service, err)
			} else if _, ok := st.Details()[0].(*errdetails.RetryInfo); !ok {
				t.Errorf("%s: details %v", service, st.Details())
			}
		}
	}
	if q.n[ingest.SignalTraces] != 3 || q.n[ingest.SignalLogs] != 3 {
		t.Errorf("queued %v; want 3 of each", q.n)
	}
	if n := r.metric("wattloop_ingest_records_total", `signal="traces"`, `result="accepted"`); n != 3 {
		t.Errorf("%g spans count as accepted; want 3", n)
	}
	if n := r.metric("wattloop_ingest_onward_total", `result="no_room"`); n != 6 {
		t.Errorf("%g requests count as without room; want 6", n)
	}
}

// An activation that has ended refuses traces and logs on the connections that
// it had, as it does metrics, also where there is no upstream (S2-17, S2-86).
func TestRecordsAfterEnd(t *testing.T) {
	r := ingest.NewReceiver(ingest.Options{})
	ch, err := r.AddChannel(ingest.ChannelOptions{Name: "w", Class: ingest.Workload})
	if err != nil {
		t.Fatal(err)
	}
	a, err := ch.Activate(ingest.Identity{ActorUID: "a"}, time.Unix(t0, 0), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	a.End()
	var unavailable *ingest.UnavailableError
	if _, err := a.ExportLogs(t.Context(), nil); !errors.As(err, &unavailable) {
		t.Errorf("%v; want an *UnavailableError", err)
	}
}
