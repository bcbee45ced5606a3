package ingest_test

import (
	"context"
	"net"
	"runtime"
	"testing"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"google.golang.org/grpc"

	"github.com/wattloop/wattloop/ingest"
)

// An OpenTelemetry Go SDK that runs on over suspend and resume: the listener is
// closed, and opened again at the same address under a new activation of the same
// actor. Each increment is in the store once, with both preferences (S2-4, S2-13,
// S2-72, S2-74).
func TestGoSDKOverSuspend(t *testing.T) {
	for _, want := range []metricdata.Temporality{metricdata.DeltaTemporality, metricdata.CumulativeTemporality} {
		t.Run(want.String(), func(t *testing.T) {
			r := newRig(t, func(o *ingest.Options) { o.Clock = nil })
			ch, err := r.recv.AddChannel(ingest.ChannelOptions{Name: "worker-1", Class: ingest.Workload})
			if err != nil {
				t.Fatal(err)
			}
			since := time.Now()
			address := "127.0.0.1:0"
			resume := func() (suspend func()) {
				t.Helper()
				act, err := ch.Activate(ingest.Identity{ActorUID: "7f2c", TemplateName: "tpl"}, time.Now(), since)
				if err != nil {
					t.Fatal(err)
				}
				l, err := net.Listen("tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				address = l.Addr().String()
				g := ingest.NewServer(act).GRPC()
				done := make(chan error, 1)
				go func() { done <- g.Serve(l) }()
				return func() {
					t.Helper()
					act.End()
					g.Stop()
					if err := <-done; err != nil && err != grpc.ErrServerStopped {
						t.Error(err)
					}
				}
			}
			suspend := resume()
			ctx := context.Background()
			exporter, err := otlpmetricgrpc.New(ctx, otlpmetricgrpc.WithInsecure(), otlpmetricgrpc.WithEndpoint(address),
				otlpmetricgrpc.WithTemporalitySelector(func(sdk.InstrumentKind) metricdata.Temporality { return want }),
				otlpmetricgrpc.WithRetry(otlpmetricgrpc.RetryConfig{Enabled: true, InitialInterval: time.Millisecond, MaxInterval: 10 * time.Millisecond, MaxElapsedTime: time.Minute}))
			if err != nil {
				t.Fatal(err)
			}
			provider := sdk.NewMeterProvider(sdk.WithReader(sdk.NewPeriodicReader(exporter, sdk.WithInterval(time.Hour), sdk.WithTimeout(time.Minute))))
			m := provider.Meter("wattloop/test")
			requests, err1 := m.Int64Counter("app.requests")
			duration, err2 := m.Float64Histogram("app.duration", metric.WithExplicitBucketBoundaries(1, 2))
			if err1 != nil || err2 != nil {
				t.Fatal(err1, err2)
			}
			work := func() {
				// A second window that ends in one millisecond is in the sum, and
				// shows with the next sample.
				for last := time.Now().UnixMilli(); time.Now().UnixMilli() == last; {
					runtime.Gosched()
				}
				requests.Add(ctx, 7)
				duration.Record(ctx, 1.5)
			}
			flush := func() {
				t.Helper()
				if err := provider.ForceFlush(ctx); err != nil {
					t.Fatal(err)
				}
			}
			const rounds = 4
			for range rounds {
				work()
				flush()
				work()
				suspend() // with what was not exported yet
				flushed := make(chan error, 1)
				go func() { flushed <- provider.ForceFlush(ctx) }() // it repeats until somebody listens
				suspend = resume()
				if err := <-flushed; err != nil {
					t.Fatal(err)
				}
			}
			if err := provider.Shutdown(ctx); err != nil {
				t.Fatal(err)
			}
			suspend()
			at := time.Now().UnixMilli()
			for expr, want := range map[string]float64{
				`app_requests_total{channel="worker-1"}`:                     7 * 2 * rounds,
				`resets(app_requests_total[1h])`:                             0,
				`app_duration_count`:                                         2 * rounds,
				`app_duration_sum`:                                           1.5 * 2 * rounds,
				`app_duration_bucket{le="2"}`:                                2 * rounds,
				`count({__name__=~"app_requests_total|app_duration_count"})`: 2,
			} {
				got := r.queryAt(expr, at)
				for _, v := range got {
					if len(got) != 1 || v != want {
						t.Errorf("%s = %v; want %g", expr, got, want)
					}
				}
				if len(got) == 0 {
					t.Errorf("%s = none; want %g", expr, want)
				}
			}
			if got := ch.Windows(); got.Lost+got.Baseline+got.BeforeActivation > 0 {
				t.Errorf("windows %+v; want none lost", got)
			}
		})
	}
}
