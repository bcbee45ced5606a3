package group

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
)

func TestGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New()
		goOn := make(chan error)
		run := func() error { return <-goOn }
		done := make(chan error, 3)
		for range 3 {
			go func() { done <- g.Do(t.Context(), run) }()
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := g.Do(ctx, run); !errors.Is(err, context.Canceled) {
			t.Errorf("Do with a canceled context = %v", err)
		}
		goOn <- io.EOF
		if err := <-done; err != io.EOF {
			t.Errorf("the first run = %v; want its own error", err)
		}
		goOn <- io.ErrNoProgress
		if a, b := <-done, <-done; a != io.ErrNoProgress || b != io.ErrNoProgress {
			t.Errorf("the shared run = %v, %v; want the same error twice", a, b)
		}
	})
}

// Nothing runs while it is excluded.
func TestExclude(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New()
		release := g.Exclude()
		ran := false
		done := make(chan error, 1)
		go func() { done <- g.Do(t.Context(), func() error { ran = true; return nil }) }()
		synctest.Wait()
		if ran {
			t.Error("it ran while it was excluded")
		}
		release()
		if err := <-done; err != nil || !ran {
			t.Errorf("ran %t, %v; want it to run once it may", ran, err)
		}
	})
}
