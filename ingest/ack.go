package ingest

import (
	"context"
	"sync"
	"time"
)

// patience is how long a request waits at most for the one that is being stored
// after it: no longer than the last sync took, which is what it may save.
const patience = 2 * time.Millisecond

// acks lets requests that come at once share one sync, which costs more than the
// request itself: a request that was stored while another one is at it waits a
// little for that one, and both then for the same sync. Alone, nobody waits. Safe for
// concurrent use.
type acks struct {
	sync  func(context.Context) error // nil: there is nothing to wait for
	clock func() time.Time

	mu     sync.Mutex
	active int           // requests between begin and end
	open   *ackRound     // whom the next to end joins; nil: it leads a new one
	took   time.Duration // by the last sync
}

// ackRound is one sync and those who wait for it.
type ackRound struct {
	more chan struct{} // closed when another one has joined, or will not
	told bool          // more is closed
	done chan struct{}
	err  error
}

// ack is one request's part in it, from before it is stored.
type ack struct {
	*acks
	ended bool
}

// begin says that a request will be stored. end must follow, and before it, where
// there is something to sync, wait.
func (a *acks) begin() ack {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.active++
	return ack{acks: a}
}

// end ends a request that wait has not ended.
func (a *ack) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leave()
}

// leave holds up the leader of the open round no longer.
func (a *ack) leave() {
	if a.ended {
		return
	}
	a.ended = true
	a.active--
	if a.open != nil && !a.open.told {
		a.open.told = true
		close(a.open.more)
	}
}

// wait ends a request and returns once what was committed before the call is
// durable as configured.
func (a *ack) wait(ctx context.Context) error {
	a.mu.Lock()
	round := a.open
	a.leave()
	if round != nil {
		a.mu.Unlock()
		select {
		case <-round.done:
			return round.err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	round = &ackRound{more: make(chan struct{}), done: make(chan struct{})}
	wait := min(patience, a.took)
	if a.active == 0 {
		wait = 0
	}
	a.open = round
	a.mu.Unlock()
	if wait > 0 {
		late := time.NewTimer(wait)
		select {
		case <-round.more:
		case <-late.C:
		}
		late.Stop()
	}
	a.mu.Lock()
	a.open = nil
	a.mu.Unlock()
	defer close(round.done)
	// The others' answers hang on this too: it does not end with its own client.
	began := a.clock()
	round.err = a.sync(context.WithoutCancel(ctx))
	a.mu.Lock()
	a.took = max(0, a.clock().Sub(began)) // the clock may be set back
	a.mu.Unlock()
	return round.err
}
