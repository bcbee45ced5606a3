package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

const rewriteSuffix = ".rewrite"

// Reopen closes the TSDB and opens it again, which is the way out of ErrFrozen:
// the log is read back, cut at a torn record, and continued in a new segment.
// It ends running queries, waits for appenders and queriers until ctx ends, and
// refuses with ErrDiskFull below the watermark, where the TSDB could not start.
// When it fails the store stays as it was or frozen; Reopen may be called again.
func (db *DB) Reopen(ctx context.Context) error {
	db.reopenMu.Lock()
	defer db.reopenMu.Unlock()
	if db.closed {
		return db.errClosed()
	}
	if err := db.checkSpace(); err != nil {
		return err
	}
	before := db.halt(func(before *freeze) *freeze {
		if before != nil {
			return before
		}
		return &freeze{err: fmt.Errorf("store: %s: %w: it is being reopened", db.o.Path, ErrFrozen)}
	})
	if s := db.current.Load(); s != nil {
		if err := s.drain(ctx, db.frozenErr()); err != nil {
			db.frozen.Store(before)
			return fmt.Errorf("store: %s: %w", db.o.Path, err)
		}
		if err := db.closeSession(s); err != nil {
			// The log holds what the head could not write out, and is read next.
			db.o.Logger.Warn("store did not close cleanly before it was reopened", "path", db.o.Path, "err", err)
		}
	}
	if before != nil && before.unsafe {
		if err := db.logs.rewriteUnsynced(); err != nil {
			return fmt.Errorf("store: %s: %w", db.o.Path, err)
		}
	}
	if err := db.openSession(); err != nil {
		// It may be its fsync that failed, and then the log is rewritten next.
		f := *db.frozen.Load()
		f.unsafe = db.o.Durability != DurabilityOS
		db.frozen.Store(&f)
		return err
	}
	db.frozen.Store(nil)
	return nil
}

// halt sets what the store is frozen by at a moment when no commit and no fsync
// runs, and none begins after; it returns what was set before.
func (db *DB) halt(by func(before *freeze) *freeze) (before *freeze) {
	db.commitMu.Lock()
	defer db.commitMu.Unlock()
	defer db.group.Exclude()()
	before = db.frozen.Load()
	db.frozen.Store(by(before))
	return before
}

// closeSession closes a session that has been drained.
func (db *DB) closeSession(s *session) error {
	db.current.Store(nil)
	db.logs.reset()
	return s.close()
}

// rewriteUnsynced copies each segment that has bytes behind its last good fsync
// into a new file. After a failed fsync the kernel may show bytes that never
// reached the disk and call them written, and no fsync repairs that; a torn
// segment would, after a power cut, take everything behind it along. What the
// copy holds is on the disk or an error is returned.
func (l *segmentLogs) rewriteUnsynced() error {
	for _, name := range logNames {
		if err := l.rewriteLog(name); err != nil {
			return err
		}
	}
	return nil
}

func (l *segmentLogs) rewriteLog(name string) error {
	dir, err := os.Open(filepath.Join(l.root, name))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	oldest, newest, err := segmentRange(dir)
	if err != nil {
		return err
	}
	for i := max(oldest, 0); i <= newest; i++ {
		segment := segmentPath(name, i)
		info, err := os.Stat(filepath.Join(l.root, segment))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if info.Size() <= l.syncedTo(segment) {
			continue
		}
		if err := l.rewrite(filepath.Join(l.root, segment)); err != nil {
			return fmt.Errorf("rewrite %s: %w", segment, err)
		}
	}
	return l.fsync(dir)
}

func (l *segmentLogs) syncedTo(segment string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.synced[segment]
}

func (l *segmentLogs) rewrite(path string) error {
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(path+rewriteSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	if err == nil {
		err = l.fsync(to)
	}
	if err := errors.Join(err, to.Close()); err != nil {
		return errors.Join(err, os.Remove(path+rewriteSuffix))
	}
	return os.Rename(path+rewriteSuffix, path)
}
