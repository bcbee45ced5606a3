package engine

import (
	"context"
	"math"
	"time"

	"github.com/wattloop/wattloop/rules"
)

// idleShare bounds what arrivals can take of a core: a rule that was evaluated
// rests for this many times as long before an arrival has it evaluated again.
// The rest is each rule's own, so that a rule which much data feeds does not
// stand between a sample and the one control that it is for.
const idleShare = 4

// longestPause keeps every such wait well below hungAfter.
const longestPause = time.Second

// aheadTolerance is how far a sample's own clock may run ahead of ours and
// still be seen by the step that its arrival causes, instead of by the next
// timer. Two processes on one machine read the clock at different instants.
const aheadTolerance = time.Second

// Run steps the engine until ctx is done: at once when a series that a rule
// selects grew, and whenever a rule's own timer comes. It logs what a step
// could not do, and goes on.
func (e *Engine) Run(ctx context.Context) error {
	e.mu.Lock()
	e.born = e.opts.Clock().UnixMilli()
	e.mu.Unlock()
	timer := time.NewTimer(0)
	defer timer.Stop()
	failures := newTeller(e.opts.Log)
	for {
		arrival := false
		select {
		case <-ctx.Done():
			return nil
		case <-e.wake:
			arrival = true
		case <-timer.C:
		}
		start := time.Now()
		if rep := e.stepNow(ctx, arrival); rep != nil {
			failures.failures(rep)
		}
		// As long as the step took: half of a core at the most, whatever the rules.
		if !sleep(ctx, min(time.Since(start), longestPause)) {
			return nil
		}
		timer.Reset(min(e.untilDue(), e.untilRested()))
	}
}

// stepNow takes what grew and the instant together, so that the step sees
// every sample that it was told of. An arrival for rules that rest is kept for
// them, and without another rule there is no step: nil.
func (e *Engine) stepNow(ctx context.Context, arrival bool) *Report {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.markAlive()
	g := e.takeGrown()
	late := e.resting(&g, time.Now())
	if late > 0 && len(g.rules) == 0 && arrival {
		return nil
	}
	ts := e.now(g.newest)
	rep, _ := e.step(ctx, ts, g, e.markAlive) // the report has the errors, each with its rule
	if ctx.Err() != nil {
		return nil
	}
	now := time.Now()
	for _, r := range e.rules {
		if r.at == e.lastTS {
			took := r.took / time.Duration(max(e.opts.Speed, 1))
			r.rest = now.Add(min(idleShare*took, longestPause))
		}
	}
	return rep
}

// resting takes the rules that rest at now out of g, puts them back for later,
// and says how many there are.
func (e *Engine) resting(g *grown, now time.Time) int {
	x := e.index.Load()
	if _, foreign := x.keysOf(g.rules); foreign {
		return 0
	}
	var late []int32
	for i := range g.rules {
		if n, _, _, _ := x.find(i); now.Before(e.rules[n].rest) {
			late = append(late, i)
			delete(g.rules, i)
		}
	}
	if len(late) > 0 {
		e.growAgain(late, *g)
	}
	if len(g.rules) == 0 {
		g.since = time.Time{} // what this step writes, no arrival caused
	}
	return len(late)
}

// untilRested is how long the wall takes until a rule has rested whose series
// grew meanwhile.
func (e *Engine) untilRested() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.grownMu.Lock()
	defer e.grownMu.Unlock()
	x := e.index.Load()
	wait := longestWait
	for i := range e.grown.rules {
		if n, _, _, ok := x.find(i); ok {
			wait = min(wait, time.Until(e.rules[n].rest))
		}
	}
	return max(wait, 0)
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

// lively takes each answer for a sign of progress: one rule may ask for several
// that are slow.
func (e *Engine) lively(query rules.QueryFunc) rules.QueryFunc {
	return func(ctx context.Context, expr string, ts int64) ([]rules.Sample, error) {
		if e.beat.Load() != nil { // else Run has not begun
			defer e.markAlive()
		}
		return query(ctx, expr, ts)
	}
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
