package ingest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// readJSON reads a stream of JSON objects, one a line or printed over many.
func readJSON(in *bufio.Reader, name string, fn func(Request) error) error {
	src := &source{r: in}
	if head, _ := in.Peek(len(byteOrderMark)); len(head) > 0 && bytes.HasPrefix([]byte(byteOrderMark), head) {
		n, _ := in.Discard(len(head)) // was peeked
		if n < len(byteOrderMark) {
			return &TruncatedError{Name: name, Number: 1, Line: 1}
		}
		src.base = int64(n)
	}
	dec := json.NewDecoder(src)
	var raw json.RawMessage
	var scanned int64 // bytes of the documents so far, without what is between
	for number := 1; ; number++ {
		dec.More() // goes over the blanks, to where the document begins
		src.start = dec.InputOffset()
		line, offset := src.lineAt(src.start), src.base+src.start
		err := dec.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return &TruncatedError{Name: name, Number: number, Line: line, Offset: offset}
		}
		if err != nil {
			if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
				line = src.lineAt(src.start + syntax.Offset - scanned - 1)
			}
			return fmt.Errorf("%s: request %d: %w", place(name, line, offset), number, err)
		}
		if raw[0] != '{' {
			return fmt.Errorf("%s: request %d: want a JSON object", place(name, line, offset), number)
		}
		scanned += int64(len(raw))
		if err := fn(Request{Body: raw, JSON: true, Number: number, Line: line, Offset: offset}); err != nil {
			return fmt.Errorf("%s: %w", place(name, line, offset), err)
		}
	}
}

// source feeds a decoder. It bounds the size of one document, which the decoder
// does not, and remembers where lines begin in what the decoder has read ahead.
type source struct {
	r     io.Reader
	base  int64   // bytes of the file before the first that is fed
	start int64   // where the document begins that is being read
	fed   int64   // bytes fed so far
	line  int     // newlines before all those in ends
	ends  []int64 // offsets of the newlines from the document on, ascending
}

func (s *source) Read(p []byte) (int, error) {
	room := s.start + maxRecorded - s.fed
	if room <= 0 {
		return 0, fmt.Errorf("more than %d MiB without an end: the recording is damaged", maxRecorded>>20)
	}
	n, err := s.r.Read(p[:min(int64(len(p)), room)])
	for i := 0; i < n; i++ {
		next := bytes.IndexByte(p[i:n], '\n')
		if next < 0 {
			break
		}
		i += next
		s.ends = append(s.ends, s.fed+int64(i))
	}
	s.fed += int64(n)
	return n, err
}

// lineAt is the line, from 1, of a byte that was fed. It forgets the lines
// before, so offsets must not descend.
func (s *source) lineAt(offset int64) int {
	past := 0
	for past < len(s.ends) && s.ends[past] < offset {
		past++
	}
	s.line += past
	s.ends = append(s.ends[:0], s.ends[past:]...)
	return s.line + 1
}
