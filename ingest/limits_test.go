package ingest

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/value"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// reliability.md section 2, "NaN/Inf, -0": values that are no reading are refused
// where they would poison a sum.
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
	// What draws less than nothing would hide what the others of its node draw.
	for name, rejected := range map[string]bool{"hw.power": true, "hw.host.power": true, "joulie.rack.power": true, "hw.temperature": false, "other": false} {
		b := newBed(t, nil)
		p := newPayload(node...)
		p.gauge(name, "W", 0, -5)
		p.gauge(name, "W", 1000, 0)
		if res := b.export(p.md); rejected {
			checkResult(t, res, 1, 0, map[string]int64{"negative": 1})
		} else {
			checkResult(t, res, 2, 0, nil)
		}
	}
	for _, temporality := range []pmetric.AggregationTemporality{delta, cumulative} {
		for _, v := range []float64{nan, inf, -inf, math.Float64frombits(value.StaleNaN)} {
			b := newBed(t, nil)
			p := newPayload(node...)
			h := p.histogram("h", 0, []float64{1}, 1, 2)
			h.SetSum(v)
			h.SetStartTimestamp(pcommon.Timestamp((base - 1000) * 1e6))
			p.sm.Metrics().At(0).Histogram().SetAggregationTemporality(temporality)
			p.exponential("e", 0, temporality, 0, 0, 1).SetSum(v)
			p.sum("s", "", temporality, -1000, 0, v)
			s := p.metric("q", "").SetEmptySummary().DataPoints().AppendEmpty()
			s.SetTimestamp(base * 1e6)
			s.SetSum(v)
			checkResult(t, b.export(p.md), 0, 0, map[string]int64{"not_finite": 4})
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

// reliability.md section 2, "Giant attributes/labels", "Invalid UTF-8, NUL, control,
// bidi" and "Label-name collision": each bound, one below, at, and above.
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

// X26 of decisions.md: names and the label that only wattloop may write.
func TestReserved(t *testing.T) {
	b := newBed(t, nil)
	p := newPayload(node...)
	for _, name := range []string{"wattloop.up", "joulie.twin.power", "joulie_twin_x", "up", "scrape.duration", "ALERTS", "ALERTS_FOR_STATE", "target.info"} {
		p.gauge(name, "", 0, 1)
	}
	p.gauge("upper", "", 0, 1, "channel", "evil")
	// Names that are reserved with what is put behind them.
	p.gauge("target", "info", 0, 1)
	p.sum("wattloop", "", cumulative, -1000, 0, 1)
	for _, name := range []string{"wattloop", "scrape", "joulie.twin"} {
		p.histogram(name, 0, []float64{1}, 1, 2)
		p.sm.Metrics().At(p.sm.Metrics().Len() - 1).SetUnit("")
		p.metric(name, "").SetEmptySummary().DataPoints().AppendEmpty().SetTimestamp(base * 1e6)
	}
	checkResult(t, b.export(p.md), 1, 0, map[string]int64{"reserved_name": 16})
	for series := range b.stored() {
		if name := parsedLabels(series)["__name__"]; reserved(name) && name != targetInfoName {
			t.Errorf("the store has %s", series)
		}
	}
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

// reliability.md section 2, "Metric-name collision": two metrics of a request that
// give one series: the first keeps it.
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
