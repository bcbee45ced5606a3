package engine

import (
	"context"
	"math"
	"time"
)

// idleShare bounds the part of a core that arrivals can take: after a step the
// next one waits for this many times the step's own length.
const idleShare = 4

// longestPause keeps that wait well below hungAfter.
const longestPause = time.Second

// aheadTolerance is how far a sample's own clock may run ahead of ours and
// still be seen by the step that its arrival causes, instead of by the next
// timer. Two processes on one machine read the clock at different instants.
const aheadTolerance = time.Second

// Run steps the engine until ctx is done: at once when a series that a rule
// selects grew, and whenever a rule's own timer comes. It logs what a step
// could not do, and goes on.
func (e *Engine) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	said := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.wake:
		case <-timer.C:
		}
		start := time.Now()
		err := e.stepNow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		text := ""
		if err != nil {
			text = err.Error()
		}
		if text != said && text != "" {
			e.opts.Log.Warn("step", "err", err)
		}
		said = text
		if !sleep(ctx, min(idleShare*time.Since(start), longestPause)) {
			return nil
		}
		timer.Reset(e.untilDue())
	}
}

// stepNow takes what grew and the instant together, so that the step sees
// every sample that it was told of.
func (e *Engine) stepNow(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.markAlive()
	g := e.takeGrown()
	_, err := e.step(ctx, e.now(g.newest), g, e.markAlive)
	return err
}

// now is the instant of the next live step: the clock's, or that of a sample
// which came from a clock a little ahead.
func (e *Engine) now(newest int64) int64 {
	now := e.opts.Clock().UnixMilli()
	if ahead := newest - now; ahead > 0 && ahead <= aheadTolerance.Milliseconds() {
		return newest
	}
	return now
}

// hungAfter is how long Run may be without progress before Alive says no: well
// over the longest evaluation of one rule, well under the warden's patience.
const hungAfter = 5 * time.Second

// Alive says whether Run makes progress. It is true before Run has begun.
func (e *Engine) Alive() bool {
	b := e.beat.Load()
	return b == nil || time.Since(*b) < hungAfter
}

func (e *Engine) markAlive() {
	now := time.Now()
	e.beat.Store(&now)
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// longestWait bounds the time between two steps, since devices that rise or
// fall by their slew need steps of their own.
const longestWait = time.Second

// shortestWait keeps a scaled clock from spinning.
const shortestWait = time.Millisecond

// untilDue is how long the wall takes to the next timer of a rule, by a clock
// that may be scaled.
func (e *Engine) untilDue() time.Duration {
	wait := min(e.NextDue()-e.opts.Clock().UnixMilli(), longestWait.Milliseconds())
	return max(time.Duration(wait)*time.Millisecond/time.Duration(max(e.opts.Speed, 1)), shortestWait)
}

// NextDue is the next instant at which a rule's timer comes, Unix milliseconds;
// without a rule it never comes.
func (e *Engine) NextDue() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	next := int64(math.MaxInt64)
	for _, r := range e.rules {
		next = min(next, r.due)
	}
	return next
}
