// Package engine joins the parts at an instant. Step is the only place where
// rules are evaluated and intents leave; live, an arriving sample or a rule's
// own timer calls it, in replay and in tests the recording's timestamps do.
// What a step decides hangs on its instant and on the store alone, never on a
// clock. The package knows nothing of how samples come in, how they are kept or
// how a device is written.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/wattloop/wattloop/actuate"
	"github.com/wattloop/wattloop/rules"
)

// Options are the parts that an engine joins.
type Options struct {
	Rules *rules.Set
	// Query and Interval answer for the store that Store appends to.
	// Each returns well within five seconds: see Alive.
	Query    rules.QueryFunc
	Interval rules.IntervalFunc
	// Recall answers for what Store keeps alone, which is where states from before
	// a restart are found; nil is Query.
	Recall rules.QueryFunc
	// Store takes the readings, intents and outcomes back as series; nil keeps
	// none.
	Store    storage.Appendable
	Governor *actuate.Governor
	// Unread, if set, lists the series of meters that are there and cannot be read.
	Unread func() []labels.Labels
	// Evaluated, if set, is told what each evaluation of a reading at ts has read.
	// It is called within a Step, must not call the engine, and does not keep keys.
	Evaluated func(reading string, ts int64, keys []rules.KeyReading, err error)
	// Cause, if set, names what many rules may have failed of at once, such as a
	// server that is away; "" is a fault of the rule itself.
	Cause func(err error) string
	// Clock says when Run steps, and how long what it measures took. It may be
	// scaled; nil is the wall clock.
	Clock func() time.Time
	// Speed is how many times faster than the wall Clock runs; 0 is 1.
	Speed      int
	Log        *slog.Logger          // nil: nothing is logged
	Registerer prometheus.Registerer // nil: no metric is registered
}

// Engine evaluates a rule set. Its methods may be called from any goroutine at
// any time; Step and Reload wait for each other.
type Engine struct {
	opts    Options
	metrics *metrics
	report  atomic.Pointer[Report]
	index   atomic.Pointer[index]
	wake    chan struct{}
	beat    atomic.Pointer[time.Time] // Run's last sign of progress

	grownMu sync.Mutex
	grown   grown

	mu      sync.Mutex // guards what follows
	eval    *rules.Evaluator
	rules   []*rule
	series  *seriesWriter
	told    *teller
	keys    map[string]labels.Labels // of states and outcomes of the last step, by canonical key
	firstTS int64
	born    int64 // when Run began, by the clock; 0 in replay, where all that is recorded counts
	lastTS  int64
	steps   uint64
	// current says that the last report, log and store have all that happened: the
	// next step may then go over what it changes alone.
	current bool
}

// rule is one reading or one control with what the engine remembers of it.
type rule struct {
	reading *rules.Reading
	control *rules.Control
	due     int64 // the next time its own timer fires, Unix milliseconds
	at      int64 // of the last evaluation
	took    time.Duration
	rest    time.Time // wall time before which no arrival has it evaluated; Run's
	err     error
	cause   string // of err
	leftOut string // what is left out of its answers, "" for nothing
	matched bool   // it has had a key

	rows    []*ReadingReport         // of a reading, in the order of the keys, each as it was evaluated last
	answers []rules.KeyReading       // the same, for Evaluated
	states  map[string]*controlState // of a control, by canonical key
	order   []*controlState          // the same, in the order of the keys
	place   int                      // in the last report, of the rule's first row
	dirty   []labels.Labels          // the keys whose series grew, for the evaluation that begins; nil: all
	alone   []int                    // the places among rows of the keys that were evaluated one by one in this step
	// resumes says that an earlier process may have left the control's state in
	// the store. One that a reload brought or changed starts anew.
	resumes bool
}

func (r *rule) name() string {
	if r.control != nil {
		return r.control.Name
	}
	return r.reading.Name
}

