// Package host reads the energy counters of the machine that it runs on and
// hands them in as OTLP, through the same door as everybody else's metrics. It
// opens nothing that only root may read: it is given the open counters.
package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
)

// Source publishes the energy of the machine's meters as hw.energy, in joules,
// cumulative and never falling while the process lives. A series starts at 0
// with the first reading, which is its start time, so that a restart of the
// process reads as a counter that began anew and never as a step.
type Source struct {
	Meters []Meter
	Node   string // k8s.node.name
	Host   string // host.name; empty: Node
	// Interval is the time between polls of Run; 0 means 1 s.
	Interval time.Duration
	Clock    func() time.Time                             // wall clock, stamped on the points
	Export   func(ctx context.Context, wire []byte) error // takes one ExportMetricsServiceRequest
	Log      *slog.Logger                                 // of Run; nil: silent

	components []*component
}

// Run polls at once and then every Interval, until ctx ends, and then returns
// nil. It reports a failure when it begins and when it is over, not at every poll.
func (s *Source) Run(ctx context.Context) error {
	log := s.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	interval := s.Interval
	if interval <= 0 {
		interval = time.Second
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	failing := ""
	for {
		err := s.Poll(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && numberless(err.Error()) != failing:
			log.Warn("host meters failed", "error", err)
			failing = numberless(err.Error())
		case err == nil && failing != "":
			log.Info("host meters are read again")
			failing = ""
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// numberless drops the digits, so that an error which counts something is said
// once.
func numberless(s string) string {
	return strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return -1
		}
		return r
	}, s)
}

// Poll reads every meter once and exports what was read. A component with a
// meter that cannot be read has no point in this poll, a gap and not a zero, and
// is in the error; the others are exported all the same. It is called by one
// goroutine at a time.
func (s *Source) Poll(ctx context.Context) error {
	if s.components == nil {
		s.components = components(s.Meters)
	}
	now := s.Clock()
	var failed []error
	var fresh []*component
	for _, c := range s.components {
		if back := c.last.Sub(now); back > time.Minute {
			c.start = time.Time{} // the clock was set: the series starts anew on the new one
		} else if back >= 0 {
			failed = append(failed, fmt.Errorf("host: %s: the clock did not advance since the last poll", c.id))
			continue
		}
		if err := c.poll(now); err != nil {
			failed = append(failed, err)
			continue
		}
		fresh = append(fresh, c)
	}
	if len(fresh) > 0 {
		wire, err := pmetricotlp.NewExportRequestFromMetrics(s.metrics(fresh)).MarshalProto()
		if err == nil {
			err = s.Export(ctx, wire)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("host: export: %w", err))
		}
	}
	return errors.Join(failed...)
}

// metrics is one resource with one sum. The instance id is the node's and this
// source's own, so that no other producer on the node shares it (S0-94).
func (s *Source) metrics(fresh []*component) pmetric.Metrics {
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	hostName := s.Host
	if hostName == "" {
		hostName = s.Node
	}
	put := func(attrs pcommon.Map, pairs ...string) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i+1] != "" {
				attrs.PutStr(pairs[i], pairs[i+1])
			}
		}
	}
	put(rm.Resource().Attributes(),
		"k8s.node.name", s.Node,
		"host.name", hostName,
		"service.name", "wattloop",
		"service.instance.id", s.Node+"/host")
	sm := rm.ScopeMetrics().AppendEmpty()
	sm.Scope().SetName("github.com/wattloop/wattloop/ingest/host")
	energy := sm.Metrics().AppendEmpty()
	energy.SetName("hw.energy")
	energy.SetDescription("Energy that the component has used")
	energy.SetUnit("J")
	sum := energy.SetEmptySum()
	sum.SetIsMonotonic(true)
	sum.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	for _, c := range fresh {
		p := sum.DataPoints().AppendEmpty()
		p.SetStartTimestamp(pcommon.NewTimestampFromTime(c.start))
		p.SetTimestamp(pcommon.NewTimestampFromTime(c.last))
		p.SetDoubleValue(float64(c.total) / 1e6)
		put(p.Attributes(), "hw.type", c.typ, "hw.id", c.id, "hw.parent", c.parent)
	}
	return md
}
