package relay

import (
	"errors"
	"io/fs"
	"os"
)

// peek returns the oldest request that waits, and false when there is none.
// What cannot be read is passed over: the rest of its file is told as lost and
// the next file is gone on with. The request is valid until the next peek.
func (q *queue) peek() (record, bool) {
	for {
		seg, off, ok := q.front()
		if !ok {
			return record{}, false
		}
		rec, err := q.readAt(seg, off)
		if err == nil {
			return rec, true
		}
		q.lost(err, seg.n, seg.size-off)
		q.done(seg.size - off)
	}
}

// front is where the reader is. It leaves files behind that are done with and
// not written to any more.
func (q *queue) front() (segment, int64, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.segs) > 0 {
		if q.off < q.segs[0].size {
			return q.segs[0], q.off, true
		}
		if len(q.segs) == 1 && q.w != nil {
			return segment{}, 0, false
		}
		q.drop()
	}
	return segment{}, 0, false
}

// drop deletes the oldest file. When the disk refuses, the file is forgotten all
// the same, so that the rest goes on; the cursor says that it is done with, and
// the next process deletes it.
func (q *queue) drop() {
	gone := q.segs[0]
	q.segs = q.segs[1:]
	q.bytes -= gone.size
	q.off = 0
	_ = q.cur.write(position{gone.n + 1, 0}) // see done
	if err := os.Remove(q.path(gone.n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		q.trouble(err)
	}
}

// done moves the reader on by n bytes.
func (q *queue) done(n int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.off += n
	// A position that cannot be written costs a repeat after a restart.
	_ = q.cur.write(position{q.segs[0].n, q.off})
}

func (q *queue) readAt(seg segment, off int64) (record, error) {
	if q.open == nil || q.openedAs != seg.n {
		if q.open != nil {
			_ = q.open.Close() // it was only read
			q.open = nil
		}
		f, err := os.Open(q.path(seg.n))
		if err != nil {
			return record{}, err
		}
		q.open, q.openedAs = f, seg.n
	}
	if cap(q.buf) > maxKept {
		q.buf = nil // one large request must not keep its memory
	}
	rec, buf, err := readRecord(q.open, off, seg.size, q.buf)
	q.buf = buf
	return rec, err
}

const maxKept = 4 << 20
