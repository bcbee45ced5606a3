package ingest_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/wattloop/wattloop/ingest"
)

// The row "starting" of the table of answers: nothing of a request is read, what
// it holds does not matter, and the counts go on in the receiver that takes over.
func TestStarting(t *testing.T) {
	registry := prometheus.NewRegistry()
	before := ingest.Starting(ingest.Options{Registerer: registry})
	early := &rig{t: t, registry: registry}
	early.serve(before.Channel("default").Live())
	come := answer{codes.Unavailable, 503, 0, 5 * time.Second}
	for _, wire := range [][]byte{gauge(60), nil, []byte("\xff\xff no protobuf")} {
		early.checkGRPC(wire, come)
		early.checkHTTP(wire, "application/x-protobuf", come)
	}
	for _, body := range []string{string(gaugeJSON(60)), "{}", "{"} {
		early.checkHTTP([]byte(body), "application/json", come)
	}
	if got := early.post(zip(gauge(60)), "Content-Type", "application/x-protobuf", "Content-Encoding", "gzip"); got.code != 503 {
		t.Errorf("gzip: %d", got.code)
	}
	if got := early.post(nil, "Content-Type", "text/plain"); got.code != 415 {
		t.Errorf("text: %d; want 415, which is never to be sent again", got.code)
	}
	if _, err := before.Export(t.Context(), gauge(60)); err == nil {
		t.Error("a receiver without a store has stored")
	}

	r := newRig(t, func(o *ingest.Options) { o.Registerer, o.After = nil, before })
	r.registry = registry
	r.at(60)
	r.checkGRPC(gauge(60), answer{codes.OK, 200, 0, 0})
	r.checkHTTP(gaugeJSON(60), "application/json", answer{codes.OK, 200, 0, 0})
	if n := r.metric("wattloop_ingest_refused_requests_total", `channel="default"`, `reason="starting"`); n != 10 {
		t.Errorf("%v requests counted as refused while starting; want 10", n)
	}
	if n := r.metric("wattloop_ingest_requests_total", `answer="ok"`); n != 2 {
		t.Errorf("%v requests counted as taken; want 2", n)
	}
}
