package ingest

import (
	"context"
	"fmt"
	"strings"
)

// ExportTraces hands one ExportTraceServiceRequest in protobuf wire bytes
// onward: from a node channel as it came, from a workload channel stamped. The
// Result counts spans. Without an upstream all are rejected. The error is a
// *DecodeError, an *UnavailableError, or says which limit of the channel or the
// process keeps it from being taken now. The bytes may be reused once it returns.
func (a *Activation) ExportTraces(ctx context.Context, wire []byte) (Result, error) {
	return a.exportRecords(ctx, &traceLevels, false, wire)
}

// ExportLogs is ExportTraces for an ExportLogsServiceRequest and its log
// records.
func (a *Activation) ExportLogs(ctx context.Context, wire []byte) (Result, error) {
	return a.exportRecords(ctx, &logLevels, false, wire)
}

// exportRecords takes a trace or logs request to the upstream.
func (a *Activation) exportRecords(ctx context.Context, l *levels, isJSON bool, body []byte) (Result, error) {
	if !a.enter() {
		return Result{}, &UnavailableError{errEnded}
	}
	defer a.leave()
	if isJSON {
		wire, free, err := a.c.wireOf(l.json, body)
		defer free()
		if err != nil {
			return Result{}, err
		}
		body = wire
	}
	s := a.newStamper(l.signal)
	defer a.c.r.recycle(s)
	found, err := s.scanRecords(l, body)
	if err != nil {
		return Result{}, err
	}
	a.c.spendPoints(found.n)
	refused := found.refused(l)
	if a.c.r.o.Onward == nil {
		refused = []refusal{{"no_upstream", int64(found.n), "no upstream takes " + l.what + ": only metrics are stored here"}}
	} else if found.kept() > 0 {
		if err := a.handRecords(ctx, l, s, &found, body); err != nil {
			return Result{}, err
		}
	}
	return a.c.countRecords(l, int64(found.n), refused), nil
}

// handRecords hands what was not refused onward. The sender keeps it until that
// has worked.
func (a *Activation) handRecords(ctx context.Context, l *levels, s *stamper, found *records, wire []byte) error {
	if err := ctx.Err(); err != nil {
		return &UnavailableError{err}
	}
	if s.st != nil || found.kept() < found.n {
		// As long again, and what the channel says on each resource.
		inFlight, n := &a.c.r.inFlight, int64(len(wire))
		if err := inFlight.take(a.c, n); err != nil {
			return err
		}
		defer inFlight.give(a.c, n)
		s.rewrite(l, wire)
		wire = s.out
	}
	if s.over {
		return undecodable("%d %s of so many resources: the identity of each would make the request too large", found.n, l.what)
	}
	if err := a.c.forward(ctx, a.c.r.o.Onward, l.signal, wire); err != nil {
		a.c.r.metrics.records.WithLabelValues(a.c.o.Name, string(l.signal), "rejected", unavailable.String()).Add(float64(found.kept()))
		return &UnavailableError{fmt.Errorf("otlp: %s: %w: send it again later", l.signal, err)}
	}
	return nil
}

// refusal is why some records go nowhere.
type refusal struct {
	reason string
	n      int64
	text   string
}

func (r *records) refused(l *levels) (list []refusal) {
	if r.invalid > 0 {
		list = append(list, refusal{invalidUTF8.String(), int64(r.invalid), fmt.Sprintf("%d %s with a text that is not valid UTF-8", r.invalid, l.what)})
	}
	if r.foreign > 0 {
		list = append(list, refusal{foreignNode.String(), int64(r.foreign), fmt.Sprintf("%d %s of a k8s.node.name that the channel does not take", r.foreign, l.what)})
	}
	if r.beyond > 0 {
		list = append(list, refusal{"records_limit", int64(r.beyond), fmt.Sprintf("%d %s: more than %d in one request", r.beyond, l.what, maxRecords)})
	}
	return list
}

// countRecords makes the Result of a request of n records.
func (c *Channel) countRecords(l *levels, n int64, refused []refusal) Result {
	count := func(result, reason string, n int64) {
		c.r.metrics.records.WithLabelValues(c.o.Name, string(l.signal), result, reason).Add(float64(n))
	}
	res := Result{Accepted: n}
	var b strings.Builder
	for _, r := range refused {
		if r.n == 0 {
			continue
		}
		if res.ByReason == nil {
			res.ByReason = map[string]int64{}
		} else {
			b.WriteString("; ")
		}
		res.ByReason[r.reason] = r.n
		res.Rejected += r.n
		b.WriteString(r.text)
		count("rejected", r.reason, r.n)
	}
	res.Accepted -= res.Rejected
	res.Message = b.String()
	if res.Accepted > 0 {
		count("accepted", "", res.Accepted)
	}
	return res
}
