package ingest

import "context"

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
	{"/v1/traces", "opentelemetry.proto.collector.trace.v1.TraceService", "rejectedSpans", exportRecords(SignalTraces, &traceLevels)},
	{"/v1/logs", "opentelemetry.proto.collector.logs.v1.LogsService", "rejectedLogRecords", exportRecords(SignalLogs, &logLevels)},
}

func exportMetrics(s *Server, ctx context.Context, enc encoding, body []byte) (partial, error) {
	if s.r.o.Pass != nil {
		return s.pass(ctx, SignalMetrics, enc, body)
	}
	export := s.a.Export
	if enc == encodingJSON {
		export = s.a.ExportJSON
	}
	result, err := export(ctx, body)
	if err != nil || result.Rejected == 0 {
		return partial{}, err
	}
	return partial{rejected: result.Rejected, message: result.Message}, nil
}

func exportRecords(g Signal, l *levels) func(*Server, context.Context, encoding, []byte) (partial, error) {
	return func(s *Server, ctx context.Context, enc encoding, body []byte) (partial, error) {
		if s.r.o.Pass != nil {
			return s.pass(ctx, g, enc, body)
		}
		result, err := s.a.exportRecords(ctx, l, enc == encodingJSON, body)
		if err != nil || result.Rejected == 0 {
			return partial{}, err
		}
		return partial{rejected: result.Rejected, message: result.Message}, nil
	}
}
