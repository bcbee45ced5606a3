package ingest

import "sync"

// turns is a lock that is handed to who waits for it by class: whatever is not a
// workload's first, in the order it came (decisions.md X20), then workload
// channels one request each in turn, so that one that keeps many waiting delays
// the others by no more than one. The zero value is unlocked.
type turns struct {
	mu    sync.Mutex
	held  bool
	first line    // nodes, and the receiver's own work
	ring  []*line // of workload channels that wait, the next one first
	spare sync.Pool
}

// line is who waits on one channel, in the order they came.
type line struct{ head, tail *waiter }

type waiter struct {
	turn chan struct{} // holds one element once the lock is this one's
	next *waiter
}

// Lock takes the lock as a node channel does.
func (t *turns) Lock() { t.lock(nil) }

// lock takes the lock for a workload channel with that line, or, with nil, as a
// node channel.
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
	if l == nil {
		t.first.push(w)
	} else {
		if l.head == nil {
			t.ring = append(t.ring, l)
		}
		l.push(w)
	}
	t.mu.Unlock()
	<-w.turn
	t.spare.Put(w)
}

// Unlock hands the lock on, or sets it free.
func (t *turns) Unlock() {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !t.held:
		panic("BUG: ingest: a turn ended that nobody had")
	case t.first.head != nil:
		t.first.pop().turn <- struct{}{}
	case len(t.ring) > 0:
		l := t.ring[0]
		t.ring = append(t.ring[:0], t.ring[1:]...)
		w := l.pop()
		if l.head != nil {
			t.ring = append(t.ring, l)
		}
		w.turn <- struct{}{}
	default:
		t.held = false
	}
}

// waiting is how many wait.
func (t *turns) waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.first.len()
	for _, l := range t.ring {
		n += l.len()
	}
	return n
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

func (l *line) len() (n int) {
	for w := l.head; w != nil; w = w.next {
		n++
	}
	return n
}
