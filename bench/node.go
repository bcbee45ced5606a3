package main

import (
	"fmt"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
)

// node makes the requests of one machine: two CPU packages, some GPUs, and
// gauges up to a number of series.
type node struct {
	name   string
	gpus   int
	series int
	joules map[string]float64
}

func newNode(name string, gpus, series int) *node {
	return &node{name, gpus, series, map[string]float64{}}
}

// request is one export at t: watts by component drive the counters over dt.
func (n *node) request(t time.Time, dt time.Duration, watts func(component string) float64) []byte {
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	rm.Resource().Attributes().PutStr("k8s.node.name", n.name)
	rm.Resource().Attributes().PutStr("service.name", "bench")
	rm.Resource().Attributes().PutStr("service.instance.id", n.name)
	ms := rm.ScopeMetrics().AppendEmpty().Metrics()
	ts := pcommon.NewTimestampFromTime(t)

	energy := ms.AppendEmpty()
	energy.SetName("hw.energy")
	energy.SetUnit("J")
	sum := energy.SetEmptySum()
	sum.SetIsMonotonic(true)
	sum.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	power := ms.AppendEmpty()
	power.SetName("hw.power")
	power.SetUnit("W")
	gauge := power.SetEmptyGauge()

	left := n.series
	for i := range 2 + n.gpus {
		id, typ := fmt.Sprintf("cpu%d", i), "cpu"
		if i >= 2 {
			id, typ = fmt.Sprintf("gpu%d", i-2), "gpu"
		}
		w := watts(id)
		n.joules[id] += w * dt.Seconds()
		point(sum.DataPoints().AppendEmpty(), ts, id, typ, n.joules[id])
		point(gauge.DataPoints().AppendEmpty(), ts, id, typ, w)
		left -= 2
	}
	other := ms.AppendEmpty()
	other.SetName("bench.sensor")
	g := other.SetEmptyGauge()
	for i := range left {
		point(g.DataPoints().AppendEmpty(), ts, fmt.Sprintf("sensor%d", i), "other", float64(t.UnixMilli()%1000+int64(i)))
	}
	b, err := pmetricotlp.NewExportRequestFromMetrics(md).MarshalProto()
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return b
}

func point(p pmetric.NumberDataPoint, ts pcommon.Timestamp, id, typ string, v float64) {
	p.SetTimestamp(ts)
	p.Attributes().PutStr("hw.id", id)
	p.Attributes().PutStr("hw.type", typ)
	p.SetDoubleValue(v)
}
