package ingest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/otlptranslator"
	"github.com/prometheus/prometheus/model/exemplar"
	native "github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
)

// seen keeps the labels of every series and exemplar that is written, and no
// samples.
type seen struct {
	nowhereAppender
	list, exemplars *[]labels.Labels
}

func (s seen) Appender(context.Context) storage.Appender { return s }

func (s seen) Append(ref storage.SeriesRef, ls labels.Labels, _ int64, _ float64) (storage.SeriesRef, error) {
	*s.list = append(*s.list, ls)
	return max(ref, 1), nil
}

func (s seen) AppendHistogram(ref storage.SeriesRef, ls labels.Labels, _ int64, _ *native.Histogram, _ *native.FloatHistogram) (storage.SeriesRef, error) {
	return s.Append(ref, ls, 0, 0)
}

func (s seen) AppendExemplar(ref storage.SeriesRef, _ labels.Labels, e exemplar.Exemplar) (storage.SeriesRef, error) {
	*s.exemplars = append(*s.exemplars, e.Labels)
	return ref, nil
}

// readingsOf is what the next reader may make of a key: its letters and digits in
// lower case, all else an underscore, or nothing.
func readingsOf(key string) (list []string) {
	for _, gap := range []string{"_", ""} {
		var b strings.Builder
		for _, c := range strings.ToLower(key) {
			if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
				b.WriteRune(c)
			} else if c < 0x80 || gap != "" {
				b.WriteByte('_')
			}
		}
		parts := strings.FieldsFunc(b.String(), func(c rune) bool { return c == '_' })
		list = append(list, strings.Join(parts, "_"))
	}
	return list
}

// takesName reports whether a workload must not use a key, by a plainer rule than the code's own.
func takesName(key string) bool {
	for _, n := range readingsOf(key) {
		first, _, _ := strings.Cut(n, "_")
		if slices.Contains([]string{"ate", "k8s", "host"}, first) || slices.Contains([]string{"job", "instance", "channel",
			"service_name", "service_namespace", "service_instance_id", "container_name"}, n) {
			return true
		}
	}
	return len(key) > 4 && strings.HasPrefix(key, "__") && strings.HasSuffix(key, "__")
}

// FuzzReserved: whatever stands where in a request of a workload, no key that
// names an identity, or is read as one, and no name that is wattloop's own,
// reaches the store or the upstream but from the channel; what was forged
// reaches no answer either (S2-31 to S2-46, S2-39 of what the store keeps).
func FuzzReserved(f *testing.F) {
	for i, key := range spellings {
		r := newForgedRequest(i)
		forgeries["gauge"].put(r, func(m pcommon.Map) { m.PutStr(key, "victim") })
		forgeries["exemplar"].put(r, func(m pcommon.Map) { m.PutStr(key, "victim") })
		forgeries["span link"].put(r, func(m pcommon.Map) { m.PutStr(key, "victim") })
		forgeries["log record"].put(r, func(m pcommon.Map) { m.PutStr(key, "victim") })
		f.Add(uint8(i), key, [][]byte{wireOf(f, r.md), wireOfTraces(f, r.td), wireOfLogs(f, r.ld)}[i%3])
	}
	var written, exemplars []labels.Labels
	up := &upstream{}
	var channels []*Activation
	for _, naming := range []otlptranslator.TranslationStrategyOption{
		otlptranslator.UnderscoreEscapingWithSuffixes, otlptranslator.NoUTF8EscapingWithSuffixes} {
		r := NewReceiver(Options{Appendable: seen{list: &written, exemplars: &exemplars}, NoTimeGate: true, Naming: naming, Onward: up})
		ch, err := r.AddChannel(ChannelOptions{Name: "ch7", Class: Workload})
		if err != nil {
			f.Fatal(err)
		}
		a, err := ch.Activate(actor, time.UnixMilli(base), time.Time{})
		if err != nil {
			f.Fatal(err)
		}
		channels = append(channels, a)
	}
	levels := slices.Sorted(maps.Keys(forgeries))
	f.Fuzz(func(t *testing.T, n uint8, key string, wire []byte) {
		a := channels[n&1]
		check := func(res Result, err error) {
			if err != nil && strings.Contains(err.Error(), "victim") || strings.Contains(res.Message, "victim") {
				t.Errorf("the answer is %v, %q", err, res.Message)
			}
			for _, ls := range written {
				checkLabels(t, a.src.stamp, ls)
			}
			for _, f := range up.got {
				checkForwarded(t, a.src.stamp, f)
			}
			for _, ls := range exemplars {
				ls.Range(func(l labels.Label) {
					if takesName(l.Name) {
						t.Errorf("the store has an exemplar %s", ls)
					}
				})
			}
			written, exemplars, up.got = written[:0], exemplars[:0], up.got[:0]
		}
		check(a.Export(t.Context(), wire))
		check(a.ExportTraces(t.Context(), wire))
		check(a.ExportLogs(t.Context(), wire))
		if !validText(key) {
			return
		}
		level := forgeries[levels[int(n>>1)%len(levels)]]
		r := newForgedRequest(int(n))
		value := "honest"
		if takesName(key) {
			value = "victim"
		}
		level.put(r, func(m pcommon.Map) { m.PutStr(key, value); m.PutEmptyMap("a").PutStr(key, value) })
		check(r.export(t, a, level.signal, descending))
		p := newPayload()
		p.gauge(key, "", 0, 1)
		p.sum(key, "", delta, 0, 1, 1)
		p.histogram(key, 0, []float64{1}, 1, 1)
		check(a.Export(t.Context(), wireOf(t, p.md)))
	})
}

