package ingest

import (
	"fmt"
	"testing"
)

// BenchmarkStamp stamps 1,000 spans of eight attributes each.
func BenchmarkStamp(b *testing.B) {
	r := NewReceiver(Options{Appendable: nowhere{}, Onward: &upstream{}})
	ch, err := r.AddChannel(ChannelOptions{Name: "ch7", Class: Workload})
	if err != nil {
		b.Fatal(err)
	}
	a, err := ch.Activate(actor, r.o.Clock(), r.o.Clock())
	if err != nil {
		b.Fatal(err)
	}
	td := someTraces(1000, "service.name", "x", "telemetry.sdk.name", "y")
	for i, s := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
		put(s.Attributes(), []string{"http.request.method", "GET", "url.path", fmt.Sprint("/", i), "http.response.status_code", "200", "server.address", "a",
			"client.address", "b", "user_agent.original", "c", "network.protocol.version", "1.1", "k8s.node.name", "victim"})
	}
	wire := wireOfTraces(b, td)
	b.SetBytes(int64(len(wire)))
	b.ReportAllocs()
	for b.Loop() {
		s := a.newStamper(SignalTraces)
		if _, err := s.scanRecords(&traceLevels, wire); err != nil {
			b.Fatal(err)
		}
		s.rewrite(&traceLevels, wire)
		r.recycle(s)
	}
}
