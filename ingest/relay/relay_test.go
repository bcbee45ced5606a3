package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wattloop/wattloop/ingest"
)

// All signals of both planes arrive byte for byte, over a unix socket and over
// TCP (S2-65), also what is no protobuf, and in order within a plane.
func TestForward(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		u := newUpstream().serve(t, network)
		r := openRelay(t, Options{Upstream: u.addr, Fsync: true})
		var want []string
		for _, p := range []ingest.Plane{ingest.PlanePlatform, ingest.PlaneWorkload} {
			for i := range 50 {
				s := signals[1+i%3]
				wire := fmt.Sprintf("%s %d \x00\xff%s", p, i, strings.Repeat("z", i*100))
				mustForward(t, r, p, s, wire)
				want = append(want, string(s)+" "+wire)
			}
		}
		u.awaitCount(t, len(want))
		got := u.order()
		of := func(p string) func(string) bool { return func(s string) bool { return !strings.Contains(s, p) } }
		for _, p := range []string{" platform ", " workload "} {
			g, w := slices.DeleteFunc(slices.Clone(got), of(p)), slices.DeleteFunc(slices.Clone(want), of(p))
			if !slices.Equal(g, w) {
				t.Errorf("%s:%s: %.300q arrives; want %.300q", network, p, g, w)
			}
		}
	}
}

// Upstream down, then back: nothing is lost, and status says so in between.
func TestUpstreamAway(t *testing.T) {
	u := newUpstream().serve(t, "unix")
	r := openRelay(t, Options{Upstream: u.addr})
	mustForward(t, r, ingest.PlaneWorkload, ingest.SignalLogs, "before")
	u.awaitCount(t, 1)
	u.srv.Stop()
	for i := range 20 {
		mustForward(t, r, ingest.PlaneWorkload, ingest.SignalLogs, fmt.Sprintf("away %d", i))
	}
	for r.Status()[1].Error == "" {
		mustForward(t, r, ingest.PlaneWorkload, ingest.SignalLogs, "more")
	}
	if s := r.Status()[1]; s.QueueBytes == 0 || s.Answering || s.ErrorAt.IsZero() {
		t.Errorf("while the upstream is away: %+v", s)
	}
	u.serve(t, "unix")
	u.await(t, "last request", func(all []string) bool { return slices.Contains(all, "logs away 19") })
}

// A workload plane that is stuck does not delay the platform's own, and the
// other way round (S2-69).
func TestStuckPlane(t *testing.T) {
	for _, stuck := range []ingest.Plane{ingest.PlaneWorkload, ingest.PlanePlatform} {
		held, release := make(chan struct{}, 100), make(chan struct{})
		u := newUpstream()
		u.answer = func(ctx context.Context, _ ingest.Signal, wire []byte) ([]byte, error) {
			if string(wire) == "stuck" {
				held <- struct{}{}
				<-release
			}
			return nil, nil
		}
		u.serve(t, "unix")
		r := openRelay(t, Options{Upstream: u.addr})
		mustForward(t, r, stuck, ingest.SignalTraces, "stuck")
		<-held
		other := ingest.PlanePlatform
		if stuck == other {
			other = ingest.PlaneWorkload
		}
		for range 200 {
			mustForward(t, r, other, ingest.SignalMetrics, "through")
		}
		u.awaitCount(t, 200)
		if all := u.order(); len(all) != 200 || slices.Contains(all, "traces stuck") {
			t.Errorf("%d requests came while the %s plane was stuck", len(all), stuck)
		}
		close(release)
		u.awaitCount(t, 201)
	}
}

