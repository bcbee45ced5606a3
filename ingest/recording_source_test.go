package ingest

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

// endless is a document without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return copy(p, bytes.Repeat([]byte{'x'}, len(p))), nil }

// A document that does not end is given up at the limit, which counts from where
// the document begins.
func TestSourceBoundsADocument(t *testing.T) {
	s := &source{r: endless{}, start: 1000}
	n, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{s}, make([]byte, 1<<20))
	if n != 1000+maxRecorded || err == nil || !strings.HasPrefix(err.Error(), "more than 64 MiB without an end") {
		t.Errorf("%d bytes, error %v; want %d and the limit", n, err, 1000+maxRecorded)
	}
}
