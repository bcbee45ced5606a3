package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/exp/api/remote"
	writev2 "github.com/prometheus/client_golang/exp/api/remote/genproto/v2"

	"github.com/wattloop/wattloop/queue"
)

const (
	// maxRequest is how many bytes of the queue one request takes: some 10,000
	// samples.
	maxRequest = 128 << 10
	// writeTimeout bounds one attempt.
	writeTimeout = 30 * time.Second
)

// backoff is the time between attempts, as the specification's own client keeps
// it: it doubles, with jitter, and a Retry-After is added.
func backoff() remote.BackoffConfig {
	return remote.BackoffConfig{Min: 250 * time.Millisecond, Max: 10 * time.Second}
}

// run sends what is queued, oldest first, until ctx ends.
func (w *Writer) run(ctx context.Context) {
	var d decoder
	w.q.Before(func(r queue.Record) {
		_, _ = d.record(r.Segment(), r.Wire, nil) // what cannot be read now is told when it is sent
	})
	for ctx.Err() == nil {
		recs := w.q.PeekMany(maxRequest)
		if len(recs) == 0 {
			select {
			case <-ctx.Done():
			case <-w.q.Grown():
			}
			continue
		}
		if !w.leave(recs) {
			continue
		}
		if !w.deliver(ctx, &d, recs) {
			w.abandon()
			return
		}
		w.q.Done(recs...)
		w.settle(recs)
	}
}

// deliver sends records until they are sent or dropped; false when ctx has ended
// and they must stay.
func (w *Writer) deliver(ctx context.Context, d *decoder, recs []queue.Record) bool {
	var entries []entry
	for _, r := range recs {
		n := len(entries)
		more, err := d.record(r.Segment(), r.Wire, entries)
		if entries = more; err != nil {
			w.drop(entriesOf(r.Wire)-int64(len(entries)-n), "unreadable", "part of the queue is not understood and is passed over", err)
		}
	}
	if len(entries) == 0 {
		return true
	}
	req, err := requestOf(d, entries)
	if err != nil {
		w.drop(int64(len(entries)), "unreadable", "part of the queue is not understood and is passed over", err)
		return true
	}
	for {
		done, err := w.attempt(ctx, req, int64(len(entries)))
		if done {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		if err != nil {
			w.failed(err, "transport")
		}
	}
}

// attempt sends a request to the target of now, and again for as long as it may be
// repeated. It is false when the target has changed, or the answer was cut short.
func (w *Writer) attempt(ctx context.Context, req *writev2.Request, n int64) (bool, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.mu.Lock()
	t := w.target
	w.again = cancel
	w.mu.Unlock()
	seen := &lastAnswer{next: t.HTTP.Transport}
	hc := *t.HTTP
	hc.Transport, hc.Timeout = seen, writeTimeout
	hc.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	base := *t.URL
	path := base.Path
	base.Path = ""
	api, err := remote.NewAPI(base.String(), remote.WithAPIHTTPClient(&hc), remote.WithAPIPath(path), remote.WithAPIBackoff(backoff()))
	if err != nil {
		return true, w.refuse(n, 0, "unsent", err)
	}
	stats, err := api.Write(ctx, remote.WriteV2MessageType, req, remote.WithWriteRetryCallback(func(err error) {
		w.failed(bare(err), seen.word())
	}))
	switch code := seen.code; {
	case err == nil:
		w.sent(n)
		return true, nil
	case ctx.Err() != nil:
		return false, nil
	case code/100 == 2 && stats.NoDataWritten():
		return true, w.refuse(n, 0, "not_understood", errors.New("the receiver confirms nothing of what it took: it does not know Remote Write 2.0"))
	case code/100 == 2: // and the rest of the answer was lost
		w.sent(n)
		return true, nil
	case code/100 == 5 || code == http.StatusTooManyRequests || code == 0:
		return false, bare(err)
	case code == http.StatusUnsupportedMediaType:
		return true, w.refuse(n, 0, "415", errors.New("HTTP 415: the receiver does not know Remote Write 2.0"))
	default:
		accepted := int64(stats.Samples + stats.Histograms + stats.Exemplars)
		return true, w.refuse(n, min(accepted, n), strconv.Itoa(code), bare(err))
	}
}

// bare is an error without the URL, which is said beside it.
func bare(err error) error {
	if ue, ok := errors.AsType[*url.Error](err); ok {
		return ue.Err
	}
	return err
}

// refuse counts a request that the receiver took in part or not at all, for good.
func (w *Writer) refuse(n, accepted int64, reason string, err error) error {
	if accepted > 0 {
		w.m.samples.WithLabelValues("sent", "").Add(float64(accepted))
	}
	w.mu.Lock()
	w.st.Sent += uint64(accepted)
	w.st.Answering = true
	w.mu.Unlock()
	w.drop(n-accepted, reason, "samples dropped: the receiver refuses them for good", err)
	return nil
}

// lastAnswer notes the status of the last answer; 0 where there was none.
type lastAnswer struct {
	next http.RoundTripper
	code int
}

func (l *lastAnswer) RoundTrip(req *http.Request) (*http.Response, error) {
	next := l.next
	if next == nil {
		next = http.DefaultTransport
	}
	req.Header.Set("User-Agent", "wattloop")
	l.code = 0
	resp, err := next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	l.code = resp.StatusCode
	return resp, nil
}

func (l *lastAnswer) word() string {
	if l.code == 0 {
		return "unreachable"
	}
	return fmt.Sprint(l.code)
}
