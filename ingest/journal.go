package ingest

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/wattloop/wattloop/internal/disk"
)

// journal keeps the accumulator on disk. What a request changes is written to the
// newest log before the store commits the request, so that after the death of the
// process the journal knows at least as much as the store: a sender's retry of a
// request that was not answered is recognised. A log that has grown is replaced
// by a snapshot of all that is known and a new log.
//
// NUMBER.snapshot is what was known when NUMBER.log was begun. Nothing is written
// to a file again that a write or an fsync has failed on, nor to one that an
// earlier process left.
type journal struct {
	dir   string
	fsync bool // an ack waits for one
	log   *slog.Logger
	m     *stateMetrics
	lock  *os.File

	// The Receiver's lock guards these, and mu the size as well.
	number uint64 // of the newest log
	size   int64  // of the newest log
	buf    []byte
	behind bool // the newest log and memory have parted: a snapshot must come first

	snapped  atomic.Int64 // size of the newest snapshot
	snapping atomic.Bool  // somebody saves one

	// syncing is held while f is fsynced or changed for another file, and is taken
	// before mu, which is never held over an fsync of f: a request that writes here
	// holds the Receiver's lock.
	syncing sync.Mutex

	mu      sync.Mutex
	f       *os.File
	failed  error  // why nothing more may be written to f
	synced  uint64 // what of written is on the disk
	safe    int64  // how much of f is
	written atomic.Uint64

	told error // why nothing can be written, as the log says; guarded by mu

	// The Receiver's lock guards these.
	tried int64 // when a renewal failed last; Unix milliseconds
	why   error // what it failed with, nil after one that did not

	sync func(*os.File) error // (*os.File).Sync, but for tests
	skip bool                 // nothing is written, which the tests must find
}

const (
	snapshotSuffix = ".snapshot"
	logSuffix      = ".log"
	damagedSuffix  = ".damaged"

	journalGrows = 8 << 20 // bytes of a log before the first thought of a snapshot
	renewEvery   = 1000    // ms between two tries to begin anew on a disk that takes nothing
)

func (j *journal) path(n uint64, suffix string) string {
	return filepath.Join(j.dir, fmt.Sprintf("%08d%s", n, suffix))
}

// openJournal takes the folder, which is made when it is not there.
func openJournal(dir string, fsync bool, log *slog.Logger, m *stateMetrics) (*journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: another process holds it: %w", dir, err), lock.Close())
	}
	j := &journal{dir: dir, fsync: fsync, log: log, m: m, lock: lock, sync: (*os.File).Sync}
	if err := j.tidy(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return j, nil
}

// tidy removes the snapshots that earlier processes died over: none of a later one
// has their number.
func (j *journal) tidy() error {
	parts, err := fs.Glob(os.DirFS(j.dir), "*"+snapshotSuffix+disk.Unfinished)
	for _, p := range parts {
		err = errors.Join(err, os.Remove(filepath.Join(j.dir, p)))
	}
	return err
}

// write appends one record and says what an ack must wait for.
func (j *journal) write(record []byte) error {
	if j.skip {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failed == nil {
		_, j.failed = j.f.Write(record)
	}
	if j.failed != nil {
		j.m.failed.Inc()
		return fmt.Errorf("running sums: %w", j.failed)
	}
	j.size += int64(len(record))
	j.written.Add(uint64(len(record)))
	return nil
}

// await returns once all that was written before the call is on the disk, if acks
// wait for that. Those who come while another one's fsync runs share the next.
func (j *journal) await() error {
	if !j.fsync {
		return nil
	}
	mine := j.written.Load()
	j.syncing.Lock()
	defer j.syncing.Unlock()
	return j.syncTo(mine)
}

// syncTo has syncing held.
func (j *journal) syncTo(mine uint64) error {
	j.mu.Lock()
	f, failed, done := j.f, j.failed, j.synced >= mine
	written, size := j.written.Load(), j.size
	j.mu.Unlock()
	if failed == nil && !done {
		failed = j.sync(f)
		j.mu.Lock()
		switch {
		case failed != nil:
			j.failed = failed
			j.m.failed.Inc()
		case j.failed != nil: // a write beside it
			failed = j.failed
		default:
			j.synced, j.safe = written, size
		}
		j.mu.Unlock()
	}
	if failed != nil {
		return fmt.Errorf("running sums: %w", failed)
	}
	return nil
}

// broken reports whether the newest log must not be written to.
func (j *journal) broken() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.failed != nil || j.behind
}

