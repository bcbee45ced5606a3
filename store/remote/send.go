package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/exp/api/remote"

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

// parcel is what one request takes along.
type parcel struct {
	d       *decoder
	entries []entry
	// refused is the message that the target numbered aimed does not take this in.
	refused remote.WriteMessageType
	aimed   int
}

// deliver sends records until they are sent or dropped; false when ctx has ended
// and they must stay.
func (w *Writer) deliver(ctx context.Context, d *decoder, recs []queue.Record) bool {
	p := parcel{d: d}
	for _, r := range recs {
		n := len(p.entries)
		more, err := d.record(r.Segment(), r.Wire, p.entries)
		if p.entries = more; err != nil {
			w.drop(entriesOf(r.Wire)-int64(len(p.entries)-n), "unreadable", unreadable, err)
		}
	}
	for len(p.entries) > 0 {
		done, err := w.attempt(ctx, &p)
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
	return true
}

const unreadable = "part of the queue is not understood and is passed over"

// attempt sends a parcel to the target of now, and again for as long as it may be
// repeated. It is false when the target has changed, the answer was cut short, or
// the other message is to be tried.
func (w *Writer) attempt(ctx context.Context, p *parcel) (bool, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.mu.Lock()
	t, message := w.target, w.message
	if p.aimed != w.aimed {
		p.aimed, p.refused = w.aimed, ""
	}
	w.again = cancel
	w.mu.Unlock()
	n := int64(len(p.entries))
	body, err := p.message(message)
	if err != nil {
		w.drop(n, "unreadable", unreadable, err)
		return true, nil
	}
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
	stats, err := api.Write(ctx, message, body, remote.WithWriteRetryCallback(func(err error) {
		w.failed(bare(err), seen.word())
	}))
	switch code := seen.code; {
	case code/100 == 2 && seen.page && !seen.confirmed: // 1.0 has no other way to tell
		return true, w.refuse(n, 0, "not_understood", errors.New("the answer is a page for people; is this the address of the receiver?"))
	case err == nil:
		w.sent(n, message)
		return true, nil
	case ctx.Err() != nil:
		return false, nil
	case code/100 == 2 && message == remote.WriteV2MessageType && !seen.confirmed:
		return w.unspoken(p, t, message, "not_understood", "the receiver confirms nothing of what it took")
	case code/100 == 2: // and the rest of the answer was lost
		w.sent(n, message)
		return true, nil
	case code/100 == 5 || code == http.StatusTooManyRequests || code == 0:
		return false, bare(err)
	case code == http.StatusUnsupportedMediaType:
		return w.unspoken(p, t, message, "415", "HTTP 415")
	default:
		accepted := int64(stats.Samples + stats.Histograms + stats.Exemplars)
		return true, w.refuse(n, min(accepted, n), strconv.Itoa(code), bare(err))
	}
}

// version is what people call a message.
func version(m remote.WriteMessageType) string {
	if m == remote.WriteV1MessageType {
		return "Remote Write 1.0"
	}
	return "Remote Write 2.0"
}

// unspoken goes over to the other message, as the specification says of a receiver
// that does not know the one of now; a parcel that was refused in both, or whose
// message is fixed, is dropped.
func (w *Writer) unspoken(p *parcel, t Target, message remote.WriteMessageType, reason, what string) (bool, error) {
	n := int64(len(p.entries))
	if t.Message != "" {
		return true, w.refuse(n, 0, reason, fmt.Errorf("%s: it does not know %s; let storage.remote_write_protobuf_message be auto", what, version(message)))
	}
	if p.refused != "" {
		return true, w.refuse(n, 0, reason, fmt.Errorf("%s: it knows neither Remote Write 2.0 nor 1.0; is this the address of its receiver?", what))
	}
	p.refused = message
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.aimed == w.aimed {
		w.message = remote.WriteV1MessageType
		if message == remote.WriteV1MessageType {
			w.message = remote.WriteV2MessageType
		}
	}
	return false, nil
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

// lastAnswer notes the status of the last answer, 0 where there was none, and
// whether it says how much was written, which those who know Remote Write 2.0 must.
type lastAnswer struct {
	next      http.RoundTripper
	code      int
	confirmed bool
	page      bool // what came is for people
}

func (l *lastAnswer) RoundTrip(req *http.Request) (*http.Response, error) {
	next := l.next
	if next == nil {
		next = http.DefaultTransport
	}
	req.Header.Set("User-Agent", "wattloop")
	l.code, l.confirmed, l.page = 0, false, false
	resp, err := next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	l.code, l.page = resp.StatusCode, strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html")
	for _, what := range []string{"Samples", "Histograms", "Exemplars"} {
		l.confirmed = l.confirmed || resp.Header.Get("X-Prometheus-Remote-Write-"+what+"-Written") != ""
	}
	return resp, nil
}

func (l *lastAnswer) word() string {
	if l.code == 0 {
		return "unreachable"
	}
	return fmt.Sprint(l.code)
}
