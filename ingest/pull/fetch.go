package pull

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// MaxAnswer is the longest answer that is read, in bytes once inflated (S0-51).
const MaxAnswer = 8 << 20

// fetcher gets the document of one endpoint for one node.
type fetcher struct {
	url, agent string
	timeout    time.Duration
	client     *http.Client
}

func newFetcher(address, agent string, timeout time.Duration) *fetcher {
	return &fetcher{address, agent, timeout, &http.Client{
		Transport:     &http.Transport{MaxIdleConns: 1, IdleConnTimeout: 5 * time.Minute, MaxResponseHeaderBytes: 64 << 10},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// get fetches the answer, whole or not at all. No error shows any of it.
func (f *fetcher) get(ctx context.Context) ([]byte, error) {
	slow := fmt.Errorf("no whole answer within %s", f.timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, slow)
	defer cancel()
	body, err := f.exchange(ctx)
	if err != nil && errors.Is(context.Cause(ctx), slow) {
		err = slow
	}
	return body, err
}

func (f *fetcher) exchange(ctx context.Context) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", f.agent)
	resp, err := f.client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // it names the address once more
		}
		return nil, err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return nil, fmt.Errorf("answers %d, and redirects are not followed; name the place itself", resp.StatusCode)
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return nil, fmt.Errorf("answers %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, MaxAnswer+1))
	switch {
	case len(body) > MaxAnswer:
		return nil, errors.New("the answer is longer than 8 MiB")
	case err != nil:
		return nil, fmt.Errorf("the answer broke off after %d bytes: %w", len(body), err)
	}
	return body, nil
}
