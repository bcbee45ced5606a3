package ingest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// spellings are keys that a workload may not use, as somebody would write them
// who wants to. No two are the same bytes.
var spellings = []string{
	"k8s.node.name", "k8s_node_name", "k8s-node-name", "K8s.Node.Name", "K8S_NODE_NAME", "k8s/node/name", "k8s:node:name", "k8s node name",
	"k8s..node..name", "k8s__node__name", "_k8s_node_name", "k8s.node.name_", "k8s.node.name.", ".k8s.node.name", "k8sNodeName", "K8sNodeName",
	"k8s\u200b.node.name", "k8s.node\u200d.name", "\ufeffk8s.node.name", "k8s.node.na\u00adme", "k8s\u2060.node.name",
	"k8s.n\u043ede.name", "\u043a8s.node.name", "k8s.nod\u0435.nam\u0435", "k8s.\u03bdode.name", "k8s.node.n\u0251me",
	"\uff4b\uff18\uff53\uff0e\uff4e\uff4f\uff44\uff45\uff0e\uff4e\uff41\uff4d\uff45", "k8s\uff0enode\uff0ename", "k8s.n\u00f6de.n\u00e3me",
	"k8s.node.name\u0301", "\U0001d4c0\u2078s.node.name", "k8s.node.name\t", "k8s\u3164.node.name", "U__k8s_2e_node_2e_name",
	"k8s.pod.name", "k8s.pod.uid", "k8s.deployment.name", "k8s.anything.at.all", "k8s",
	"ate.actor.uid", "ate_actor_uid", "ate.dev/actor_uid", "ate.dev/actor_name", "ate-actor-uid", "Ate.Actor.Name", "ateActorUid",
	"ate.actor.atespace", "ate.telemetry.plane", "ate.anything", "\u0430te.actor.uid", "a\u0300te.actor.uid",
	"service.instance.id", "service_instance_id", "serviceInstanceId", "service-instance-id", "Service.Instance.ID", "service.\u0456nstance.id",
	"service.namespace", "service_namespace", "serviceNamespace",
	"job", "Job", "_job", "job_", "j\u043eb", "instance", "INSTANCE", "instance.", "\u0456nstance", "channel", "Channel", "chann\u0435l", "channe1",
	"__name__", "__address__", "..name..", "__NAME__", "\uff3f\uff3fname__", "host.name", "host_name", "hostName", "host.id", "host", "h\u043est.ip",
	"service.name", "service_name", "container.name", "container_name",
}

// forgery puts a key into one level of a request.
type forgery struct {
	signal Signal
	stored bool // a point of it is kept here
	put    func(r *forgedRequest, set func(pcommon.Map))
}

// forgedRequest is one request of each signal, with a name of its own.
type forgedRequest struct {
	md pmetric.Metrics
	sm pmetric.ScopeMetrics
	td ptrace.Traces
	ld plog.Logs
	n  int // in the names, so that every request is another metric
}

func newForgedRequest(n int) *forgedRequest {
	r := &forgedRequest{md: pmetric.NewMetrics(), td: ptrace.NewTraces(), ld: plog.NewLogs(), n: n}
	r.sm = r.md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty()
	r.td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty().SetName("s")
	r.ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty().Body().SetStr("b")
	return r
}

func (r *forgedRequest) metric() pmetric.Metric {
	m := r.sm.Metrics().AppendEmpty()
	m.SetName(fmt.Sprintf("m%d", r.n))
	return m
}

func (r *forgedRequest) gauge() pmetric.NumberDataPoint {
	p := r.metric().SetEmptyGauge().DataPoints().AppendEmpty()
	p.SetTimestamp(base * 1e6)
	p.SetDoubleValue(1)
	return p
}

func (r *forgedRequest) span() ptrace.Span {
	return r.td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
}

