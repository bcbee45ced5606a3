package relay

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/wattloop/wattloop/ingest"
	"github.com/wattloop/wattloop/queue"
)

// plane is one queue with its own sender and its own connections.
type plane struct {
	name    ingest.Plane
	o       *Options
	m       *metrics
	log     *slog.Logger
	q       *queue.Queue
	share   int64 // of the queue's bytes on disk
	up      *grpc.ClientConn
	back    *grpc.ClientConn // nil without a fallback
	closing chan struct{}    // closed when nothing more is queued

	sent, dropped, refused, rejected, lost atomic.Uint64

	mu        sync.Mutex
	err       string // of the last attempt that failed
	errAt     time.Time
	answering bool // the last attempt was answered
	said      map[string]time.Time
}

// forward queues one request and counts it.
func (p *plane) forward(ctx context.Context, s ingest.Signal, wire []byte) error {
	b, ok := signalByte(s)
	if !ok {
		return errors.New("relay: BUG: no such signal: " + string(s))
	}
	err := p.q.Append(ctx, b, wire)
	p.measure()
	if err == nil {
		p.count(s, "queued", "")
		return nil
	}
	why := "disk"
	switch {
	case errors.Is(err, queue.ErrNoRoom):
		why, err = "full", ingest.ErrNoRoom
	case errors.Is(err, queue.ErrClosed):
		why, err = "closed", ErrClosed
	case ctx.Err() != nil:
		why = "cancelled"
	}
	p.refused.Add(1)
	p.count(s, "refused", why)
	p.say(why, "relay refuses requests", "reason", why, "error", err)
	return err
}

func (p *plane) count(s ingest.Signal, result, reason string) {
	p.m.requests.WithLabelValues(string(p.name), string(s), result, reason).Inc()
}

func (p *plane) measure() {
	waiting, _ := p.q.Size()
	p.m.bytes.WithLabelValues(string(p.name)).Set(float64(waiting))
}

// record is one request as it was queued.
type record struct {
	signal ingest.Signal
	wire   []byte
}

// recordOf is false for a kind that this version does not know.
func recordOf(r queue.Record) (record, bool) {
	if int(r.Kind) >= len(signals) {
		return record{}, false
	}
	return record{signals[r.Kind], r.Wire}, true
}

// signals by their byte in a record; 0 is none, so that a run of zeros is no
// record.
var signals = [...]ingest.Signal{1: ingest.SignalMetrics, 2: ingest.SignalTraces, 3: ingest.SignalLogs}

func signalByte(s ingest.Signal) (byte, bool) {
	for b, t := range signals {
		if t == s && b > 0 {
			return byte(b), true
		}
	}
	return 0, false
}

// run sends what is queued, oldest first, until ctx ends, or until the plane is
// closing and there is nothing more that the upstream takes at once.
func (p *plane) run(ctx context.Context) {
	for {
		got, ok := p.q.Peek()
		p.measure()
		if ok {
			rec, known := recordOf(got)
			if known && !p.deliver(ctx, rec) {
				return
			}
			p.q.Done(got)
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-p.q.Grown():
		case <-p.closing:
			if waiting, _ := p.q.Size(); waiting == 0 {
				return
			}
		}
	}
}

// maxTries bounds the repeats of a request that the upstream answers with a code
// that speaks of the request and not of the upstream; else one that can never
// succeed would hold up all behind it for ever.
const maxTries = 32

// deliver sends one request until it is sent or dropped. It is false when
// neither has happened and the request must stay.
func (p *plane) deliver(ctx context.Context, rec record) bool {
	for try := 0; ; try++ {
		err := p.attempt(ctx, rec)
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		v := judge(err)
		p.failed(err, v.retry)
		switch {
		case !v.retry:
			p.drop(rec, v.reason, err)
			return true
		case try+1 >= maxTries && hopeless(v.reason):
			p.drop(rec, "tried_"+v.reason, err)
			return true
		}
		p.m.retries.WithLabelValues(string(p.name), v.reason).Inc()
		wait := v.after
		if !v.asked {
			wait = delay(try, p.o.Jitter())
		}
		if !p.pause(ctx, wait) {
			return false
		}
	}
}

func hopeless(reason string) bool {
	return reason == "aborted" || reason == "cancelled" || reason == "out_of_range" || reason == "data_loss"
}

// pause waits; it is false when the plane is closing or ctx has ended.
func (p *plane) pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-p.closing:
		return false
	case <-t.C:
		return true
	}
}

// attempt sends one request once: to the upstream, and where that cannot be
// reached and there is a fallback, to that.
func (p *plane) attempt(ctx context.Context, rec record) error {
	response, reached, err := p.send(ctx, rec)
	route := ""
	if err != nil && !reached && p.back != nil && ctx.Err() == nil {
		p.say("fallback", "upstream cannot be reached, the platform's telemetry goes to the fallback", "fallback", p.o.Fallback, "error", errorText(err))
		response, _, err = p.call(ctx, p.back, rec)
		route = "fallback"
	}
	if err != nil {
		return err
	}
	rejected, message := partialSuccess(response)
	if rejected > 0 || message != "" {
		p.rejected.Add(uint64(rejected))
		p.m.rejected.WithLabelValues(string(p.name), string(rec.signal)).Add(float64(rejected))
		p.say("partial", "upstream took a request in part or with a warning", "signal", rec.signal, "rejected", rejected, "message", clip(message))
	}
	p.sent.Add(1)
	p.count(rec.signal, "sent", route)
	if p.o.Sent != nil {
		p.o.Sent(rec.signal)
	}
	p.answered(route)
	return nil
}

// send is one attempt at the upstream itself.
func (p *plane) send(ctx context.Context, rec record) ([]byte, bool, error) {
	if p.o.Post == nil {
		return p.call(ctx, p.up, rec)
	}
	ctx, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	return p.o.Post.send(ctx, rec.signal, rec.wire)
}

func (p *plane) call(ctx context.Context, cc *grpc.ClientConn, rec record) ([]byte, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	return export(ctx, cc, rec.signal, rec.wire)
}

func (p *plane) drop(rec record, reason string, err error) {
	p.dropped.Add(1)
	p.count(rec.signal, "dropped", reason)
	p.say("dropped_"+reason, "request dropped: the upstream refuses it for good", "signal", rec.signal, "bytes", len(rec.wire), "reason", reason, "error", clip(status.Convert(err).Message()))
}
