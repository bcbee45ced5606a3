package ingest

import (
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/protobuf/encoding/protowire"
)

// actor is an identity with all its parts.
var actor = Identity{
	ActorUID: "uid-1", ActorName: "mara", Atespace: "tenant", TemplateNamespace: "shop", TemplateName: "cart",
	Container: "main", PodName: "worker-0", PodUID: "pod-uid", Node: "edge-a", ServiceName: "cart-svc", ServiceNamespace: "shop-ns",
}

// workload is a receiver with an upstream and one live activation, which began
// at T0.
func workload(t *testing.T, id Identity, change func(*Options)) (*bed, *Activation, *upstream) {
	t.Helper()
	up := &upstream{}
	b := newBed(t, func(o *Options) {
		o.Onward = up
		if change != nil {
			change(o)
		}
	})
	ch, err := b.r.AddChannel(ChannelOptions{Name: "ch7", Class: Workload})
	if err != nil {
		t.Fatal(err)
	}
	a, err := ch.Activate(id, time.UnixMilli(base), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return b, a, up
}

func wireOfTraces(t testing.TB, td ptrace.Traces) []byte {
	wire, err := ptraceotlp.NewExportRequestFromTraces(td).MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	return wire
}

func wireOfLogs(t testing.TB, ld plog.Logs) []byte {
	wire, err := plogotlp.NewExportRequestFromLogs(ld).MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	return wire
}

func tracesOf(t testing.TB, wire []byte) ptrace.Traces {
	req := ptraceotlp.NewExportRequest()
	if err := req.UnmarshalProto(wire); err != nil {
		t.Fatalf("pdata cannot read it: %v", err)
	}
	return req.Traces()
}

func logsOf(t testing.TB, wire []byte) plog.Logs {
	req := plogotlp.NewExportRequest()
	if err := req.UnmarshalProto(wire); err != nil {
		t.Fatalf("pdata cannot read it: %v", err)
	}
	return req.Logs()
}

func metricsOf(t testing.TB, wire []byte) pmetric.Metrics {
	req := pmetricotlp.NewExportRequest()
	if err := req.UnmarshalProto(wire); err != nil {
		t.Fatalf("pdata cannot read it: %v", err)
	}
	return req.Metrics()
}

// shuffle writes a message with its fields in another order, and unknown fields
// among them where strange is not nil. Equal numbers keep their order, as
// protobuf demands of repeated fields.
func shuffle(m message, b []byte, order func(n int) []int, strange func() []byte) []byte {
	byNumber := map[uint32][][]byte{}
	var numbers []uint32
	f := fields{b: b}
	for from := 0; f.next(); from = len(b) - len(f.b) {
		raw := b[from : len(b)-len(f.b)]
		if c := schema[m][f.num]; c.msg != msgNone {
			raw = appendField(nil, int(f.num), shuffle(c.msg, f.data, order, strange))
		}
		numbers = append(numbers, f.num)
		byNumber[f.num] = append(byNumber[f.num], raw)
	}
	moved := make([]uint32, len(numbers))
	for i, at := range order(len(numbers)) {
		moved[at] = numbers[i]
	}
	var out []byte
	for _, num := range moved {
		if strange != nil {
			out = append(out, strange()...)
		}
		out = append(out, byNumber[num][0]...)
		byNumber[num] = byNumber[num][1:]
	}
	return out
}

// unknownField is one that no schema has, with what looks like an attribute.
func unknownField() []byte {
	b := protowire.AppendTag(nil, 4000, protowire.BytesType)
	return protowire.AppendBytes(b, stringAttribute("k8s.node.name", "forged"))
}

// stampOracle is what stamping does, on the decoded form.
type stampOracle struct {
	st        *stamp
	decisions []decision
	since     pcommon.Timestamp
}

func (o *stampOracle) decision() decision {
	d := o.decisions[0]
	o.decisions = o.decisions[1:]
	return d
}

func (o *stampOracle) clean(m pcommon.Map) {
	m.RemoveIf(func(k string, v pcommon.Value) bool {
		if o.st.reserved(k) {
			return true
		}
		o.cleanValue([]string{k}, v)
		return false
	})
}

// cleanValue deletes the entries of maps whose keys, joined by dots, are
// reserved.
func (o *stampOracle) cleanValue(path []string, v pcommon.Value) {
	switch v.Type() {
	case pcommon.ValueTypeMap:
		v.Map().RemoveIf(func(k string, v pcommon.Value) bool {
			below := append(slices.Clone(path), k)
			joined := ""
			for i, p := range below {
				if i > 0 {
					joined += "."
				}
				joined += p
			}
			if o.st.reserved(joined) {
				return true
			}
			o.cleanValue(below, v)
			return false
		})
	case pcommon.ValueTypeSlice:
		for _, e := range v.Slice().All() {
			o.cleanValue(path, e)
		}
	}
}

func (o *stampOracle) resource(m pcommon.Map, set []trusted, only string) {
	name := ""
	m.RemoveIf(func(k string, v pcommon.Value) bool {
		if k != serviceName {
			return only != "" && k != only
		}
		name = ""
		if v.Type() != pcommon.ValueTypeMap && v.Type() != pcommon.ValueTypeSlice {
			name = v.AsString()
		}
		return true
	})
	o.clean(m)
	m.PutStr(serviceName, o.st.serviceName(name))
	for _, t := range set {
		m.PutStr(t.key, t.value)
	}
}

func (o *stampOracle) traces(td ptrace.Traces) {
	td.ResourceSpans().RemoveIf(func(rs ptrace.ResourceSpans) bool {
		o.resource(rs.Resource().Attributes(), o.st.all, "")
		rs.ScopeSpans().RemoveIf(func(ss ptrace.ScopeSpans) bool {
			o.clean(ss.Scope().Attributes())
			ss.Spans().RemoveIf(func(s ptrace.Span) bool {
				o.clean(s.Attributes())
				for _, e := range s.Events().All() {
					o.clean(e.Attributes())
				}
				for _, l := range s.Links().All() {
					o.clean(l.Attributes())
				}
				return o.decision().act == actDrop
			})
			return ss.Spans().Len() == 0
		})
		return rs.ScopeSpans().Len() == 0
	})
}

func (o *stampOracle) logs(ld plog.Logs) {
	ld.ResourceLogs().RemoveIf(func(rl plog.ResourceLogs) bool {
		o.resource(rl.Resource().Attributes(), o.st.all, "")
		rl.ScopeLogs().RemoveIf(func(sl plog.ScopeLogs) bool {
			o.clean(sl.Scope().Attributes())
			sl.LogRecords().RemoveIf(func(r plog.LogRecord) bool {
				o.clean(r.Attributes())
				return o.decision().act == actDrop
			})
			return sl.LogRecords().Len() == 0
		})
		return rl.ScopeLogs().Len() == 0
	})
}

func (o *stampOracle) metrics(md pmetric.Metrics) {
	md.ResourceMetrics().RemoveIf(func(rm pmetric.ResourceMetrics) bool {
		o.resource(rm.Resource().Attributes(), o.st.metric, containerName)
		rm.ScopeMetrics().RemoveIf(func(sm pmetric.ScopeMetrics) bool {
			o.clean(sm.Scope().Attributes())
			sm.Metrics().RemoveIf(func(m pmetric.Metric) bool {
				o.clean(m.Metadata())
				return o.points(m) == 0
			})
			return sm.Metrics().Len() == 0
		})
		return rm.ScopeMetrics().Len() == 0
	})
}

// anyPoint is what the points of all kinds have.
type anyPoint interface {
	Attributes() pcommon.Map
	StartTimestamp() pcommon.Timestamp
	SetStartTimestamp(pcommon.Timestamp)
	Timestamp() pcommon.Timestamp
}

func (o *stampOracle) point(p anyPoint, exemplars pmetric.ExemplarSlice) (drop bool) {
	o.clean(p.Attributes())
	for _, e := range exemplars.All() {
		o.clean(e.FilteredAttributes())
	}
	if s := p.StartTimestamp(); s != 0 && s < o.since {
		p.SetStartTimestamp(min(o.since, p.Timestamp()))
	}
	return o.decision().act == actDrop
}

func (o *stampOracle) points(m pmetric.Metric) int {
	none := pmetric.NewExemplarSlice()
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		l := m.Gauge().DataPoints()
		l.RemoveIf(func(p pmetric.NumberDataPoint) bool { return o.point(p, p.Exemplars()) })
		return l.Len()
	case pmetric.MetricTypeSum:
		l := m.Sum().DataPoints()
		l.RemoveIf(func(p pmetric.NumberDataPoint) bool { return o.point(p, p.Exemplars()) })
		return l.Len()
	case pmetric.MetricTypeHistogram:
		l := m.Histogram().DataPoints()
		l.RemoveIf(func(p pmetric.HistogramDataPoint) bool { return o.point(p, p.Exemplars()) })
		return l.Len()
	case pmetric.MetricTypeExponentialHistogram:
		l := m.ExponentialHistogram().DataPoints()
		l.RemoveIf(func(p pmetric.ExponentialHistogramDataPoint) bool { return o.point(p, p.Exemplars()) })
		return l.Len()
	case pmetric.MetricTypeSummary:
		l := m.Summary().DataPoints()
		l.RemoveIf(func(p pmetric.SummaryDataPoint) bool { return o.point(p, none) })
		return l.Len()
	}
	return 0
}
