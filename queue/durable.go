package queue

import (
	"errors"
	"os"

	"github.com/wattloop/wattloop/internal/disk"
)

// seal ends writing to the newest file. With fsync the next sync closes it.
func (q *Queue) seal() {
	if q.w == nil {
		return
	}
	if q.o.Fsync {
		q.sealed = append(q.sealed, q.w)
	} else {
		_ = q.w.Close() // nothing was promised of these bytes
	}
	q.w = nil
}

// roll begins a new file.
func (q *Queue) roll() error {
	q.seal()
	f, err := os.OpenFile(q.path(q.next), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	q.w, q.fresh = f, true
	q.segs = append(q.segs, segment{n: q.next})
	q.next++
	return nil
}

// sync makes durable what was appended before it was called. After a failure
// nothing more is written to the file, nor is it synced again: the kernel may show
// pages that it has dropped, and says so once. Who appended to it while the sync
// went on is told by the next one.
func (q *Queue) sync() error {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return ErrClosed
	}
	sealed, w, fresh, unsafe := q.sealed, q.w, q.fresh, q.unsafe
	q.sealed, q.fresh, q.unsafe = nil, false, nil
	q.mu.Unlock()
	var errs []error
	for _, f := range sealed {
		errs = append(errs, f.Sync(), f.Close())
	}
	if w != nil {
		errs = append(errs, w.Sync())
	}
	if fresh {
		errs = append(errs, disk.SyncFolder(q.o.Dir))
	}
	err := errors.Join(errs...)
	if err != nil {
		q.mu.Lock()
		q.fresh, q.unsafe = true, err
		if q.w == w && w != nil {
			_ = q.w.Close() // its error is the one that there is
			q.w = nil
		}
		q.mu.Unlock()
	}
	return errors.Join(unsafe, err)
}
