package sim

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// Sender hands metrics to an OTLP receiver through the exporter of the
// OpenTelemetry SDK, as any other program would.
type Sender struct{ exporter metric.Exporter }

// Deadlines of one request, and of trying it again while the receiver is not
// there yet or answers that it is busy.
const (
	requestTimeout = 5 * time.Second
	retryFirst     = 100 * time.Millisecond
	retryLongest   = time.Second
)

// DialHTTP makes a sender of OTLP/HTTP to http://host:port/v1/metrics, in
// protobuf.
func DialHTTP(ctx context.Context, address string) (*Sender, error) {
	e, err := otlpmetrichttp.New(ctx,
		otlpmetrichttp.WithEndpoint(address), otlpmetrichttp.WithInsecure(), otlpmetrichttp.WithTimeout(requestTimeout),
		otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig{Enabled: true, InitialInterval: retryFirst, MaxInterval: retryLongest, MaxElapsedTime: requestTimeout}))
	if err != nil {
		return nil, fmt.Errorf("sim: otlp to %s: %w", address, err)
	}
	return &Sender{e}, nil
}

// Send returns when the receiver has acknowledged all of it; it has stored the
// points then. A refused point is an error.
func (s *Sender) Send(ctx context.Context, metrics *metricdata.ResourceMetrics) error {
	if err := s.exporter.Export(ctx, metrics); err != nil {
		return fmt.Errorf("sim: send: %w", err)
	}
	return nil
}

// Close gives up the connection.
func (s *Sender) Close(ctx context.Context) error { return s.exporter.Shutdown(ctx) }