// The levels of the table, each of which a converter has been seen to trust.
var forgeries = map[string]forgery{
	"resource": {SignalMetrics, true, func(r *forgedRequest, set func(pcommon.Map)) { // S2-32
		r.gauge()
		set(r.md.ResourceMetrics().At(0).Resource().Attributes())
	}},
	"scope": {SignalMetrics, true, func(r *forgedRequest, set func(pcommon.Map)) { // S2-33
		r.gauge()
		set(r.sm.Scope().Attributes())
	}},
	"gauge": {SignalMetrics, true, func(r *forgedRequest, set func(pcommon.Map)) { set(r.gauge().Attributes()) }}, // S2-37, and the four after it
	"sum": {SignalMetrics, true, func(r *forgedRequest, set func(pcommon.Map)) {
		s := r.metric().SetEmptySum()
		s.SetAggregationTemporality(delta)
		s.SetIsMonotonic(true)
		p := s.DataPoints().AppendEmpty()
		p.SetTimestamp(base*1e6 + 1e6)
		p.SetStartTimestamp(base * 1e6)
		p.SetIntValue(1)
		set(p.Attributes())
	}},
	"histogram": {SignalMetrics, true, func(r *forgedRequest, set func(pcommon.Map)) {
		h := r.metric().SetEmptyHistogram()
		h.SetAggregationTemporality(delta)
		p := h.DataPoints().AppendEmpty()
		p.SetTimestamp(base*1e6 + 1e6)
		p.SetStartTimestamp(base * 1e6)
		p.SetCount(1)
		p.BucketCounts().FromRaw([]uint64{1})
		set(p.Attributes())
	}},
	"exponential histogram": {SignalMetrics, true, func(r *forgedRequest, set func(pcommon.Map)) {
		h := r.metric().SetEmptyExponentialHistogram()
		h.SetAggregationTemporality(delta)
		p := h.DataPoints().AppendEmpty()
		p.SetTimestamp(base*1e6 + 1e6)
		p.SetStartTimestamp(base * 1e6)
		p.SetCount(1)
		p.SetZeroCount(1)
		set(p.Attributes())
	}},
	"summary": {SignalMetrics, true, func(r *forgedRequest, set func(pcommon.Map)) {
		p := r.metric().SetEmptySummary().DataPoints().AppendEmpty()
		p.SetTimestamp(base * 1e6)
		p.SetCount(1)
		p.SetSum(1)
		set(p.Attributes())
	}},
	"exemplar": {SignalMetrics, true, func(r *forgedRequest, set func(pcommon.Map)) { // S2-39
		e := r.gauge().Exemplars().AppendEmpty()
		e.SetTimestamp(base * 1e6)
		e.SetDoubleValue(1)
		set(e.FilteredAttributes())
	}},
	"histogram exemplar": {SignalMetrics, true, func(r *forgedRequest, set func(pcommon.Map)) {
		h := r.metric().SetEmptyHistogram()
		h.SetAggregationTemporality(delta)
		p := h.DataPoints().AppendEmpty()
		p.SetTimestamp(base*1e6 + 1e6)
		p.SetStartTimestamp(base * 1e6)
		p.SetCount(1)
		p.BucketCounts().FromRaw([]uint64{1})
		e := p.Exemplars().AppendEmpty()
		e.SetTimestamp(base * 1e6)
		e.SetDoubleValue(1)
		set(e.FilteredAttributes())
	}},
	"metadata": {SignalMetrics, true, func(r *forgedRequest, set func(pcommon.Map)) {
		r.gauge()
		set(r.sm.Metrics().At(0).Metadata())
	}},
	"resource of spans": {SignalTraces, false, func(r *forgedRequest, set func(pcommon.Map)) {
		set(r.td.ResourceSpans().At(0).Resource().Attributes())
	}},
	"scope of spans": {SignalTraces, false, func(r *forgedRequest, set func(pcommon.Map)) {
		set(r.td.ResourceSpans().At(0).ScopeSpans().At(0).Scope().Attributes())
	}},
	"span":       {SignalTraces, false, func(r *forgedRequest, set func(pcommon.Map)) { set(r.span().Attributes()) }},                        // S2-34
	"span event": {SignalTraces, false, func(r *forgedRequest, set func(pcommon.Map)) { set(r.span().Events().AppendEmpty().Attributes()) }}, // S2-35
	"span link":  {SignalTraces, false, func(r *forgedRequest, set func(pcommon.Map)) { set(r.span().Links().AppendEmpty().Attributes()) }},  // S2-36
	"resource of logs": {SignalLogs, false, func(r *forgedRequest, set func(pcommon.Map)) {
		set(r.ld.ResourceLogs().At(0).Resource().Attributes())
	}},
	"scope of logs": {SignalLogs, false, func(r *forgedRequest, set func(pcommon.Map)) {
		set(r.ld.ResourceLogs().At(0).ScopeLogs().At(0).Scope().Attributes())
	}},
	"log record": {SignalLogs, false, func(r *forgedRequest, set func(pcommon.Map)) { // S2-38
		set(r.ld.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).Attributes())
	}},
}

