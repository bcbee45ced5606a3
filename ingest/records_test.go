package ingest

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// someTraces are n spans of one resource.
func someTraces(n int, attrs ...string) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	put(rs.Resource().Attributes(), attrs)
	ss := rs.ScopeSpans().AppendEmpty()
	for range n {
		ss.Spans().AppendEmpty().SetName("GET /")
	}
	return td
}

// S2-9, S2-65: the traces and logs of a node channel go on as they came.
func TestNodeRecordsOnward(t *testing.T) {
	up := &upstream{}
	b := newBed(t, func(o *Options) { o.Onward = up })
	live := b.r.Channel("default").Live()
	wire := wireOfTraces(t, someTraces(2, "k8s.node.name", "edge-a"))
	wire = append(wire, unknownField()...)
	res, err := live.ExportTraces(t.Context(), wire)
	if err != nil {
		t.Fatal(err)
	}
	checkResult(t, res, 2, 0, nil)
	ld := plog.NewLogs()
	ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty().Body().SetStr("x")
	logs := wireOfLogs(t, ld)
	if _, err := live.ExportLogs(t.Context(), logs); err != nil {
		t.Fatal(err)
	}
	want := []Forwarded{{SignalTraces, PlanePlatform, wire}, {SignalLogs, PlanePlatform, logs}}
	for i, w := range want {
		if i >= len(up.got) || up.got[i].Signal != w.Signal || up.got[i].Plane != w.Plane || !bytes.Equal(up.got[i].Wire, w.Wire) {
			t.Errorf("forwarded %+v; want %+v", up.got, want)
			break
		}
	}
	// Nothing is handed on where there is nothing, and what cannot be read is
	// refused before.
	if _, err := live.ExportTraces(t.Context(), nil); err != nil {
		t.Error(err)
	}
	for _, bad := range [][]byte{
		{0x0a, 0xff}, appendField(nil, 1, appendField(nil, 1, appendField(nil, 1, nest(40)))),
		appendField(nil, 1, appendField(nil, 1, appendField(nil, 1, stringAttribute("\xff", "x")))),
		bytes.Repeat([]byte{0x0a, 0x00}, 20_001),
	} {
		_, err := live.ExportTraces(t.Context(), bad)
		wantDecodeError(t, err)
	}
	if len(up.got) != 2 {
		t.Errorf("%d requests forwarded; want 2", len(up.got))
	}
}

// A record with a text that is not UTF-8 is rejected by itself, on both classes
// of channels: it would spoil the request for the next reader.
func TestInvalidRecords(t *testing.T) {
	for _, class := range []Class{Node, Workload} {
		b, a, up := workload(t, actor, nil)
		if class == Node {
			a = b.r.Channel("default").Live()
		}
		td := someTraces(3)
		td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(1).SetName("\xff")
		res, err := a.ExportTraces(t.Context(), wireOfTraces(t, td))
		if err != nil {
			t.Fatal(err)
		}
		checkResult(t, res, 2, 0, map[string]int64{"invalid_utf8": 1})
		if n := tracesOf(t, up.got[0].Wire).SpanCount(); n != 2 {
			t.Errorf("%s: %d spans forwarded; want 2", class, n)
		}
		res, err = a.ExportTraces(t.Context(), wireOfTraces(t, someTraces(maxRecords+1)))
		if err != nil {
			t.Fatal(err)
		}
		checkResult(t, res, maxRecords, 0, map[string]int64{"records_limit": 1})
		if n := tracesOf(t, up.got[1].Wire).SpanCount(); n != maxRecords {
			t.Errorf("%s: %d spans forwarded; want %d", class, n, maxRecords)
		}
	}
}

// An upstream that takes nothing makes the sender keep its records; it may send
// them again, and so it may after the activation has ended (S2-17, S2-86).
func TestRecordsUnavailable(t *testing.T) {
	_, a, up := workload(t, actor, nil)
	var unavailable *UnavailableError
	wire := wireOfTraces(t, someTraces(1))
	for _, err := range []error{ErrNoRoom, errors.New("disk gone")} {
		up.err = err
		if _, got := a.ExportTraces(t.Context(), wire); !errors.As(got, &unavailable) || !errors.Is(got, err) {
			t.Errorf("%v; want an *UnavailableError of %v", got, err)
		}
	}
	up.err = nil
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.ExportTraces(cancelled, wire); !errors.As(err, &unavailable) {
		t.Errorf("cancelled: %v", err)
	}
	a.End()
	if _, err := a.ExportTraces(t.Context(), wire); !errors.As(err, &unavailable) {
		t.Errorf("after the end: %v", err)
	}
	if len(up.got) != 0 {
		t.Errorf("%d requests forwarded; want none", len(up.got))
	}
}