// With egress denied, all that is dialled for a workload is the unix socket; the
// platform's own may go to the fallback, and comes back (S2-63, S2-64,
// S2-66, S2-68).
func TestEgressDenied(t *testing.T) {
	up := newUpstream()
	up.addr = Address{"unix", filepath.Join(t.TempDir(), "up.sock")} // nobody listens
	back := newUpstream().serve(t, "tcp")
	reg := prometheus.NewRegistry()
	d := &dials{}
	r := openRelay(t, Options{Upstream: up.addr, Fallback: &back.addr, Dial: d.dial, Registerer: reg})
	mustForward(t, r, ingest.PlaneWorkload, ingest.SignalMetrics, "workload")
	for d.seen("unix") == 0 {
		mustForward(t, r, ingest.PlaneWorkload, ingest.SignalMetrics, "workload")
	}
	if d.seen("tcp") > 0 {
		t.Errorf("a workload's telemetry made the relay dial %q", d.to)
	}
	mustForward(t, r, ingest.PlanePlatform, ingest.SignalMetrics, "platform")
	back.awaitCount(t, 1)
	if s := r.Status(); s[1].Sent != 0 || s[1].QueueBytes == 0 {
		t.Errorf("the workload's: %+v; want it to wait", s[1])
	}
	up.serve(t, "unix")
	up.awaitCount(t, 1)
	for !slices.Contains(up.order(), "metrics platform again") {
		mustForward(t, r, ingest.PlanePlatform, ingest.SignalMetrics, "platform again")
		<-any2(up.came, back.came)
	}
	for _, got := range back.order() {
		if !strings.HasPrefix(got, "metrics platform") {
			t.Errorf("the fallback got %q", got)
		}
	}
	if n := testutil.ToFloat64(r.planes[0].m.requests.WithLabelValues("platform", "metrics", "sent", "fallback")); n < 1 {
		t.Errorf("%g requests counted as sent to the fallback", n)
	}
}

func any2(a, b <-chan struct{}) <-chan struct{} {
	c := make(chan struct{})
	go func() {
		defer close(c)
		select {
		case <-a:
		case <-b:
		}
	}()
	return c
}

// Each plane has a connection of its own, and workloads one that leads nowhere
// but to the upstream.
func TestConnectionAPlane(t *testing.T) {
	u := newUpstream().serve(t, "unix")
	d := &dials{}
	r := openRelay(t, Options{Upstream: u.addr, Dial: d.dial})
	for range 10 {
		mustForward(t, r, ingest.PlanePlatform, ingest.SignalLogs, "a")
		mustForward(t, r, ingest.PlaneWorkload, ingest.SignalLogs, "b")
	}
	u.awaitCount(t, 20)
	if n := d.seen("unix " + u.addr.addr); n != 2 || len(d.to) != 2 {
		t.Errorf("dialled %q; want the socket twice", d.to)
	}
}

// A full workload queue refuses and counts, and the platform's has its room.
func TestFullQueue(t *testing.T) {
	reg := prometheus.NewRegistry()
	r := openRelay(t, Options{Upstream: Address{"unix", filepath.Join(t.TempDir(), "none")}, MaxBytes: 1 << 20, Registerer: reg})
	wire := make([]byte, 10<<10)
	put := func(p ingest.Plane) error {
		return r.Forward(t.Context(), ingest.Forwarded{Signal: ingest.SignalMetrics, Plane: p, Wire: wire})
	}
	n := 0
	for ; put(ingest.PlaneWorkload) == nil; n++ {
	}
	if err := put(ingest.PlaneWorkload); !errors.Is(err, ingest.ErrNoRoom) {
		t.Errorf("the queue is full: %v; want ErrNoRoom", err)
	}
	if want := 768 << 10 / int(queuedBytes(len(wire))); n != want {
		t.Errorf("%d requests fit; want %d", n, want)
	}
	for range 256 << 10 / queuedBytes(len(wire)) {
		if err := put(ingest.PlanePlatform); err != nil {
			t.Fatalf("the platform's queue: %v", err)
		}
	}
	m := r.planes[0].m.requests
	if got := testutil.ToFloat64(m.WithLabelValues("workload", "metrics", "refused", "full")); got != 2 {
		t.Errorf("%g refused are counted; want 2", got)
	}
	if got := testutil.ToFloat64(m.WithLabelValues("workload", "metrics", "queued", "")); got != float64(n) {
		t.Errorf("%g queued are counted; want %d", got, n)
	}
	if s := r.Status()[1]; s.Refused != 2 || s.QueueLimit != 768<<10 || s.QueueBytes != int64(n)*queuedBytes(len(wire)) {
		t.Errorf("status %+v", s)
	}
}

