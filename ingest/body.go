package ingest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"

	"github.com/klauspost/compress/gzip"
)

// The limits of one request body.
const (
	maxBody       = 20 << 20 // bytes after decompression
	maxCompressed = 4 << 20  // bytes of a gzip body as it came
	maxRatio      = 100      // decompressed to compressed,
	ratioFree     = 1 << 20  // judged beyond this many decompressed bytes
	admissionStep = 64 << 10 // bytes reserved at a time
	// A JSON request counts this many times: its bytes, the buffer that doubled to
	// hold them, and the wire bytes made of them. 20 MiB must still fit the idle
	// 64 MiB.
	jsonWeight = 3
)

// encoding is how a request, and so its answer, is written.
type encoding int

const (
	encodingUnknown encoding = iota
	encodingProtobuf
	encodingJSON
)

// mediaType names the encoding in an answer; what has no encoding of its own is
// answered in JSON, which a person can read.
func (e encoding) mediaType() string {
	if e == encodingProtobuf {
		return "application/x-protobuf"
	}
	return "application/json"
}

// encodingOf reads Content-Type: the media type in any case, its parameters
// ignored, also malformed ones.
func encodingOf(h http.Header) encoding {
	values := h.Values("Content-Type")
	if len(values) != 1 {
		return encodingUnknown
	}
	media, _, err := mime.ParseMediaType(values[0])
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		return encodingUnknown
	}
	switch media {
	case "application/x-protobuf":
		return encodingProtobuf
	case "application/json":
		return encodingJSON
	}
	return encodingUnknown
}

// compressed reads Content-Encoding; ok is false for everything but a single
// gzip or identity.
func compressed(h http.Header) (gzipped, ok bool) {
	values := h.Values("Content-Encoding")
	if len(values) == 0 {
		return false, true
	}
	coding := strings.ToLower(strings.TrimSpace(values[0]))
	if len(values) > 1 || coding != "gzip" && coding != "identity" && coding != "" {
		return false, false
	}
	return coding == "gzip", true
}

// body is a request body that was read whole and counts as in flight until it is
// released.
type body struct {
	buf  *bytes.Buffer
	held int64
}

// limits bound one body.
type limits struct {
	arrived  int64 // bytes as they come
	inflated int64 // bytes after decompression
	weight   int64 // bytes that count as in flight for each inflated one
}

// limitsHTTP are those of an HTTP body.
func limitsHTTP(enc encoding, gzipped bool) limits {
	l := limits{arrived: maxBody, inflated: maxBody, weight: 1}
	if gzipped {
		l.arrived = maxCompressed
	}
	if enc == encodingJSON {
		l.weight = jsonWeight
	}
	return l
}

// limitsGRPC are those of a gRPC message, which the library has read already.
var limitsGRPC = limits{arrived: maxMessage, inflated: maxMessage, weight: 1}

// read reads a body within its limits. declared is the length that its header
// claims, below 0 for none; bytes count as in flight as they arrive, not as
// claimed: who only announces a large body holds nothing. The error is
// errTooLarge, errBusy, errSlow, or a *DecodeError for bytes that are not what the
// headers say.
func (s *Server) read(r io.Reader, declared int64, gzipped bool, l limits) (body, error) {
	arrived := &counter{r: r, limit: l.arrived, gzipped: gzipped}
	if declared > l.arrived {
		return body{}, arrived.tooLarge()
	}
	m := &meter{r: arrived, limits: l, inFlight: &s.r.inFlight}
	if gzipped {
		z, _ := s.r.inflaters.Get().(*gzip.Reader)
		if z == nil {
			z = new(gzip.Reader)
		}
		defer s.r.inflaters.Put(z)
		if err := z.Reset(arrived); err != nil {
			return body{}, readError(err, gzipped)
		}
		m.r, m.arrived = z, arrived
	}
	buf, _ := s.r.buffers.Get().(*bytes.Buffer)
	if buf == nil {
		buf = new(bytes.Buffer)
	}
	_, err := buf.ReadFrom(m)
	b := body{buf: buf, held: m.held}
	if err != nil {
		s.release(b)
		return body{}, readError(err, gzipped)
	}
	return b, nil
}

// release gives a body's reservation and its buffer back.
func (s *Server) release(b body) {
	s.r.inFlight.give(b.held)
	if b.buf.Cap() > 1<<20 {
		return // one large request must not keep its memory
	}
	b.buf.Reset()
	s.r.buffers.Put(b.buf)
}

// counter counts the bytes of a body as they come off the connection.
type counter struct {
	r       io.Reader
	n       int64
	limit   int64
	gzipped bool
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if c.n > c.limit {
		return n, c.tooLarge()
	}
	return n, err
}

func (c *counter) tooLarge() error {
	if c.gzipped {
		return tooLarge(c.limit, " compressed")
	}
	return tooLarge(c.limit, "")
}

// meter counts decompressed bytes, reserves them, and stops at the limits.
type meter struct {
	limits
	r        io.Reader
	arrived  *counter // nil for a body that is not compressed
	inFlight *admission
	n, held  int64
}

func (m *meter) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	m.n += int64(n)
	switch {
	case m.n > m.inflated:
		return n, tooLarge(m.inflated, "")
	case m.arrived != nil && m.n > ratioFree && m.n > maxRatio*m.arrived.n:
		return n, fmt.Errorf("otlp: body: %w: compressed more than %d:1", errTooLarge, maxRatio)
	}
	if need := m.n*m.weight - m.held; need > 0 {
		need = (need + admissionStep - 1) / admissionStep * admissionStep
		if !m.inFlight.take(need) {
			return n, errBusy
		}
		m.held += need
	}
	return n, err
}

func tooLarge(limit int64, how string) error {
	return fmt.Errorf("otlp: body: %w: more than %d MiB%s: send smaller batches", errTooLarge, limit>>20, how)
}

// readError sorts what reading a body failed with.
func readError(err error, gzipped bool) error {
	if errors.Is(err, errTooLarge) || errors.Is(err, errBusy) {
		return err
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return errSlow
	}
	if gzipped {
		return &DecodeError{fmt.Errorf("otlp: gzip body: %w", err)}
	}
	return &DecodeError{fmt.Errorf("otlp: body: %w", err)}
}
