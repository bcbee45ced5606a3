package ingest

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
)

// Nodes come first, in their order; workload channels one request each in turn
// (X20), whatever one of them has waiting.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lock turns
		var a, b, c line
		var got []string
		lock.Lock()
		queue := func(l *line, name string) {
			go func() {
				lock.lock(l)
				got = append(got, name) // under the lock
				lock.Unlock()
			}()
			synctest.Wait()
		}
		for i := range 4 {
			queue(&a, fmt.Sprint("a", i))
		}
		queue(&b, "b0")
		queue(nil, "n0")
		queue(&c, "c0")
		queue(&c, "c1")
		queue(nil, "n1")
		if n := lock.waiting(); n != 9 {
			t.Errorf("%d wait; want 9", n)
		}
		lock.Unlock()
		synctest.Wait()
		want := []string{"n0", "n1", "a0", "b0", "c0", "a1", "c1", "a2", "a3"}
		if !slices.Equal(got, want) {
			t.Errorf("served %v; want %v", got, want)
		}
		lock.Lock() // it is free again
		lock.Unlock()
	})
}

// It excludes.
func TestTurnsExclude(t *testing.T) {
	var lock turns
	lines := make([]line, 3)
	inside, sum := 0, 0
	done := make(chan struct{})
	for i := range 8 {
		go func() {
			defer func() { done <- struct{}{} }()
			for range 1000 {
				if i < 3 {
					lock.lock(&lines[i])
				} else {
					lock.Lock()
				}
				if inside++; inside != 1 {
					t.Error("two at once")
				}
				sum++
				inside--
				lock.Unlock()
			}
		}()
	}
	for range 8 {
		<-done
	}
	if sum != 8000 || lock.waiting() != 0 {
		t.Errorf("%d turns, %d wait; want 8000, 0", sum, lock.waiting())
	}
}