// Close sends what is queued while the upstream takes it, and keeps the rest for
// the next Open.
func TestClose(t *testing.T) {
	u := newUpstream()
	dir := t.TempDir()
	u.answer = func(_ context.Context, _ ingest.Signal, wire []byte) ([]byte, error) {
		if string(wire) == "100" {
			return nil, status.Error(codes.Unavailable, "enough")
		}
		return nil, nil
	}
	u.serve(t, "unix")
	r := openRelay(t, Options{Upstream: u.addr, Dir: dir})
	for i := range 200 {
		mustForward(t, r, ingest.PlaneWorkload, ingest.SignalTraces, fmt.Sprint(i))
	}
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(u.order()); n != 100 {
		t.Errorf("%d requests were sent; want 100", n)
	}
	if err := r.Forward(t.Context(), ingest.Forwarded{Signal: ingest.SignalLogs, Plane: ingest.PlaneWorkload}); !errors.Is(err, ErrClosed) {
		t.Errorf("Forward after Close: %v; want ErrClosed", err)
	}
	u.srv.Stop()
	u.answer = nil
	u.serve(t, "unix")
	openRelay(t, Options{Upstream: u.addr, Dir: dir})
	u.awaitCount(t, 200)
	for i, got := range u.order() {
		if want := fmt.Sprintf("traces %d", i); got != want {
			t.Fatalf("request %d is %q; want %q", i, got, want)
		}
	}
}

// An attempt that hangs is ended by the deadline of Close, and the request stays.
func TestCloseDeadline(t *testing.T) {
	u := newUpstream()
	held := make(chan struct{}, 1)
	u.answer = func(ctx context.Context, _ ingest.Signal, _ []byte) ([]byte, error) {
		held <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	u.serve(t, "unix")
	r := openRelay(t, Options{Upstream: u.addr})
	mustForward(t, r, ingest.PlaneWorkload, ingest.SignalTraces, "x")
	<-held
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if s := r.Status()[1]; s.QueueBytes == 0 || s.Sent+s.Dropped > 0 {
		t.Errorf("after Close: %+v; want the request kept", s)
	}
}

func TestOneProcess(t *testing.T) {
	dir := t.TempDir()
	o := Options{Upstream: Address{"unix", "/nonexistent"}, Dir: dir}
	openRelay(t, o)
	if _, err := Open(o); err == nil || !strings.Contains(err.Error(), "another process has the queue open") {
		t.Errorf("a second Open: %v", err)
	}
}

func TestParseAddress(t *testing.T) {
	f := func(s, want, wantErr string) {
		t.Helper()
		a, err := ParseAddress(s)
		if wantErr != "" {
			if err == nil || !strings.Contains(err.Error(), wantErr) {
				t.Errorf("%q: %v; want %s", s, err, wantErr)
			}
			return
		}
		if err != nil || a.String() != want {
			t.Errorf("%q: %s, %v; want %s", s, a, err, want)
		}
	}
	f("unix:/a/b.sock", "unix:/a/b.sock", "")
	f("unix:///a/b.sock", "unix:/a/b.sock", "")
	f("unix:b.sock", "unix:b.sock", "")
	f("collector:4317", "collector:4317", "")
	f("[::1]:4317", "[::1]:4317", "")
	f("unix:", "", "names no socket")
	f("collector", "", "neither HOST:PORT nor unix:PATH")
	f("http://collector:4317", "", "neither HOST:PORT nor unix:PATH")
	f(":4317", "", "neither HOST:PORT nor unix:PATH")
	f("http://x", "", `"http://x" is neither HOST:PORT nor unix:PATH; write it like collector:4317`)
	f("grpc://x/", "", "neither HOST:PORT nor unix:PATH; write it like")
	f("x:4317/v1/metrics", "", "neither HOST:PORT nor unix:PATH; write it like")
	f("c:0", "", "no number between 1 and 65535")
	f("c:x", "", "no number between 1 and 65535")
}

// A folder that cannot be made is one clear error.
func TestOpenFails(t *testing.T) {
	_, err := Open(Options{Upstream: Address{"unix", "/nonexistent"}, Dir: "/dev/null/x"})
	if pathErr := (*net.OpError)(nil); err == nil || errors.As(err, &pathErr) || !strings.HasPrefix(err.Error(), "relay: ") {
		t.Errorf("Open: %v", err)
	}
}

// queuedBytes is what a request of n bytes takes on disk: 9 more.
func queuedBytes(n int) int64 { return 9 + int64(n) }
