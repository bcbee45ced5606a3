package relay

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wattloop/wattloop/ingest"
)

func newPasser(t testing.TB, a Address, dial Dial) *Passer {
	t.Helper()
	p, err := NewPasser(a, dial, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// The upstream's answer comes back as it is, whatever it is.
func TestPass(t *testing.T) {
	u := newUpstream()
	u.answer = func(_ context.Context, _ ingest.Signal, wire []byte) ([]byte, error) {
		switch string(wire) {
		case "partial":
			return []byte{0x0a, 0x02, 0x08, 0x05}, nil
		case "later":
			return nil, withRetryInfo(t, codes.ResourceExhausted, 9*time.Second)
		case "never":
			return nil, status.Error(codes.InvalidArgument, "no")
		case "unavailable":
			return nil, status.Error(codes.Unavailable, "the upstream's own word")
		}
		return nil, nil
	}
	u.serve(t, "unix")
	p := newPasser(t, u.addr, nil)
	f := func(wire, wantResponse string, want codes.Code, wantMessage string) {
		t.Helper()
		response, err := p.Pass(t.Context(), ingest.SignalTraces, []byte(wire))
		st := status.Convert(err)
		if string(response) != wantResponse || st.Code() != want || st.Message() != wantMessage {
			t.Errorf("%s: %q, %v; want %q, %s: %s", wire, response, err, wantResponse, want, wantMessage)
		}
	}
	f("all", "", codes.OK, "")
	f("partial", "\x0a\x02\x08\x05", codes.OK, "")
	f("later", "", codes.ResourceExhausted, "later")
	f("never", "", codes.InvalidArgument, "no")
	f("unavailable", "", codes.Unavailable, "the upstream's own word")
	_, err := p.Pass(t.Context(), ingest.SignalTraces, []byte("later"))
	if v := judge(err); v.after != 9*time.Second {
		t.Errorf("RetryInfo comes back as %+v", v)
	}
	if want := []string{"traces all", "traces partial"}; !slices.Equal(u.order(), want) {
		t.Errorf("the upstream has %q; want %q", u.order(), want)
	}
}

// With the upstream's socket missing, the sender is told to come again, and no
// other way is tried (S2-66).
func TestPassWithoutUpstream(t *testing.T) {
	u := newUpstream()
	u.addr = Address{"unix", filepath.Join(t.TempDir(), "up.sock")}
	d := &dials{}
	p := newPasser(t, u.addr, d.dial)
	_, err := p.Pass(t.Context(), ingest.SignalMetrics, []byte("x"))
	var info *errdetails.RetryInfo
	for _, detail := range status.Convert(err).Details() {
		info, _ = detail.(*errdetails.RetryInfo)
	}
	if status.Code(err) != codes.Unavailable || info.GetRetryDelay().AsDuration() != passRetry {
		t.Errorf("without an upstream: %v, %v; want Unavailable with RetryInfo of %s", err, info, passRetry)
	}
	if d.seen("unix "+u.addr.addr) != len(d.to) || len(d.to) == 0 {
		t.Errorf("dialled %q; want the socket alone", d.to)
	}
	u.serve(t, "unix")
	for err != nil {
		_, err = p.Pass(t.Context(), ingest.SignalMetrics, []byte("x"))
		if err != nil && status.Code(err) != codes.Unavailable {
			t.Fatal(err)
		}
	}
}

// A sender that gives up takes its request with it.
func TestPassCancelled(t *testing.T) {
	u := newUpstream()
	held, over := make(chan struct{}), make(chan error, 1)
	u.answer = func(ctx context.Context, _ ingest.Signal, _ []byte) ([]byte, error) {
		close(held)
		<-ctx.Done()
		over <- ctx.Err()
		return nil, ctx.Err()
	}
	u.serve(t, "unix")
	p := newPasser(t, u.addr, nil)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-held
		cancel()
	}()
	if _, err := p.Pass(ctx, ingest.SignalLogs, []byte("x")); status.Code(err) != codes.Canceled {
		t.Errorf("a sender that gives up: %v", err)
	}
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Errorf("the upstream's call ends with %v", err)
	}
}
