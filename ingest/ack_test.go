package ingest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// syncs counts the calls of a sync that takes 10 ms, and answers err.
func syncs(err error) (*acks, *int) {
	n := new(int)
	return &acks{clock: time.Now, took: 10 * time.Millisecond, sync: func(ctx context.Context) error {
		*n++
		time.Sleep(10 * time.Millisecond)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}}, n
}

// A request that is alone does not wait for others.
func TestAckAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, n := syncs(nil)
		for range 3 {
			one := a.begin()
			began := time.Now()
			if err := one.wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			one.end()
			if took := time.Since(began); took != 10*time.Millisecond {
				t.Errorf("waited %s; want the sync's 10 ms", took)
			}
		}
		if *n != 3 || a.active != 0 {
			t.Errorf("%d syncs, %d requests open; want 3, 0", *n, a.active)
		}
	})
}

// The second of two requests that come at once ends in the round of the first,
// with its answer.
func TestAckShared(t *testing.T) {
	full := errors.New("disk full")
	for _, want := range []error{nil, full} {
		synctest.Test(t, func(t *testing.T) {
			a, n := syncs(want)
			first, second := a.begin(), a.begin()
			answers := make(chan error, 2)
			ctx, cancel := context.WithCancel(t.Context())
			go func() { answers <- first.wait(ctx) }()
			time.Sleep(time.Millisecond)
			go func() { answers <- second.wait(t.Context()) }()
			time.Sleep(time.Millisecond)
			cancel() // the one who syncs for both has gone
			for range 2 {
				if err := <-answers; !errors.Is(err, want) {
					t.Errorf("answered %v; want %v", err, want)
				}
			}
			if *n != 1 || a.active != 0 {
				t.Errorf("%d syncs, %d requests open; want 1, 0", *n, a.active)
			}
		})
	}
}

// What is committed while a sync runs is not covered by it.
func TestAckNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, n := syncs(nil)
		first := a.begin()
		done := make(chan error, 1)
		go func() { done <- first.wait(t.Context()) }()
		synctest.Wait() // the sync runs
		second := a.begin()
		if err := second.wait(t.Context()); err != nil || *n != 2 {
			t.Errorf("%d syncs, %v; want a second one", *n, err)
		}
		<-done
	})
}

// Patience ends, also with those who have nothing to sync.
func TestAckPatience(t *testing.T) {
	for _, c := range []struct {
		other time.Duration // when the other ends
		want  time.Duration
	}{{time.Second, patience + 10*time.Millisecond}, {time.Millisecond, 11 * time.Millisecond}} {
		synctest.Test(t, func(t *testing.T) {
			a, _ := syncs(nil)
			one, other := a.begin(), a.begin()
			go func() {
				time.Sleep(c.other)
				other.end()
			}()
			began := time.Now()
			if err := one.wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took != c.want {
				t.Errorf("waited %s; want %s", took, c.want)
			}
			time.Sleep(c.other)
		})
	}
}

// A follower whose client has gone does not wait.
func TestAckCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := syncs(nil)
		first, second := a.begin(), a.begin()
		done := make(chan error, 1)
		go func() { done <- first.wait(t.Context()) }()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := second.wait(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("answered %v; want %v", err, context.Canceled)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Nobody waits longer for another one than the sync takes that they may save.
func TestAckPatienceIsWorthIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		a := &acks{clock: time.Now, sync: func(context.Context) error {
			n++
			time.Sleep(100 * time.Microsecond)
			return nil
		}}
		other := a.begin()
		for i, want := range []time.Duration{100, 200, 200} { // the first has nothing to go by
			one := a.begin()
			began := time.Now()
			if err := one.wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took != want*time.Microsecond {
				t.Errorf("request %d waited %s; want %s", i, took, want*time.Microsecond)
			}
		}
		other.end()
	})
}