func checkLabels(t *testing.T, st *stamp, ls labels.Labels) {
	ls.Range(func(l labels.Label) {
		switch {
		case l.Name == metricLabel:
			if reserved(l.Value) && l.Value != targetInfoName {
				t.Errorf("the store has %s", ls)
			}
		case l.Name == "job" && (l.Value == "shop-ns/cart-svc"), l == st.plane, slices.Contains(st.base, l):
		case takesName(l.Name):
			t.Errorf("the store has %s", ls)
		}
	})
	for _, l := range st.base {
		if ls.Get(l.Name) != l.Value {
			t.Errorf("%s lacks %v", ls, l)
		}
	}
}

// checkForwarded looks at every key of what goes onward, where pdata can read
// it: the ids of a workload may be of any length.
func checkForwarded(t *testing.T, st *stamp, f Forwarded) {
	set := trustedOf(st, f.Signal)
	attributes := func(m pcommon.Map, what string) {
		for k := range m.All() {
			if takesName(k) {
				t.Errorf("%s: %q on its way onward", what, k)
			}
		}
	}
	resource := func(r pcommon.Resource) {
		all := map[string]int{}
		for k, v := range r.Attributes().All() {
			all[k]++
			if takesName(k) && (v.AsString() == "victim" || !slices.ContainsFunc(set, func(x trusted) bool { return x.key == k && x.value == v.AsString() })) {
				t.Errorf("resource: %q = %q on its way onward", k, v.AsString())
			}
		}
		for _, x := range set {
			if all[x.key] != 1 {
				t.Errorf("%s stands %d times on a resource", x.key, all[x.key])
			}
		}
	}
	switch f.Signal {
	case SignalTraces:
		req := ptraceotlp.NewExportRequest()
		if req.UnmarshalProto(f.Wire) != nil {
			return
		}
		for _, rs := range req.Traces().ResourceSpans().All() {
			resource(rs.Resource())
			for _, ss := range rs.ScopeSpans().All() {
				attributes(ss.Scope().Attributes(), "scope")
				for _, s := range ss.Spans().All() {
					attributes(s.Attributes(), "span")
					for _, e := range s.Events().All() {
						attributes(e.Attributes(), "event")
					}
					for _, l := range s.Links().All() {
						attributes(l.Attributes(), "link")
					}
				}
			}
		}
	case SignalLogs:
		req := plogotlp.NewExportRequest()
		if req.UnmarshalProto(f.Wire) != nil {
			return
		}
		for _, rl := range req.Logs().ResourceLogs().All() {
			resource(rl.Resource())
			for _, sl := range rl.ScopeLogs().All() {
				attributes(sl.Scope().Attributes(), "scope")
				for _, r := range sl.LogRecords().All() {
					attributes(r.Attributes(), "log record")
				}
			}
		}
	default:
		req := pmetricotlp.NewExportRequest()
		if req.UnmarshalProto(f.Wire) != nil {
			return
		}
		for _, rm := range req.Metrics().ResourceMetrics().All() {
			resource(rm.Resource())
			for _, sm := range rm.ScopeMetrics().All() {
				attributes(sm.Scope().Attributes(), "scope")
				for _, m := range sm.Metrics().All() {
					if reserved(m.Name()) {
						t.Errorf("%q on its way onward", m.Name())
					}
					attributes(m.Metadata(), "metadata")
					eachPoint(m, func(p pcommon.Map, exemplars pmetric.ExemplarSlice) {
						attributes(p, "point")
						for _, e := range exemplars.All() {
							attributes(e.FilteredAttributes(), "exemplar")
						}
					})
				}
			}
		}
	}
}

// trustedOf is what the channel says of actor.
func trustedOf(st *stamp, s Signal) []trusted {
	if s == SignalMetrics {
		return append(slices.Clone(st.metric), trusted{serviceName, "cart-svc"})
	}
	return append(slices.Clone(st.all), trusted{serviceName, "cart-svc"})
}

func eachPoint(m pmetric.Metric, do func(pcommon.Map, pmetric.ExemplarSlice)) {
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		for _, p := range m.Gauge().DataPoints().All() {
			do(p.Attributes(), p.Exemplars())
		}
	case pmetric.MetricTypeSum:
		for _, p := range m.Sum().DataPoints().All() {
			do(p.Attributes(), p.Exemplars())
		}
	case pmetric.MetricTypeHistogram:
		for _, p := range m.Histogram().DataPoints().All() {
			do(p.Attributes(), p.Exemplars())
		}
	case pmetric.MetricTypeExponentialHistogram:
		for _, p := range m.ExponentialHistogram().DataPoints().All() {
			do(p.Attributes(), p.Exemplars())
		}
	case pmetric.MetricTypeSummary:
		for _, p := range m.Summary().DataPoints().All() {
			do(p.Attributes(), pmetric.NewExemplarSlice())
		}
	}
}
