package relay

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/wattloop/wattloop/ingest"
)

// upstream is an OTLP/gRPC endpoint that keeps what it is sent.
type upstream struct {
	// answer is asked for each request before it is kept; nil takes all.
	answer func(ctx context.Context, s ingest.Signal, wire []byte) ([]byte, error)
	came   chan struct{} // holds one element after a request was kept

	mu   sync.Mutex
	got  map[string]int // how often each request came, by "signal wire"
	all  []string       // in the order in which they came
	srv  *grpc.Server
	addr Address
}

func newUpstream() *upstream {
	return &upstream{got: map[string]int{}, came: make(chan struct{}, 1)}
}

// serve listens on network, at the address that it had before where it had one.
func (u *upstream) serve(t testing.TB, network string) *upstream {
	t.Helper()
	if u.addr == (Address{}) {
		u.addr = Address{network, "127.0.0.1:0"}
		if network == "unix" {
			u.addr.addr = filepath.Join(t.TempDir(), "up.sock")
		}
	}
	l, err := net.Listen(u.addr.network, u.addr.addr)
	if err != nil {
		t.Fatal(err)
	}
	u.addr.addr = l.Addr().String()
	u.serveOn(t, l)
	return u
}

func (u *upstream) serveOn(t testing.TB, l net.Listener) {
	srv := grpc.NewServer(grpc.ForceServerCodecV2(bytesCodec{}), grpc.UnknownServiceHandler(u.handle))
	u.mu.Lock()
	u.srv = srv
	u.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l)
	}()
	t.Cleanup(func() {
		srv.Stop()
		<-done
	})
}

func (u *upstream) handle(_ any, stream grpc.ServerStream) error {
	name, _ := grpc.MethodFromServerStream(stream)
	var signal ingest.Signal
	for _, s := range signals[1:] {
		if method(s) == name {
			signal = s
		}
	}
	var wire []byte
	if err := stream.RecvMsg(&wire); err != nil {
		return err
	}
	var response []byte
	if u.answer != nil {
		var err error
		if response, err = u.answer(stream.Context(), signal, wire); err != nil {
			return err
		}
	}
	u.mu.Lock()
	key := string(signal) + " " + string(wire)
	u.got[key]++
	u.all = append(u.all, key)
	u.mu.Unlock()
	select {
	case u.came <- struct{}{}:
	default:
	}
	return stream.SendMsg(response)
}

func (u *upstream) order() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]string(nil), u.all...)
}

// await waits until ok holds of what has come.
func (u *upstream) await(t testing.TB, what string, ok func(all []string) bool) {
	t.Helper()
	limit := time.NewTimer(time.Minute) // a hang, not a bound that is tested
	defer limit.Stop()
	for !ok(u.order()) {
		select {
		case <-u.came:
		case <-limit.C:
			t.Fatalf("no %s; %d requests came", what, len(u.order()))
		}
	}
}

func (u *upstream) awaitCount(t testing.TB, n int) {
	t.Helper()
	u.await(t, "such number of requests", func(all []string) bool { return len(all) >= n })
}

func openRelay(t testing.TB, o Options) *Relay {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	r, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // at once
		if err := r.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return r
}

func mustForward(t testing.TB, r *Relay, p ingest.Plane, s ingest.Signal, wire string) {
	t.Helper()
	if err := r.Forward(t.Context(), ingest.Forwarded{Signal: s, Plane: p, Wire: []byte(wire)}); err != nil {
		t.Fatal(err)
	}
}

// dials records where connections lead.
type dials struct {
	mu  sync.Mutex
	to  []string // "network address"
	off map[string]bool
}

func (d *dials) dial(ctx context.Context, network, address string) (net.Conn, error) {
	to := network + " " + address
	d.mu.Lock()
	d.to = append(d.to, to)
	off := d.off[network]
	d.mu.Unlock()
	if off {
		return nil, errors.New("egress denied")
	}
	return dialNet(ctx, network, address)
}

func (d *dials) seen(prefix string) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, to := range d.to {
		if strings.HasPrefix(to, prefix) {
			n++
		}
	}
	return n
}
