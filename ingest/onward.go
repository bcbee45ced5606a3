package ingest

import (
	"context"
	"errors"
)

// Signal is one of OTLP's three.
type Signal string

const (
	SignalMetrics Signal = "metrics"
	SignalTraces  Signal = "traces"
	SignalLogs    Signal = "logs"
)

// Plane says whose telemetry a request is, so that the one kind never waits for
// the other on the way onward (S2-69).
type Plane string

const (
	PlanePlatform Plane = "platform" // of node channels, as it came
	PlaneWorkload Plane = "workload" // of workload channels, stamped
)

// Forwarded is one request on its way onward.
type Forwarded struct {
	Signal Signal
	Plane  Plane
	// Wire is an ExportMetricsServiceRequest, ExportTraceServiceRequest or
	// ExportLogsServiceRequest in protobuf: all that a channel has to set is set.
	Wire []byte
}

// Onward takes requests for an upstream. It is safe for concurrent use.
type Onward interface {
	// Forward returns once the request is queued, as durably as configured; the
	// bytes are the caller's again. An error means that it was not queued:
	// ErrNoRoom when the queue is full.
	Forward(ctx context.Context, f Forwarded) error
}

// ErrNoRoom says that the queue of an Onward is full.
var ErrNoRoom = errors.New("the queue to the upstream is full")

// plane is where a channel's requests go.
func (c *Channel) plane() Plane {
	if c.o.Class == Workload {
		return PlaneWorkload
	}
	return PlanePlatform
}

// forward hands one request onward and counts it.
func (c *Channel) forward(ctx context.Context, signal Signal, wire []byte) error {
	err := c.r.o.Onward.Forward(ctx, Forwarded{Signal: signal, Plane: c.plane(), Wire: wire})
	result := "queued"
	switch {
	case errors.Is(err, ErrNoRoom):
		result = "no_room"
	case err != nil:
		result = "failed"
	}
	c.r.metrics.onward.WithLabelValues(c.o.Name, string(signal), result).Inc()
	return err
}

// handMetrics hands a request onward that the store has committed. The store is
// where metrics are kept: what becomes of them beyond it changes no answer, and
// is counted.
func (a *Activation) handMetrics(ctx context.Context, wire []byte) {
	if a.c.r.o.Onward == nil || a.c.o.Class == Workload || len(wire) == 0 {
		return
	}
	_ = a.c.forward(ctx, SignalMetrics, wire) // counted
}
