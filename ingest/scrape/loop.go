package scrape

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/wattloop/wattloop/internal/fetch"
)

// loop scrapes one target.
type loop struct {
	target Target
	o      *Options
	page   *fetch.Page
	book   *book
	w      writer
	m      *targetMetrics
	log    *slog.Logger
	phase  uint64

	quit  context.CancelFunc // of its scrapes
	taken chan struct{}      // closed when another loop goes on with its book
	done  chan struct{}      // closed when it will not touch the book any more

	status atomic.Pointer[Status]
	round  round
	said   [numReasons]bool
}

// next is the next instant of the target's phase after now; the wall clock may
// be set, so it is asked for each time.
func (l *loop) next(now time.Time) time.Time {
	every := uint64(l.target.Interval)
	into := (uint64(now.UnixNano()) - l.phase) % every
	return now.Add(time.Duration(every - into))
}

// run scrapes at once, then at the target's phase, until scraping ends. Unless ctx
// has ended too, which is the end of the process, the target is gone then.
func (l *loop) run(ctx, scraping context.Context) {
	defer close(l.done)
	defer l.page.Close()
	first := true
	for {
		l.scrape(scraping)
		now := l.o.Clock()
		at := l.next(now)
		if first && at.Sub(now) < l.target.Interval/2 {
			at = at.Add(l.target.Interval) // two scrapes at once tell nothing
		}
		first = false
		if !wait(scraping, at.Sub(now), nil) {
			break
		}
	}
	if ctx.Err() == nil {
		l.linger(ctx)
	}
}

// linger writes the end of all series of a target that is gone, dated to when its
// next scrape would have been. It waits until the one after that is over, for
// somebody may bring the target back.
func (l *loop) linger(ctx context.Context) {
	if l.status.Load().LastScrape.IsZero() {
		return
	}
	now := l.o.Clock()
	at := l.next(now)
	if !wait(ctx, at.Sub(now)+l.target.Interval+l.target.Interval/10, l.taken) {
		return
	}
	if err := l.w.end(ctx, l.book, at.UnixMilli()); err != nil {
		l.log.Warn("the end of a target could not be stored", "err", err)
	}
}

// wait is false when ctx, or but, ends first.
func wait(ctx context.Context, d time.Duration, but <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-but:
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}

// scrape is one round. A scrape that the end of ctx cuts off is none.
func (l *loop) scrape(ctx context.Context) {
	at := l.o.Clock()
	body, contentType, err := l.page.Get(ctx)
	if ctx.Err() != nil {
		return
	}
	now := at.UnixMilli()
	l.round = round{at: now, err: err, samples: l.round.samples[:0],
		oldest: now - l.o.OutOfOrder.Milliseconds(), youngest: now + ahead.Milliseconds()}
	r := &l.round
	l.book.read(r, body, contentType, l.target.SampleLimit)
	took := l.o.Clock().Sub(at)
	out, err := l.w.write(ctx, l.book, r, took)
	if ctx.Err() != nil {
		return
	}
	l.count(r, out, err)
	l.tell(r, err)
	st := l.newStatus()
	st.LastScrape, st.Took, st.Up, st.Samples, st.Stored = at, took, r.err == nil, r.total, out.values
	for _, n := range r.not {
		st.NotStored += n
	}
	if r.err != nil {
		st.Err = r.err.Error()
	} else if err != nil {
		st.Err = err.Error()
	}
	l.status.Store(&st)
}

// ahead is how far a time on a page may lie ahead of our clock: one far ahead
// would close the store to all others.
const ahead = time.Minute

func (l *loop) count(r *round, out written, err error) {
	switch {
	case r.err != nil:
		l.m.failed.Inc()
		l.m.up.Set(0)
		return
	case err != nil:
		l.m.unstored.Inc()
	default:
		l.m.ok.Inc()
	}
	l.m.up.Set(1)
	for why := fine + 1; why < numReasons; why++ {
		l.m.not[why].Add(float64(r.not[why]))
	}
	if err == nil {
		l.m.stored.Add(float64(out.values))
		if l.o.Took != nil && out.values > 0 {
			l.o.Took(out.values, l.o.Clock().UnixMilli(), out.newest)
		}
	}
}

// tell logs what changes: not each scrape that fails, and each kind of sample that
// is kept out only once.
func (l *loop) tell(r *round, err error) {
	was := l.status.Load()
	switch first := was.LastScrape.IsZero(); {
	case r.err != nil && (first || was.Up || kindOf(r.err.Error()) != kindOf(was.Err)):
		l.log.Warn("target is down", "err", r.err)
	case r.err == nil && err != nil && (first || !was.Up || was.Err == ""):
		l.log.Warn("target is up, but its page is", "err", err)
	case r.err == nil && err == nil && (first || was.Err != ""):
		l.log.Info("target is up", "samples", r.total)
	}
	if r.err != nil {
		return
	}
	l.tellReasons(r)
}

// kindOf is an error up to its first number: what counts something is said once.
func kindOf(err string) string {
	if i := strings.IndexAny(err, "0123456789"); i >= 0 {
		return err[:i]
	}
	return err
}

func (l *loop) tellReasons(r *round) {
	for why := fine + 1; why < numReasons; why++ {
		if r.not[why] == 0 || l.said[why] {
			continue
		}
		l.said[why] = true
		say := l.log.Warn
		if why.blank() {
			say = l.log.Info
		}
		say("samples of the page are not stored; said once", "reason", reasonWords[why].name,
			"why", reasonWords[why].text, "now", r.not[why], "example", r.example[why])
	}
}
