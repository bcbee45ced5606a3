package ingest

import (
	"math"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// reliability.md section 2, "NaN/Inf": no sender makes a running sum infinite, which
// it would stay for all who share the series. A sum that is full begins anew.
func TestSumsStayFinite(t *testing.T) {
	b := newActorBed(t, nil, "")
	b.at(1000)
	b.activate("a", 0, 0)
	values := []float64{math.MaxFloat64, math.MaxFloat64, 1, -math.MaxFloat64, math.MaxFloat64, math.MaxFloat64}
	for _, temporality := range []string{"delta", "cumulative"} {
		of := delta
		if temporality == "cumulative" {
			of = cumulative
		}
		for i, v := range values {
			start, end := int64(i)*1000, int64(i)*1000+1000
			if of == cumulative {
				start = 0
			}
			p := newPayload()
			if v > 0 {
				p.sum(temporality, "", of, start, end, v)
			}
			h := p.histogram("h."+temporality, end, []float64{1}, 1, uint64(i))
			h.SetSum(v)
			h.SetStartTimestamp(pcommon.Timestamp((base + start) * 1e6))
			p.sm.Metrics().At(p.sm.Metrics().Len() - 1).Histogram().SetAggregationTemporality(of)
			e := p.exponential("e."+temporality, end, of, 0, 0, 1, uint64(i))
			e.SetSum(v)
			e.SetStartTimestamp(pcommon.Timestamp((base + start) * 1e6))
			if res, err := b.act.Export(t.Context(), wireOf(t, p.md)); err != nil || res.Rejected > 0 {
				t.Fatalf("%s %d: %+v, %v", temporality, i, res, err)
			}
		}
	}
	n := 0
	for _, s := range b.r.w.sums.sums {
		for ; s != nil; s = s.same {
			n++
			if sum := s.v; math.IsInf(sum, 0) || math.IsNaN(sum) {
				t.Errorf("%s is %g", s.labels, sum)
			}
			if s.f != nil && (math.IsInf(s.f.Sum, 0) || math.IsNaN(s.f.Sum)) {
				t.Errorf("%s has the sum %g", s.labels, s.f.Sum)
			}
		}
	}
	if n < 10 {
		t.Errorf("%d running sums; want those of two counters and four histograms", n)
	}
	const full = `{__name__="delta_total", ate_actor_template_name="tpl", channel="ch1", instance="ch1", job="tpl"}`
	b.check(full, tv{base + 1000, math.MaxFloat64}, tv{base + 2000, math.MaxFloat64}, tv{base + 3000, math.MaxFloat64},
		tv{base + 5000, math.MaxFloat64}, tv{base + 6000, math.MaxFloat64})
}
