package listen

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wattloop/wattloop/ingest"
)

// S2-16, S2-17, S2-86: whatever is on its way when A ends, on connections that
// are kept, is completed as A's or refused, and nothing of it is ever B's. What
// was acked is stored, once.
func TestNothingOfAIsDeliveredUnderB(t *testing.T) {
	rounds := 60
	if testing.Short() {
		rounds = 15
	}
	b := newBed(t, func(o *Options) { o.Grace = 50 * time.Millisecond }) // which a half-sent request takes whole
	b.define("w1", "127.0.0.1:0", filepath.Join(t.TempDir(), "w.sock"))
	var senders []*sender
	for i := range rounds {
		st := b.activate("w1", "a")
		var all []*sender
		for j, a := range st.Listen {
			all = append(all, httpSender(t, fmt.Sprintf("a-http-%d-%d", i, j), a), grpcSender(t, fmt.Sprintf("a-grpc-%d-%d", i, j), a))
		}
		pending := startHalf(t, b, fmt.Sprintf("a-half-%d", i), st.Listen[i%2])
		silent, err := net.Dial(st.Listen[0].Network, st.Listen[0].Addr) // opened under A, used under B
		if err != nil {
			t.Fatal(err)
		}
		var running, begun sync.WaitGroup
		for _, s := range all {
			begun.Add(1)
			var first sync.Once
			running.Go(func() { s.run(b, func() { first.Do(begun.Done) }) })
		}
		begun.Wait() // each has been taken once, and goes on
		b.end("w1")
		b.activate("w1", "b")
		pending.conn.Write(pending.rest) // an error says that it is closed already
		wire, err := b.from(fmt.Sprintf("a-silent-%d", i), 1).MarshalProto()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(silent, "POST /v1/metrics HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\nContent-Length: %d\r\n\r\n%s", len(wire), wire)
		for _, c := range []net.Conn{pending.conn, silent} {
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err == nil {
				resp.Body.Close()
				if resp.StatusCode == http.StatusOK {
					t.Errorf("round %d: a connection of A was answered with %s under B", i, resp.Status)
				}
			}
			c.Close()
		}
		running.Wait()
		s := httpSender(t, fmt.Sprintf("b-%d", i), st.Listen[0])
		if err := s.send(context.Background(), b.from(s.name, 1)); err != nil {
			t.Fatalf("round %d: B: %v", i, err)
		}
		b.end("w1")
		senders = append(senders, all...)
	}
	if got := b.labelsOf(`work_total{sender=~"a-.*",k8s_pod_name!="pod-a"}`); len(got) > 0 {
		t.Errorf("sent on connections of A, stored under B: %v", got)
	}
	if got := b.labelsOf(`work_total{sender=~"b-.*",k8s_pod_name="pod-b"}`); len(got) != rounds {
		t.Errorf("of %d senders of B %d are stored", rounds, len(got))
	}
	if got := b.labelsOf(`work_total{sender=~"a-(half|silent)-.*"}`); len(got) > 0 {
		t.Errorf("refused and stored: %v", got)
	}
	acked := 0
	for _, s := range senders {
		acked += s.acked
		got, err := b.db.Instant(context.Background(), fmt.Sprintf(`work_total{sender=%q}`, s.name), b.now().UnixMilli())
		if err != nil || len(got) != 1 {
			t.Fatalf("%s: %v, %v", s.name, got, err)
		}
		if v := int(got[0].V); v < s.acked || v > s.tried {
			t.Errorf("%s: %d stored; %d acked of %d sent", s.name, v, s.acked, s.tried)
		}
	}
	t.Logf("%d rounds, %d senders, %d requests acked", rounds, len(senders), acked)
}

