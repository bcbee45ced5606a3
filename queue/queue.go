// Package queue is a queue of byte strings on disk: what was appended comes out in
// the same order, by this process or the next one, at least once. It never holds
// more bytes than it may: a full one refuses the newest or drops the oldest.
package queue

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

	"github.com/wattloop/wattloop/internal/disk"
	"github.com/wattloop/wattloop/internal/group"
)

// What Append answers.
var (
	ErrNoRoom = errors.New("the queue is full")
	ErrClosed = errors.New("the queue is closed")
)

// Options are what a Queue is made of. What is told by its functions must not call
// the queue.
type Options struct {
	Dir   string // of the files; made when it is not there
	Limit int64  // bytes on disk
	Fsync bool   // Append waits until a record would survive a loss of power
	// Oldest has a full queue drop its oldest file, of a sixteenth of Limit, in place
	// of refusing the newest record.
	Oldest bool

	Lost    func(why error, segment uint64, bytes int64) // bytes that cannot be read
	Trouble func(err error)                              // what the disk refused
	// Dropped says that a file is dropped for want of room; rest reads those of its
	// records that were not done with, which takes time. May be nil.
	Dropped func(segment uint64, rest func(each func(Record)))
}

// Queue keeps its records in files of which whole ones are deleted as they are
// done with. Any number of goroutines append, one reads. A process always begins
// a new file, so that what an earlier one left torn is never written behind.
type Queue struct {
	o        Options
	segBytes int64 // a file that has reached this is written to no more

	group group.Group   // shares fsyncs
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

// The bounds of a segment's size: a sixteenth of the queue between them.
const (
	minSegment = 64 << 10
	maxSegment = 16 << 20
)

// Open takes over what an earlier process left in Options.Dir.
func Open(o Options) (*Queue, error) {
	dir := o.Dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	q := &Queue{
		o: o, segBytes: min(max(o.Limit/16, minSegment), maxSegment),
		group: group.New(), grown: make(chan struct{}, 1),
	}
	if o.Fsync {
		if err := disk.SyncFolder(filepath.Dir(dir)); err != nil {
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

func (q *Queue) path(n uint64) string { return filepath.Join(q.o.Dir, fmt.Sprintf("%016x.seg", n)) }

func segmentNumber(name string) (uint64, bool) {
	hex, ok := strings.CutSuffix(name, ".seg")
	if !ok || len(hex) != 16 {
		return 0, false
	}
	n, err := strconv.ParseUint(hex, 16, 64)
	return n, err == nil && n < 1<<62
}

// signal wakes the reader.
func (q *Queue) signal() {
	select {
	case q.grown <- struct{}{}:
	default:
	}
}

// Grown gives an element after appends, and once after Open.
func (q *Queue) Grown() <-chan struct{} { return q.grown }

// Append queues one record of a kind, which is not 0, and with Fsync waits until
// it is durable. The error is ErrNoRoom, ErrClosed, that of ctx, or the disk's;
// the record may come out all the same after one of the last two.
func (q *Queue) Append(ctx context.Context, kind byte, wire []byte) error {
	return q.AppendFunc(ctx, kind, func(uint64) []byte { return wire })
}

// AppendFunc is Append of what build returns, which is told the number of the file
// that the record is for, and may be told another one in a second call. It must not
// call the queue.
func (q *Queue) AppendFunc(ctx context.Context, kind byte, build func(segment uint64) []byte) error {
	if err := q.write(kind, build); err != nil {
		return err
	}
	q.signal()
	if !q.o.Fsync {
		return nil
	}
	return q.group.Do(ctx, q.sync)
}

func (q *Queue) write(kind byte, build func(segment uint64) []byte) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.refusing {
		return ErrClosed
	}
	to := q.target()
	wire := build(to)
	q.makeRoom(recordBytes(len(wire)))
	if now := q.target(); now != to {
		wire = build(now)
	}
	n := recordBytes(len(wire))
	if q.bytes+n > q.o.Limit {
		return ErrNoRoom
	}
	if q.begins() {
		if err := q.roll(); err != nil {
			return err
		}
	}
	h := head(kind, wire)
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

// begins says that the next record begins a file.
func (q *Queue) begins() bool { return q.w == nil || q.segs[len(q.segs)-1].size >= q.segBytes }

// target is the number of the file that the next record is for.
func (q *Queue) target() uint64 {
	if q.begins() {
		return q.next
	}
	return q.segs[len(q.segs)-1].n
}

// makeRoom removes what it may for n more bytes.
func (q *Queue) makeRoom(n int64) {
	if n > q.o.Limit {
		return
	}
	if q.bytes+n > q.o.Limit && q.drained() {
		// Nothing waits: what fills the disk is done with.
		q.clear()
	}
	for q.o.Oldest && q.bytes+n > q.o.Limit && len(q.segs) > 0 {
		q.clear()
	}
}

// Begin has the next record begin a file.
func (q *Queue) Begin() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.seal()
}

// cut takes the file back to where the last whole record ends.
func (q *Queue) cut(size int64) error {
	if err := q.w.Truncate(size); err != nil {
		return err
	}
	_, err := q.w.Seek(size, 0)
	return err
}

// drained says that nothing waits.
func (q *Queue) drained() bool {
	return len(q.segs) == 0 || len(q.segs) == 1 && q.off >= q.segs[0].size
}

// clear removes the oldest file, also where it was still written to.
func (q *Queue) clear() {
	if len(q.segs) == 1 {
		q.seal()
	}
	if len(q.segs) > 0 {
		q.drop()
	}
}

// Size is how many bytes wait and how many are on disk.
func (q *Queue) Size() (waiting, disk int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.bytes - q.off, q.bytes
}

// Refuse ends appending; reading goes on.
func (q *Queue) Refuse() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refusing = true
}

// Close keeps what waits. Nobody may append or read any more.
func (q *Queue) Close() error {
	var errs []error
	if q.o.Fsync {
		errs = append(errs, q.group.Do(context.Background(), q.sync))
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
