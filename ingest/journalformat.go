package ingest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/prometheus/prometheus/model/labels"
)

// The journal's files are a line that names the format, and records: the length
// of the payload, its CRC-32C and that of these eight bytes, four bytes each,
// little endian, and the payload. A record holds all that one request changed, so that it is there whole or not at
// all. It is a row of entries, each a byte that says what follows.
const (
	entrySeries    = 1 // id, monotonic, labels: a stored series that has a running sum
	entryStream    = 2 // id, key: a stream of increments
	entryTotal     = 3 // series id, time, sum
	entryCounted   = 4 // stream id, how many intervals were counted, the forgotten among them
	entryInterval  = 5 // stream id, start, end, value: one more that was counted
	entryLast      = 6 // stream id, start, end, value: the last one of a cumulative sum
	entryLastCount = 7 // the same of a histogram, and sum, hash of bounds, counts
	entryEnd       = 8 // the end of a snapshot
	entryNative    = 9 // series id, time, sum of an exponential histogram

	entryLastNative = 10 // stream id, start, end, exponential histogram: the last one of a cumulative one
)

const (
	journalMagic   = "wattloop running sums, format "
	journalVersion = 1
	recordHeader   = 12
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func journalHeader() []byte { return fmt.Appendf(nil, "%s%d\n", journalMagic, journalVersion) }

// errDamaged is what a reader finds that no crash leaves.
var errDamaged = errors.New("damaged")

// checkHeader takes the first line off. torn says that the file ends within it.
func checkHeader(b []byte) (rest []byte, torn bool, err error) {
	line, _, whole := bytes.Cut(b[:min(len(b), len(journalMagic)+8)], []byte("\n"))
	if !whole {
		if bytes.HasPrefix(journalHeader(), b) || len(bytes.Trim(b, "\x00")) == 0 {
			return nil, true, nil
		}
		return nil, false, fmt.Errorf("%w: it does not begin as a journal does", errDamaged)
	}
	number, ok := bytes.CutPrefix(line, []byte(journalMagic))
	version, err := strconv.Atoi(string(number))
	switch {
	case !ok || err != nil || version < 1:
		return nil, false, fmt.Errorf("%w: it does not begin as a journal does", errDamaged)
	case version > journalVersion:
		return nil, false, fmt.Errorf("written in format %d, and this version reads %d: start the version that wrote it, or move the folder away", version, journalVersion)
	}
	return b[len(line)+1:], false, nil
}

// beginRecord leaves room for the header of a record.
func beginRecord(b []byte) (out []byte, at int) {
	return append(b, make([]byte, recordHeader)...), len(b)
}

// endRecord fills it in.
func endRecord(b []byte, at int) {
	payload := b[at+recordHeader:]
	binary.LittleEndian.PutUint32(b[at:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(b[at+4:], crc32.Checksum(payload, castagnoli))
	binary.LittleEndian.PutUint32(b[at+8:], crc32.Checksum(b[at:at+8], castagnoli))
}

// nextRecord takes one record off. Without an error a nil payload is the end;
// torn says that what is left is a record that was not written to its end.
func nextRecord(b []byte) (payload, rest []byte, torn bool, err error) {
	if len(b) == 0 {
		return nil, nil, false, nil
	}
	if len(bytes.TrimLeft(b, "\x00")) == 0 { // space that was never written to
		return nil, nil, true, nil
	}
	if len(b) < recordHeader {
		return nil, nil, true, nil
	}
	if crc32.Checksum(b[:8], castagnoli) != binary.LittleEndian.Uint32(b[8:]) {
		return nil, nil, false, fmt.Errorf("%w: the length of a record does not agree with its checksum", errDamaged)
	}
	n := uint64(binary.LittleEndian.Uint32(b))
	if n > uint64(len(b)-recordHeader) {
		return nil, nil, true, nil
	}
	payload, rest = b[recordHeader:recordHeader+n], b[recordHeader+n:]
	switch {
	case n > 0 && crc32.Checksum(payload, castagnoli) == binary.LittleEndian.Uint32(b[4:]):
		return payload, rest, false, nil
	case len(bytes.TrimLeft(rest, "\x00")) == 0:
		return nil, nil, true, nil
	}
	return nil, nil, false, fmt.Errorf("%w: a record does not agree with its checksum", errDamaged)
}

func appendSeries(b []byte, s *runningSum) []byte {
	b = binary.AppendUvarint(append(b, entrySeries), s.id)
	if s.monotonic {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	b = binary.AppendUvarint(b, uint64(s.labels.Len()))
	s.labels.Range(func(l labels.Label) {
		b = appendText(appendText(b, l.Name), l.Value)
	})
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// appendTotal writes the sum: that of numbers, that of exponential histograms, or,
// where metrics of two kinds share a series, both.
func appendTotal(b []byte, s *runningSum) []byte {
	if s.f != nil {
		b = binary.AppendUvarint(append(b, entryNative), s.id)
		b = appendNative(binary.AppendVarint(b, s.t), s.f)
		if s.v == 0 {
			return b
		}
	}
	b = binary.AppendUvarint(append(b, entryTotal), s.id)
	return appendFloat(binary.AppendVarint(b, s.t), s.v)
}

func appendFloat(b []byte, v float64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
}

func appendStream(b []byte, s *streamState) []byte {
	return append(binary.AppendUvarint(append(b, entryStream), s.id), s.key[:]...)
}

// appendIntervals writes those that are known now and were not then.
func appendIntervals(b []byte, s *streamState, then *deltas) []byte {
	n := then.n
	for _, k := range s.ring[:min(s.n, len(s.ring))] {
		if slices.Contains(then.ring[:min(then.n, len(then.ring))], k) {
			continue
		}
		b = binary.AppendUvarint(append(b, entryInterval), s.id)
		b = binary.AppendUvarint(binary.AppendUvarint(b, k.start), k.end)
		b = appendFloat(b, k.v)
		n++
	}
	if n != s.n {
		b = binary.AppendUvarint(append(b, entryCounted), s.id)
		b = binary.AppendUvarint(b, uint64(s.n))
	}
	return b
}

func appendLast(b []byte, s *streamState) []byte {
	l := s.lastValue
	if l.h != nil {
		b = binary.AppendUvarint(append(b, entryLastNative), s.id)
		b = binary.AppendUvarint(binary.AppendUvarint(b, l.start), l.end)
		return appendNative(b, l.h)
	}
	kind := byte(entryLast)
	if l.counts != nil || l.bounds != 0 {
		kind = entryLastCount
	}
	b = binary.AppendUvarint(append(b, kind), s.id)
	b = binary.AppendUvarint(binary.AppendUvarint(b, l.start), l.end)
	b = appendFloat(b, l.v)
	if kind == entryLast {
		return b
	}
	b = binary.LittleEndian.AppendUint64(appendFloat(b, l.sum), l.bounds)
	b = binary.AppendUvarint(b, uint64(len(l.counts)))
	for _, c := range l.counts {
		b = binary.AppendUvarint(b, c)
	}
	return b
}

// entries reads the payload of a record. After a read that fails bad stays set.
type entries struct {
	b   []byte
	bad bool
}

func (e *entries) byte() byte {
	if len(e.b) == 0 {
		e.bad = true
		return 0
	}
	c := e.b[0]
	e.b = e.b[1:]
	return c
}

func (e *entries) uvarint() uint64 {
	v, n := binary.Uvarint(e.b)
	if n <= 0 {
		e.bad = true
		return 0
	}
	e.b = e.b[n:]
	return v
}

func (e *entries) varint() int64 {
	v, n := binary.Varint(e.b)
	if n <= 0 {
		e.bad = true
		return 0
	}
	e.b = e.b[n:]
	return v
}

func (e *entries) take(n uint64) []byte {
	if n > uint64(len(e.b)) {
		e.bad = true
		return nil
	}
	out := e.b[:n]
	e.b = e.b[n:]
	return out
}

func (e *entries) fixed() uint64 {
	b := e.take(8)
	if b == nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

func (e *entries) float() float64 { return math.Float64frombits(e.fixed()) }

func (e *entries) labels() labels.Labels {
	n := e.uvarint()
	if n > maxLabels+4 {
		e.bad = true
		return labels.Labels{}
	}
	b := labels.NewScratchBuilder(int(n))
	for range n {
		name, v := e.take(e.uvarint()), e.take(e.uvarint())
		if e.bad || !utf8.Valid(name) {
			e.bad = true
			return labels.Labels{}
		}
		b.Add(string(name), string(v))
	}
	b.Sort()
	return b.Labels()
}
