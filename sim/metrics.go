package sim

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
)

// describe is the resource that stands over all metrics of the node. The
// instance id is the node's and the simulator's own (S0-94).
func describe(node string) *resource.Resource {
	return resource.NewSchemaless(
		attribute.String("k8s.node.name", node),
		attribute.String("host.name", node),
		attribute.String("service.name", "wattloop-sim"),
		attribute.String("service.instance.id", node+"/sim"),
	)
}

// Metrics are the node's meters as the last Tick left them, stamped with its
// time: hw.energy in joules, cumulative since the first Tick, hw.power in watts
// and hw.temperature in degrees Celsius of every package, memory and GPU,
// hw.cpu.speed in hertz of the packages, and the host as its own meter and inlet
// sensor read it.
func (n *Node) Metrics() *metricdata.ResourceMetrics {
	n.mu.Lock()
	defer n.mu.Unlock()
	var energy, power, heat, speed []metricdata.DataPoint[float64]
	host := *n.rest
	for _, u := range n.units()[1:] {
		host.joules += u.joules
		host.power += u.power
		attrs := u.attributes()
		energy = append(energy, n.point(attrs, u.joules))
		power = append(power, n.point(attrs, u.power))
		heat = append(heat, n.point(attrs, u.celsius))
		if u.maxHertz > 0 {
			speed = append(speed, n.point(attrs, u.frequency*u.maxHertz))
		}
	}
	none := *attribute.EmptySet()
	one := func(v float64) []metricdata.DataPoint[float64] {
		return []metricdata.DataPoint[float64]{n.point(none, v)}
	}
	return &metricdata.ResourceMetrics{
		Resource: n.resource,
		ScopeMetrics: []metricdata.ScopeMetrics{{
			Scope: instrumentation.Scope{Name: "github.com/wattloop/wattloop/sim"},
			Metrics: []metricdata.Metrics{
				counter("hw.energy", "J", "Energy that the component has used", energy),
				gauge("hw.power", "W", "Power that the component draws", power),
				gauge("hw.temperature", "Cel", "Temperature of the component", heat),
				gauge("hw.cpu.speed", "Hz", "Frequency that the package runs at", speed),
				counter("hw.host.energy", "J", "Energy that the host has used", one(host.joules)),
				gauge("hw.host.power", "W", "Power that the host draws", one(host.power)),
				gauge("hw.host.ambient_temperature", "Cel", "Temperature of the air at the inlet", one(air(n.at(n.now)))),
			},
		}},
	}
}

func (u *unit) attributes() attribute.Set {
	attrs := []attribute.KeyValue{attribute.String("hw.type", u.typ), attribute.String("hw.id", u.id)}
	if u.parent != "" {
		attrs = append(attrs, attribute.String("hw.parent", u.parent))
	}
	return attribute.NewSet(attrs...)
}

// point is a value at the node's time, of a counter since the node began.
func (n *Node) point(attrs attribute.Set, v float64) metricdata.DataPoint[float64] {
	return metricdata.DataPoint[float64]{Attributes: attrs, StartTime: n.begun, Time: n.now, Value: v}
}

func counter(name, unit, help string, points []metricdata.DataPoint[float64]) metricdata.Metrics {
	return metricdata.Metrics{Name: name, Unit: unit, Description: help, Data: metricdata.Sum[float64]{
		DataPoints: points, Temporality: metricdata.CumulativeTemporality, IsMonotonic: true,
	}}
}

func gauge(name, unit, help string, points []metricdata.DataPoint[float64]) metricdata.Metrics {
	return metricdata.Metrics{Name: name, Unit: unit, Description: help, Data: metricdata.Gauge[float64]{DataPoints: points}}
}
