package ingest

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"go.opentelemetry.io/collector/pdata/pcommon"
)

// actorBed is a bed with one workload channel; its series of app.requests.
type actorBed struct {
	*bed
	ch  *Channel
	act *Activation
}

const actorRequests = `{__name__="app_requests_total", ate_actor_template_name="tpl", channel="ch1", instance="ch1", job="tpl"}`

func newActorBed(t *testing.T, change func(*Options), gauge Gauge) *actorBed {
	b := &actorBed{bed: newBed(t, change)}
	b.open(gauge)
	return b
}

func (b *actorBed) open(gauge Gauge) {
	b.t.Helper()
	var err error
	if b.ch, err = b.r.AddChannel(ChannelOptions{Name: "ch1", Class: Workload, Gauge: gauge}); err != nil {
		b.t.Fatal(err)
	}
}

func instant(seconds float64) time.Time { return time.UnixMilli(base + int64(seconds*1000)) }

// activate ends what there is; its work is its own since then.
func (b *actorBed) activate(actor string, at, since float64) {
	b.t.Helper()
	b.end()
	var err error
	if b.act, err = b.ch.Activate(Identity{ActorUID: actor, TemplateName: "tpl"}, instant(at), instant(since)); err != nil {
		b.t.Fatal(err)
	}
}

func (b *actorBed) end() {
	if b.act != nil {
		b.act.End()
	}
}

func (b *actorBed) take(p *payload, accepted, folded int64, why string) {
	b.t.Helper()
	res, err := b.act.Export(context.Background(), wireOf(b.t, p.md))
	if err != nil {
		b.t.Fatal(err)
	}
	var reasons map[string]int64
	if why != "" {
		reasons = map[string]int64{why: 1}
	}
	checkResult(b.t, res, accepted, folded, reasons)
}

// count sends one value of a counter, in seconds.
func (b *actorBed) count(start, end int64, v float64, accepted, folded int64, why string) {
	b.t.Helper()
	p := newPayload()
	p.sum("app.requests", "{request}", cumulative, start*1000, end*1000, v)
	b.take(p, accepted, folded, why)
}

func (b *actorBed) delta(start, end int64, v float64, accepted, folded int64, why string) {
	b.t.Helper()
	p := newPayload()
	p.sum("app.requests", "{request}", delta, start*1000, end*1000, v)
	b.take(p, accepted, folded, why)
}

// windows compares the channel's counts.
func (b *actorBed) windows(want Windows) {
	b.t.Helper()
	if got := b.ch.Windows(); got != want {
		b.t.Errorf("windows %+v; want %+v", got, want)
	}
}

// S2-73, S2-74, S2-77: a cumulative stream counts from the activation, and only
// what is the actor's own.
func TestCumulativeOfActors(t *testing.T) {
	b := newActorBed(t, nil, "")
	b.at(1000)
	b.activate("a", 100, 100)
	b.count(100, 110, 5, 1, 0, "") // begun with the activation: its own
	b.count(100, 120, 7, 1, 0, "")
	b.count(100, 120, 7, 0, 1, "")          // a retry
	b.count(100, 115, 6, 0, 1, "")          // late: the newer value has it
	b.count(100, 120, 8, 0, 0, "duplicate") // another value of the same time
	b.count(125, 130, 2, 1, 0, "")          // a new start: the process began anew
	b.count(125, 140, 1, 1, 0, "")          // a smaller value is a reset too
	// Another actor, restored from a snapshot in which 1000 were counted.
	b.activate("b", 150, 150)
	b.count(-500, 160, 1003, 0, 1, "")
	b.count(-500, 170, 1010, 1, 0, "")
	b.check(actorRequests, tv{base + 110_000, 5}, tv{base + 120_000, 7}, tv{base + 130_000, 9}, tv{base + 140_000, 10},
		tv{base + 160_000, 10}, tv{base + 170_000, 17})
	b.windows(Windows{Late: 1, Repeated: 1, Baseline: 1})
}

