package host

import (
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wattloop/wattloop/presets/names"
)

// batch is one request that is being filled. Unit, kind and description of a
// metric are those of the table of names.
type batch struct {
	now    time.Time
	md     pmetric.Metrics
	scope  pmetric.ScopeMetrics
	byName map[string]pmetric.Metric
}

// newBatch begins a request for what is read at now. The instance id is the
// node's and this source's own, so that no other producer on the node shares it
// (S0-94).
func newBatch(node, host string, now time.Time) *batch {
	if host == "" {
		host = node
	}
	b := &batch{now: now, md: pmetric.NewMetrics(), byName: map[string]pmetric.Metric{}}
	rm := b.md.ResourceMetrics().AppendEmpty()
	put(rm.Resource().Attributes(), []string{
		"k8s.node.name", node,
		"host.name", host,
		"service.name", "wattloop",
		"service.instance.id", node + "/host",
	})
	b.scope = rm.ScopeMetrics().AppendEmpty()
	b.scope.Scope().SetName("github.com/wattloop/wattloop/ingest/host")
	return b
}

func (b *batch) empty() bool { return len(b.byName) == 0 }

// put sets pairs of a key and a text; an empty text is no attribute.
func put(m pcommon.Map, pairs []string) {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			m.PutStr(pairs[i], pairs[i+1])
		}
	}
}

// value adds a point of a gauge, or of a sum that may fall.
func (b *batch) value(name string, v float64, attrs ...string) {
	b.point(name, time.Time{}, v, attrs)
}

// count adds a point of a counter that began at start.
func (b *batch) count(name string, start time.Time, v float64, attrs ...string) {
	b.point(name, start, v, attrs)
}

func (b *batch) point(name string, start time.Time, v float64, attrs []string) {
	m, ok := b.byName[name]
	if !ok {
		m = b.metric(name)
		b.byName[name] = m
	}
	var p pmetric.NumberDataPoint
	if m.Type() == pmetric.MetricTypeGauge {
		p = m.Gauge().DataPoints().AppendEmpty()
	} else {
		p = m.Sum().DataPoints().AppendEmpty()
	}
	if !start.IsZero() {
		p.SetStartTimestamp(pcommon.NewTimestampFromTime(start))
	}
	p.SetTimestamp(pcommon.NewTimestampFromTime(b.now))
	p.SetDoubleValue(v)
	put(p.Attributes(), attrs)
}

func (b *batch) metric(name string) pmetric.Metric {
	known, ok := names.Lookup(name)
	if !ok {
		panic("BUG: host: " + name + " is not in the table of names")
	}
	m := b.scope.Metrics().AppendEmpty()
	m.SetName(name)
	m.SetDescription(known.About)
	m.SetUnit(known.Unit)
	if known.Kind == names.Gauge {
		m.SetEmptyGauge()
		return m
	}
	sum := m.SetEmptySum()
	sum.SetIsMonotonic(known.Kind == names.Counter)
	sum.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	return m
}