// S2-17, S2-86: the end of an activation waits for what is on its way to the
// upstream under its identity.
func TestEndWaitsForForward(t *testing.T) {
	_, a, up := workload(t, actor, nil)
	entered, leave := make(chan struct{}), make(chan struct{})
	up.wait = func() { close(entered); <-leave }
	done := make(chan error, 1)
	go func() {
		_, err := a.ExportTraces(context.Background(), wireOfTraces(t, someTraces(1)))
		done <- err
	}()
	<-entered
	ended := make(chan struct{})
	go func() { a.End(); close(ended) }()
	select {
	case <-ended:
		t.Error("the activation ended while a request was being forwarded")
	default:
	}
	close(leave)
	<-ended
	if err := <-done; err != nil || len(up.got) != 1 {
		t.Errorf("%v, %d forwarded; want one", err, len(up.got))
	}
}

// S2-2, S2-23, S2-24, S2-30, S2-43, S2-44, S2-54, S2-61: what a trace carries of
// its actor, also where the actor says nothing.
func TestStampedResource(t *testing.T) {
	f := func(id Identity, payload []string, want map[string]any) {
		t.Helper()
		_, a, up := workload(t, id, nil)
		if _, err := a.ExportTraces(t.Context(), wireOfTraces(t, someTraces(1, payload...))); err != nil {
			t.Fatal(err)
		}
		if got := tracesOf(t, up.got[0].Wire).ResourceSpans().At(0).Resource().Attributes().AsRaw(); !sameMap(got, want) {
			t.Errorf("%v becomes\n%v; want\n%v", payload, got, want)
		}
		if up.got[0].Plane != PlaneWorkload {
			t.Errorf("on the plane %s", up.got[0].Plane)
		}
	}
	f(actor, []string{"service.name", "x", "container.name", "x", "process.pid", "1", "service.namespace", "x"}, map[string]any{
		"service.name": "cart-svc", "service.namespace": "shop-ns", "service.instance.id": "uid-1", "process.pid": "1",
		"ate.actor.uid": "uid-1", "ate.actor.name": "mara", "ate.actor.atespace": "tenant",
		"ate.actor.template.namespace": "shop", "ate.actor.template.name": "cart", "ate.container.name": "main",
		"ate.telemetry.plane": "actor", "k8s.pod.name": "worker-0", "k8s.pod.uid": "pod-uid", "k8s.node.name": "edge-a",
	})
	few := Identity{ActorUID: "u", TemplateName: "cart", Node: "n"}
	rest := map[string]any{"service.instance.id": "u", "ate.actor.uid": "u", "ate.actor.template.name": "cart",
		"ate.telemetry.plane": "actor", "k8s.node.name": "n"}
	with := func(name string, more ...string) map[string]any {
		m := map[string]any{"service.name": name}
		for k, v := range rest {
			m[k] = v
		}
		for i := 0; i < len(more); i += 2 {
			m[more[i]] = more[i+1]
		}
		return m
	}
	f(few, nil, with("cart"))
	f(few, []string{"service.name", "unknown_service:node", "service.namespace", "x"}, with("cart"))
	f(few, []string{"service.name", "mine", "container.name", "side"}, with("mine", "container.name", "side"))
}

func sameMap(a, b map[string]any) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return true
}

// A resource in pieces, after its records, twice, with references to entities
// and a key that is written twice, is one that says what the channel says.
func TestStampedPieces(t *testing.T) {
	_, a, up := workload(t, actor, nil)
	twice := appendField(stringAttribute("honest", "forged"), 1, []byte("k8s.node.name"))
	resource := func(kv []byte) []byte {
		return appendField(nil, 1, appendField(appendField(nil, 3, appendField(nil, 3, []byte("k8s.node.name"))), 1, kv))
	}
	spans := appendField(nil, 2, appendField(nil, 2, appendField(appendField(nil, 9, twice), 5, []byte("op"))))
	block := append(append(resource(twice), spans...), resource(stringAttribute("k8s.pod.name", "forged"))...)
	if _, err := a.ExportTraces(t.Context(), appendField(nil, 1, block)); err != nil {
		t.Fatal(err)
	}
	wire := up.got[0].Wire
	if s := string(wire); strings.Contains(s, "forged") || strings.Contains(s, "honest") {
		t.Errorf("forwarded %q", s)
	}
	if n := bytes.Count(wire, []byte("k8s.node.name")); n != 1 {
		t.Errorf("k8s.node.name stands %d times in %q", n, wire)
	}
}

