package queue

import (
	"errors"
	"io/fs"
	"os"
	"slices"
)

// Peek returns the oldest record that waits, and false when there is none. What
// cannot be read is passed over: the rest of its file is told as lost and the
// next file is gone on with. The record is valid until the next Peek.
func (q *Queue) Peek() (Record, bool) {
	for {
		seg, off, ok := q.front()
		if !ok {
			return Record{}, false
		}
		rec, err := q.readAt(seg, off)
		if err == nil {
			return rec, true
		}
		q.lose(seg, off, err)
	}
}

// PeekMany is Peek for several records of one file, of limit bytes or little more,
// that stay valid.
func (q *Queue) PeekMany(limit int64) []Record {
	var all []Record
	var size int64
	first, ok := q.Peek()
	for ok && size < limit {
		first.Wire = slices.Clone(first.Wire)
		all, size = append(all, first), size+first.size
		var seg segment
		var off int64
		if seg, off, ok = q.front(); !ok || seg.n != first.segment || off+size >= seg.size {
			break
		}
		var err error
		first, err = q.readAt(seg, off+size)
		ok = err == nil // else Peek finds it once those before it are done with
	}
	return all
}

// lose passes over the rest of a file that cannot be read.
func (q *Queue) lose(seg segment, off int64, why error) {
	q.o.Lost(why, seg.n, seg.size-off)
	q.pass(seg.n, seg.size-off)
}

// Done moves the reader on beyond records that Peek or PeekMany has given.
func (q *Queue) Done(recs ...Record) {
	var n int64
	for _, r := range recs {
		n += r.size
	}
	if n > 0 {
		q.pass(recs[0].segment, n)
	}
}

// pass moves the reader on by n bytes of a file, unless that is gone.
func (q *Queue) pass(segment uint64, n int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.segs) == 0 || q.segs[0].n != segment {
		return
	}
	q.off += n
	// A position that cannot be written costs a repeat after a restart.
	_ = q.cur.write(position{segment, q.off})
}

// Before gives the records of the oldest file that an earlier process was done
// with: what stands in them may be needed to understand the others.
func (q *Queue) Before(each func(Record)) {
	q.mu.Lock()
	if len(q.segs) == 0 {
		q.mu.Unlock()
		return
	}
	seg, until := q.segs[0], q.off
	q.mu.Unlock()
	seg.size = until
	q.rest(seg, 0, each)
}

// front is where the reader is. It leaves files behind that are done with and
// not written to any more.
func (q *Queue) front() (segment, int64, bool) {
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
func (q *Queue) drop() {
	gone := q.segs[0]
	if q.o.Dropped != nil && q.off < gone.size {
		from := q.off
		q.o.Dropped(gone.n, func(each func(Record)) { q.rest(gone, from, each) })
	}
	q.segs = q.segs[1:]
	q.bytes -= gone.size
	q.off = 0
	_ = q.cur.write(position{gone.n + 1, 0}) // see pass
	if err := os.Remove(q.path(gone.n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		q.o.Trouble(err)
	}
}

// rest reads a file from a byte on, as far as it can be read.
func (q *Queue) rest(seg segment, from int64, each func(Record)) {
	f, err := os.Open(q.path(seg.n))
	if err != nil {
		return
	}
	defer f.Close()
	var buf []byte
	for from < seg.size {
		var rec Record
		if rec, buf, err = readRecord(f, from, seg.size, buf); err != nil {
			return
		}
		rec.segment = seg.n
		each(rec)
		from += rec.size
	}
}

func (q *Queue) readAt(seg segment, off int64) (Record, error) {
	if q.open == nil || q.openedAs != seg.n {
		if q.open != nil {
			_ = q.open.Close() // it was only read
			q.open = nil
		}
		f, err := os.Open(q.path(seg.n))
		if err != nil {
			return Record{}, err
		}
		q.open, q.openedAs = f, seg.n
	}
	if cap(q.buf) > maxKept {
		q.buf = nil // one large request must not keep its memory
	}
	rec, buf, err := readRecord(q.open, off, seg.size, q.buf)
	q.buf = buf
	rec.segment = seg.n
	return rec, err
}

const maxKept = 4 << 20
