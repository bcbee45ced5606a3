package relay

import (
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc/status"

	"github.com/wattloop/wattloop/ingest"
	"github.com/wattloop/wattloop/queue"
)

// Status is how one plane stands.
type Status struct {
	Plane      ingest.Plane
	QueueBytes int64 // that wait
	QueueLimit int64 // on disk
	Sent       uint64
	Dropped    uint64 // requests that the upstream refused for good
	Refused    uint64 // requests that were not queued
	Rejected   uint64 // points, spans and log records of sent requests that the upstream rejected
	LostBytes  uint64 // of the queue, that could not be read back
	Answering  bool   // the upstream answered the last attempt with other than a wish to wait
	Error      string // of the last attempt that failed; "" before one has
	ErrorAt    time.Time
}

func (p *plane) status() Status {
	waiting, _ := p.q.Size()
	s := Status{
		Plane: p.name, QueueBytes: waiting, QueueLimit: p.share,
		Sent: p.sent.Load(), Dropped: p.dropped.Load(), Refused: p.refused.Load(), Rejected: p.rejected.Load(), LostBytes: p.lost.Load(),
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Answering, s.Error, s.ErrorAt = p.answering, p.err, p.errAt
	return s
}

// failed notes an attempt that failed. Only the first of a row is logged.
func (p *plane) failed(err error, retry bool) {
	p.mu.Lock()
	p.err, p.errAt = errorText(err), p.o.Clock()
	was := p.answering
	p.answering = !retry
	first := p.said["down"].IsZero() || was
	if retry && first {
		p.said["down"] = p.errAt
	}
	text := p.err
	p.mu.Unlock()
	if retry && first {
		p.log.Warn("upstream does not take requests, they wait in the queue", "upstream", p.o.upstream(), "error", text)
	}
}

// answered notes an attempt that succeeded on the way named by route.
func (p *plane) answered(route string) {
	p.mu.Lock()
	down := !p.said["down"].IsZero()
	if route == "" {
		p.answering = true
		delete(p.said, "down")
		delete(p.said, "fallback")
	}
	p.mu.Unlock()
	if down && route == "" {
		p.log.Info("upstream takes requests again", "upstream", p.o.upstream())
	}
}

// sayEvery is how often one kind of trouble is logged; all of it is counted.
const sayEvery = time.Minute

// say logs a warning unless one of its kind was logged within sayEvery.
func (p *plane) say(kind, message string, args ...any) {
	now := p.o.Clock()
	p.mu.Lock()
	last, ok := p.said[kind]
	quiet := ok && now.Sub(last) < sayEvery && !now.Before(last)
	if !quiet {
		p.said[kind] = now
	}
	p.mu.Unlock()
	if !quiet {
		p.log.Warn(message, args...)
	}
}

// queue is what the plane's queue is made of.
func (p *plane) queue(limit int64) queue.Options {
	p.share = limit
	return queue.Options{
		Dir: filepath.Join(p.o.Dir, string(p.name)), Limit: limit, Fsync: p.o.Fsync,
		Lost: func(why error, segment uint64, bytes int64) {
			reason := "unreadable"
			switch {
			case errors.Is(why, queue.ErrTorn):
				reason = "torn"
			case errors.Is(why, queue.ErrCorrupt):
				reason = "corrupt"
			}
			p.lost.Add(uint64(bytes))
			p.m.lost.WithLabelValues(string(p.name), reason).Add(float64(bytes))
			p.log.Warn("part of the relay's queue cannot be read and is passed over", "segment", segment, "bytes", bytes, "reason", reason, "error", why)
		},
		Trouble: func(err error) { p.say("disk", "relay's queue: the disk refuses", "error", err) },
	}
}

// errorText is the code of a failed attempt and why; of a connection that does
// not come about, what the operating system says.
func errorText(err error) string {
	st := status.Convert(err)
	why := st.Message()
	if _, dial, ok := strings.Cut(why, "Error while dialing: "); ok {
		why = strings.TrimSuffix(dial, `"`)
	}
	return clip(word(st.Code()) + ": " + why)
}

// clip makes text of the upstream safe to log and to show.
func clip(s string) string {
	const most = 200
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

func quiet(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l
}
