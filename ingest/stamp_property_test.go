package ingest

import (
	"bytes"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"pgregory.net/rapid"
)

// forgedKeys are reserved for actor; honestKeys are not.
var (
	forgedKeys = []string{"k8s.node.name", "k8s_node_name", "K8s.Pod.IP", "ate.actor.uid", "ate.dev/actor_uid", "ate", "job", "instance",
		"channel", "__name__", "__x__", "host.name", "service.instance.id", "service_namespace", "sеrvice.instance.id", "Container-Name", "k8sNodeName"}
	honestKeys = []string{"queue", "hostility", "k8", "atelier", "jobs.done", "instances", "http.host", "service.version", "channels", "", "naïve"}
)

// drawn makes random requests for stamping.
type drawn struct{ t *rapid.T }

func one[T any](d drawn, from ...T) T { return rapid.SampledFrom(from).Draw(d.t, "one") }

func (d drawn) n(most int) int { return rapid.IntRange(0, most).Draw(d.t, "n") }

func (d drawn) attributes(m pcommon.Map) {
	for range d.n(4) {
		if one(d, true, false) {
			d.value(m.PutEmpty(one(d, forgedKeys...)), "forged", 2)
		} else {
			d.value(m.PutEmpty(one(d, honestKeys...)), "honest", 2)
		}
	}
	switch d.n(9) {
	case 0: // maps that some backends write out as one attribute a leaf
		s := m.PutEmptyMap("service")
		s.PutStr("namespace", "forged")
		s.PutEmptyMap("instance").PutStr("id", "forged")
		s.PutEmptySlice("instance.id").AppendEmpty().SetStr("forged")
		s.PutStr("version", "honest")
	case 1:
		s := m.PutEmptySlice("container").AppendEmpty().SetEmptyMap()
		s.PutStr("name", "forged")
		s.PutEmptyMap("host").PutStr("job", "honest")
	}
}

func (d drawn) value(v pcommon.Value, text string, depth int) {
	switch one(d, "str", "str", "int", "bool", "double", "bytes", "slice", "map", "empty") {
	case "str":
		v.SetStr(text)
	case "int":
		v.SetInt(-7)
	case "bool":
		v.SetBool(true)
	case "double":
		v.SetDouble(0.5)
	case "bytes":
		v.SetEmptyBytes().FromRaw([]byte(text))
	case "slice":
		if depth > 0 {
			d.value(v.SetEmptySlice().AppendEmpty(), text, depth-1)
		}
	case "map":
		if depth > 0 {
			d.value(v.SetEmptyMap().PutEmpty("m"), text, depth-1)
		}
	}
}

func (d drawn) resource(r pcommon.Resource) {
	d.attributes(r.Attributes())
	if one(d, true, false) {
		d.value(r.Attributes().PutEmpty(serviceName), "mine", 0)
	}
}

func (d drawn) scope(s pcommon.InstrumentationScope) {
	s.SetName(one(d, "", "scope"))
	d.attributes(s.Attributes())
}

func (d drawn) traces() (ptrace.Traces, int) {
	td, n := ptrace.NewTraces(), 0
	for range d.n(2) {
		rs := td.ResourceSpans().AppendEmpty()
		d.resource(rs.Resource())
		rs.SetSchemaUrl(one(d, "", "https://x/1"))
		for range d.n(2) {
			ss := rs.ScopeSpans().AppendEmpty()
			d.scope(ss.Scope())
			for range d.n(2) {
				n++
				s := ss.Spans().AppendEmpty()
				s.SetTraceID([16]byte{1, 2})
				s.SetSpanID([8]byte{byte(n)})
				s.SetName(one(d, "", "GET /"))
				s.SetKind(ptrace.SpanKindServer)
				s.SetFlags(uint32(d.n(1)))
				s.Status().SetCode(ptrace.StatusCodeError)
				s.TraceState().FromRaw(one(d, "", "a=b"))
				d.attributes(s.Attributes())
				for range d.n(1) {
					e := s.Events().AppendEmpty()
					e.SetName("e")
					d.attributes(e.Attributes())
				}
				for range d.n(1) {
					l := s.Links().AppendEmpty()
					l.SetFlags(3)
					d.attributes(l.Attributes())
				}
			}
		}
	}
	return td, n
}

