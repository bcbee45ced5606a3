package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/storage"

	"github.com/wattloop/wattloop/internal/group"
)

// The defaults of Options.
const (
	DefaultRetentionTime  = 15 * 24 * time.Hour
	DefaultRetentionBytes = 8 << 30
	DefaultOutOfOrder     = 30 * time.Minute
	DefaultMinFree        = 256 << 20
)

// What callers branch on with errors.Is.
var (
	ErrLocked   = errors.New("folder is locked")
	ErrFrozen   = errors.New("no samples are taken")
	ErrDiskFull = errors.New("disk is nearly full")
	ErrClosed   = errors.New("store is closed")
	ErrBeside   = errors.New("the store beside this one does not answer")
)

// Options say where and how a store keeps its samples. The zero value of each
// but Path means its default.
type Options struct {
	Path           string        // folder, made with mode 0700 when absent
	RetentionTime  time.Duration // how far back samples are kept
	RetentionBytes int64         // most bytes on disk, write-ahead log included; blocks go, oldest first
	OutOfOrder     time.Duration // how late a sample may be
	Durability     Durability    // what Sync waits for
	MinFree        int64         // bytes free on the disk below which no samples are taken; negative: no limit
	Logger         *slog.Logger  // what the TSDB has to say; nil: nothing
	Registerer     prometheus.Registerer
	Clock          func() time.Time // stamps Stats.FrozenAt; nil: no stamp
	Beside         Beside           // what is asked beside this store

	segmentSize int // bytes of a log segment; smaller in tests, which want many
}

