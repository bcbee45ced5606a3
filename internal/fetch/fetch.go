// Package fetch gets one page over HTTP, whole or not at all: within a time, of a
// bounded size, from the place that was named and no other. It knows nothing of
// what is on the page, and no error of it shows any.
package fetch

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/wattloop/wattloop/internal/httpfile"
)

// Page is a page to get, over a connection of its own.
type Page struct {
	URL      string
	Header   http.Header   // of the question; gzip is asked for besides
	Timeout  time.Duration // for the whole of it
	Limit    int64         // bytes of the answer, on the wire and inflated
	LimitKey string        // the setting that Limit comes from, "" for none: for the message
	Any2xx   bool          // an answer of another success than 200 is a page too
	Client   *http.Client  // NewClient's or ClientOf's
}

// NewClient returns a client of one connection that follows no redirect. dial is
// nil but for tests.
func NewClient(dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:            dial,
			DisableCompression:     true, // asked for and bounded below
			MaxIdleConns:           1,
			IdleConnTimeout:        5 * time.Minute,
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// ClientOf is NewClient, or what the file of that name says (httpfile) where it is
// not "". One that cannot be read is the error of every Get.
func ClientOf(file string, dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Client {
	if file == "" {
		return NewClient(dial)
	}
	c, err := httpfile.New(file, dial)
	if err != nil {
		return &http.Client{Transport: failing{err}}
	}
	return c
}

// failing answers every question with an error.
type failing struct{ err error }

// RoundTrip is an http.RoundTripper's.
func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.err }

// Close ends the idle connection.
func (p *Page) Close() { p.Client.CloseIdleConnections() }

// Get fetches the page and its Content-Type. What answers elsewhere is not the
// place that somebody has named, and so no redirect is followed.
func (p *Page) Get(ctx context.Context) (body []byte, contentType string, err error) {
	slow := fmt.Errorf("no whole answer within %s", p.Timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, p.Timeout, slow)
	defer cancel()
	body, contentType, err = p.exchange(ctx)
	if err != nil && errors.Is(context.Cause(ctx), slow) {
		err = slow
	}
	return body, contentType, err
}

func (p *Page) exchange(ctx context.Context) ([]byte, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL, nil)
	if err != nil {
		return nil, "", err
	}
	for key, values := range p.Header {
		req.Header[key] = values
	}
	req.Header.Set("Accept-Encoding", "gzip")
	resp, err := p.Client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // it names the address once more
		}
		return nil, "", err
	}
	defer resp.Body.Close()
	if err := p.refused(resp); err != nil {
		return nil, "", err
	}
	body, err := p.read(resp)
	return body, resp.Header.Get("Content-Type"), err
}

// refused says why an answer is none by its status.
func (p *Page) refused(resp *http.Response) error {
	code, to := resp.StatusCode, resp.Header.Get("Location")
	said := fmt.Sprintf("answers %d", code)
	if text := http.StatusText(code); text != "" {
		said += " " + text
	}
	switch {
	case code == http.StatusOK, p.Any2xx && code > 200 && code < 300:
		return nil
	case code >= 300 && code < 400 && to != "":
		return fmt.Errorf("%s to %.200s, and redirects are not followed; give that address", said, to)
	}
	return errors.New(said)
}

// read reads a body up to the limit, on the wire and inflated.
func (p *Page) read(resp *http.Response) ([]byte, error) {
	if resp.ContentLength > p.Limit {
		return nil, p.large()
	}
	wire := &io.LimitedReader{R: resp.Body, N: p.Limit + 1}
	plain := io.Reader(wire)
	switch enc := resp.Header.Get("Content-Encoding"); enc {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(wire)
		if err != nil {
			return nil, fmt.Errorf("the answer says gzip: %w", err)
		}
		defer z.Close()
		plain = z
	default:
		return nil, fmt.Errorf("the answer is in the encoding %.200s; gzip and none are read", enc)
	}
	body, err := io.ReadAll(io.LimitReader(plain, p.Limit+1))
	switch {
	case int64(len(body)) > p.Limit, wire.N <= 0:
		return nil, p.large()
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("the answer broke off after %d bytes", len(body))
	case err != nil:
		return nil, fmt.Errorf("the answer broke off after %d bytes: %w", len(body), err)
	}
	return body, nil
}

func (p *Page) large() error {
	if p.LimitKey == "" {
		return fmt.Errorf("the answer has more than %d bytes", p.Limit)
	}
	return fmt.Errorf("the answer has more than %d bytes (%s)", p.Limit, p.LimitKey)
}
