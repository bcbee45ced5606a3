package scrape

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// accepts are the formats that are read, the best first. Exporters that speak a
// text format answer in one; protobuf brings native histograms.
const accepts = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6," +
	"application/openmetrics-text;version=0.0.1;q=0.5," +
	"text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4," +
	"text/plain;version=0.0.4;q=0.3," +
	"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.2," +
	"*/*;q=0.1"

// fetcher gets the page of one target over a connection of its own.
type fetcher struct {
	url     string
	agent   string
	timeout time.Duration
	limit   int64 // bytes
	client  *http.Client
}

func newFetcher(t *Target, o *Options) *fetcher {
	return &fetcher{
		url: t.URL, agent: o.Agent, timeout: t.Timeout, limit: t.BodyLimit,
		client: &http.Client{
			Transport: &http.Transport{
				DialContext:            o.dial,
				DisableCompression:     true, // asked for and bounded below
				MaxIdleConns:           1,
				IdleConnTimeout:        5 * time.Minute,
				MaxResponseHeaderBytes: 64 << 10,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// close ends the idle connection.
func (f *fetcher) close() { f.client.CloseIdleConnections() }

// page is the answer of a target.
type page struct {
	body        []byte
	contentType string
}

// get fetches the page, whole or not at all. It follows no redirect: what answers
// elsewhere is not the target that somebody has named.
func (f *fetcher) get(ctx context.Context) (page, error) {
	slow := fmt.Errorf("no whole answer within %s", f.timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, slow)
	defer cancel()
	p, err := f.exchange(ctx)
	if err != nil && errors.Is(context.Cause(ctx), slow) {
		err = slow
	}
	return p, err
}

func (f *fetcher) exchange(ctx context.Context) (page, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url, nil)
	if err != nil {
		return page{}, err
	}
	req.Header.Set("Accept", accepts)
	req.Header.Set("Accept-Encoding", "gzip")
	req.Header.Set("User-Agent", f.agent)
	req.Header.Set("X-Prometheus-Scrape-Timeout-Seconds", strconv.FormatFloat(f.timeout.Seconds(), 'f', -1, 64))
	resp, err := f.client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // it names the address once more
		}
		return page{}, err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode >= 300 && resp.StatusCode < 400 && resp.Header.Get("Location") != "":
		return page{}, fmt.Errorf("answers %s to %s, and redirects are not followed; give that address", resp.Status, excerpt(resp.Header.Get("Location")))
	case resp.StatusCode != http.StatusOK:
		return page{}, fmt.Errorf("answers %s", excerpt(resp.Status))
	}
	body, err := f.read(resp)
	return page{body, resp.Header.Get("Content-Type")}, err
}

// read reads a body up to the limit, on the wire and inflated.
func (f *fetcher) read(resp *http.Response) ([]byte, error) {
	large := fmt.Errorf("the page has more than %d bytes (body_size_limit)", f.limit)
	if resp.ContentLength > f.limit {
		return nil, large
	}
	wire := &io.LimitedReader{R: resp.Body, N: f.limit + 1}
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
		return nil, fmt.Errorf("the answer is in the encoding %s; gzip and none are read", excerpt(enc))
	}
	body, err := io.ReadAll(io.LimitReader(plain, f.limit+1))
	switch {
	case int64(len(body)) > f.limit, wire.N <= 0:
		return nil, large
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("the answer broke off after %d bytes", len(body))
	case err != nil:
		return nil, fmt.Errorf("the answer broke off after %d bytes: %w", len(body), err)
	}
	return body, nil
}
