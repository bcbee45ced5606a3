package ingest

import (
	"math"
	"testing"

	"github.com/prometheus/prometheus/model/value"
	"go.opentelemetry.io/collector/pdata/pcommon"
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

// reliability.md section 2, "Far-future / ancient timestamps", and section 4(d).
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
