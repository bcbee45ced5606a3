package ingest_test

import (
	"context"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.uber.org/goleak"

	"github.com/wattloop/wattloop/ingest"
)

// S0-81: the OpenTelemetry Go SDK's own exporters, over real sockets, into a real store,
// with both preferences of temporality: what the program measured is what PromQL
// reads. Nothing runs on when all is closed.
func TestGoSDK(t *testing.T) {
	old := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, old) })

	delta := func(sdk.InstrumentKind) metricdata.Temporality { return metricdata.DeltaTemporality }
	type export func(*rig) (sdk.Exporter, error)
	ctx := context.Background()
	f := func(name string, open export) {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *ingest.Options) { o.Clock = nil })
			exporter, err := open(r)
			if err != nil {
				t.Fatal(err)
			}
			r.measure(exporter)
		})
	}
	f("gRPC", func(r *rig) (sdk.Exporter, error) {
		return otlpmetricgrpc.New(ctx, otlpmetricgrpc.WithInsecure(), otlpmetricgrpc.WithEndpoint(r.grpc))
	})
	f("gRPC, gzip, delta", func(r *rig) (sdk.Exporter, error) {
		return otlpmetricgrpc.New(ctx, otlpmetricgrpc.WithInsecure(), otlpmetricgrpc.WithEndpoint(r.grpc),
			otlpmetricgrpc.WithCompressor("gzip"), otlpmetricgrpc.WithTemporalitySelector(delta))
	})
	f("HTTP", func(r *rig) (sdk.Exporter, error) {
		return otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(r.url+"/v1/metrics"))
	})
	f("HTTP JSON", func(r *rig) (sdk.Exporter, error) {
		return otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(r.toJSON()+"/v1/metrics"))
	})
	f("S0-149: HTTP on the web path, gzip, delta", func(r *rig) (sdk.Exporter, error) {
		return otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(r.url+"/api/v1/otlp/v1/metrics"),
			otlpmetrichttp.WithCompression(otlpmetrichttp.GzipCompression), otlpmetrichttp.WithTemporalitySelector(delta))
	})
}

// toJSON starts a server that sends what the SDK exports on as JSON, which the SDK
// has no exporter for, and returns its URL.
func (r *rig) toJSON() string {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		export := pmetricotlp.NewExportRequest()
		if err == nil {
			err = export.UnmarshalProto(body)
		}
		if err == nil {
			body, err = export.MarshalJSON()
		}
		if err != nil {
			r.t.Error(err)
			return
		}
		if got := r.postJSON(body); got.code != http.StatusOK || got.body != "{}" {
			r.t.Errorf("%d %s; want 200 {}", got.code, got.body)
		}
	}))
	r.t.Cleanup(web.Close)
	return web.URL
}

// measure records with one instrument of each kind, exports three times, and
// reads everything back.
func (r *rig) measure(exporter sdk.Exporter) {
	t, ctx := r.t, context.Background()
	t.Helper()
	provider := sdk.NewMeterProvider(
		sdk.WithReader(sdk.NewPeriodicReader(exporter, sdk.WithInterval(time.Hour))),
		sdk.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "meter"),
			attribute.String("service.instance.id", "meter-1"),
			attribute.String("k8s.node.name", "edge-a"),
			attribute.String("os.type", "linux"),
		)),
	)
	m := provider.Meter("wattloop/test")
	cpu := metric.WithAttributes(attribute.String("hw.id", "cpu0"), attribute.String("hw.type", "cpu"), attribute.Int("hw.socket", 0))
	power, err1 := m.Float64Gauge("hw.power", metric.WithUnit("W"))
	energy, err2 := m.Float64Counter("hw.energy", metric.WithUnit("J"))
	queue, err3 := m.Int64UpDownCounter("queue.depth", metric.WithUnit("{item}"))
	duration, err4 := m.Float64Histogram("request.duration", metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(0.1, 0.5, 1))
	for _, err := range []error{err1, err2, err3, err4} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		power.Record(ctx, 200+10*float64(i), cpu)
		energy.Add(ctx, 1500, cpu)
		queue.Add(ctx, int64(4-3*i)) // 4, then 5, then 3
		for _, s := range []float64{0.05, 0.3, 0.7, 3} {
			duration.Record(ctx, s)
		}
		if err := provider.ForceFlush(ctx); err != nil {
			t.Fatal(err)
		}
		// Two values of one series in one millisecond are one too many.
		for last := time.Now().UnixMilli(); time.Now().UnixMilli() == last; {
			runtime.Gosched()
		}
	}
	at := time.Now().UnixMilli()
	// It flushes once more, which must change nothing.
	if err := provider.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	f := func(expr string, want float64) {
		t.Helper()
		got := r.queryAt(expr, at)
		for _, v := range got {
			if len(got) != 1 || math.Abs(v-want) > 1e-9 {
				t.Errorf("%s = %v; want %g", expr, got, want)
			}
		}
		if len(got) == 0 {
			t.Errorf("%s = none; want %g", expr, want)
		}
	}
	f(`hw_power_watts{hw_id="cpu0",hw_type="cpu",hw_socket="0",k8s_node_name="edge-a",job="meter",instance="meter-1"}`, 220)
	f(`hw_energy_joules_total{hw_id="cpu0",k8s_node_name="edge-a"}`, 4500)
	f(`max_over_time(hw_energy_joules_total[1h])`, 4500)
	f(`resets(hw_energy_joules_total[1h])`, 0)
	f(`queue_depth`, 3)
	f(`request_duration_seconds_count`, 12)
	f(`request_duration_seconds_sum`, 3*4.05)
	f(`request_duration_seconds_bucket{le="0.1"}`, 3)
	f(`request_duration_seconds_bucket{le="0.5"}`, 6)
	f(`request_duration_seconds_bucket{le="1.0"} or request_duration_seconds_bucket{le="1"}`, 9)
	f(`request_duration_seconds_bucket{le="+Inf"}`, 12)
	f(`histogram_quantile(0.5, request_duration_seconds_bucket)`, 0.5)
	f(`target_info{job="meter",instance="meter-1",os_type="linux",k8s_node_name="edge-a"}`, 1)
	f(`count({__name__=~".+"})`, 10)
	if got := r.metric("wattloop_ingest_points_total", `result="rejected"`); got != 0 {
		t.Errorf("%v points rejected; want none", got)
	}
}
