package ingest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Request is one recorded ExportMetricsServiceRequest.
type Request struct {
	// Body is the request as it stands in the recording. It is valid until the
	// function that got it returns.
	Body []byte
	// JSON says that Body is in OTLP's JSON mapping; otherwise it is protobuf.
	JSON bool
	// Number counts the requests of a recording from 1.
	Number int
	// Line is where the request begins, from 1; 0 in a protobuf recording.
	Line int
	// Offset is the byte at which the request begins.
	Offset int64
}

// TruncatedError says that a recording ends inside its last request, as it does
// when the program that wrote it was killed. All requests before it were
// delivered.
type TruncatedError struct {
	Name   string
	Number int   // the request that is cut, from 1
	Line   int   // where it begins; 0 in a protobuf recording
	Offset int64 // where it begins
}

func (e *TruncatedError) Error() string {
	return fmt.Sprintf("%s: request %d is cut off: the file ends inside it; the %d before it are whole",
		place(e.Name, e.Line, e.Offset), e.Number, e.Number-1)
}

// ReadRecording calls fn for each request of a recording, in order. The format
// is recognised by the first bytes; docs/recording.md describes it. name stands
// in messages. The error is fn's with the request's place before it, or a
// *TruncatedError for a last request that is not whole, or it says what is wrong
// and where; the requests before that were delivered.
func ReadRecording(r io.Reader, name string, fn func(Request) error) error {
	in := bufio.NewReaderSize(r, 64<<10)
	head, err := in.Peek(headLen)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: %w", name, err)
	}
	switch formatOf(head) {
	case formatJSON:
		return readJSON(in, name, fn)
	case formatVarint:
		return readDelimited(in, name, varintLength, fn)
	case formatFixed:
		return readDelimited(in, name, fixedLength, fn)
	case formatCompressed:
		return fmt.Errorf("%s: compressed: decompress it first, with gzip -d or zstd -d", name)
	}
	return fmt.Errorf("%s: no recording: want OTLP requests as JSON documents or as length-delimited protobuf", name)
}

// maxRecorded bounds one request of a recording. It is more than a receiver
// takes, since 4 MiB of protobuf can be 30 MiB in JSON.
const maxRecorded = 64 << 20

// readDelimited reads requests that each have their length before them.
func readDelimited(in *bufio.Reader, name string, length func(*bufio.Reader) (n uint64, size int, err error), fn func(Request) error) error {
	var buf bytes.Buffer
	var offset int64
	for number := 1; ; number++ {
		n, size, err := length(in)
		at := place(name, 0, offset)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			return &TruncatedError{Name: name, Number: number, Offset: offset}
		case err != nil:
			return fmt.Errorf("%s: length of request %d: %w", at, number, err)
		case n > maxRecorded:
			return fmt.Errorf("%s: request %d: length %d, want at most %d: the recording is damaged", at, number, n, maxRecorded)
		}
		buf.Reset()
		// Copied as it comes: a length that lies costs no memory.
		if _, err := io.CopyN(&buf, in, int64(n)); errors.Is(err, io.EOF) {
			return &TruncatedError{Name: name, Number: number, Offset: offset}
		} else if err != nil {
			return fmt.Errorf("%s: request %d: %w", at, number, err)
		}
		if err := fn(Request{Body: buf.Bytes(), Number: number, Offset: offset}); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		offset += int64(size) + int64(n)
	}
}

// varintLength reads the length that protobuf's own delimited streams have.
func varintLength(in *bufio.Reader) (n uint64, size int, err error) {
	for ; size < binary.MaxVarintLen64; size++ {
		b, err := in.ReadByte()
		if errors.Is(err, io.EOF) && size > 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, size, err
		}
		n |= uint64(b&0x7f) << (7 * size)
		if b < 0x80 {
			return n, size + 1, nil
		}
	}
	return 0, size, errors.New("no end within ten bytes: the recording is damaged")
}

// fixedLength reads the four bytes, most significant first, that the Collector's
// file exporter writes before each message.
func fixedLength(in *bufio.Reader) (n uint64, size int, err error) {
	var b [4]byte
	size, err = io.ReadFull(in, b[:])
	return uint64(binary.BigEndian.Uint32(b[:])), size, err
}

// place is where a request of a recording begins, for messages.
func place(name string, line int, offset int64) string {
	if line > 0 {
		return fmt.Sprintf("%s:%d", name, line)
	}
	return fmt.Sprintf("%s: byte %d", name, offset)
}
