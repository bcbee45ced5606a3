package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/prometheus/tsdb"
)

// What the TSDB is opened with beside Options. Small heads and small disks are
// the rule here: each of these trades a little speed at a million series for
// memory or preallocated space.
const (
	stripeSize        = 4096
	headWriteBuffer   = 64 << 10
	logSegmentSize    = 16 << 20
	blockSegmentSize  = 64 << 20
	blockDuration     = 2 * time.Hour
	longestBlock      = 31 * 24 * time.Hour
	retentionPerBlock = 10 // a block spans at most a tenth of the retention
)

// session is one open TSDB and those who use it. Its files are mapped into
// memory, so it must not close under a reader.
type session struct {
	tsdb *tsdb.DB
	reg  *registerer
	gen  uint64

	mu      sync.Mutex
	users   map[*user]struct{}
	leaving bool          // no new users
	idle    chan struct{} // closed when leaving and the last user has gone
}

var errInUse = errors.New("still in use")

type user struct{ cancel context.CancelCauseFunc }

func openSession(o Options, gen uint64) (*session, error) {
	to := tsdb.DefaultOptions()
	to.NoLockfile = true // the folder stays locked by us, over a reopen too
	to.WALSegmentSize = o.segmentSize
	to.WALCompression = "snappy"
	to.MaxBlockChunkSegmentSize = blockSegmentSize
	to.StripeSize = stripeSize
	to.HeadChunksWriteBufferSize = headWriteBuffer
	to.RetentionDuration = o.RetentionTime.Milliseconds()
	to.MaxBytes = o.RetentionBytes
	to.MinBlockDuration = blockDuration.Milliseconds()
	to.MaxBlockDuration = max(blockDuration, min(longestBlock, o.RetentionTime/retentionPerBlock)).Milliseconds()
	to.OutOfOrderTimeWindow = o.OutOfOrder.Milliseconds()
	to.EnableExemplarStorage, to.MaxExemplars = true, maxExemplars

	reg := &registerer{inner: o.Registerer}
	db, err := tsdb.Open(o.Path, o.Logger, reg, to, nil)
	if err != nil {
		reg.release()
		return nil, fmt.Errorf("store: %s: open: %w", o.Path, err)
	}
	return &session{tsdb: db, reg: reg, gen: gen, users: map[*user]struct{}{}}, nil
}

// enter counts a user in, unless the session is being left.
func (s *session) enter(cancel context.CancelCauseFunc) (leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaving {
		return nil, false
	}
	u := &user{cancel}
	s.users[u] = struct{}{}
	return func() { s.leave(u) }, true
}

// leave may be called more than once.
func (s *session) leave(u *user) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.users, u)
	if s.leaving && len(s.users) == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}

// drain lets nobody in, cancels for the cause what can be canceled, and waits
// until the last user has left. When ctx ends first the session is as it was before.
func (s *session) drain(ctx context.Context, cause error) error {
	s.mu.Lock()
	s.leaving = true
	idle := make(chan struct{})
	if len(s.users) == 0 {
		close(idle)
	} else {
		s.idle = idle
	}
	for u := range s.users {
		if u.cancel != nil {
			u.cancel(cause)
		}
	}
	s.mu.Unlock()

	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		s.leaving, s.idle = false, nil
		return fmt.Errorf("%d appenders and queriers are %w: %w", len(s.users), errInUse, context.Cause(ctx))
	}
}

// close closes the TSDB, which must have no users. On a full disk the TSDB
// panics as it writes out its head; that is an error here, since the log holds
// the same samples.
func (s *session) close() (err error) {
	defer s.reg.release()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("close: %v", p)
		}
	}()
	return s.tsdb.Close()
}
