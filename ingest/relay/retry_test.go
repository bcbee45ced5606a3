package relay

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/wattloop/wattloop/ingest"
)

func withRetryInfo(t testing.TB, c codes.Code, d time.Duration) error {
	t.Helper()
	st, err := status.New(c, "later").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(d)})
	if err != nil {
		t.Fatal(err)
	}
	return st.Err()
}

// What may be repeated is what OTLP's specification lists, for every code of
// gRPC, with and without RetryInfo.
func TestRetryTable(t *testing.T) {
	retryable := map[codes.Code]bool{
		codes.Canceled: true, codes.DeadlineExceeded: true, codes.Aborted: true,
		codes.OutOfRange: true, codes.Unavailable: true, codes.DataLoss: true,
	}
	words := map[string]bool{}
	for c := codes.Canceled; c <= codes.Unauthenticated; c++ {
		plain, asked := judge(status.Error(c, "no")), judge(withRetryInfo(t, c, 3*time.Second))
		if plain.retry != retryable[c] || plain.asked {
			t.Errorf("%s: %+v; want retry %v", c, plain, retryable[c])
		}
		if want := retryable[c] || c == codes.ResourceExhausted; asked.retry != want || !asked.asked || asked.after != 3*time.Second {
			t.Errorf("%s with RetryInfo: %+v; want retry %v after 3s", c, asked, want)
		}
		words[plain.reason] = true
	}
	if len(words) != 16 {
		t.Errorf("%d words for 16 codes: %v", len(words), words)
	}
	if v := judge(errors.New("no status")); v.retry || v.reason != "unknown" {
		t.Errorf("an error that is no status: %+v", v)
	}
	if v := judge(status.Error(codes.Code(99), "")); v.retry || v.reason != "unknown" {
		t.Errorf("a code that there is not: %+v", v)
	}
	if v := judge(withRetryInfo(t, codes.Unavailable, -time.Second)); v.after != 0 {
		t.Errorf("a negative delay: %+v", v)
	}
}

func TestDelay(t *testing.T) {
	for try, want := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 30 * time.Second, 30 * time.Second} {
		if got := delay(try, 0); got != want {
			t.Errorf("delay(%d) = %s; want %s", try, got, want)
		}
		if got := delay(try, 0.999); got < want/2 || got >= want {
			t.Errorf("delay(%d) with jitter = %s; want half of %s at least", try, got, want)
		}
	}
	if got := delay(1<<30, 0); got != maxDelay {
		t.Errorf("delay after very many = %s", got)
	}
}

// The times between attempts, in a world whose clock stands still but for them:
// what the upstream asks for, else the doubling delay. A request that is refused
// for good is dropped, counted, and not repeated; so is one that was taken in
// part.
func TestAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		partial := []byte{0x0a, 0x07, 0x08, 0x05, 0x12, 0x03, 'w', 'h', 'y'} // partial_success{5, "why"}
		answers := []struct {
			response []byte
			err      error
		}{
			{nil, status.Error(codes.Unavailable, "")},
			{nil, status.Error(codes.Aborted, "")},
			{nil, withRetryInfo(t, codes.ResourceExhausted, 7*time.Second)},
			{nil, withRetryInfo(t, codes.Unavailable, 11*time.Minute)},
			{nil, nil},
			{nil, status.Error(codes.ResourceExhausted, "too large")},
			{nil, status.Error(codes.InvalidArgument, "no")},
			{partial, nil},
			{nil, nil},
		}
		var at []time.Duration
		start := time.Now()
		u := newUpstream()
		u.answer = func(context.Context, ingest.Signal, []byte) ([]byte, error) {
			n := len(at)
			at = append(at, time.Since(start))
			return answers[n].response, answers[n].err
		}
		l := bufconn.Listen(1 << 20)
		u.serveOn(t, l)
		r := openRelay(t, Options{Upstream: Address{"unix", "buffer"}, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.DialContext(ctx) }})
		for _, wire := range []string{"a", "b", "c", "d", "e"} {
			mustForward(t, r, ingest.PlanePlatform, ingest.SignalMetrics, wire)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		want := []time.Duration{0, 500 * time.Millisecond, 1500 * time.Millisecond, 8500 * time.Millisecond, 668500 * time.Millisecond}
		for len(want) < len(answers) {
			want = append(want, want[4])
		}
		if len(at) != len(want) {
			t.Fatalf("%d attempts at %v; want %d", len(at), at, len(want))
		}
		for i := range want {
			if at[i] != want[i] {
				t.Errorf("attempt %d at %s; want %s", i, at[i], want[i])
			}
		}
		s := r.Status()[0]
		if s.Sent != 3 || s.Dropped != 2 || s.Rejected != 5 || s.QueueBytes != 0 || !s.Answering {
			t.Errorf("status %+v; want 3 sent, 2 dropped, 5 rejected, nothing waiting", s)
		}
		m := r.planes[0].m
		for _, reason := range []string{"resource_exhausted", "invalid_argument"} {
			if n := testutil.ToFloat64(m.requests.WithLabelValues("platform", "metrics", "dropped", reason)); n != 1 {
				t.Errorf("%g requests counted as dropped, %s; want 1", n, reason)
			}
		}
		if n := testutil.ToFloat64(m.retries.WithLabelValues("platform", "unavailable")); n != 2 {
			t.Errorf("%g retries after unavailable are counted; want 2", n)
		}
	})
}

