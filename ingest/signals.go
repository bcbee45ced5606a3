package ingest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// signal is one of OTLP's three: where it is sent to and what is done with it.
type signal struct {
	path     string // OTLP/HTTP
	service  string // gRPC, full name
	rejected string // the JSON name of the count in its partial success
	export   func(s *Server, ctx context.Context, enc encoding, body []byte) (partial, error)
}

// signals are fixed; a new one is a line here.
var signals = []signal{
	{"/v1/metrics", "opentelemetry.proto.collector.metrics.v1.MetricsService", "rejectedDataPoints", exportMetrics},
	{"/v1/traces", "opentelemetry.proto.collector.trace.v1.TraceService", "rejectedSpans",
		discard("spans", "resourceSpans", "scopeSpans", "spans")},
	{"/v1/logs", "opentelemetry.proto.collector.logs.v1.LogsService", "rejectedLogRecords",
		discard("log records", "resourceLogs", "scopeLogs", "logRecords")},
}

func exportMetrics(s *Server, ctx context.Context, enc encoding, body []byte) (partial, error) {
	export := s.a.Export
	if enc == encodingJSON {
		export = s.a.ExportJSON
	}
	result, err := export(ctx, body)
	if err != nil || result.Rejected == 0 {
		return partial{}, err
	}
	return partial{result.Rejected, result.Message}, nil
}

// discard rejects all of a signal that has nowhere to go, with its exact count:
// a sender that is told "not found" would log an error for each batch, and one
// that is told nothing would believe that its spans are kept. The names are
// those of the three levels in OTLP's JSON mapping.
func discard(what, resources, scopes, records string) func(*Server, context.Context, encoding, []byte) (partial, error) {
	return func(_ *Server, _ context.Context, enc encoding, body []byte) (partial, error) {
		count := func(b []byte) (int64, error) { return countWire(b, 3) }
		if enc == encodingJSON {
			count = func(b []byte) (int64, error) { return countJSON(b, resources, scopes, records) }
		}
		n, err := count(body)
		if err != nil {
			return partial{}, &DecodeError{fmt.Errorf("otlp: %s: %w", what, err)}
		}
		if n == 0 {
			return partial{}, nil
		}
		return partial{n, fmt.Sprintf("no upstream takes %s: only metrics are stored here", what)}, nil
	}
}

// countWire counts the records of a trace or logs request: field 1 of the
// request, field 2 of each resource, field 2 of each scope.
func countWire(b []byte, levels int) (int64, error) {
	records := uint32(2)
	if levels == 3 {
		records = 1
	}
	var count int64
	f := fields{b: b}
	for f.next() {
		switch {
		case f.num != records || f.typ != wireBytes:
		case levels == 1:
			count++
		default:
			n, err := countWire(f.data, levels-1)
			if err != nil {
				return 0, err
			}
			count += n
		}
	}
	if f.broken {
		return 0, errors.New("not protobuf")
	}
	return count, nil
}

// countJSON is countWire for the JSON mapping; each step goes one of the named
// lists deeper.
func countJSON(b []byte, names ...string) (int64, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(b, &fields); err != nil {
		return 0, plainJSONError(err)
	}
	if fields == nil {
		return 0, errNoObject
	}
	list := bytes.TrimSpace(fields[names[0]])
	if len(list) == 0 || bytes.Equal(list, []byte("null")) {
		return 0, nil
	}
	var items []json.RawMessage
	if err := json.Unmarshal(list, &items); err != nil {
		return 0, plainJSONError(err)
	}
	if len(names) == 1 {
		return int64(len(items)), nil
	}
	var count int64
	for _, item := range items {
		n, err := countJSON(item, names[1:]...)
		if err != nil {
			return 0, err
		}
		count += n
	}
	return count, nil
}

var errNoObject = errors.New("not a request: want objects and lists of objects")

// plainJSONError says what a sender can act on, without Go's type names.
func plainJSONError(err error) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("not JSON at byte %d", syntax.Offset)
	}
	return errNoObject
}
