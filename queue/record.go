package queue

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
)

// A record of a segment file is the length of what follows the head (4 bytes,
// little-endian), the CRC-32C of that length and of what follows (4 bytes), one
// byte for its kind, and the bytes that were appended.
const headBytes = 8

// What can be wrong with a record, for Options.Lost.
var (
	ErrTorn    = errors.New("the record ends beyond its file")
	ErrCorrupt = errors.New("the record is not what was written")
)

// castagnoli is constant: crc32 computes it at most once.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// head is what stands before wire.
func head(kind byte, wire []byte) [headBytes + 1]byte {
	var h [headBytes + 1]byte
	binary.LittleEndian.PutUint32(h[:4], uint32(len(wire)+1))
	h[headBytes] = kind
	sum := crc32.Update(0, castagnoli(), h[:4])
	sum = crc32.Update(sum, castagnoli(), h[headBytes:])
	binary.LittleEndian.PutUint32(h[4:8], crc32.Update(sum, castagnoli(), wire))
	return h
}

// recordBytes is what n bytes take in a file.
func recordBytes(n int) int64 { return headBytes + 1 + int64(n) }

// Record is what one append queued.
type Record struct {
	Kind byte
	Wire []byte

	segment uint64
	size    int64 // in the file
}

// Segment numbers the file that the record lies in; a later file has a higher
// number.
func (r *Record) Segment() uint64 { return r.segment }

// readRecord reads the record at off of a file of size bytes, into buf where it
// fits. It never makes room for more than the file holds.
func readRecord(r io.ReaderAt, off, size int64, buf []byte) (Record, []byte, error) {
	var h [headBytes]byte
	if size-off < headBytes+1 {
		return Record{}, buf, ErrTorn
	}
	if _, err := r.ReadAt(h[:], off); err != nil {
		return Record{}, buf, err
	}
	n := int64(binary.LittleEndian.Uint32(h[:4]))
	switch {
	case n == 0:
		return Record{}, buf, ErrCorrupt
	case n > size-off-headBytes:
		return Record{}, buf, ErrTorn
	}
	if int64(cap(buf)) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if _, err := r.ReadAt(buf, off+headBytes); err != nil {
		return Record{}, buf, err
	}
	sum := crc32.Update(crc32.Update(0, castagnoli(), h[:4]), castagnoli(), buf)
	if sum != binary.LittleEndian.Uint32(h[4:]) || buf[0] == 0 {
		return Record{}, buf, ErrCorrupt
	}
	return Record{Kind: buf[0], Wire: buf[1:], size: headBytes + n}, buf, nil
}
