package ingest

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

var node = []string{"k8s.node.name", "edge-a", "service.name", "hwexp", "service.instance.id", "edge-a"}

const watts = `{__name__="hw_power_watts", hw_id="cpu0", instance="edge-a", job="hwexp", k8s_node_name="edge-a"}`

// S0-93 to S0-98, S0-151: what a node's exporter sends becomes these series.
func TestSeries(t *testing.T) {
	b := newBed(t, nil)
	p := newPayload(append(node, "host.name", "h1", "host.arch", "amd64")...)
	p.gauge("hw.power", "W", 0, 250, "hw.id", "cpu0")
	p.sum("hw.energy", "J", cumulative, -1000, 0, 15000, "hw.id", "cpu0")
	checkResult(t, b.export(p.md), 2, 0, nil)
	const id = `host_name="h1", hw_id="cpu0", instance="edge-a", job="hwexp", k8s_node_name="edge-a"}`
	b.check(`{__name__="hw_power_watts", `+id, tv{base, 250})
	b.check(`{__name__="hw_energy_joules_total", `+id, tv{base, 15000})
	b.check(`{__name__="target_info", host_arch="amd64", host_name="h1", instance="edge-a", job="hwexp", k8s_node_name="edge-a"}`, tv{base, 1})
	if n := len(b.stored()); n != 3 {
		t.Errorf("%d series; want 3", n)
	}
}

// The time gate: reliability.md section 4(d).
func TestTimeGate(t *testing.T) {
	for _, c := range []struct {
		ms   int64
		want string
	}{
		{60_000, ""}, {60_001, "future"}, {75 * 60_000, "future"}, {100 * 365 * 86400_000, "future"},
		{-1800_000, ""}, {-1800_001, "too_old"}, {-base + 1, "too_old"}, {-base, "bad_time"},
	} {
		b := newBed(t, nil)
		p := newPayload(node...)
		p.gauge("hw.power", "W", c.ms, 1, "hw.id", "cpu0")
		p.gauge("hw.temperature", "Cel", 0, 1)
		res := b.export(p.md)
		if c.want == "" {
			checkResult(t, res, 2, 0, nil)
			continue
		}
		checkResult(t, res, 1, 0, map[string]int64{c.want: 1})
	}
	b := newBed(t, func(o *Options) { o.NoTimeGate = true })
	for _, stamp := range []uint64{0, math.MaxInt64 + 1, math.MaxUint64} {
		p := newPayload(node...)
		p.gauge("hw.power", "W", 0, 1).SetTimestamp(pcommon.Timestamp(stamp))
		checkResult(t, b.export(p.md), 0, 0, map[string]int64{"bad_time": 1})
	}
	p := newPayload(node...)
	p.gauge("hw.power", "W", -20*365*86400_000, 1, "hw.id", "cpu0")
	checkResult(t, b.export(p.md), 1, 0, nil)
}

// A value that a TSDB would drop in silence is refused; the same one again is
// accepted. Within a request and across, in order and late, before and after what
// is known of the series is gone.
func TestDuplicates(t *testing.T) {
	for _, forget := range []bool{false, true} {
		b := newBed(t, nil)
		b.at(600)
		send := func(accepted, rejected int64, points ...tv) {
			t.Helper()
			p := newPayload(node...)
			for _, pt := range points {
				p.gauge("hw.power", "W", pt.t*1000, pt.v, "hw.id", "cpu0")
			}
			var reasons map[string]int64
			if rejected > 0 {
				reasons = map[string]int64{"duplicate": rejected}
			}
			checkResult(t, b.export(p.md), accepted, 0, reasons)
			if forget {
				b.r.forget()
			}
		}
		send(2, 1, tv{100, 1}, tv{100, 1}, tv{100, 2})
		send(1, 1, tv{100, 1}, tv{100, 2})
		send(4, 0, tv{300, 3}, tv{200, 2}, tv{250, 2.5}, tv{200, 2}) // out of order within
		send(1, 1, tv{200, 9}, tv{200, 2})                           // late, again
		send(1, 1, tv{100, 7}, tv{100, 1})
		send(1, 2, tv{150, 1.5}, tv{150, 4}, tv{300, 4})
		b.check(watts, tv{base + 100_000, 1}, tv{base + 150_000, 1.5}, tv{base + 200_000, 2},
			tv{base + 250_000, 2.5}, tv{base + 300_000, 3})
	}
}

