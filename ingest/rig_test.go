package ingest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"

	"github.com/wattloop/wattloop/ingest"
	"github.com/wattloop/wattloop/store"
)

// t0 is the base time of the cases, in Unix seconds.
const t0 = 1760000000

// S0-116, the words of the preset, with plain rate.
const nodePower = `sum by (k8s_node_name) (max by (k8s_node_name, hw_type, hw_id) (rate(hw_energy_joules_total{hw_type=~"cpu|gpu"}[5m])) or on (k8s_node_name, hw_type, hw_id) max by (k8s_node_name, hw_type, hw_id) (hw_power_watts{hw_type=~"cpu|gpu"}))`

// rig is a receiver over a real store behind real loopback sockets.
type rig struct {
	t        *testing.T
	db       *store.DB
	recv     *ingest.Receiver
	server   *ingest.Server
	registry *prometheus.Registry
	url      string // of OTLP/HTTP
	grpc     string // address of OTLP/gRPC
	now      atomic.Int64
}

// newRig starts one; change may alter the receiver's options. The clock stands
// at T0 until at moves it.
func newRig(t *testing.T, change func(*ingest.Options)) *rig {
	t.Helper()
	return newRigOn(t, change, func(recv *ingest.Receiver) *ingest.Activation { return recv.Channel("default").Live() })
}

// newRigOn is newRig on an activation of the caller's.
func newRigOn(t *testing.T, change func(*ingest.Options), on func(*ingest.Receiver) *ingest.Activation) *rig {
	t.Helper()
	db, err := store.Open(store.Options{Path: t.TempDir(), Durability: "os"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &rig{t: t, db: db, registry: prometheus.NewRegistry()}
	r.at(0)
	o := ingest.Options{
		Appendable: db,
		Queryable:  db,
		Sync:       db.Sync,
		Registerer: r.registry,
		Clock:      func() time.Time { return time.UnixMilli(r.now.Load()) },
	}
	if change != nil {
		change(&o)
	}
	r.recv = ingest.NewReceiver(o)
	r.serve(on(r.recv))
	return r
}

// serve opens the transports of an activation.
func (r *rig) serve(a *ingest.Activation) {
	t := r.t
	t.Helper()
	r.server = ingest.NewServer(a)
	web := r.server.HTTP()
	l := listen(t)
	r.url = "http://" + l.Addr().String()
	done := make(chan error, 2)
	go func() { done <- web.Serve(l) }()
	g := r.server.GRPC()
	gl := listen(t)
	r.grpc = gl.Addr().String()
	go func() { done <- g.Serve(gl) }()
	t.Cleanup(func() {
		if err := web.Close(); err != nil {
			t.Error(err)
		}
		g.Stop()
		for range 2 {
			err := <-done
			// Both may be stopped before they have begun.
			if err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, grpc.ErrServerStopped) {
				t.Error(err)
			}
		}
	})
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ingest.LimitListener(l)
}

// at moves the receiver's clock to T0 + seconds.
func (r *rig) at(seconds float64) { r.now.Store(t0*1000 + int64(seconds*1000)) }

// reply is what an HTTP request was told.
type reply struct {
	code   int
	header http.Header
	body   string
}

// post sends one body to /v1/metrics; headers are pairs.
func (r *rig) post(body []byte, headers ...string) reply {
	r.t.Helper()
	return r.do(http.MethodPost, "/v1/metrics", bytes.NewReader(body), headers...)
}

func (r *rig) postJSON(body []byte) reply {
	r.t.Helper()
	return r.post(body, "Content-Type", "application/json")
}

func (r *rig) do(method, path string, body io.Reader, headers ...string) reply {
	r.t.Helper()
	req, err := http.NewRequest(method, r.url+path, body)
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	// A transport of its own: no connection outlives the test, and none of its
	// own ideas about compression stand in the request.
	transport := &http.Transport{DisableCompression: true, DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		r.t.Fatal(err)
	}
	return readReply(r.t, resp)
}

func readReply(t *testing.T, resp *http.Response) reply {
	t.Helper()
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(body)}
}

// call sends one gRPC message as it stands.
func (r *rig) call(ctx context.Context, method string, wire []byte, opts ...grpc.CallOption) ([]byte, error) {
	r.t.Helper()
	conn := r.dial()
	defer conn.Close()
	var out []byte
	err := conn.Invoke(ctx, method, wire, &out, append(opts, grpc.ForceCodecV2(plainBytes{}))...)
	return out, err
}

func (r *rig) dial(opts ...grpc.DialOption) *grpc.ClientConn {
	r.t.Helper()
	conn, err := grpc.NewClient(r.grpc, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		r.t.Fatal(err)
	}
	return conn
}

const exportMethod = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"

// plainBytes is a codec that sends and receives bytes as they are.
type plainBytes struct{}

func (plainBytes) Name() string { return "proto" }

func (plainBytes) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (plainBytes) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// caseFile reads an input of testdata/cases.
func caseFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../testdata/cases", path))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// query evaluates expr at T0 + seconds and returns one line a series.
func (r *rig) query(expr string, seconds float64) map[string]float64 {
	r.t.Helper()
	return r.queryAt(expr, t0*1000+int64(math.Round(seconds*1000)))
}

func (r *rig) queryAt(expr string, ts int64) map[string]float64 {
	r.t.Helper()
	samples, err := r.db.Instant(context.Background(), expr, ts)
	if err != nil {
		r.t.Fatalf("%s: %v", expr, err)
	}
	out := map[string]float64{}
	for _, s := range samples {
		key := s.Metric.String()
		if _, twice := out[key]; twice {
			r.t.Errorf("%s: %s comes twice", expr, key)
		}
		out[key] = s.V
	}
	return out
}

// none is what a query with no series gives, which is never 0.
const none = "none"

// check evaluates expr at T0 + seconds and compares the only value, within 0.01,
// with want: a number or none.
func (r *rig) check(expr string, seconds float64, want any) {
	r.t.Helper()
	got := r.query(expr, seconds)
	if want == none {
		if len(got) > 0 {
			r.t.Errorf("%s @T0+%g = %v; want none", expr, seconds, got)
		}
		return
	}
	number, err := toFloat(want)
	if err != nil {
		r.t.Fatal(err)
	}
	if len(got) != 1 {
		r.t.Errorf("%s @T0+%g = %v; want one series with %v", expr, seconds, got, want)
		return
	}
	for _, v := range got {
		if !sameNumber(v, number) {
			r.t.Errorf("%s @T0+%g = %v; want %v", expr, seconds, v, want)
		}
	}
}

func toFloat(v any) (float64, error) {
	switch v := v.(type) {
	case int:
		return float64(v), nil
	case float64:
		return v, nil
	}
	return 0, fmt.Errorf("want a number, not %T", v)
}

func sameNumber(a, b float64) bool {
	if math.IsNaN(a) || math.IsNaN(b) || math.IsInf(a, 0) || math.IsInf(b, 0) {
		return a == b || math.IsNaN(a) && math.IsNaN(b)
	}
	return math.Abs(a-b) <= 0.01
}

// metric is the sum of the receiver's own metric over the label pairs given, as
// name="value".
func (r *rig) metric(name string, pairs ...string) float64 {
	r.t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	var sum float64
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			all := strings.Join(labels, ",")
			match := true
			for _, p := range pairs {
				match = match && strings.Contains(all, p)
			}
			if match {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}
