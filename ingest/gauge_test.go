package ingest

import (
	"math"
	"testing"

	"github.com/prometheus/prometheus/model/value"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// S2-84, S2-81: a NaN of one stream hides nobody else's value, and a stream that says
// it has none any more leaves the group at once.
func TestGaugeGroupOfNaNAndEnd(t *testing.T) {
	const depth = `{__name__="queue_depth", ate_actor_template_name="tpl", channel="ch1", instance="ch1", job="tpl"}`
	nan, ended := math.NaN(), math.Inf(-1) // ended stands for "no recorded value"
	type point struct {
		writer string
		at     int64
		v      float64
	}
	f := func(policy Gauge, points []point, want ...float64) {
		t.Helper()
		b := newActorBed(t, nil, policy)
		b.at(1000)
		b.activate("a", 0, 0)
		for _, x := range points {
			p := newPayload()
			p.sm.Scope().SetName(x.writer)
			dp := p.metric("queue.depth", "").SetEmptyGauge().DataPoints().AppendEmpty()
			dp.SetTimestamp(pcommon.Timestamp((base + x.at*1000) * 1e6))
			if dp.SetDoubleValue(x.v); x.v == ended {
				dp.SetFlags(pmetric.DefaultDataPointFlags.WithNoRecordedValue(true))
			}
			if _, err := b.act.Export(t.Context(), wireOf(t, p.md)); err != nil {
				t.Fatal(err)
			}
		}
		var got []float64
		for _, s := range b.values(depth) {
			if value.IsStaleNaN(s.v) {
				s.v = ended
			}
			got = append(got, s.v)
		}
		same := len(got) == len(want)
		for i := range got {
			same = same && (got[i] == want[i] || got[i] != got[i] && want[i] != want[i])
		}
		if !same {
			t.Errorf("%s: %v; want %v", policy, got, want)
		}
	}
	nans := []point{{"one", 10, nan}, {"two", 20, 2}, {"three", 30, 6}, {"one", 40, 10}, {"two", 50, nan}}
	f(GaugeMin, nans, nan, 2, 2, 2, 6)
	f(GaugeMax, nans, nan, 2, 6, 10, 10)
	f(GaugeAvg, nans, nan, 2, 4, 6, 8)
	f(GaugeLast, nans, nan, 2, 6, 10, nan)
	ends := []point{{"one", 10, 8}, {"two", 20, 2}, {"two", 30, ended}, {"two", 35, ended}, {"one", 40, ended}, {"one", 50, 5}}
	f(GaugeMin, ends, 8, 2, 8, ended, 5)
	f(GaugeMax, ends, 8, 8, 8, ended, 5)
	f(GaugeAvg, ends, 8, 5, 8, ended, 5)
	f(GaugeLast, ends, 8, 2, 5)
	// An end that is older than the stream's value ends nothing.
	f(GaugeMin, []point{{"one", 10, 8}, {"two", 20, 2}, {"two", 15, ended}, {"one", 30, 9}}, 8, 2, 2)
}