// What the channel adds to a request is bounded, whatever resources it has.
func TestStampedSize(t *testing.T) {
	_, a, up := workload(t, actor, nil)
	span := appendField(nil, 1, appendField(nil, 2, appendField(nil, 2, []byte{0x2a, 0x0c, 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'l'})))
	_, err := a.ExportTraces(t.Context(), bytes.Repeat(span, maxRecords))
	wantDecodeError(t, err)
	// Resources without records cost nothing.
	res, err := a.ExportTraces(t.Context(), append(bytes.Repeat([]byte{0x0a, 0x00}, 10_000), span...))
	if err != nil || res.Accepted != 1 || len(up.got) != 1 || len(up.got[0].Wire) > 1000 {
		t.Errorf("%+v, %v, %d forwarded", res, err, len(up.got))
	}
}

func TestReservedKeys(t *testing.T) {
	_, a, _ := workload(t, Identity{ActorUID: "u", Node: "n"}, nil)
	st := a.src.stamp
	for _, key := range []string{"hostility", "k8", "atelier", "jobs.done", "instances", "queue", "http.host", "net.host.name", "service.version",
		"channels", "service.name", "container.name", "", "名", "date", "template", "exported_instance", "user__id__x", "plate", "ghost"} {
		if st.reserved(key) {
			t.Errorf("%q is reserved", key)
		}
	}
	for _, key := range []string{"host", "hostname", "HostName", "ate", "k8s", "job", "JOB", "_job_", "jo\u200bb", "U__k8s_2e_node_2e_name", "--name--",
		"..name..", "__tenant_id__", "＿＿name__", "k8s\x00.pod.ip", "k\x008s.pod.ip", "k8sé.node.name", "é_name__", "jéob", "名job", "hostArch", "servlce.1nstance.ld", "🅺8s.x", "ⓗost.x"} {
		if !st.reserved(key) {
			t.Errorf("%q is not reserved", key)
		}
	}
}

// X1: what a node channel with a list of nodes does not take goes nowhere, of
// all three signals; the rest goes on as it came.
func TestForeignNodeOnward(t *testing.T) {
	b, _, up := workload(t, actor, nil)
	ch, err := b.r.AddChannel(ChannelOptions{Name: "nodes", Nodes: []string{"edge-a", "edge-b"}})
	if err != nil {
		t.Fatal(err)
	}
	td := someTraces(2, "k8s.node.name", "edge-a")
	for _, node := range []string{"edge-z", "edge-b", ""} {
		someTraces(1, "k8s.node.name", node).ResourceSpans().MoveAndAppendTo(td.ResourceSpans())
	}
	res, err := ch.Live().ExportTraces(t.Context(), shuffle(msgTraceRequest, wireOfTraces(t, td), descending, nil))
	if err != nil {
		t.Fatal(err)
	}
	checkResult(t, res, 4, 0, map[string]int64{"foreign_node": 1})
	p := newPayload("k8s.node.name", "edge-z")
	p.gauge("g", "", 0, 1)
	p.resource("k8s.node.name", "edge-b")
	p.gauge("g", "", 0, 1)
	if res, err = ch.Export(t.Context(), wireOf(t, p.md)); err != nil {
		t.Fatal(err)
	}
	checkResult(t, res, 1, 0, map[string]int64{"foreign_node": 1})
	for _, f := range up.got {
		if bytes.Contains(f.Wire, []byte("edge-z")) {
			t.Errorf("edge-z goes onward in %q", f.Wire)
		}
	}
	if len(up.got) != 2 || tracesOf(t, up.got[0].Wire).SpanCount() != 4 || metricsOf(t, up.got[1].Wire).DataPointCount() != 1 {
		t.Errorf("%d requests onward; want 4 spans and 1 point", len(up.got))
	}
}