func (d drawn) logs() (plog.Logs, int) {
	ld, n := plog.NewLogs(), 0
	for range d.n(2) {
		rl := ld.ResourceLogs().AppendEmpty()
		d.resource(rl.Resource())
		for range d.n(2) {
			sl := rl.ScopeLogs().AppendEmpty()
			sl.SetSchemaUrl(one(d, "", "https://x/2"))
			d.scope(sl.Scope())
			for range d.n(3) {
				n++
				r := sl.LogRecords().AppendEmpty()
				r.SetSeverityNumber(plog.SeverityNumberInfo)
				r.SetEventName(one(d, "", "ev"))
				d.value(r.Body(), "body", 2)
				if d.n(3) == 0 {
					r.Body().SetEmptyMap().PutStr("k8s.node.name", "what the log says")
				}
				d.attributes(r.Attributes())
			}
		}
	}
	return ld, n
}

func (d drawn) metrics() (pmetric.Metrics, int) {
	md, n := pmetric.NewMetrics(), 0
	point := func(p anyPoint, set func(pcommon.Timestamp)) {
		n++
		p.SetStartTimestamp(one(d, pcommon.Timestamp(0), base*1e6-5e9, base*1e6+1))
		set(base*1e6 + pcommon.Timestamp(d.n(1))*9e9 - 3e9)
		d.attributes(p.Attributes())
	}
	exemplar := func(l pmetric.ExemplarSlice) {
		for range d.n(1) {
			e := l.AppendEmpty()
			e.SetDoubleValue(1)
			e.SetSpanID([8]byte{1})
			d.attributes(e.FilteredAttributes())
		}
	}
	for range d.n(2) {
		rm := md.ResourceMetrics().AppendEmpty()
		d.resource(rm.Resource())
		for range d.n(2) {
			sm := rm.ScopeMetrics().AppendEmpty()
			d.scope(sm.Scope())
			for range d.n(2) {
				m := sm.Metrics().AppendEmpty()
				m.SetName(one(d, "a", "b"))
				m.SetUnit(one(d, "", "J"))
				m.SetDescription(one(d, "", "what it is"))
				d.attributes(m.Metadata())
				switch d.n(5) {
				case 0:
					g := m.SetEmptyGauge()
					for range d.n(2) {
						p := g.DataPoints().AppendEmpty()
						p.SetDoubleValue(1)
						point(p, p.SetTimestamp)
						exemplar(p.Exemplars())
					}
				case 1:
					s := m.SetEmptySum()
					s.SetIsMonotonic(one(d, true, false))
					s.SetAggregationTemporality(one(d, delta, cumulative))
					for range d.n(2) {
						p := s.DataPoints().AppendEmpty()
						p.SetIntValue(-5)
						point(p, p.SetTimestamp)
						exemplar(p.Exemplars())
					}
				case 2:
					s := m.SetEmptyHistogram()
					s.SetAggregationTemporality(one(d, delta, cumulative))
					for range d.n(2) {
						p := s.DataPoints().AppendEmpty()
						p.BucketCounts().FromRaw([]uint64{1, 2})
						p.ExplicitBounds().FromRaw([]float64{0.5})
						p.SetMin(1)
						point(p, p.SetTimestamp)
						exemplar(p.Exemplars())
					}
				case 3:
					s := m.SetEmptyExponentialHistogram()
					s.SetAggregationTemporality(one(d, delta, cumulative))
					for range d.n(2) {
						p := s.DataPoints().AppendEmpty()
						p.SetScale(-3)
						p.Positive().SetOffset(-2)
						p.Positive().BucketCounts().FromRaw([]uint64{1, 300})
						p.SetZeroThreshold(0.1)
						point(p, p.SetTimestamp)
						exemplar(p.Exemplars())
					}
				case 4:
					s := m.SetEmptySummary()
					for range d.n(2) {
						p := s.DataPoints().AppendEmpty()
						p.QuantileValues().AppendEmpty().SetQuantile(0.5)
						point(p, p.SetTimestamp)
					}
				}
			}
		}
	}
	return md, n
}

