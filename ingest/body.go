package ingest

import (
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
	smallBody     = 4 << 10  // bytes of the first buffer
	spareBody     = 1 << 20  // bytes of a buffer that is kept for the next request
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
	b    []byte
	held int64
}

// limits bound one body.
type limits struct {
	arrived  int64 // bytes as they come
	inflated int64 // bytes after decompression
}

// limitsHTTP are those of an HTTP body.
func limitsHTTP(gzipped bool) limits {
	if gzipped {
		return limits{maxCompressed, maxBody}
	}
	return limits{maxBody, maxBody}
}

// limitsGRPC are those of a gRPC message, which the library has read already.
var limitsGRPC = limits{maxMessage, maxMessage}

// read reads a body within its limits. declared is the length that its header
// claims, below 0 for none; memory counts as in flight, and is charged to the
// channel, as bytes arrive, not as claimed: who only announces a large body holds
// nothing. The error is errTooLarge, errBusy, errSlow, a *limitError, or a
// *DecodeError for bytes that are not what the headers say.
func (s *Server) read(r io.Reader, declared int64, gzipped bool, l limits) (body, error) {
	arrived := &counter{r: r, limit: l.arrived, gzipped: gzipped}
	if declared > l.arrived {
		return body{}, arrived.tooLarge()
	}
	m := &meter{r: arrived, limits: l, declared: declared, c: s.a.c}
	if gzipped {
		z, _ := s.r.inflaters.Get().(*gzip.Reader)
		if z == nil {
			z = new(gzip.Reader)
		}
		defer s.r.inflaters.Put(z)
		if err := z.Reset(arrived); err != nil {
			return body{}, readError(err, gzipped)
		}
		m.r, m.arrived, m.declared = z, arrived, -1
	}
	spare, _ := s.r.buffers.Get().(*[]byte)
	if spare == nil {
		spare = new([]byte)
	}
	buf, err := m.readAll((*spare)[:0])
	m.charge()
	b := body{buf, m.held}
	if err != nil {
		s.release(b)
		return body{}, readError(err, gzipped)
	}
	return b, nil
}

// release gives a body's reservation and its buffer back.
func (s *Server) release(b body) {
	s.r.inFlight.give(s.a.c, b.held)
	if cap(b.b) <= spareBody { // one large request must not keep its memory
		s.r.buffers.Put(&b.b)
	}
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

// meter counts decompressed bytes, reserves memory for them before it is made, and
// stops at the limits.
type meter struct {
	limits
	r        io.Reader
	arrived  *counter // nil for a body that is not compressed
	declared int64
	c        *Channel
	n        int64 // bytes read
	charged  int64 // to the channel, of n
	held     int64 // bytes in flight
}

// readAll appends the whole body to buf.
func (m *meter) readAll(buf []byte) ([]byte, error) {
	for {
		if len(buf) == cap(buf) {
			var err error
			if buf, err = m.grow(buf); err != nil {
				return buf, err
			}
		}
		n, err := m.r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		m.n += int64(n)
		switch {
		case m.n > m.inflated:
			return buf, tooLarge(m.inflated, "")
		case m.arrived != nil && m.n > ratioFree && m.n > maxRatio*m.arrived.n:
			return buf, fmt.Errorf("otlp: body: %w: compressed more than %d:1", errTooLarge, maxRatio)
		}
		if err := m.hold(m.n); err != nil {
			return buf, err
		}
		switch {
		case err == io.EOF:
			return buf, nil
		case err != nil:
			return buf, err
		}
	}
}

// grow makes room: twice what there is, and no more than the body can have. The
// byte beyond tells its end.
func (m *meter) grow(buf []byte) ([]byte, error) {
	m.charge()
	most := m.inflated + 1
	if m.declared >= 0 {
		most = m.declared + 1
	}
	size := min(max(2*int64(cap(buf)), smallBody), max(most, int64(cap(buf))+smallBody))
	if err := m.hold(int64(cap(buf)) + size); err != nil {
		return buf, err
	}
	grown := append(make([]byte, 0, size), buf...)
	m.c.r.inFlight.give(m.c, m.held-size)
	m.held = size
	return grown, nil
}

// hold sees to it that n bytes are reserved.
func (m *meter) hold(n int64) error {
	need := n - m.held
	if need <= 0 {
		return nil
	}
	need = (need + admissionStep - 1) / admissionStep * admissionStep
	if err := m.c.r.inFlight.take(m.c, need); err != nil {
		return err
	}
	m.held += need
	return nil
}

// wireOf is wireOfJSON with the wire bytes counted as in flight until free is
// called, also after an error.
func (c *Channel) wireOf(t jsonType, body []byte) (wire []byte, free func(), err error) {
	m := meter{c: c}
	wire, err = wireOfJSON(t, body, func(n int) error { return m.hold(int64(n)) })
	return wire, func() { c.r.inFlight.give(c, m.held) }, err
}

// charge takes what was read since the last time from the channel's bytes.
func (m *meter) charge() {
	m.c.spendBytes(m.n - m.charged)
	m.charged = m.n
}

func tooLarge(limit int64, how string) error {
	return fmt.Errorf("otlp: body: %w: more than %d MiB%s: send smaller batches", errTooLarge, limit>>20, how)
}

// readError sorts what reading a body failed with.
func readError(err error, gzipped bool) error {
	if _, own := errors.AsType[*limitError](err); own || errors.Is(err, errTooLarge) || errors.Is(err, errBusy) {
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
