package ingest

import "sync"

// turns is a lock that is handed to who waits for it by class: the receiver's own
// work first, then node channels, then workload channels (decisions.md X20), and
// within a class one request of each channel in turn, so that one that keeps many
// waiting delays the others by no more than one. Every ninth turn is a workload's
// where one waits: node channels come first, and keep nobody out for ever. The zero
// value is unlocked.
type turns struct {
	mu     sync.Mutex
	held   bool
	own    line
	rings  [2][]*line // of node and of workload channels that wait, the next one first
	passed int        // turns since a workload channel that waits had one
	spare  sync.Pool
}

const mostPassed = 8

// line is who waits on one channel, in the order they came.
type line struct {
	class      int // index of its ring
	head, tail *waiter
}

const (
	nodeRing = iota
	workloadRing
)

type waiter struct {
	turn chan struct{} // holds one element once the lock is this one's
	next *waiter
}

// Lock takes the lock for the receiver itself.
func (t *turns) Lock() { t.lock(&t.own) }

// lock takes the lock for the channel with that line.
func (t *turns) lock(l *line) {
	t.mu.Lock()
	if !t.held {
		t.held = true
		t.mu.Unlock()
		return
	}
	w, _ := t.spare.Get().(*waiter)
	if w == nil {
		w = &waiter{turn: make(chan struct{}, 1)}
	}
	if l.head == nil && l != &t.own {
		t.rings[l.class] = append(t.rings[l.class], l)
	}
	l.push(w)
	t.mu.Unlock()
	<-w.turn
	t.spare.Put(w)
}

// Unlock hands the lock on, or sets it free.
func (t *turns) Unlock() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.held {
		panic("BUG: ingest: a turn ended that nobody had")
	}
	nodes, workloads := len(t.rings[nodeRing]) > 0, len(t.rings[workloadRing]) > 0
	switch {
	case t.own.head != nil:
		t.own.pop().turn <- struct{}{}
	case workloads && (!nodes || t.passed == mostPassed):
		t.passed = 0
		t.next(workloadRing)
	case nodes:
		if workloads {
			t.passed++
		}
		t.next(nodeRing)
	default:
		t.held = false
	}
}

// next hands the lock to the first of a ring, and moves its channel to the end.
func (t *turns) next(class int) {
	ring := t.rings[class]
	l := ring[0]
	ring = append(ring[:0], ring[1:]...)
	w := l.pop()
	if l.head != nil {
		ring = append(ring, l)
	}
	t.rings[class] = ring
	w.turn <- struct{}{}
}

func (l *line) push(w *waiter) {
	if l.head == nil {
		l.head = w
	} else {
		l.tail.next = w
	}
	l.tail = w
}

func (l *line) pop() *waiter {
	w := l.head
	l.head, w.next = w.next, nil
	return w
}
