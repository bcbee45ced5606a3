package sim_test

import (
	"slices"
	"testing"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/wattloop/wattloop/presets/names"
	"github.com/wattloop/wattloop/sim"
)

// S0-91: what the node sends stands in the one table, with its unit and kind.
func TestNamesAreInTheTable(t *testing.T) {
	n := newNode(t, sim.Config{GPUs: 1})
	tick(t, n, 0)
	known := func(attribute string) bool {
		return slices.ContainsFunc(names.Attributes(), func(a names.Attribute) bool { return a.Name == attribute })
	}
	for _, m := range n.Metrics().ScopeMetrics[0].Metrics {
		kind, points := names.Gauge, []metricdata.DataPoint[float64]{}
		switch d := m.Data.(type) {
		case metricdata.Sum[float64]:
			kind, points = names.Counter, d.DataPoints
		case metricdata.Gauge[float64]:
			points = d.DataPoints
		}
		if want, ok := names.Lookup(m.Name); !ok || want.Unit != m.Unit || want.Kind != kind {
			t.Errorf("%s in %s, a %s: the table says %+v, %v", m.Name, m.Unit, kind, want, ok)
		}
		for _, p := range points {
			for _, a := range p.Attributes.ToSlice() {
				if !known(string(a.Key)) {
					t.Errorf("%s carries %s, which is not in the table", m.Name, a.Key)
				}
			}
		}
	}
	for _, a := range n.Metrics().Resource.Attributes() {
		if !known(string(a.Key)) {
			t.Errorf("the resource carries %s, which is not in the table", a.Key)
		}
	}
}