// ownKey are the labels that a series of the rule's own key has: none where the
// rule's expressions do not prove that a key is made of its own series.
func (r *rule) ownKey() []string {
	if r.control != nil {
		return r.control.OwnKey()
	}
	return r.reading.OwnKey()
}

func (r *rule) interval() time.Duration {
	if r.control != nil {
		return r.control.Interval
	}
	return r.reading.Interval
}

// New makes an engine that runs o.Rules. Nothing is evaluated before the first
// Step.
func New(o Options) *Engine {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Recall == nil {
		o.Recall = o.Query
	}
	e := &Engine{
		opts:    o,
		eval:    &rules.Evaluator{Query: o.Query, Interval: o.Interval, Widened: widened(o.Log), Unread: o.Unread},
		metrics: newMetrics(o.Registerer),
		wake:    make(chan struct{}, 1),
		series:  newSeriesWriter(o.Store),
		told:    newTeller(o.Log),
	}
	e.eval.Query = e.lively(o.Query)
	e.install(o.Rules)
	for _, r := range e.rules {
		r.resumes = true
	}
	e.report.Store(e.newReport(0, nil))
	e.metrics.reloaded(true)
	return e
}

// Report is what the last step saw and did. It is never nil and never changes.
func (e *Engine) Report() *Report { return e.report.Load() }

// Step evaluates at ts (Unix milliseconds) every rule that is due: one whose
// series grew since the last step, or whose timer has come. Intents go to the
// governor, and what was read, wanted and done goes back into the store.
// Instants are distinct: one at or a little before the last is taken a
// millisecond after it, and one far before it is a clock that was set back,
// which the engine follows. The error joins what could not be evaluated or
// stored; the report is complete all the same. A step that evaluates single keys
// costs what these keys do, however many there are beside them. When ctx ends before the
// controls are evaluated nothing is decided, and the report is that of the step
// before.
func (e *Engine) Step(ctx context.Context, ts int64) (*Report, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.step(ctx, ts, e.takeGrown(), func() {})
}

// step is a Step; progress is called as it goes on. Controls are evaluated and
// acted upon first: they ask for what they use themselves, so that no reading
// stands between a sample and the write that it causes.
func (e *Engine) step(ctx context.Context, ts int64, g grown, progress func()) (*Report, error) {
	ts = e.instant(ts)
	current := e.current
	e.current = false
	e.steps++
	e.eval.Begin()
	readings, controls := e.due(g, ts)
	errs := e.evaluate(ctx, controls, ts, progress)
	if ctx.Err() != nil {
		for _, r := range append(readings, controls...) {
			r.due = ts
		}
		return e.Report(), context.Cause(ctx)
	}
	outcomes := e.opts.Governor.Step(ctx, ts, e.intents())
	progress()
	e.settle(ts, outcomes)
	if !g.since.IsZero() && wrote(outcomes) {
		e.metrics.reacted(e.opts.Clock().Sub(g.since))
	}
	e.metrics.outcomes(outcomes)

	errs = append(errs, e.evaluate(ctx, readings, ts, progress)...)
	var c change
	if current && len(errs) == 0 && oneByOne(readings) && oneByOne(controls) {
		c = e.nextReport(ts, outcomes, readings, controls)
	} else {
		c = change{rep: e.newReport(ts, outcomes)}
	}
	told := ctx.Err() == nil // what the end of the process cuts short is no news
	if told {
		e.told.report(c)
	}
	if err := e.series.write(ctx, ts, c); err != nil {
		err = fmt.Errorf("engine: store what was decided: %w", err)
		c.rep.Unstored, errs = err.Error(), append(errs, err)
	}
	e.report.Store(c.rep)
	e.current = told && len(errs) == 0
	return c.rep, errors.Join(errs...)
}

// jitter is how far an instant may lie before the last one without meaning
// that the clock was set back.
const jitter = int64(1000)