// An attempt that gets no answer ends, and is repeated.
func TestAttemptTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream()
		tries := 0
		u.answer = func(ctx context.Context, _ ingest.Signal, _ []byte) ([]byte, error) {
			if tries++; tries == 1 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return nil, nil
		}
		l := bufconn.Listen(1 << 20)
		u.serveOn(t, l)
		r := openRelay(t, Options{Upstream: Address{"unix", "buffer"}, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.DialContext(ctx) }})
		mustForward(t, r, ingest.PlaneWorkload, ingest.SignalLogs, "a")
		time.Sleep(time.Hour)
		synctest.Wait()
		if s := r.Status()[1]; tries != 2 || s.Sent != 1 {
			t.Errorf("%d attempts, %+v; want 2, and the request sent", tries, s)
		}
	})
}

// A request that always fails with a code that speaks of the request is given up
// in the end; one that waits for the upstream never is.
func TestGivesUp(t *testing.T) {
	for c, want := range map[codes.Code]uint64{codes.DataLoss: 1, codes.Unavailable: 0} {
		synctest.Test(t, func(t *testing.T) {
			u := newUpstream()
			u.answer = func(context.Context, ingest.Signal, []byte) ([]byte, error) { return nil, status.Error(c, "no") }
			l := bufconn.Listen(1 << 20)
			u.serveOn(t, l)
			r := openRelay(t, Options{Upstream: Address{"unix", "buffer"}, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.DialContext(ctx) }})
			mustForward(t, r, ingest.PlaneWorkload, ingest.SignalLogs, "a")
			time.Sleep(24 * time.Hour)
			synctest.Wait()
			if s := r.Status()[1]; s.Dropped != want {
				t.Errorf("%s: %d dropped after a day; want %d", c, s.Dropped, want)
			}
		})
	}
}

func TestPartialSuccess(t *testing.T) {
	f := func(b []byte, rejected int64, message string) {
		t.Helper()
		if n, m := partialSuccess(b); n != rejected || m != message {
			t.Errorf("%x: %d, %q; want %d, %q", b, n, m, rejected, message)
		}
	}
	f(nil, 0, "")
	f([]byte{0x0a, 0x00}, 0, "")
	f([]byte{0x0a, 0x02, 0x08, 0x03}, 3, "")
	f([]byte{0x0a, 0x03, 0x12, 0x01, 'w'}, 0, "w")
	f([]byte{0x15, 0, 0, 0, 0, 0x0a, 0x02, 0x08, 0x03}, 3, "") // a field that is not known
	f([]byte{0x0a, 0x0b, 0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, 0, "")
	f([]byte{0x0a, 0x7f}, 0, "")
	f([]byte("garbage"), 0, "")
}
