package listen

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/wattloop/wattloop/ingest"
	"github.com/wattloop/wattloop/store"
)

// bed is a manager over a real store.
type bed struct {
	t    *testing.T
	db   *store.DB
	m    *Manager
	last atomic.Int64 // Unix ms of the last request
}

func newBed(t *testing.T, change func(*Options), receiver ...func(*ingest.Options)) *bed {
	t.Helper()
	db, err := store.Open(store.Options{Path: t.TempDir(), Durability: "os"})
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{t: t, db: db}
	ro := ingest.Options{Appendable: db, Queryable: db, Sync: db.Sync}
	for _, f := range receiver {
		f(&ro)
	}
	o := Options{
		Receiver: ingest.NewReceiver(ro), Clock: time.Now, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	if change != nil {
		change(&o)
	}
	b.m = NewManager(o)
	t.Cleanup(func() {
		b.m.Close()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func addr(t *testing.T, s string) Address {
	t.Helper()
	a, err := ParseAddress(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// define adds a workload channel on a port that the system picks.
func (b *bed) define(name string, listen ...string) {
	b.t.Helper()
	s := Spec{Name: name}
	if listen == nil {
		listen = []string{"127.0.0.1:0"}
	}
	for _, l := range listen {
		s.Listen = append(s.Listen, addr(b.t, l))
	}
	if err := b.m.Define(s); err != nil {
		b.t.Fatal(err)
	}
}

func who(uid string) ingest.Identity {
	return ingest.Identity{ActorUID: uid, TemplateName: "web", PodName: "pod-" + uid, PodUID: "pod-uid-" + uid, Node: "n1"}
}

func (b *bed) activate(name, uid string) State {
	b.t.Helper()
	s, began, err := b.m.Activate(context.Background(), name, nil, Activation{Identity: who(uid)})
	if err != nil || !began {
		b.t.Fatalf("activate %s for %s: began %v, %v", name, uid, began, err)
	}
	return s
}

func (b *bed) end(name string) {
	b.t.Helper()
	if _, err := b.m.End(name); err != nil {
		b.t.Fatal(err)
	}
}

// now is the next whole millisecond of the wall clock, never the same twice: a
// window that ends then is one of a present activation.
func (b *bed) now() time.Time {
	for {
		last, now := b.last.Load(), time.Now().UnixMilli()+1
		if now <= last {
			now = last + 1
		}
		if b.last.CompareAndSwap(last, now) {
			return time.UnixMilli(now)
		}
	}
}

// request is one delta window of a counter: it adds n to what the channel's
// identity has.
func (b *bed) request(n int) pmetricotlp.ExportRequest { return b.from("", n) }

// from is request by one of several senders, which has a series of its own.
func (b *bed) from(sender string, n int) pmetricotlp.ExportRequest {
	end := b.now()
	r := pmetricotlp.NewExportRequest()
	rm := r.Metrics().ResourceMetrics().AppendEmpty()
	rm.Resource().Attributes().PutStr("service.name", "web")
	m := rm.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName("work")
	sum := m.SetEmptySum()
	sum.SetIsMonotonic(true)
	sum.SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
	p := sum.DataPoints().AppendEmpty()
	if sender != "" {
		p.Attributes().PutStr("sender", sender)
	}
	p.SetIntValue(int64(n))
	p.SetStartTimestamp(pcommon.NewTimestampFromTime(end.Add(-time.Millisecond)))
	p.SetTimestamp(pcommon.NewTimestampFromTime(end))
	return r
}

func (b *bed) body(n int) []byte {
	b.t.Helper()
	wire, err := b.request(n).MarshalProto()
	if err != nil {
		b.t.Fatal(err)
	}
	return wire
}

// post sends work over HTTP and returns the status.
func (b *bed) post(hc *http.Client, url string, n int) (int, error) {
	resp, err := hc.Post(url+"/v1/metrics", "application/x-protobuf", bytes.NewReader(b.body(n)))
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// client speaks HTTP to an address, on connections of its own.
func client(t *testing.T, a Address) (*http.Client, string) {
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, a.Network, a.Addr)
	}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: time.Minute}, "http://localhost"
}

// dial speaks gRPC to an address.
func dial(t *testing.T, a Address) (*grpc.ClientConn, pmetricotlp.GRPCClient) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///localhost", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, a.Network, a.Addr)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn, pmetricotlp.NewGRPCClient(conn)
}

// work is what the store has of the counter for the worker pod of an actor.
func (b *bed) work(uid string) float64 {
	b.t.Helper()
	got, err := b.db.Instant(context.Background(), fmt.Sprintf(`sum(work_total{k8s_pod_name=%q})`, "pod-"+uid), b.now().UnixMilli())
	if err != nil {
		b.t.Fatal(err)
	}
	for _, s := range got {
		return s.V
	}
	return 0
}

// labelsOf are the label sets of a query's answer.
func (b *bed) labelsOf(expr string) []labels.Labels {
	b.t.Helper()
	got, err := b.db.Instant(context.Background(), expr, b.now().UnixMilli())
	if err != nil {
		b.t.Fatal(err)
	}
	var out []labels.Labels
	for _, s := range got {
		out = append(out, s.Metric)
	}
	return out
}

func want(t *testing.T, err error, kind error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) || kind != nil && !isKind(err, kind) {
		t.Errorf("%v; want %v with %q", err, kind, text)
	}
}