// C05: what the TSDB itself finds too old is refused alone.
func TestTooOldForTheStore(t *testing.T) {
	b := newBed(t, func(o *Options) { o.NoTimeGate = true })
	p := newPayload(node...)
	p.gauge("hw.power", "W", 3600_000, 200, "hw.id", "cpu0")
	b.export(p.md)
	p = newPayload(node...)
	p.gauge("hw.power", "W", 600_000, 999, "hw.id", "cpu0")
	p.gauge("hw.power", "W", 3660_000, 210, "hw.id", "cpu0")
	checkResult(t, b.export(p.md), 1, 0, map[string]int64{"too_old": 1})
	b.check(watts, tv{base + 3600_000, 200}, tv{base + 3660_000, 210})
}

// C06: a point without a recorded value ends its series; a payload's own marker
// bits do not.
func TestStaleness(t *testing.T) {
	b := newBed(t, nil)
	marker := math.Float64frombits(value.StaleNaN)
	p := newPayload(node...)
	p.gauge("hw.power", "W", 0, marker, "hw.id", "cpu0")
	dp := p.gauge("hw.power", "W", 1000, 5, "hw.id", "cpu0")
	dp.SetFlags(dp.Flags().WithNoRecordedValue(true))
	checkResult(t, b.export(p.md), 2, 0, nil)
	b.check(watts, tv{base, math.Float64frombits(value.NormalNaN)}, tv{base + 1000, marker})
}

// Values that are no reading are refused where they would poison a sum.
func TestValues(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		temporality pmetric.AggregationTemporality
		v           float64
		want        string
	}{
		{cumulative, nan, "not_finite"}, {cumulative, inf, "not_finite"}, {cumulative, -inf, "not_finite"},
		{cumulative, -5, "negative"}, {delta, -5, "negative"}, {delta, nan, "not_finite"},
		{cumulative, 0, ""}, {cumulative, math.Copysign(0, -1), ""}, {0, 1, "bad_temporality"}, {7, 1, "bad_temporality"},
	} {
		b := newBed(t, nil)
		p := newPayload(node...)
		p.sum("hw.energy", "J", c.temporality, -1000, 0, c.v)
		res := b.export(p.md)
		if c.want == "" {
			checkResult(t, res, 1, 0, nil)
		} else {
			checkResult(t, res, 0, 0, map[string]int64{c.want: 1})
		}
	}
	b := newBed(t, nil)
	p := newPayload(node...)
	p.gauge("a", "", 0, nan)
	p.gauge("b", "", 0, -inf)
	p.gauge("c", "", 0, 0)
	dp := p.metric("d", "").SetEmptyGauge().DataPoints().AppendEmpty()
	dp.SetTimestamp(base * 1e6) // and no number: a gap is no zero
	checkResult(t, b.export(p.md), 3, 0, map[string]int64{"no_value": 1})
}