// The same actor, suspended and resumed here, counts on where it stopped; where it
// was elsewhere between, what it did there is not counted here again.
func TestCumulativeOverActivations(t *testing.T) {
	b := newActorBed(t, nil, "")
	b.at(1000)
	b.activate("a", 100, 100)
	b.count(0, 110, 50, 0, 1, "") // baseline
	b.count(0, 120, 60, 1, 0, "")
	b.activate("a", 150, 100) // resumed: its time here began at 100
	b.count(0, 120, 60, 0, 1, "")
	b.count(0, 160, 65, 1, 0, "")
	b.activate("c", 170, 170)
	b.count(170, 180, 1000, 1, 0, "")
	b.activate("a", 200, 200) // back from another node
	b.count(0, 210, 165, 0, 1, "")
	b.count(0, 220, 166, 1, 0, "")
	b.check(actorRequests, tv{base + 110_000, 0}, tv{base + 120_000, 10}, tv{base + 160_000, 15}, tv{base + 180_000, 1015},
		tv{base + 210_000, 1015}, tv{base + 220_000, 1016})
	b.windows(Windows{Baseline: 2, Repeated: 1})
}

// S2-74: where nobody says that an actor was nowhere else, a cumulative stream is
// counted from its first value on, and delta windows are its own since it was here
// first: nothing is counted twice.
func TestResumeOfActors(t *testing.T) {
	b := newActorBed(t, nil, "")
	b.at(1000)
	b.activate("a", 100, 100)
	b.count(100, 120, 60, 1, 0, "")
	b.end()
	var err error
	if b.act, err = b.ch.Resume(Identity{ActorUID: "a", TemplateName: "tpl"}, instant(200), instant(100)); err != nil {
		t.Fatal(err)
	}
	b.count(100, 120, 60, 0, 1, "")   // a retry
	b.count(100, 210, 5000, 0, 1, "") // most of it counted on another node
	b.count(100, 220, 5001, 1, 0, "")
	b.count(215, 230, 3, 1, 0, "") // begun anew under this activation
	b.check(actorRequests, tv{base + 120_000, 60}, tv{base + 210_000, 60}, tv{base + 220_000, 61}, tv{base + 230_000, 64})
	b.windows(Windows{Baseline: 1, Repeated: 1})

	d := newActorBed(t, nil, "")
	d.at(1000)
	d.activate("a", 100, 100)
	d.delta(100, 110, 1, 1, 0, "")
	d.end()
	if d.act, err = d.ch.Resume(Identity{ActorUID: "a", TemplateName: "tpl"}, instant(200), instant(100)); err != nil {
		t.Fatal(err)
	}
	d.delta(110, 120, 2, 1, 0, "") // not yet sent when it was suspended
	d.delta(110, 120, 2, 0, 1, "")
	d.delta(80, 90, 4, 0, 0, "before_activation")
	d.check(actorRequests, tv{base + 110_000, 1}, tv{base + 120_000, 3})
}

// S2-76, S2-78, S2-79: a delta from before the activation is nobody's; one that
// began before it counts whole.
func TestDeltaOfActors(t *testing.T) {
	b := newActorBed(t, nil, "")
	b.at(1000)
	b.activate("a", 100, 100)
	b.delta(80, 90, 1, 0, 0, "before_activation")
	b.delta(90, 100, 1, 0, 0, "before_activation")
	b.delta(90, 110, 2, 1, 0, "")
	b.delta(120, 130, 4, 1, 0, "") // a gap
	b.delta(110, 120, 8, 0, 1, "") // and what was in it
	b.activate("a", 140, 140)
	b.delta(120, 130, 4, 0, 1, "") // a retry of what was not answered
	b.delta(130, 150, 16, 1, 0, "")
	b.check(actorRequests, tv{base + 110_000, 2}, tv{base + 130_000, 6}, tv{base + 150_000, 30})
	b.windows(Windows{Lost: 1, Late: 1, Repeated: 1, BeforeActivation: 2})
}

