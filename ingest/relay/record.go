package relay

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"

	"github.com/wattloop/wattloop/ingest"
)

// A record of a segment file is the length of what follows the head (4 bytes,
// little-endian), the CRC-32C of that length and of what follows (4 bytes), one
// byte for the signal, and the request.
const headBytes = 8

// What can be wrong with a record.
var (
	errTorn    = errors.New("the record ends beyond its file")
	errCorrupt = errors.New("the record is not what was written")
)

// signals by their byte in a record; 0 is none, so that a run of zeros is no
// record.
var signals = [...]ingest.Signal{1: ingest.SignalMetrics, 2: ingest.SignalTraces, 3: ingest.SignalLogs}

func signalByte(s ingest.Signal) (byte, bool) {
	for b, t := range signals {
		if t == s && b > 0 {
			return byte(b), true
		}
	}
	return 0, false
}

// castagnoli is constant: crc32 computes it at most once.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// head is what stands before signal and wire.
func head(signal byte, wire []byte) [headBytes + 1]byte {
	var h [headBytes + 1]byte
	binary.LittleEndian.PutUint32(h[:4], uint32(len(wire)+1))
	h[headBytes] = signal
	sum := crc32.Update(0, castagnoli(), h[:4])
	sum = crc32.Update(sum, castagnoli(), h[headBytes:])
	binary.LittleEndian.PutUint32(h[4:8], crc32.Update(sum, castagnoli(), wire))
	return h
}

// recordBytes is what a request of n bytes takes in a file.
func recordBytes(n int) int64 { return headBytes + 1 + int64(n) }

// record is one request as it was queued. wire is valid until the next read.
type record struct {
	signal ingest.Signal
	wire   []byte
	size   int64 // in the file
}

// readRecord reads the record at off of a file of size bytes, into buf where it
// fits. It never makes room for more than the file holds.
func readRecord(r io.ReaderAt, off, size int64, buf []byte) (record, []byte, error) {
	var h [headBytes]byte
	if size-off < headBytes+1 {
		return record{}, buf, errTorn
	}
	if _, err := r.ReadAt(h[:], off); err != nil {
		return record{}, buf, err
	}
	n := int64(binary.LittleEndian.Uint32(h[:4]))
	switch {
	case n == 0:
		return record{}, buf, errCorrupt
	case n > size-off-headBytes:
		return record{}, buf, errTorn
	}
	if int64(cap(buf)) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if _, err := r.ReadAt(buf, off+headBytes); err != nil {
		return record{}, buf, err
	}
	sum := crc32.Update(crc32.Update(0, castagnoli(), h[:4]), castagnoli(), buf)
	if sum != binary.LittleEndian.Uint32(h[4:]) || buf[0] == 0 || int(buf[0]) >= len(signals) {
		return record{}, buf, errCorrupt
	}
	return record{signals[buf[0]], buf[1:], headBytes + n}, buf, nil
}