// export sends the request of one signal in one order of fields.
func (r *forgedRequest) export(t *testing.T, a *Activation, signal Signal, order func(int) []int) (Result, error) {
	switch signal {
	case SignalTraces:
		return a.ExportTraces(t.Context(), shuffle(msgTraceRequest, wireOfTraces(t, r.td), order, nil))
	case SignalLogs:
		return a.ExportLogs(t.Context(), shuffle(msgLogsRequest, wireOfLogs(t, r.ld), order, nil))
	}
	return a.Export(t.Context(), shuffle(msgRequest, wireOf(t, r.md), order, nil))
}

// C16 over all levels, spellings and strategies (S2-3, S2-27, S2-28, S2-31 to
// S2-40, S2-41, S2-42, S2-43, S2-44, S2-45, S2-54, S2-55; reliability.md section 2,
// "Forge identity"): what is forged stands nowhere, in the store, onward or in an
// answer, and the trusted value stands where it belongs.
func TestForgedTableC16(t *testing.T) {
	if len(forgeries) < 11 || len(spellings) < 40 {
		t.Fatalf("%d levels, %d spellings; want at least 11 and 40", len(forgeries), len(spellings))
	}
	cases := 0
	for _, naming := range []otlptranslator.TranslationStrategyOption{
		otlptranslator.UnderscoreEscapingWithSuffixes, otlptranslator.NoUTF8EscapingWithSuffixes} {
		b, a, up := workload(t, actor, func(o *Options) { o.Naming = naming })
		b.at(1)
		n, stored := 0, 0
		for level, f := range forgeries {
			for i, key := range spellings {
				n++
				r := newForgedRequest(n)
				f.put(r, func(m pcommon.Map) { m.PutStr(key, "victim"); m.PutStr("queue", "q1") })
				up.got = nil
				res, err := r.export(t, a, f.signal, []func(int) []int{ascending, descending}[i%2])
				cases++
				if err != nil {
					t.Errorf("%s, %s, %+q: %v", naming, level, key, err)
					continue
				}
				if strings.Contains(res.Message, "victim") {
					t.Errorf("%s, %s, %+q: the answer is %q", naming, level, key, res.Message)
				}
				if res.Rejected > 0 {
					t.Errorf("%s, %s, %+q: rejected: %s", naming, level, key, res.Message)
					continue
				}
				if f.stored {
					stored++
				}
				if len(up.got) != 1 {
					t.Errorf("%s, %s, %+q: %d requests onward; want 1", naming, level, key, len(up.got))
					continue
				}
				checkTrusted(t, fmt.Sprintf("%s, %s, %+q", naming, level, key), up.got[0])
			}
		}
		checkStoredTrusted(t, b, string(naming), stored)
	}
	t.Logf("%d cases: %d levels, %d spellings", cases, len(forgeries), len(spellings))
}

