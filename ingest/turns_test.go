package ingest

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
)

// Nodes come first, workload channels after them; one request of each channel in
// turn (X20), whatever one of them has waiting.
func TestTurns(t *testing.T) {
	a, b, c := line{class: workloadRing}, line{class: workloadRing}, line{class: workloadRing}
	var n, m line
	checkTurns(t, []turn{{&a, "a", 4}, {&b, "b", 1}, {&n, "n", 3}, {&m, "m", 1}, {&c, "c", 2}, {nil, "own", 1}},
		"own0 n0 m0 n1 n2 a0 b0 c0 a1 c1 a2 a3")
}

// A flood on node channels leaves every ninth turn to the others.
func TestTurnsStarveNobody(t *testing.T) {
	a, b := line{class: workloadRing}, line{class: workloadRing}
	var n line
	checkTurns(t, []turn{{&a, "a", 2}, {&b, "b", 1}, {&n, "n", 26}},
		"n0 n1 n2 n3 n4 n5 n6 n7 a0 n8 n9 n10 n11 n12 n13 n14 n15 b0 n16 n17 n18 n19 n20 n21 n22 n23 a1 n24 n25")
}

type turn struct {
	l    *line // nil for the receiver itself
	name string
	n    int
}

func checkTurns(t *testing.T, queue []turn, want string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var lock turns
		var got []string
		lock.Lock()
		n := 0
		for _, q := range queue {
			for i := range q.n {
				n++
				go func() {
					if q.l == nil {
						lock.Lock()
					} else {
						lock.lock(q.l)
					}
					got = append(got, fmt.Sprint(q.name, i)) // under the lock
					lock.Unlock()
				}()
				synctest.Wait()
			}
		}
		if got := lock.waiting(); got != n {
			t.Errorf("%d wait; want %d", got, n)
		}
		lock.Unlock()
		synctest.Wait()
		if strings.Join(got, " ") != want {
			t.Errorf("served %v; want %s", got, want)
		}
		lock.Lock() // it is free again
		if !lock.held {
			t.Error("locked, and nobody holds it")
		}
		lock.Unlock()
	})
}

// It excludes.
func TestTurnsExclude(t *testing.T) {
	var lock turns
	lines := []line{{class: workloadRing}, {class: workloadRing}, {}}
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

// waiting is how many wait.
func (t *turns) waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.own.len()
	for _, ring := range t.rings {
		for _, l := range ring {
			n += l.len()
		}
	}
	return n
}

func (l *line) len() (n int) {
	for w := l.head; w != nil; w = w.next {
		n++
	}
	return n
}