func (o Options) withDefaults() Options {
	if o.RetentionTime <= 0 {
		o.RetentionTime = DefaultRetentionTime
	}
	if o.RetentionBytes <= 0 {
		o.RetentionBytes = DefaultRetentionBytes
	}
	if o.OutOfOrder <= 0 {
		o.OutOfOrder = DefaultOutOfOrder
	}
	if o.Durability == "" {
		o.Durability = DurabilityFsync
	}
	if o.MinFree == 0 {
		o.MinFree = DefaultMinFree
	}
	if o.segmentSize == 0 {
		o.segmentSize = logSegmentSize
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// DB is an open store. All of its methods may be called at once.
type DB struct {
	o     Options
	lanes lanes
	reg   *registerer // of the lanes, which outlive a reopen
	lock  *os.File

	committed atomic.Pointer[func(Batch)] // see OnCommit

	// current is the open TSDB; nil while it is being reopened and after Close.
	current atomic.Pointer[session]
	frozen  atomic.Pointer[freeze]
	// commitMu makes commits one after another, so that none can follow one
	// that failed before the store is frozen.
	commitMu sync.Mutex

	group   group.Group
	logs    *segmentLogs // the leader of group's, and while halted Reopen's
	unsaved atomic.Bool  // a commit since the last fsync; interval mode
	stop    chan struct{}
	ticking sync.WaitGroup

	reopenMu sync.Mutex // one Reopen or Close at a time; guards what follows
	gen      uint64     // of current
	closed   bool

	freeBytes func(path string) (int64, error)
	noSpace   atomic.Uint64 // appenders refused for lack of it
}

// Open opens the store in o.Path, replays its log, and in the modes that fsync
// makes durable what an earlier process left. It answers ErrLocked when another
// process holds the folder. Close gives everything back.
func Open(o Options) (*DB, error) {
	o = o.withDefaults()
	if _, err := ParseDurability(string(o.Durability)); err != nil {
		return nil, err
	}
	if err := prepareFolder(o.Path, o.Logger); err != nil {
		return nil, err
	}
	lock, err := lockFolder(o.Path)
	if err != nil {
		return nil, err
	}
	db := &DB{
		o:         o,
		reg:       &registerer{inner: o.Registerer},
		lock:      lock,
		group:     group.New(),
		logs:      newSegmentLogs(o.Path),
		stop:      make(chan struct{}),
		freeBytes: freeBytes,
	}
	if err := db.openSession(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	db.lanes = newLanes(o.Logger, db.reg)
	if every := o.Durability.interval(); every > 0 {
		db.ticking.Add(1)
		go db.syncEvery(every)
	}
	return db, nil
}

// openSession opens the TSDB and, unless the mode is os, fsyncs what it found.
func (db *DB) openSession() error {
	s, err := openSession(db.o, db.gen+1)
	if err != nil {
		return err
	}
	if db.o.Durability != DurabilityOS {
		err := db.logs.syncAll()
		if err == nil {
			err = syncFolders(db.o.Path)
		}
		if err != nil {
			db.logs.reset()
			return errors.Join(fmt.Errorf("store: %s: %w", db.o.Path, err), s.close())
		}
	}
	db.gen++
	db.current.Store(s)
	return nil
}

// enter lends the open TSDB until leave is called. cancel, when there is one, is
// called should the store want it back.
func (db *DB) enter(cancel context.CancelCauseFunc) (s *session, leave func(), err error) {
	s = db.current.Load()
	if s == nil {
		return nil, nil, db.away()
	}
	leave, ok := s.enter(cancel)
	if !ok {
		return nil, nil, db.away()
	}
	return s, leave, nil
}

// away says why there is no TSDB to use just now.
func (db *DB) away() error {
	if f := db.frozen.Load(); f != nil {
		return f.err
	}
	return db.errClosed()
}

// Querier reads the samples from mint to maxt, in Unix milliseconds, both
// included. Close it: the store waits for it before it closes or reopens.
func (db *DB) Querier(mint, maxt int64) (storage.Querier, error) {
	s, leave, err := db.enter(nil)
	if err != nil {
		return nil, err
	}
	q, err := s.tsdb.Querier(mint, maxt)
	if err != nil {
		leave()
		return nil, fmt.Errorf("store: %s: %w", db.o.Path, err)
	}
	return &querier{q, leave}, nil
}

type querier struct {
	storage.Querier
	leave func()
}

func (q *querier) Close() error {
	defer q.leave()
	return q.Querier.Close()
}

// Stats describe the store at one moment.
type Stats struct {
	Series           uint64 // in the head
	MinTime, MaxTime int64  // of the stored samples, Unix milliseconds; 0 for an empty store
	Durability       Durability
	Frozen           error     // why no samples are taken; nil: they are
	FrozenAt         time.Time // by Options.Clock
	Full             error     // ErrDiskFull with the numbers, while samples are refused for it
	Refused          uint64    // how many appenders were refused for it so far
	Opened           uint64    // how often the TSDB was opened; more than 1 after a Reopen
}

// Stats never fails; a store that is closed or reopening has no series.
func (db *DB) Stats() Stats {
	st := Stats{Durability: db.o.Durability}
	if f := db.frozen.Load(); f != nil {
		st.Frozen, st.FrozenAt = f.err, f.at
	}
	st.Full, st.Refused = db.checkSpace(), db.noSpace.Load()
	s, leave, err := db.enter(nil)
	if err != nil {
		return st
	}
	defer leave()
	st.Opened = s.gen
	st.Series = s.tsdb.Head().NumSeries()
	if from, err := s.tsdb.StartTime(); err == nil && from <= s.tsdb.Head().MaxTime() {
		st.MinTime, st.MaxTime = from, s.tsdb.Head().MaxTime()
	}
	return st
}

// Close waits for appenders and queriers in use, ends running queries, writes
// out what is in memory and lets the folder go. A second Close does nothing.
func (db *DB) Close() error {
	db.reopenMu.Lock()
	defer db.reopenMu.Unlock()
	if db.closed {
		return nil
	}
	db.closed = true
	close(db.stop)
	db.ticking.Wait()
	db.halt(func(*freeze) *freeze { return &freeze{err: db.errClosed()} })
	var err error
	if s := db.current.Load(); s != nil {
		err = errors.Join(s.drain(context.Background(), db.errClosed()), db.closeSession(s))
	}
	db.reg.release()
	if err = errors.Join(err, db.lock.Close()); err != nil {
		return fmt.Errorf("store: %s: %w", db.o.Path, err)
	}
	return nil
}

func (db *DB) errClosed() error { return fmt.Errorf("store: %s: %w", db.o.Path, ErrClosed) }
