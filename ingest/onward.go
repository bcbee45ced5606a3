package ingest

import (
	"context"
	"errors"
	"fmt"
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
func (c *Channel) forward(ctx context.Context, to Onward, signal Signal, wire []byte) error {
	err := to.Forward(ctx, Forwarded{Signal: signal, Plane: c.plane(), Wire: wire})
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

// stamperOf is newStamper where there is an upstream, else nil.
func (a *Activation) stamperOf(signal Signal) *stamper {
	if a.c.r.o.Onward == nil && a.c.r.o.Elsewhere == nil {
		return nil
	}
	return a.newStamper(signal)
}

// newStamper makes ready to hand a request of the signal onward.
func (a *Activation) newStamper(signal Signal) *stamper {
	s, _ := a.c.r.stampers.Get().(*stamper)
	if s == nil {
		s = &stamper{}
	}
	s.reset()
	s.st, s.set, s.only, s.nodes, s.since = a.src.stamp, nil, nil, nil, a.src.since
	switch {
	case s.st == nil:
		s.nodes = a.c.o.Nodes
	case signal == SignalMetrics:
		// A resource of a metric is bounded as its series are: what else a workload
		// says of itself there has as many values as it likes.
		s.set, s.only = s.st.metric, []string{containerName}
	default:
		s.set = s.st.all
	}
	return s
}

func (r *Receiver) recycle(s *stamper) {
	if s != nil {
		r.stampers.Put(s)
	}
}

// points is where the walk decides; nil where the request goes on as it came.
func (s *stamper) points() *[]decision {
	if s == nil || s.st == nil {
		return nil
	}
	return &s.decisions
}

// keepElsewhere hands metrics to where they are kept: who sent them is told of an
// error. A workload's go there under the Receiver's lock, before what they count
// is remembered: else what found no room would be taken for a retry when it is
// sent again, and go nowhere.
func (a *Activation) keepElsewhere(ctx context.Context, s *stamper, wire []byte) error {
	to := a.c.r.o.Elsewhere
	if to == nil {
		return nil
	}
	wire = s.metrics(wire)
	switch {
	case s.over:
		a.c.r.metrics.onward.WithLabelValues(a.c.o.Name, string(SignalMetrics), "failed").Inc()
		return undecodable("the identity of each of so many resources would make the request too large")
	case len(wire) == 0:
		return nil
	}
	if err := a.c.forward(ctx, to, SignalMetrics, wire); err != nil {
		return &UnavailableError{fmt.Errorf("otlp: metrics: %w: send them again later", err)}
	}
	return nil
}

// sendOnward hands metrics to the upstream, beside being kept: what becomes of them
// there changes no answer, and is counted.
func (a *Activation) sendOnward(ctx context.Context, s *stamper, wire []byte) {
	to := a.c.r.o.Onward
	if to == nil {
		return
	}
	wire = s.metrics(wire)
	switch {
	case s.over:
		a.c.r.metrics.onward.WithLabelValues(a.c.o.Name, string(SignalMetrics), "failed").Inc()
	case len(wire) > 0:
		_ = a.c.forward(ctx, to, SignalMetrics, wire) // counted
	}
}

// metrics is a request of metrics as it goes on.
func (s *stamper) metrics(wire []byte) []byte {
	if s.st == nil && len(s.nodes) == 0 {
		return wire
	}
	if !s.rewritten {
		s.rewritten = true
		s.rewrite(&metricLevels, wire)
	}
	return s.out
}