// instant makes the steps' times distinct and follows a clock that was set
// back: conditions that hold and timers start anew at the new time, since what
// they remember lies in its future.
func (e *Engine) instant(ts int64) int64 {
	switch {
	case e.lastTS == 0:
		e.firstTS = ts
	case e.lastTS-ts > jitter:
		e.opts.Log.Warn("the clock was set back", "by", time.Duration(e.lastTS-ts)*time.Millisecond)
		e.firstTS, e.born, e.current = min(e.firstTS, ts), min(e.born, ts), false
		for _, r := range e.rules {
			r.due = min(r.due, ts)
			for _, st := range r.states {
				st.setBack(ts)
			}
		}
	case ts <= e.lastTS:
		ts = e.lastTS + 1
	}
	e.lastTS = ts
	return ts
}

// due lists the rules to evaluate, each kind by name.
func (e *Engine) due(g grown, ts int64) (readings, controls []*rule) {
	x := e.index.Load()
	keys, foreign := x.keysOf(g.rules)
	all := foreign
	for i, r := range e.rules {
		r.dirty = keys[i]
		whole := all || ts >= r.due || g.rules[x.base+int32(i)]
		if whole || len(r.dirty) > mostDirty {
			r.dirty = nil
		}
		switch {
		case !whole && len(keys[i]) == 0:
		case r.control != nil:
			controls = append(controls, r)
		default:
			readings = append(readings, r)
		}
	}
	return readings, controls
}

// evaluate evaluates rules at ts. Those that ctx cuts off stay due.
func (e *Engine) evaluate(ctx context.Context, rs []*rule, ts int64, progress func()) []error {
	var errs []error
	for i, r := range rs {
		start := e.opts.Clock()
		var err error
		r.alone = r.alone[:0]
		if r.reading != nil {
			err = e.read(ctx, r, ts)
		} else {
			err = e.control(ctx, r, ts)
		}
		if ctx.Err() != nil {
			for _, r := range rs[i:] {
				r.due = ts
			}
			return append(errs, context.Cause(ctx))
		}
		r.at, r.err, r.cause, r.took = ts, err, e.cause(err), e.opts.Clock().Sub(start)
		if r.dirty == nil {
			r.due = ts + r.interval().Milliseconds()
		}
		e.metrics.evaluated(r.name(), r.took)
		if err != nil {
			errs = append(errs, err)
		}
		progress()
	}
	return errs
}

func (e *Engine) cause(err error) string {
	if err == nil || e.opts.Cause == nil {
		return ""
	}
	return e.opts.Cause(err)
}

func (e *Engine) read(ctx context.Context, r *rule, ts int64) error {
	if done, err := e.readKeys(ctx, r, ts); done {
		return err
	}
	krs, err := e.eval.Reading(ctx, r.reading, ts)
	if ctx.Err() != nil {
		return err
	}
	r.matched = r.matched || len(krs) > 0
	krs, all := r.named(krs)
	if e.opts.Evaluated != nil {
		e.opts.Evaluated(r.reading.Name, ts, all, err)
	}
	r.answers, r.rows = krs, make([]*ReadingReport, len(krs)) // none after an error: what was read last is no answer
	for i, kr := range krs {
		r.rows[i] = r.row(kr, ts)
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", r.reading.Name, err)
	}
	return nil
}

func (e *Engine) control(ctx context.Context, r *rule, ts int64) error {
	if done, err := e.controlKeys(ctx, r, ts); done {
		return err
	}
	kcs, err := e.eval.Control(ctx, r.control, ts)
	if ctx.Err() != nil {
		return err
	}
	if err != nil { // then no key is known, and every state goes without input
		err = fmt.Errorf("control %s: %w", r.control.Name, err)
	}
	kcs = slices.DeleteFunc(kcs, func(k rules.KeyControl) bool { return nameless(k.Key, r.control.Key) })
	r.matched = r.matched || len(kcs) > 0
	return errors.Join(err, e.advance(ctx, r, kcs, ts))
}

func wrote(outcomes []actuate.Outcome) bool {
	for _, o := range outcomes {
		if o.Wrote {
			return true
		}
	}
	return false
}