// Each bound of reliability.md section 2, one below, at, and above.
func TestLimits(t *testing.T) {
	long := func(n int) string { return strings.Repeat("a", n) }
	many := func(n int) (attrs []string) {
		for i := range n {
			attrs = append(attrs, "a"+strings.Repeat("b", i), "v")
		}
		return attrs
	}
	for _, c := range []struct {
		name  string
		attrs []string
		want  string
	}{
		{long(255), nil, ""}, {long(256), nil, ""}, {long(257), nil, "bad_name"}, {"", nil, "bad_name"}, {"...", nil, "bad_name"},
		{"m", []string{long(127), "v"}, ""}, {"m", []string{long(128), "v"}, ""}, {"m", []string{long(129), "v"}, "label_limit"},
		{"m", []string{"k", long(1023)}, ""}, {"m", []string{"k", long(1024)}, ""}, {"m", []string{"k", long(1025)}, "label_limit"},
		// Three labels come from the resource.
		{"m", many(60), ""}, {"m", many(61), ""}, {"m", many(62), "label_limit"},
		{"m", []string{"", "v"}, "bad_label"}, {"m", []string{"___", "v"}, "bad_label"},
		{"m", []string{"k", "\xff"}, "invalid_utf8"}, {"m", []string{"\xff", "v"}, "invalid_utf8"}, {"m\xff", nil, "invalid_utf8"},
		{"m", []string{"k", "a\x00b"}, "bad_text"}, {"m", []string{"k", "a\u202eb"}, "bad_text"}, {"m\x7f", nil, "bad_text"},
		{"m", []string{"k.a", "1", "k_a", "2"}, "label_collision"}, {"m", []string{"k.a", "1", "k_a", ""}, ""},
		{"m", []string{"..name..", "v"}, "label_collision"}, {"m", []string{"__name__", "v"}, ""},
		{"m", []string{"channel", "v", "exported.channel", "w"}, "label_collision"},
	} {
		b := newBed(t, nil)
		p := newPayload(node...)
		p.gauge(c.name, "", 0, 1, c.attrs...)
		p.gauge("fine", "", 0, 1)
		for range 2 { // the second time by the cache
			res := b.export(p.md)
			if c.want == "" {
				checkResult(t, res, 2, 0, nil)
			} else {
				checkResult(t, res, 1, 0, map[string]int64{c.want: 1})
			}
		}
	}
}

// decisions.md X26: names and the label that only wattloop may write.
func TestReserved(t *testing.T) {
	b := newBed(t, nil)
	p := newPayload(node...)
	for _, name := range []string{"wattloop.up", "joulie.twin.power", "joulie_twin_x", "up", "scrape.duration", "ALERTS", "ALERTS_FOR_STATE", "target.info"} {
		p.gauge(name, "", 0, 1)
	}
	p.gauge("upper", "", 0, 1, "channel", "evil")
	checkResult(t, b.export(p.md), 1, 0, map[string]int64{"reserved_name": 8})
	b.check(`{__name__="upper", exported_channel="evil", instance="edge-a", job="hwexp", k8s_node_name="edge-a"}`, tv{base, 1})
}

// reliability.md section 4(g): nothing on a point changes what its resource says.
func TestForgedIdentity(t *testing.T) {
	for _, key := range []string{"k8s.node.name", "k8s_node_name", "k8s-node-name", "k8s/node/name", "job", "instance"} {
		b := newBed(t, nil)
		p := newPayload(node...)
		p.gauge("hw.power", "W", 0, 1, key, "evil", "hw.id", "cpu0")
		checkResult(t, b.export(p.md), 1, 0, nil)
		b.check(watts, tv{base, 1})
	}
	// Two values of one identity: nobody knows which node it is.
	b := newBed(t, nil)
	p := newPayload(node...)
	p.gauge("hw.power", "W", 0, 1)
	wire := wireOf(t, p.md)
	twice := appendField(nil, 1, append(appendField(nil, 1, appendField(nil, 1, stringAttribute("k8s.node.name", "evil"))), fieldOf(wire, 1)...))
	res, err := b.r.Export(context.Background(), twice)
	if err != nil {
		t.Fatal(err)
	}
	checkResult(t, res, 0, 0, map[string]int64{"label_collision": 1})
}