// S2-80: histograms alike, bucket by bucket; other bounds are a reset.
func TestCumulativeHistogramOfActors(t *testing.T) {
	b := newActorBed(t, nil, "")
	b.at(1000)
	send := func(start, end int64, bounds []float64, accepted, folded int64, counts ...uint64) {
		t.Helper()
		p := newPayload()
		h := p.metric("h", "").SetEmptyHistogram()
		h.SetAggregationTemporality(cumulative)
		dp := h.DataPoints().AppendEmpty()
		dp.SetStartTimestamp(pcommon.Timestamp((base + start*1000) * 1e6))
		dp.SetTimestamp(pcommon.Timestamp((base + end*1000) * 1e6))
		dp.ExplicitBounds().FromRaw(bounds)
		dp.BucketCounts().FromRaw(counts)
		for _, n := range counts {
			dp.SetCount(dp.Count() + n)
		}
		dp.SetSum(float64(10 * dp.Count()))
		b.take(p, accepted, folded, "")
	}
	b.activate("a", 100, 100)
	send(0, 110, []float64{1, 2}, 0, 1, 10, 10, 10) // baseline
	send(0, 120, []float64{1, 2}, 1, 0, 11, 10, 12)
	send(0, 120, []float64{1, 2}, 0, 1, 11, 10, 12) // a retry
	send(130, 140, []float64{1, 2}, 1, 0, 1, 1, 0)
	send(130, 150, []float64{1}, 1, 0, 2, 2)
	series := func(name, le string) string {
		if le != "" {
			le = `, le="` + le + `"`
		}
		return `{__name__="` + name + `", ate_actor_template_name="tpl", channel="ch1", instance="ch1", job="tpl"` + le + `}`
	}
	b.check(series("h_count", ""), tv{base + 110_000, 0}, tv{base + 120_000, 3}, tv{base + 140_000, 5}, tv{base + 150_000, 9})
	b.check(series("h_sum", ""), tv{base + 110_000, 0}, tv{base + 120_000, 30}, tv{base + 140_000, 50}, tv{base + 150_000, 90})
	b.check(series("h_bucket", "1"), tv{base + 110_000, 0}, tv{base + 120_000, 1}, tv{base + 140_000, 2}, tv{base + 150_000, 4})
	b.check(series("h_bucket", "2"), tv{base + 110_000, 0}, tv{base + 120_000, 1}, tv{base + 140_000, 3})
	b.check(series("h_bucket", "+Inf"), tv{base + 110_000, 0}, tv{base + 120_000, 3}, tv{base + 140_000, 5}, tv{base + 150_000, 9})
}

// S2-83, S2-84: what several streams of one series of a gauge, or of a sum that
// goes down, come to.
func TestGaugePolicies(t *testing.T) {
	const depth = `{__name__="queue_depth", ate_actor_template_name="tpl", channel="ch1", instance="ch1", job="tpl"}`
	f := func(policy Gauge, sum bool, want ...float64) {
		t.Helper()
		b := newActorBed(t, nil, policy)
		b.at(1000)
		b.activate("a", 0, 0)
		send := func(writer string, at int64, v float64) {
			t.Helper()
			p := newPayload()
			p.sm.Scope().SetName(writer)
			m := p.metric("queue.depth", "")
			dps := pcommon.Timestamp((base + at*1000) * 1e6)
			if sum {
				s := m.SetEmptySum()
				s.SetAggregationTemporality(cumulative)
				dp := s.DataPoints().AppendEmpty()
				dp.SetTimestamp(dps)
				dp.SetDoubleValue(v)
			} else {
				dp := m.SetEmptyGauge().DataPoints().AppendEmpty()
				dp.SetTimestamp(dps)
				dp.SetDoubleValue(v)
			}
			if _, err := b.act.Export(t.Context(), wireOf(t, p.md)); err != nil {
				t.Fatal(err)
			}
		}
		send("one", 10, 8)
		send("two", 20, 2)
		send("three", 30, 5)
		send("one", 400, 4) // the others are over five minutes old
		var got []float64
		for _, s := range b.values(depth) {
			got = append(got, s.v)
		}
		if len(got) != len(want) {
			t.Fatalf("%s: %v; want %v", policy, got, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: %v; want %v", policy, got, want)
			}
		}
	}
	for _, sum := range []bool{false, true} {
		f(GaugeLast, sum, 8, 2, 5, 4)
		f(GaugeMin, sum, 8, 2, 2, 4)
		f(GaugeMax, sum, 8, 8, 8, 4)
		f(GaugeAvg, sum, 8, 5, 5, 4)
	}
}

func labelsOf(pairs ...string) labels.Labels { return labels.FromStrings(pairs...) }
