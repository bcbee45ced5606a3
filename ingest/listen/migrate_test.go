package listen

import (
	"bytes"
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"github.com/wattloop/wattloop/ingest"
)

// upstream keeps the resources of what goes onward.
type upstream struct {
	mu   sync.Mutex
	seen map[ingest.Signal][]map[string]any
}

func (u *upstream) Forward(_ context.Context, f ingest.Forwarded) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	keep := func(r pcommon.Resource) { u.seen[f.Signal] = append(u.seen[f.Signal], r.Attributes().AsRaw()) }
	switch f.Signal {
	case ingest.SignalTraces:
		r := ptraceotlp.NewExportRequest()
		if err := r.UnmarshalProto(f.Wire); err != nil {
			return err
		}
		for _, rs := range r.Traces().ResourceSpans().All() {
			keep(rs.Resource())
		}
	case ingest.SignalLogs:
		r := plogotlp.NewExportRequest()
		if err := r.UnmarshalProto(f.Wire); err != nil {
			return err
		}
		for _, rl := range r.Logs().ResourceLogs().All() {
			keep(rl.Resource())
		}
	}
	return nil
}

// S2-55, S2-87: after a migration the traces and logs of an actor have the same actor's
// UID and the new worker's host facts, and since stays the first activation's.
func TestMigration(t *testing.T) {
	up := &upstream{seen: map[ingest.Signal][]map[string]any{}}
	b := newBed(t, nil, func(o *ingest.Options) { o.Onward = up })
	spans := ptraceotlp.NewExportRequest()
	rs := spans.Traces().ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("ate.actor.uid", "forged")
	rs.Resource().Attributes().PutStr("k8s.node.name", "forged")
	s := rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	s.SetName("x")
	s.SetTraceID(pcommon.TraceID{1})
	s.SetSpanID(pcommon.SpanID{1})
	logs := plogotlp.NewExportRequest()
	rl := logs.Logs().ResourceLogs().AppendEmpty()
	rl.Resource().Attributes().PutStr("host.name", "forged")
	rl.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty().Body().SetStr("x")
	wires := map[string]func() ([]byte, error){"/v1/traces": spans.MarshalProto, "/v1/logs": logs.MarshalProto}

	b.define("w1")
	b.define("w2")
	var since time.Time
	for i, where := range []struct{ channel, pod, node string }{{"w1", "pod-1", "n1"}, {"w2", "pod-2", "n2"}} {
		id := ingest.Identity{ActorUID: "a", TemplateName: "web", PodName: where.pod, PodUID: "uid-" + where.pod, Node: where.node}
		st, _, err := b.m.Activate(context.Background(), where.channel, nil, Activation{Identity: id})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			since = st.Since
		} else if !st.Since.Equal(since) || !st.Started.After(since) {
			t.Errorf("after the migration: started %s, since %s; want since %s", st.Started, st.Since, since)
		}
		hc, url := client(t, st.Listen[0])
		for path, wire := range wires {
			body, err := wire()
			if err != nil {
				t.Fatal(err)
			}
			resp, err := hc.Post(url+path, "application/x-protobuf", bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("%s: %s", path, resp.Status)
			}
		}
		b.end(where.channel)
		for _, signal := range []ingest.Signal{ingest.SignalTraces, ingest.SignalLogs} {
			if len(up.seen[signal]) != i+1 {
				t.Fatalf("%s: %d went onward", signal, len(up.seen[signal]))
			}
			got := up.seen[signal][i]
			for key, want := range map[string]any{"ate.actor.uid": "a", "service.instance.id": "a", "k8s.pod.name": where.pod, "k8s.pod.uid": "uid-" + where.pod, "k8s.node.name": where.node, "host.name": nil} {
				if got[key] != want {
					t.Errorf("%s on %s: %s is %v; want %v", signal, where.channel, key, got[key], want)
				}
			}
		}
	}
}