// Two metrics of a request that give one series: the first keeps it.
func TestNameCollision(t *testing.T) {
	b := newBed(t, nil)
	p := newPayload(node...)
	p.gauge("hw.power", "W", 0, 1, "hw.id", "cpu0")
	p.gauge("hw_power", "W", 0, 1, "hw.id", "cpu0")
	p.gauge("hw.power_watts", "", 1000, 3, "hw.id", "cpu0")
	p.gauge("hw.power", "W", 2000, 4, "hw.id", "cpu0")
	checkResult(t, b.export(p.md), 2, 0, map[string]int64{"name_collision": 2})
	b.check(watts, tv{base, 1}, tv{base + 2000, 4})
}

// The points that come later are counted, not lost.
func TestUnsupported(t *testing.T) {
	b := newBed(t, nil)
	p := newPayload(node...)
	dps := p.metric("e", "").SetEmptyExponentialHistogram().DataPoints()
	dps.AppendEmpty()
	dps.AppendEmpty()
	p.metric("s", "").SetEmptySummary().DataPoints().AppendEmpty()
	p.gauge("g", "", 0, 1)
	res := b.export(p.md)
	checkResult(t, res, 1, 0, map[string]int64{"unsupported_exponential_histogram": 2, "unsupported_summary": 1})
	for _, text := range []string{"not supported yet: exponential histogram", "not supported yet: summary"} {
		if !strings.Contains(res.Message, text) {
			t.Errorf("message %q lacks %q", res.Message, text)
		}
	}
}

// target_info: a 1 for each instant at which a series of the resource is there.
func TestTargetInfo(t *testing.T) {
	b := newBed(t, nil)
	b.at(1200)
	const info = `{__name__="target_info", instance="edge-a", job="hwexp", k8s_node_name="edge-a"}`
	send := func(seconds ...int64) {
		p := newPayload(node...)
		for _, s := range seconds {
			p.gauge("hw.power", "W", s*1000, float64(s))
		}
		b.export(p.md)
	}
	want := func(seconds ...int64) {
		t.Helper()
		var list []tv
		for _, s := range seconds {
			list = append(list, tv{base + s*1000, 1})
		}
		b.check(info, list...)
	}
	send(60)
	want(60)
	send(30) // C12
	want(30, 60)
	send(90, 120, 150)
	want(30, 60)
	send(209)
	want(30, 60)
	send(210)
	want(30, 60, 210)
	send(900)
	want(30, 60, 210, 900)
	send(640, 500)
	want(30, 60, 210, 500, 900)
	// S0-164: without job and instance, or with nothing else to tell, there is none.
	for _, attrs := range [][]string{{"host.arch", "arm64"}, {"service.name", "x"}} {
		b := newBed(t, nil)
		p := newPayload(attrs...)
		p.gauge("hw.power", "W", 0, 1)
		b.export(p.md)
		if n := len(b.stored()); n != 1 {
			t.Errorf("%v: %d series; want 1", attrs, n)
		}
	}
}

// An error of the store is the sender's to repeat, and leaves nothing behind.
func TestStoreErrors(t *testing.T) {
	failing := &flaky{}
	synced := 0
	var syncErr error
	b := newBed(t, func(o *Options) {
		failing.Appendable = o.Appendable
		o.Appendable = failing
		o.Sync = func(context.Context) error { synced++; return syncErr }
	})
	p := newPayload(node...)
	p.gauge("hw.power", "W", 0, 1, "hw.id", "cpu0")
	p.sum("app.requests", "", delta, -1000, 0, 5)
	wire := wireOf(t, p.md)
	broken := errors.New("no space left on device")
	unavailable := func() {
		t.Helper()
		_, err := b.r.Export(context.Background(), wire)
		var ue *UnavailableError
		if !errors.As(err, &ue) || !errors.Is(err, broken) {
			t.Errorf("got %v; want an *UnavailableError of %v", err, broken)
		}
	}
	failing.append = broken
	unavailable()
	failing.append, failing.commit = nil, broken
	unavailable()
	if synced != 0 || len(b.stored()) != 0 {
		t.Errorf("synced %d times, %d series; want none", synced, len(b.stored()))
	}
	failing.commit, syncErr = nil, broken
	unavailable() // committed, not durable
	syncErr = nil
	res, err := b.r.Export(context.Background(), wire)
	if err != nil {
		t.Fatal(err)
	}
	checkResult(t, res, 1, 1, nil)
	b.check(watts, tv{base, 1})
	b.check(`{__name__="app_requests_total", instance="edge-a", job="hwexp", k8s_node_name="edge-a"}`, tv{base, 5})
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := b.r.Export(canceled, wire); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v; want context.Canceled", err)
	}
}

