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
		return db.group.Do(ctx, db.syncRound)
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
				_ = db.group.Do(context.Background(), db.syncRound)
			}
		}
	}
}