// checkTrusted looks for what is forged, and for what is not, in a request.
func checkTrusted(t *testing.T, what string, f Forwarded) {
	t.Helper()
	if bytes.Contains(f.Wire, []byte("victim")) {
		t.Errorf("%s: victim goes onward in %q", what, f.Wire)
	}
	wants := map[string]string{
		"service.name": "cart-svc", "service.namespace": "shop-ns", "k8s.node.name": "edge-a", "k8s.pod.name": "worker-0",
		"ate.actor.atespace": "tenant", "ate.actor.template.name": "cart", "ate.container.name": "main", "ate.telemetry.plane": "actor",
		"service.instance.id": "uid-1", "ate.actor.uid": "uid-1", "ate.actor.name": "mara",
	}
	if f.Signal == SignalMetrics { // S2-48, S2-49, S2-50, S2-51, S2-52; what is left is what all signals join on (S2-56), X3
		wants["service.instance.id"] = "pod-uid"
		delete(wants, "ate.actor.uid")
		delete(wants, "ate.actor.name")
		if bytes.Contains(f.Wire, []byte("uid-1")) || bytes.Contains(f.Wire, []byte("mara")) {
			t.Errorf("%s: the actor stands on its metrics: %q", what, f.Wire)
		}
	}
	for key, value := range wants {
		if !bytes.Contains(f.Wire, stringAttribute(key, value)) {
			t.Errorf("%s: %s is not %s in %q", what, key, value, f.Wire)
		}
	}
}

// checkStoredTrusted looks at every series that the table has left.
func checkStoredTrusted(t *testing.T, b *bed, naming string, points int) {
	t.Helper()
	all := b.stored()
	metrics := map[string]bool{}
	for series := range all {
		if strings.Contains(series, "victim") || strings.Contains(series, "uid-1") || strings.Contains(series, "mara") {
			t.Errorf("%s: the store has %s", naming, series)
		}
		for _, want := range []string{`channel="ch7"`, `instance="pod-uid"`, `job="shop-ns/cart-svc"`, `="edge-a"`, `="worker-0"`, `="tenant"`, `="cart"`, `="shop"`, `="main"`} {
			if !strings.Contains(series, want) {
				t.Errorf("%s: %s lacks %s", naming, series, want)
			}
		}
		name, _, _ := strings.Cut(series[strings.Index(series, `__name__="`)+10:], `"`)
		for _, suffix := range []string{"_total", "_bucket", "_count", "_sum"} {
			name = strings.TrimSuffix(name, suffix)
		}
		if name != targetInfoName {
			metrics[name] = true
		}
	}
	if len(metrics) != points {
		t.Errorf("%s: %d metrics stored; want %d: %v", naming, len(metrics), points, slices.Sorted(maps.Keys(metrics))[:min(5, len(metrics))])
	}
}

// S2-46: what lies under a reserved key goes whatever it is, at every level.
func TestForgedKinds(t *testing.T) {
	_, a, up := workload(t, actor, nil)
	kinds := map[string]func(pcommon.Value){
		"empty": func(pcommon.Value) {},
		"int":   func(v pcommon.Value) { v.SetInt(666) }, "bool": func(v pcommon.Value) { v.SetBool(true) },
		"double": func(v pcommon.Value) { v.SetDouble(6.66) }, "bytes": func(v pcommon.Value) { v.SetEmptyBytes().FromRaw([]byte("victim")) },
		"list": func(v pcommon.Value) { v.SetEmptySlice().AppendEmpty().SetStr("victim") },
		"map":  func(v pcommon.Value) { v.SetEmptyMap().PutStr("x", "victim") },
	}
	n := 0
	for level, f := range forgeries {
		for kind, set := range kinds {
			n++
			r := newForgedRequest(n)
			f.put(r, func(m pcommon.Map) { set(m.PutEmpty("k8s.node.name")) })
			up.got = nil
			if _, err := r.export(t, a, f.signal, descending); err != nil {
				t.Errorf("%s, %s: %v", level, kind, err)
			}
			for _, got := range up.got {
				if n := bytes.Count(got.Wire, []byte("k8s.node.name")); n != 1 || bytes.Contains(got.Wire, []byte("victim")) {
					t.Errorf("%s, %s: %d times k8s.node.name in %q; want the channel's alone", level, kind, n, got.Wire)
				}
			}
		}
	}
}