// flaky fails where it is told to.
type flaky struct {
	storage.Appendable
	append, commit error
}

type flakyAppender struct {
	storage.Appender
	f *flaky
}

func (f *flaky) Appender(ctx context.Context) storage.Appender {
	return &flakyAppender{f.Appendable.Appender(ctx), f}
}

func (a *flakyAppender) Append(ref storage.SeriesRef, l labels.Labels, t int64, v float64) (storage.SeriesRef, error) {
	if a.f.append != nil {
		return 0, a.f.append
	}
	return a.Appender.Append(ref, l, t, v)
}

func (a *flakyAppender) Commit() error {
	if a.f.commit != nil {
		return errors.Join(a.f.commit, a.Rollback())
	}
	return a.Appender.Commit()
}

// The watcher hears once a request which rules' series grew, and is asked about a
// series once a generation.
func TestWatch(t *testing.T) {
	gen, asked := uint64(1), 0
	type call struct {
		rules  []int32
		newest int64
	}
	var calls []call
	b := newBed(t, func(o *Options) {
		o.Watch = Watch{
			Gen: func() uint64 { return gen },
			Rules: func(l labels.Labels) []int32 {
				asked++
				if l.Get("__name__") == "hw_power_watts" {
					return []int32{7, 2}
				}
				return nil
			},
			Grew: func(rules []int32, newest int64) {
				slices.Sort(rules)
				calls = append(calls, call{rules, newest})
			},
		}
	})
	send := func(ms int64, name string) {
		p := newPayload(node...)
		p.gauge(name, "W", ms, 1, "hw.id", "cpu0")
		p.gauge(name, "W", ms, 1, "hw.id", "cpu1")
		b.export(p.md)
	}
	send(0, "hw.power")
	send(1000, "hw.power")
	send(1000, "other")
	if len(calls) != 2 || asked != 5 { // two of each metric, and target_info
		t.Fatalf("%d calls, %d questions; want 2 and 5", len(calls), asked)
	}
	for i, c := range calls {
		if !slices.Equal(c.rules, []int32{2, 7}) || c.newest != base+int64(i)*1000 {
			t.Errorf("call %d: %v at %d", i, c.rules, c.newest)
		}
	}
	gen++
	send(2000, "hw.power")
	if len(calls) != 3 || asked != 7 {
		t.Errorf("%d calls, %d questions after a new rule set; want 3 and 7", len(calls), asked)
	}
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	b := newBed(t, func(o *Options) { o.Registerer = reg })
	p := newPayload(node...)
	p.gauge("a", "", -2000, 1)
	p.gauge("b", "", 61_000, 1)
	if _, err := b.r.Channel("otlp").Export(context.Background(), wireOf(t, p.md)); err != nil {
		t.Fatal(err)
	}
	m := b.r.metrics
	for _, c := range []struct {
		labels []string
		want   float64
	}{
		{[]string{"otlp", "accepted", ""}, 1}, {[]string{"otlp", "rejected", "future"}, 1}, {[]string{"otlp", "folded", ""}, 0},
	} {
		if got := testutil.ToFloat64(m.points.WithLabelValues(c.labels...)); got != c.want {
			t.Errorf("wattloop_ingest_points_total%v = %v; want %v", c.labels, got, c.want)
		}
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "wattloop_ingest_lag_seconds" && f.GetMetric()[0].GetHistogram().GetSampleSum() != 2 {
			t.Errorf("lag %v; want 2 s", f.GetMetric()[0])
		}
	}
}