// S2-88, S2-18: an actor that is frozen, with requests half sent and answers
// unread, holds up neither the end nor the next activation, and needs no hook.
func TestFrozenActor(t *testing.T) {
	b := newBed(t, func(o *Options) { o.Grace = 50 * time.Millisecond })
	b.define("w1")
	st := b.activate("w1", "a")
	a := st.Listen[0]
	var conns []net.Conn
	for _, text := range []string{
		"", "P", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "POST /v1/metrics HTTP/1.1\r\nHost: localhost\r\n",
		"POST /v1/metrics HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\nContent-Length: 1000\r\n\r\nx",
	} {
		c, err := net.Dial(a.Network, a.Addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	_, rpc := dial(t, a)
	if _, err := rpc.Export(context.Background(), b.request(1)); err != nil {
		t.Fatal(err)
	}
	b.end("w1")
	for i, c := range conns {
		buf := make([]byte, 1<<16)
		for {
			if _, err := c.Read(buf); err != nil {
				if errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("connection %d is open after the end", i)
				}
				break
			}
		}
	}
	b.activate("w1", "b")
	// The actor goes on, and its library connects again by itself. A call that it
	// makes before it has noticed the end is lost, and told so.
	_, err := rpc.Export(context.Background(), b.request(1), grpc.WaitForReady(true))
	for status.Code(err) == codes.Unavailable {
		_, err = rpc.Export(context.Background(), b.request(1), grpc.WaitForReady(true))
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := b.work("a"); got != 1 {
		t.Errorf("a has %g; want 1", got)
	}
	if got := b.work("b"); got != 1 {
		t.Errorf("b has %g; want 1", got)
	}
}

// Suspend and resume with an SDK that keeps running (S2-4, S2-16): the listener is
// closed and opened again, the exporter of the OpenTelemetry SDK for Go connects
// again by itself, and what it counts then is the next activation's.
func TestGoSDKOverSuspendAndResume(t *testing.T) {
	old := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, old) })
	b := newBed(t, nil)
	b.define("w1")
	ctx := context.Background()
	first := b.activate("w1", "a")
	exporter, err := otlpmetricgrpc.New(ctx, otlpmetricgrpc.WithInsecure(), otlpmetricgrpc.WithEndpoint(first.Listen[0].Addr),
		otlpmetricgrpc.WithTemporalitySelector(func(sdk.InstrumentKind) metricdata.Temporality { return metricdata.DeltaTemporality }))
	if err != nil {
		t.Fatal(err)
	}
	provider := sdk.NewMeterProvider(sdk.WithReader(sdk.NewPeriodicReader(exporter, sdk.WithInterval(time.Hour))),
		sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", "web"), attribute.String("k8s.pod.name", "forged"))))
	counter, err := provider.Meter("test").Int64Counter("work")
	if err != nil {
		t.Fatal(err)
	}
	flush := func(n int64) {
		t.Helper()
		counter.Add(ctx, n)
		if err := provider.ForceFlush(ctx); err != nil {
			t.Fatal(err)
		}
	}
	flush(3)
	flush(4)
	b.end("w1")
	counter.Add(ctx, 5) // counted while suspended, sent after
	b.activate("w1", "b")
	flush(6)
	b.end("w1")
	b.activate("w1", "a")
	flush(7)
	if err := provider.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if x, y := b.work("a"), b.work("b"); x != 14 || y != 11 {
		t.Errorf("a has %g, b has %g; want 14 and 11", x, y)
	}
	if got := b.labelsOf(`work_total{k8s_pod_name!~"pod-a|pod-b"}`); len(got) > 0 {
		t.Errorf("stored for nobody: %v", got)
	}
}

// A hundred activations in a row, with clients that come and do not go, leave no
// goroutine and no descriptor.
func TestActivationsLeakNothing(t *testing.T) {
	b := newBed(t, nil)
	b.define("w1", "127.0.0.1:0", filepath.Join(t.TempDir(), "w.sock"))
	descriptors := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	round := func() {
		st := b.activate("w1", "a")
		for _, a := range st.Listen {
			s := httpSender(t, "", a)
			if err := s.send(context.Background(), b.request(1)); err != nil {
				t.Fatal(err)
			}
		}
		b.end("w1")
	}
	round()
	old, before := goleak.IgnoreCurrent(), descriptors()
	for range 100 {
		round()
	}
	// The clients' own ends are closed when their transports notice.
	goleak.VerifyNone(t, old)
	if after := descriptors(); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

// Until the self-test has passed a request waits, then it is answered.
func TestRequestsWaitForTheSelfTest(t *testing.T) {
	type answer struct {
		code int
		err  error
	}
	answers := make(chan answer, 4)
	var b *bed
	b = newBed(t, func(o *Options) {
		o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			a := Address{network, address}
			go func() {
				hc, url := client(t, a)
				code, err := b.post(hc, url, 1)
				answers <- answer{code, err}
			}()
			_, rpc := dial(t, a)
			go func() {
				_, err := rpc.Export(context.Background(), b.request(1))
				answers <- answer{200, err}
			}()
			if len(answers) > 0 {
				t.Error("answered before the self-test")
			}
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}
	})
	b.define("w1", "127.0.0.1:0", "127.0.0.1:0")
	b.activate("w1", "a")
	for range 4 {
		if a := <-answers; a.code != 200 || a.err != nil {
			t.Errorf("%d, %v", a.code, a.err)
		}
	}
	if got := b.work("a"); got < 1 {
		t.Errorf("stored %g", got)
	}
}

