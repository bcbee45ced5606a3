package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/wattloop/wattloop/store"
)

const (
	// DefaultTimeout bounds one request. Rules wait for it, and whoever watches
	// over them takes five seconds without a sign for the end: it is well below.
	DefaultTimeout = 3 * time.Second
	// DefaultMaxBytes bounds one answer, inflated. Chunks take one to four bytes a
	// sample, so that it is some 20 million samples.
	DefaultMaxBytes = 64 << 20
)

// Options are what a Client is made of.
type Options struct {
	URL  *url.URL     // the API lies under URL/api/v1
	HTTP *http.Client // nil: one without credentials

	Timeout  time.Duration // of one request; 0 means DefaultTimeout
	MaxBytes int64         // of one answer; 0 means DefaultMaxBytes

	Registerer prometheus.Registerer // may be nil
	Logger     *slog.Logger          // may be nil
	Clock      func() time.Time      // nil means time.Now
}

// Client reads from one server. It is safe for concurrent use.
type Client struct {
	base *url.URL
	o    Options
	m    *clientMetrics
	log  *slog.Logger

	way atomic.Int32 // how samples are asked for

	mu sync.Mutex
	st Status
}

// New makes a client; nothing is sent before the first question.
func New(o Options) *Client {
	if o.HTTP == nil {
		o.HTTP = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Client{base: o.URL, o: o, log: log, m: newClientMetrics(o.Registerer), st: Status{URL: o.URL.String()}}
}

// Status is how the way to the server stands.
type Status struct {
	URL       string
	Way       string // "remote read" or "queries"; "" before the first answer
	Answering bool   // the last question was answered
	Answers   uint64
	Failures  uint64
	Bytes     uint64 // of all answers, inflated
	Error     string // of the last question that failed; "" before one has
	ErrorAt   time.Time
}

// Status never blocks.
func (c *Client) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.st
}

// question is which samples are wanted: of the series that match, those from
// start to end, in Unix milliseconds, both included.
type question struct {
	matchers   []*labels.Matcher
	start, end int64
}

// The ways to ask for samples.
const (
	wayUnknown int32 = iota
	wayRemoteRead
	wayQueries
)

func wayName(w int32) string { return [...]string{"", "remote read", "queries"}[w] }

// fetch asks one question, the best way that the server knows.
func (c *Client) fetch(ctx context.Context, q question) (*answer, error) {
	began := c.o.Clock()
	asking, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	a, err := c.ask(asking, q)
	if err != nil && ctx.Err() == nil && asking.Err() != nil {
		err = &downError{fmt.Errorf("no answer within %s", c.o.Timeout)}
	}
	if ctx.Err() != nil { // the caller went away: nothing is known of the server
		return nil, context.Cause(ctx)
	}
	c.took(c.o.Clock().Sub(began), err)
	if err != nil {
		return nil, &Error{c.base.String(), err}
	}
	return a, nil
}

func (c *Client) ask(ctx context.Context, q question) (*answer, error) {
	if c.way.Load() != wayQueries {
		a, err := c.remoteRead(ctx, q)
		if !errors.Is(err, errNoRemoteRead) {
			if err == nil {
				c.way.Store(wayRemoteRead)
			}
			return a, err
		}
		c.way.Store(wayQueries)
		c.log.Info("the server has no remote read, samples are asked for by queries", "remote", c.base.String())
	}
	return c.query(ctx, q)
}

// Error is why the server gave no samples.
type Error struct {
	URL string
	Err error
}

func (e *Error) Error() string { return "storage.remote: " + e.URL + ": " + e.Err.Error() }

// Unwrap gives the cause to errors.Is and errors.As.
func (e *Error) Unwrap() error { return e.Err }

// Is says that it is a store.ErrBeside.
func (e *Error) Is(target error) bool { return target == store.ErrBeside }

// statusError is an answer of the server that is none.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string {
	s := fmt.Sprintf("HTTP %d %s", e.code, http.StatusText(e.code))
	if e.text != "" {
		s += ": " + e.text
	}
	switch e.code {
	case http.StatusUnauthorized, http.StatusForbidden:
		s += "; credentials go into the HTTP file"
	case http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		s += "; redirects are not followed: name the address itself"
	}
	return s
}

// downError is an error that the next question would meet too.
type downError struct{ err error }

func (e *downError) Error() string { return e.err.Error() }
func (e *downError) Unwrap() error { return e.err }

// isDown says that the server fails, and not this question alone.
func isDown(err error) bool {
	if _, ok := errors.AsType[*downError](err); ok {
		return true
	}
	st, ok := errors.AsType[*statusError](err)
	return ok && (st.code >= 500 || st.code == http.StatusUnauthorized || st.code == http.StatusForbidden)
}

// do sends a request. Its error names neither the URL, which is said around it,
// nor a header.
func (c *Client) do(req *http.Request) (*http.Response, error) {
	req.Header.Set("User-Agent", "wattloop")
	resp, err := c.o.HTTP.Do(req)
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err
	}
	if err != nil {
		return nil, &downError{err}
	}
	return resp, nil
}

// refusal is what a server says with its status.
func refusal(resp *http.Response) string {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // what is there of it
	return clip(string(b))
}

// counted reads a body up to the bound of an answer, and counts it.
func (c *Client) counted(r io.Reader) io.Reader { return &countedReader{r, c, c.o.MaxBytes} }

type countedReader struct {
	r    io.Reader
	c    *Client
	left int64
}

func (r *countedReader) Read(b []byte) (int, error) {
	n, err := r.r.Read(b[:min(int64(len(b)), r.left+1)])
	r.left -= int64(n)
	r.c.received(n)
	if r.left < 0 {
		return 0, fmt.Errorf("the answer has more than %d bytes: select fewer series, or a shorter range", r.c.o.MaxBytes)
	}
	return n, err
}