// tell logs that what is counted can be written no more, and that it can again.
func (j *journal) tell(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case err != nil && j.told == nil:
		j.log.Error("the running sums cannot be written: points of delta streams, and cumulative ones of workload channels, are refused until they can", "err", err)
	case err == nil && j.told != nil:
		j.log.Info("the running sums are written again")
	}
	j.told = err
}

// renewNow is renew, but for a disk that has just refused: a snapshot is made
// under the Receiver's lock, and must not be made for each request in vain.
func (j *journal) renewNow(now int64, snapshot func() []byte) error {
	if since := now - j.tried; j.why != nil && since >= 0 && since < renewEvery {
		return j.why
	}
	j.tried, j.why = now, j.renew(snapshot())
	j.tell(j.why)
	return j.why
}

// renew makes a snapshot and a new log, before anything else is written.
func (j *journal) renew(snapshot []byte) error {
	j.number++ // also when it fails: no file is written to twice
	n := j.number
	if err := j.save(n, snapshot); err != nil {
		return fmt.Errorf("running sums: %w", err)
	}
	if err := j.begin(n, true); err != nil {
		return fmt.Errorf("running sums: %w", err)
	}
	j.behind = false
	j.remove(n)
	return nil
}

// begin makes log n the newest one. clean says that nobody needs what the one
// before holds.
func (j *journal) begin(n uint64, clean bool) error {
	j.syncing.Lock()
	defer j.syncing.Unlock()
	if j.f != nil && !clean {
		if err := j.syncTo(j.written.Load()); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(j.path(n, logSuffix), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	header := journalHeader()
	if _, err = f.Write(header); err == nil {
		err = j.sync(f)
	}
	if err == nil {
		err = j.syncDir()
	}
	if err != nil {
		return errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	if j.f != nil {
		if err := j.f.Close(); err != nil {
			j.log.Warn("a log of running sums did not close", "err", err)
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.f, j.failed, j.size = f, nil, int64(len(header))
	j.synced, j.safe = j.written.Load(), j.size
	return nil
}

// grown begins a new log when the newest one has grown, and returns the number of
// the snapshot that is then due; 0 when none is.
func (j *journal) grown() uint64 {
	if j.size < max(journalGrows, 2*j.snapped.Load()) || j.broken() || !j.snapping.CompareAndSwap(false, true) {
		return 0
	}
	j.number++
	if err := j.begin(j.number, false); err != nil {
		j.log.Warn("a new log of running sums could not be begun", "err", err)
		j.snapping.Store(false)
		return 0
	}
	return j.number
}

// finish saves the snapshot that grown asked for. Until it is there, the logs
// before it stay.
func (j *journal) finish(n uint64, snapshot []byte) {
	defer j.snapping.Store(false)
	if err := j.save(n, snapshot); err != nil {
		j.log.Warn("a snapshot of the running sums could not be written: their logs go on growing", "err", err)
		return
	}
	j.remove(n)
}

func (j *journal) syncDir() error {
	d, err := os.Open(j.dir)
	if err != nil {
		return err
	}
	return errors.Join(j.sync(d), d.Close())
}

// save writes snapshot n so that it is there whole or not at all.
func (j *journal) save(n uint64, snapshot []byte) error {
	if err := (disk.File{Path: j.path(n, snapshotSuffix), Sync: j.sync}).Replace(snapshot); err != nil {
		return err
	}
	j.snapped.Store(int64(len(snapshot)))
	j.m.snapshots.Inc()
	return nil
}

func removed(name string) error {
	if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// remove removes the files that snapshot n stands for. One that stays is read
// over at the next start.
func (j *journal) remove(n uint64) {
	files, err := j.files()
	for _, f := range files {
		if f.n < n {
			err = errors.Join(err, removed(j.path(f.n, f.suffix)))
		}
	}
	if err != nil {
		j.log.Warn("old running sums were not removed", "err", err)
	}
}

// close ends the journal.
func (j *journal) close() error {
	j.syncing.Lock()
	defer j.syncing.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	var err error
	if j.f != nil {
		if j.failed == nil {
			err = j.sync(j.f)
		}
		err = errors.Join(err, j.f.Close())
		j.f, j.failed = nil, fs.ErrClosed
	}
	return errors.Join(err, j.lock.Close())
}