// What is handed onward is, in every order of fields and with unknown fields
// anywhere, what pdata makes of the same deletion (S2-32 to S2-46, S2-54 to
// S2-56).
func TestStampOracle(t *testing.T) {
	_, a, _ := workload(t, actor, nil)
	cases, least := 0, 10_000
	check := func(rt *rapid.T) {
		d := drawn{rt}
		o := &stampOracle{st: a.src.stamp, since: base * 1e6}
		var l *levels
		var wire, want []byte
		decide := func(n int) (list []decision) {
			for range n {
				o.decisions = append(o.decisions, decision{act: one(d, actKeep, actKeep, actDrop)})
			}
			return append(list, o.decisions...)
		}
		var decisions []decision
		switch one(d, SignalTraces, SignalLogs, SignalMetrics) {
		case SignalTraces:
			td, n := d.traces()
			l, wire, decisions = &traceLevels, wireOfTraces(t, td), decide(n)
			o.traces(td)
			want = wireOfTraces(t, td)
		case SignalLogs:
			ld, n := d.logs()
			l, wire, decisions = &logLevels, wireOfLogs(t, ld), decide(n)
			o.logs(ld)
			want = wireOfLogs(t, ld)
		default:
			md, n := d.metrics()
			l, wire, decisions = &metricLevels, wireOf(t, md), decide(n)
			o.metrics(md)
			want = wireOf(t, md)
		}
		order := one(d, ascending, descending)
		var strange func() []byte
		if one(d, true, false) {
			strange = unknownField
		}
		sent := shuffle(l.request, wire, order, strange)
		s := a.newStamper(l.signal)
		s.decisions = decisions
		s.rewrite(l, sent)
		got := canonical(t, l, s.out)
		if !bytes.Equal(got, want) {
			rt.Fatalf("%s: stamped\n%q\nwant\n%q\nsent\n%q", l.signal, got, want, sent)
		}
		if bytes.Contains(s.out, []byte("forged")) {
			rt.Fatalf("%s: forged in %q", l.signal, s.out)
		}
		if _, _, err := scan(l.request, s.out, 0); err != nil {
			rt.Fatalf("%s: %v", l.signal, err)
		}
		cases++
	}
	if testing.Short() {
		least = 1_000
	}
	for cases < least {
		rapid.Check(t, check)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d cases", cases)
	if cases < least {
		t.Errorf("%d cases; want at least %d", cases, least)
	}
}

// What the next reader may take for a reserved key is one, in whatever alphabet
// (S2-31, S2-45), and taking out or putting in what is not seen changes nothing.
func TestReservedReadings(t *testing.T) {
	_, a, _ := workload(t, actor, nil)
	parts := []string{"k8s", "ate", "host", "job", "instance", "channel", "service", "namespace", "name", "id", "node", "container", "K8S", "Node",
		".", "_", "__", "-", "/", " ", "é", "名", "о", "\u200b", "\x00", "\t", "x", "8", "i", "\ufffd", "＿", "U__", "_2e_"}
	cases, taken := 0, 0
	for cases < 20_000 {
		rapid.Check(t, func(rt *rapid.T) {
			cases++
			key := ""
			for range rapid.IntRange(1, 7).Draw(rt, "n") {
				key += rapid.SampledFrom(parts).Draw(rt, "part")
			}
			if takesName(key) {
				taken++
				if !a.src.stamp.reserved(key) {
					rt.Fatalf("%q is not reserved", key)
				}
			}
			odd := func(c rune) bool { return c < 0x20 || c >= 0x7f }
			if takesName(key) && !strings.HasPrefix(key, "__") && !strings.ContainsFunc(key, odd) {
				at := rapid.IntRange(0, len(key)).Draw(rt, "at")
				if hidden := key[:at] + "\u200b" + key[at:]; validText(hidden) && !a.src.stamp.reserved(hidden) {
					rt.Fatalf("%q is reserved, %q is not", key, hidden)
				}
			}
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d cases, %d with a reserved key", cases, taken)
}

// canonical is what pdata writes once it has read the bytes.
func canonical(t testing.TB, l *levels, wire []byte) []byte {
	switch l.signal {
	case SignalTraces:
		return wireOfTraces(t, tracesOf(t, wire))
	case SignalLogs:
		return wireOfLogs(t, logsOf(t, wire))
	}
	return wireOf(t, metricsOf(t, wire))
}
