package relay

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/wattloop/wattloop/ingest"
)

// queue is the requests of one plane on disk, oldest first, in files of which
// whole ones are deleted as they are done with. Any number of goroutines append,
// one reads. A process always begins a new file, so that what an earlier one
// left torn is never written behind.
type queue struct {
	dir      string
	limit    int64 // bytes on disk
	segBytes int64 // a file that has reached this is written to no more
	fsync    bool
	events

	group group         // shares fsyncs
	grown chan struct{} // holds one element after an append

	// Of the reader alone.
	open     *os.File
	openedAs uint64
	buf      []byte

	mu               sync.Mutex
	segs             []segment // oldest first
	w                *os.File  // the last of segs, nil when that is closed for writing
	sealed           []*os.File
	fresh            bool  // a file was made since the folder was synced
	unsafe           error // an fsync failed, and who appended meanwhile has not been told
	off              int64 // bytes of segs[0] that are done with
	bytes            int64 // on disk
	next             uint64
	cur              cursor
	refusing, closed bool
}

// segment is one file, by number, with its size.
type segment struct {
	n    uint64
	size int64
}

// events are what a queue tells of beside its answers. They must not call it.
type events struct {
	lost    func(why error, segment uint64, bytes int64) // bytes that cannot be read
	trouble func(err error)                              // what the disk refused
}

// The bounds of a segment's size: a sixteenth of the queue between them.
const (
	minSegment = 64 << 10
	maxSegment = 16 << 20
)

// openQueue takes over what an earlier process left in dir.
func openQueue(dir string, limit int64, fsync bool, ev events) (*queue, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	q := &queue{
		dir: dir, limit: limit, segBytes: min(max(limit/16, minSegment), maxSegment), fsync: fsync, events: ev,
		group: newGroup(), grown: make(chan struct{}, 1),
	}
	if fsync {
		if err := syncFolder(filepath.Dir(dir)); err != nil {
			return nil, err
		}
	}
	cur, at, err := openCursor(dir)
	if err != nil {
		return nil, err
	}
	q.cur, q.next = cur, at.segment+1
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, errors.Join(err, cur.f.Close())
	}
	for _, e := range names {
		n, ok := segmentNumber(e.Name())
		if !ok {
			continue
		}
		st, err := e.Info()
		if err != nil {
			return nil, errors.Join(err, cur.f.Close())
		}
		q.next = max(q.next, n+1)
		if n < at.segment || st.Size() == 0 {
			// Done with: the process ended before it could delete it.
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return nil, errors.Join(err, cur.f.Close())
			}
			continue
		}
		q.segs = append(q.segs, segment{n, st.Size()})
		q.bytes += st.Size()
	}
	slices.SortFunc(q.segs, func(a, b segment) int { return int(min(max(int64(a.n)-int64(b.n), -1), 1)) })
	if len(q.segs) > 0 && q.segs[0].n == at.segment {
		q.off = min(at.off, q.segs[0].size)
	}
	q.signal()
	return q, nil
}

func (q *queue) path(n uint64) string { return filepath.Join(q.dir, fmt.Sprintf("%016x.seg", n)) }

func segmentNumber(name string) (uint64, bool) {
	hex, ok := strings.CutSuffix(name, ".seg")
	if !ok || len(hex) != 16 {
		return 0, false
	}
	n, err := strconv.ParseUint(hex, 16, 64)
	return n, err == nil && n < 1<<62
}

// signal wakes the reader.
func (q *queue) signal() {
	select {
	case q.grown <- struct{}{}:
	default:
	}
}

// append queues one request and, with fsync, waits until it is durable. The
// error is ingest.ErrNoRoom, ErrClosed, that of ctx, or the disk's; the request
// may be sent all the same after one of the last two.
func (q *queue) append(ctx context.Context, signal byte, wire []byte) error {
	if err := q.write(signal, wire); err != nil {
		return err
	}
	q.signal()
	if !q.fsync {
		return nil
	}
	return q.group.do(ctx, q.sync)
}

func (q *queue) write(signal byte, wire []byte) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.refusing {
		return ErrClosed
	}
	n := recordBytes(len(wire))
	if q.bytes+n > q.limit && q.drained() {
		// Nothing waits: what fills the disk is done with.
		q.clear()
	}
	if q.bytes+n > q.limit {
		return ingest.ErrNoRoom
	}
	if q.w == nil || q.segs[len(q.segs)-1].size >= q.segBytes {
		if err := q.roll(); err != nil {
			return err
		}
	}
	h := head(signal, wire)
	_, err := q.w.Write(h[:])
	if err == nil {
		_, err = q.w.Write(wire)
	}
	last := &q.segs[len(q.segs)-1]
	if err != nil {
		if cut := q.cut(last.size); cut != nil {
			q.seal()
		}
		return err
	}
	last.size += n
	q.bytes += n
	return nil
}

// cut takes the file back to where the last whole record ends.
func (q *queue) cut(size int64) error {
	if err := q.w.Truncate(size); err != nil {
		return err
	}
	_, err := q.w.Seek(size, 0)
	return err
}

// drained says that nothing waits.
func (q *queue) drained() bool {
	return len(q.segs) == 0 || len(q.segs) == 1 && q.off >= q.segs[0].size
}

// clear removes a file that is done with although it was still written to.
func (q *queue) clear() {
	if len(q.segs) > 0 {
		q.seal()
		q.drop()
	}
}

// size is how many bytes wait and how many are on disk.
func (q *queue) size() (waiting, disk int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.bytes - q.off, q.bytes
}

// refuse ends appending; reading goes on.
func (q *queue) refuse() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refusing = true
}

// close keeps what waits. Nobody may append or read any more.
func (q *queue) close() error {
	var errs []error
	if q.fsync {
		errs = append(errs, q.group.do(context.Background(), q.sync))
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refusing, q.closed = true, true
	for _, f := range append(q.sealed, q.w, q.open, q.cur.f) {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	q.sealed, q.w, q.open = nil, nil, nil
	if err := errors.Join(errs...); err != nil && !errors.Is(err, fs.ErrClosed) {
		return err
	}
	return nil
}
