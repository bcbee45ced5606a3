package store

import (
	"context"
	"fmt"
	"time"
)

// freeze is the state after a write that failed: the log may end in a torn
// record, and whatever is written behind one is deleted at the next start.
type freeze struct {
	err    error // wraps ErrFrozen or ErrClosed
	unsafe bool  // an fsync failed: the kernel may have dropped pages it shows
	at     time.Time
}

// freeze stops all writing until Reopen. The first cause stays.
func (db *DB) freeze(cause error, unsafe bool) error {
	f := &freeze{
		err:    fmt.Errorf("store: %s: %w: %w: the store must be reopened", db.o.Path, ErrFrozen, cause),
		unsafe: unsafe,
	}
	if db.o.Clock != nil {
		f.at = db.o.Clock()
	}
	if !db.frozen.CompareAndSwap(nil, f) {
		return db.frozenErr()
	}
	return f.err
}

func (db *DB) frozenErr() error {
	if f := db.frozen.Load(); f != nil {
		return f.err
	}
	return nil
}

// Sync returns when all that was committed before the call is durable, as
// Options.Durability says; an ack waits for it. Callers that come while an
// fsync runs share the next one. An error (ErrFrozen, ErrClosed) means that
// nothing may be acked, and the samples be sent again after Reopen; when ctx
// ends first, whether they are durable is not known.
func (db *DB) Sync(ctx context.Context) error {
	if err := db.frozenErr(); err != nil {
		return err
	}
	switch db.o.Durability {
	case DurabilityFsync:
		return db.group.do(ctx, db.syncRound)
	default:
		db.unsaved.Store(true)
		return db.checkLateLog()
	}
}

// syncRound runs for the leader of the group alone.
func (db *DB) syncRound() error {
	if err := db.frozenErr(); err != nil {
		return err
	}
	if err := db.logs.syncAll(); err != nil {
		return db.freeze(err, true)
	}
	return db.checkLateLog()
}

// checkLateLog freezes the store when late samples were committed and could not
// be logged.
func (db *DB) checkLateLog() error {
	s, leave, err := db.enter(nil)
	if err != nil {
		return err
	}
	defer leave()
	n, err := s.reg.failedWrites()
	if err != nil {
		return err
	}
	if n > 0 {
		return db.freeze(fmt.Errorf("%.0f writes to the log of late samples failed", n), false)
	}
	return nil
}

// syncEvery is interval mode's fsync, until Close.
func (db *DB) syncEvery(every time.Duration) {
	defer db.ticking.Done()
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-db.stop:
			return
		case <-t.C:
			if db.unsaved.Swap(false) {
				// A failure freezes the store and is told by the next Sync.
				_ = db.group.do(context.Background(), db.syncRound)
			}
		}
	}
}

// group lets concurrent callers share one run of a function: whoever comes
// while it runs waits for the next run, which begins after all of them came.
type group struct {
	lead chan struct{} // holds the one who runs
	next chan *round   // the run that newcomers join; always holds one
}

type round struct {
	done chan struct{}
	err  error
}

func newGroup() group {
	g := group{make(chan struct{}, 1), make(chan *round, 1)}
	g.next <- &round{done: make(chan struct{})}
	return g
}

// do returns what a run of f answered that began after do was called.
func (g group) do(ctx context.Context, f func() error) error {
	mine := <-g.next
	g.next <- mine
	select {
	case <-mine.done:
		return mine.err
	case <-ctx.Done():
		return context.Cause(ctx)
	case g.lead <- struct{}{}:
	}
	defer func() { <-g.lead }()
	select {
	case <-mine.done: // the leader before had begun no earlier than we came
		return mine.err
	default:
	}
	<-g.next // mine: only a leader replaces it, and ends it before it steps down
	g.next <- &round{done: make(chan struct{})}
	mine.err = f()
	close(mine.done)
	return mine.err
}

// exclude keeps every run out until the returned function is called.
func (g group) exclude() (release func()) {
	g.lead <- struct{}{}
	return func() { <-g.lead }
}