// Many at once may say the same, or contradict each other: one of them is live.
func TestActivationsInParallel(t *testing.T) {
	b := newBed(t, nil)
	b.define("w1")
	for range 20 {
		var began, same, refused atomic.Int64
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				_, first, err := b.m.Activate(context.Background(), "w1", nil, Activation{Identity: who(string(rune('a' + i%2)))})
				switch {
				case err == nil && first:
					began.Add(1)
				case err == nil:
					same.Add(1)
				case errors.Is(err, ErrConflict):
					refused.Add(1)
				default:
					t.Error(err)
				}
			})
			all.Go(func() { b.m.States() })
		}
		all.Wait()
		if began.Load() != 1 || same.Load() != 3 || refused.Load() != 4 {
			t.Fatalf("%d began, %d were live, %d refused; want 1, 3, 4", began.Load(), same.Load(), refused.Load())
		}
		for range 4 {
			all.Go(func() { b.m.End("w1") })
		}
		all.Wait()
		if s := b.m.States()[0]; s.Live || strings.Contains(fmt.Sprint(s.Who), "a") {
			t.Fatalf("after the end: %+v", s)
		}
	}
}

// S2-86: what is being stored when the end comes is completed under the old
// identity and answered; the end waits for it, and so does the next activation.
func TestInFlightIsCompletedUnderA(t *testing.T) {
	storing, release := make(chan struct{}, 2), make(chan struct{})
	b := newBed(t, nil, func(o *ingest.Options) {
		sync := o.Sync
		o.Sync = func(ctx context.Context) error {
			storing <- struct{}{}
			<-release
			return sync(ctx)
		}
	})
	b.define("w1")
	st := b.activate("w1", "a")
	senders := []*sender{httpSender(t, "http", st.Listen[0]), grpcSender(t, "grpc", st.Listen[0])}
	answers := make(chan error, len(senders))
	for _, s := range senders {
		go func() { answers <- s.send(context.Background(), b.from(s.name, 1)) }()
		<-storing
	}
	ended := make(chan struct{})
	go func() {
		b.m.End("w1")
		close(ended)
	}()
	next := make(chan error, 1)
	go func() {
		for { // refused until the end has begun, then it waits for it
			_, _, err := b.m.Activate(context.Background(), "w1", nil, Activation{Identity: who("b")})
			if !errors.Is(err, ErrConflict) {
				next <- err
				return
			}
		}
	}()
	// The address is closed while the two are still being stored.
	for {
		c, err := net.Dial(st.Listen[0].Network, st.Listen[0].Addr)
		if err != nil {
			break
		}
		c.Close()
	}
	select {
	case <-ended:
		t.Error("ended before what was in flight was stored")
	case err := <-next:
		t.Errorf("B was activated before what was in flight was stored: %v", err)
	default:
	}
	close(release)
	for range senders {
		if err := <-answers; err != nil {
			t.Errorf("in flight at the end: %v; want an ack", err)
		}
	}
	<-ended
	if err := <-next; err != nil {
		t.Error(err)
	}
	if x, y := b.work("a"), b.work("b"); x != 2 || y != 0 {
		t.Errorf("a has %g, b has %g; want 2 and 0", x, y)
	}
}
