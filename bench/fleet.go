package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
)

const (
	seriesPerNode   = 100
	nodesPerRequest = 10
	pointsPerBody   = seriesPerNode * nodesPerRequest
	tickMillis      = 5000 // between two points of a series
)

// shape is how the values of a series move: what a store makes of them in bytes
// and in time hangs on it.
type shape uint8

const (
	walk    shape = iota // a gauge in steps of a thousandth around a level
	whole                // a gauge in whole numbers around a level
	joules               // a counter that a walk feeds
	octets               // a counter of whole numbers
	resting              // a counter that hardly ever moves
)

// fleetSeries is one series of each node.
type fleetSeries struct {
	metric, unit, id, typ, more string // more: the value of a third attribute, direction
	shape                       shape
	level                       float64
}

// The first part of the names of the metrics: with unread no preset reads them,
// as no rule of the peers does, and what is measured is the way in; with read the
// presets evaluate a fifth of the series beside it, node by node.
const (
	unread = "rack"
	read   = "hw"
)

// nodeSeries lists the hundred series of a node with eight GPUs.
func nodeSeries(domain string) []fleetSeries {
	var out []fleetSeries
	each := func(metric, unit, typ string, n int, s shape, level float64, more string) {
		for i := range n {
			out = append(out, fleetSeries{domain + "." + metric, unit, fmt.Sprintf("%s-%02d-0000:%02x:00.0", typ, i, 16*i+3), typ, more, s, level})
		}
	}
	for _, m := range []struct {
		metric, unit string
		shape        shape
		level        float64
	}{
		{"energy", "J", joules, 300}, {"power", "W", walk, 300},
		{"temperature", "Cel", whole, 58}, {"clock", "MHz", whole, 1700},
	} {
		each(m.metric, m.unit, "cpu", 2, m.shape, m.level/2, "")
		each(m.metric, m.unit, "gpu", 8, m.shape, m.level, "")
	}
	each("gpu.utilization", "1", "gpu", 8, walk, 0.8, "")
	each("gpu.memory.usage", "By", "gpu", 8, whole, 40<<30, "")
	for _, way := range []string{"receive", "transmit"} {
		each("gpu.io", "By", "gpu", 8, octets, 2e9, way)
		each("network.io", "By", "nic", 4, octets, 5e8, way)
	}
	each("errors", "{error}", "gpu", 8, resting, 0, "")
	each("fan.speed", "rpm", "fan", 8, whole, 7200, "")
	each("supply.power", "W", "psu", 4, walk, 900, "")
	return out
}

// body is one request, serialised, and where in it the times and values stand.
type body struct {
	wire   []byte
	points []livePoint
	rand   *rand.Rand
}

type livePoint struct {
	time, value int // offsets in wire
	series      *fleetSeries
	v, feed     float64
}

// The places of a point are found by what stands there at first: a mark and the
// point's number in the lowest three bytes.
const (
	timeMark  = 0x1a2b3c4d5e000000
	startMark = 0x17f0000000000000 // in 2024; it stays
	valueMark = 0x3f9a8b7c6d000000
)

// newBody makes the request of the ten nodes from number first on.
func newBody(domain string, first int) (*body, error) {
	b := &body{rand: rand.New(rand.NewPCG(uint64(first), 7))}
	md := pmetric.NewMetrics()
	series := nodeSeries(domain)
	for n := first; n < first+nodesPerRequest; n++ {
		b.addNode(md.ResourceMetrics().AppendEmpty(), n, series)
	}
	var err error
	if b.wire, err = pmetricotlp.NewExportRequestFromMetrics(md).MarshalProto(); err != nil {
		return nil, err
	}
	found := 0
	for i := 0; i+8 <= len(b.wire); i++ {
		word := binary.LittleEndian.Uint64(b.wire[i:])
		at := int(word & 0xffffff)
		switch word &^ 0xffffff {
		case timeMark:
			b.points[at].time = i
			found++
		case valueMark:
			b.points[at].value = i
			found++
		}
	}
	if found != 2*len(b.points) {
		return nil, errors.New("BUG: the marks of a request were not all found once")
	}
	return b, nil
}

func (b *body) addNode(rm pmetric.ResourceMetrics, n int, series []fleetSeries) {
	name := nodeName(n)
	for _, kv := range [][2]string{{"service.name", "hwagent"}, {"service.instance.id", name}, {"k8s.node.name", name},
		{"host.name", name}, {"k8s.cluster.name", "east-1"}} {
		rm.Resource().Attributes().PutStr(kv[0], kv[1])
	}
	sm := rm.ScopeMetrics().AppendEmpty()
	sm.Scope().SetName("hwagent")
	var points pmetric.NumberDataPointSlice
	for i := range series {
		s := &series[i]
		if i == 0 || s.metric != series[i-1].metric {
			m := sm.Metrics().AppendEmpty()
			m.SetName(s.metric)
			m.SetUnit(s.unit)
			points = s.data(m)
		}
		p := points.AppendEmpty()
		p.SetTimestamp(pcommon.Timestamp(timeMark | len(b.points)))
		if s.counts() {
			p.SetStartTimestamp(startMark)
		}
		p.SetDoubleValue(math.Float64frombits(valueMark | uint64(len(b.points))))
		p.Attributes().PutStr("hw.type", s.typ)
		p.Attributes().PutStr("hw.id", s.id)
		if s.more != "" {
			p.Attributes().PutStr("direction", s.more)
		}
		b.points = append(b.points, livePoint{series: s, v: s.start(), feed: s.level})
	}
}

func nodeName(n int) string { return fmt.Sprintf("worker-%05d", n) }

// start is a series' first value.
func (s *fleetSeries) start() float64 {
	if s.counts() {
		return 0
	}
	return s.level
}

func (s *fleetSeries) counts() bool { return s.shape >= joules }

func (s *fleetSeries) data(m pmetric.Metric) pmetric.NumberDataPointSlice {
	if !s.counts() {
		return m.SetEmptyGauge().DataPoints()
	}
	sum := m.SetEmptySum()
	sum.SetIsMonotonic(true)
	sum.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	return sum.DataPoints()
}

// patch writes the next values and their time, Unix milliseconds, into the wire
// bytes.
func (b *body) patch(ms int64) {
	for i := range b.points {
		p := &b.points[i]
		p.move(b.rand.Float64() - 0.5)
		binary.LittleEndian.PutUint64(b.wire[p.time:], uint64(ms)*1e6)
		binary.LittleEndian.PutUint64(b.wire[p.value:], math.Float64bits(p.v))
	}
}

// move takes one step; u lies in [-0.5, 0.5).
func (p *livePoint) move(u float64) {
	const seconds = tickMillis / 1000
	level := p.series.level
	around := func(v, step float64) float64 {
		return math.Round((v+u*step*level-0.02*(v-level))*1000) / 1000
	}
	switch p.series.shape {
	case walk:
		p.v = around(p.v, 0.05)
	case whole:
		if u > 0.1 || u < -0.1 {
			p.v = math.Round(level * (1 + u*0.05))
		}
	case joules:
		p.feed = around(p.feed, 0.05)
		p.v = math.Round((p.v+p.feed*seconds)*1000) / 1000
	case octets:
		p.v += math.Round(level * seconds * (1 + u))
	case resting:
		if u > 0.4999 {
			p.v++
		}
	}
}

// fleet makes the requests of so many series.
func fleet(domain string, series int) ([]*body, error) {
	var out []*body
	for first := 0; first < series/seriesPerNode; first += nodesPerRequest {
		b, err := newBody(domain, first)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}
