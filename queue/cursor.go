package queue

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
)

// position is a place in the queue: a segment and the bytes of it that are done
// with.
type position struct {
	segment uint64
	off     int64
}

const cursorBytes = 20 // segment and offset (8 bytes each, little-endian) and their CRC-32C

// cursor keeps the reader's position in a file. It is written after each
// request and not fsynced: a position that is too old costs a repeat, which the
// upstream must stand anyway.
type cursor struct{ f *os.File }

// openCursor returns the cursor of a queue and what it says; the zero position
// when it says nothing that can be read.
func openCursor(dir string) (cursor, position, error) {
	f, err := os.OpenFile(filepath.Join(dir, "cursor"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return cursor{}, position{}, err
	}
	var b [cursorBytes]byte
	if n, _ := f.ReadAt(b[:], 0); n < cursorBytes || crc32.Checksum(b[:16], castagnoli()) != binary.LittleEndian.Uint32(b[16:]) {
		return cursor{f}, position{}, nil
	}
	p := position{binary.LittleEndian.Uint64(b[:8]), int64(binary.LittleEndian.Uint64(b[8:16]))}
	if p.off < 0 || p.segment >= 1<<62 {
		p = position{}
	}
	return cursor{f}, p, nil
}

func (c cursor) write(p position) error {
	var b [cursorBytes]byte
	binary.LittleEndian.PutUint64(b[:8], p.segment)
	binary.LittleEndian.PutUint64(b[8:16], uint64(p.off))
	binary.LittleEndian.PutUint32(b[16:], crc32.Checksum(b[:16], castagnoli()))
	_, err := c.f.WriteAt(b[:], 0)
	return err
}
