package rules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// measureEvery is how long a measured export interval is used before it is
// measured again.
const measureEvery = time.Minute

// Sample is one series of an answer: its labels, the time it was asked for in
// Unix milliseconds, and its value.
type Sample struct {
	Metric labels.Labels
	T      int64
	V      float64
}

// QueryFunc answers a PromQL expression at an instant, ts in Unix
// milliseconds. A scalar answer is one Sample without labels. It must know
// covered_rate, covered_increase and the experimental ts_of_last_over_time.
type QueryFunc func(ctx context.Context, expr string, ts int64) ([]Sample, error)

// IntervalFunc measures how far apart the samples of the series that match the
// selector are, the slowest series counting; 0 is unknown.
type IntervalFunc func(ctx context.Context, selector string, ts int64) (time.Duration, error)

// Quality says how far a reading can be trusted. Only Fresh acts.
type Quality string

// The four qualities, the worst first. The mark Partial stands beside them.
const (
	Missing Quality = "missing" // no answer, and nothing that is about to give one
	Warming Quality = "warming" // an input has too few samples so far
	Stale   Quality = "stale"   // a component is older than stale_after, or the third error in a row
	Fresh   Quality = "fresh"
)

// Worse is the worse of two qualities.
func (q Quality) Worse(p Quality) Quality {
	for _, worst := range []Quality{Missing, Warming, Stale} {
		if q == worst || p == worst {
			return worst
		}
	}
	return Fresh
}

// Key names one answer of a reading or a control in its canonical form, such as
// {k8s_node_name="worker-01"}.
type Key string

// KeyReading is what a reading says of one key at an instant.
type KeyReading struct {
	Key     labels.Labels
	Value   float64
	Valid   bool // false: there is no value, whatever Value holds
	Quality Quality
	Partial bool          // an expected component did not answer: never raise or lift a cap on this
	Age     time.Duration // of the oldest component
	Newest  int64         // time of the newest input sample, Unix milliseconds; 0 = none
	Err     string        // why there is no value although something answered
	Why     string        // what the quality and the mark come from, in words; "" for a fresh whole reading

	// Nameless is for who watches evaluations: the labels of the rule's key, none of
	// which an answer had, which is of nothing then and left out.
	Nameless string

	joined bool // read by way of target_info
}

// Evaluator evaluates readings and controls, and remembers between two
// instants which components it expects and how many errors came in a row. It
// reads no clock: every instant is the caller's. It is for one goroutine at a
// time.
type Evaluator struct {
	Query    QueryFunc
	Interval IntervalFunc // nil: every export interval is unknown
	// Widened, if set, is told once that a window was shorter than two export
	// intervals of its selector and a quarter, and how long it is read instead.
	Widened func(rule, selector string, window, widened time.Duration)
	// Unread, if set, lists the series of meters that are there and cannot be read,
	// with their names: what reads them is partial.
	Unread func() []labels.Labels

	step      uint64 // 0: Begin was never called
	trackers  map[trackerID]*tracker
	intervals map[string]measured
	told      map[string]bool
	controls  map[*Control]*controlState
}

type measured struct {
	interval time.Duration
	at       int64
}

// Begin says that a new step begins. From one Begin to the next the store is
// taken not to change, so what several rules read at one instant is asked for
// once. Without any Begin everything is asked for each time.
func (e *Evaluator) Begin() { e.step++ }

// Keep forgets the state of every rule that is not in the set. A reload that
// leaves a reading as it was leaves what is known of its components.
func (e *Evaluator) Keep(s *Set) {
	keep := map[trackerID]bool{}
	add := func(f formed) {
		keep[idOf(f.plan, f.question)] = true
		if f.joined != nil {
			keep[idOf(f.joined, f.question)] = true
		}
	}
	for _, r := range s.Readings {
		add(r.formed())
	}
	for _, c := range s.Controls {
		for _, r := range c.Uses {
			add(r.formed())
		}
		for _, in := range c.unread() {
			add(in)
		}
	}
	maps.DeleteFunc(e.trackers, func(id trackerID, _ *tracker) bool { return !keep[id] })
	maps.DeleteFunc(e.controls, func(c *Control, _ *controlState) bool { return !slices.Contains(s.Controls, c) })
}

func valueOf(r *Reading) question {
	return question{value: true, forget: cmp.Or(r.ForgetAfter, defaultForgetAfter)}
}

// Reading evaluates a reading at the instant ts, Unix milliseconds: one answer
// for each key that answers or is expected to, in the order of the keys.
//
// A key that had an answer is there as Missing until forget_after has passed; it
// never goes in silence. After a failed query the known keys come back with Err
// and no value; it is returned as an error where there is no key to say it of. A
// canceled context changes nothing.
func (e *Evaluator) Reading(ctx context.Context, r *Reading, ts int64) ([]KeyReading, error) {
	return e.reading(ctx, r, ts, r.StaleAfter)
}

func (e *Evaluator) reading(ctx context.Context, r *Reading, ts int64, staleAfter time.Duration) ([]KeyReading, error) {
	out, _, err := e.keys(ctx, r.formed(), ts, staleAfter, false)
	return out, err
}

// canceled is a call that the caller gave up, which proves nothing of the rule.
// A deadline that passed is an error like any other.
func canceled(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// trackerID is what makes two evaluations the same: the words, the labels they
// are read by, and what is asked.
type trackerID struct {
	text, key string
	covered   bool
	question  question
}

func idOf(p *plan, q question) trackerID {
	return trackerID{p.text, strings.Join(p.key, ","), p.covered, q}
}

func (e *Evaluator) tracker(p *plan, q question) *tracker {
	id := idOf(p, q)
	if t := e.trackers[id]; t != nil {
		return t
	}
	if e.trackers == nil {
		e.trackers = map[trackerID]*tracker{}
	}
	t := newTracker(p, q)
	e.trackers[id] = t
	return t
}

// observe brings a tracker up to the instant ts.
func (e *Evaluator) observe(ctx context.Context, t *tracker, rule string, ts int64) error {
	if e.step != 0 && t.step == e.step && t.at == ts {
		return t.err
	}
	t.err = e.look(ctx, t, rule, ts)
	t.step, t.at = e.step, ts
	return t.err
}

func (e *Evaluator) look(ctx context.Context, t *tracker, rule string, ts int64) error {
	if err := e.prepare(ctx, t, rule, ts); err != nil {
		return err
	}
	if err := e.ask(ctx, t, ts); err != nil {
		return err
	}
	if err := e.seed(ctx, t, ts); err != nil {
		return err
	}
	if err := e.upkeep(ctx, t, ts); err != nil {
		return err
	}
	return e.filtered(ctx, t, ts)
}

// ask asks for the value and what judges it, the short way if there is one.
func (e *Evaluator) ask(ctx context.Context, t *tracker, ts int64) error {
	c := t.compiled
	since := time.Duration(ts-t.wholeAt) * time.Millisecond
	if c.short != nil && t.seeded && since >= 0 && since <= c.short.after {
		samples, err := e.Query(ctx, t.text(c.short.query, func(u *closeUp) oneKey { return u.short }), ts)
		if err != nil {
			return e.explain(ctx, t, ts, err)
		}
		if proven, err := t.takeShort(samples); proven || err != nil {
			return err
		}
		if samples, err = e.Query(ctx, t.text(c.inputs, func(u *closeUp) oneKey { return u.inputs }), ts); err != nil {
			return fmt.Errorf("the age of its inputs: %w", err)
		}
		t.asked(ts)
		return t.takeMore(samples)
	}
	t.asked(ts)
	if c.all == "" {
		return t.take(nil)
	}
	samples, err := e.Query(ctx, t.text(c.all, func(u *closeUp) oneKey { return u.all }), ts)
	if err != nil {
		return e.explain(ctx, t, ts, err)
	}
	return t.take(samples)
}

// prepare compiles the plan's queries, and again when an export interval that
// was measured anew says so.
func (e *Evaluator) prepare(ctx context.Context, t *tracker, rule string, ts int64) error {
	if t.compiled != nil && !due(t.measuredAt, ts) {
		return nil
	}
	intervals, err := e.measure(ctx, t.plan, rule, ts)
	if err != nil {
		return err
	}
	if t.compiled == nil || !maps.Equal(intervals, t.intervals) {
		c, err := t.plan.compile(intervals, t.question)
		if err != nil {
			return err
		}
		t.compiled, t.intervals = c, intervals
	}
	t.measuredAt = ts
	return nil
}

// due says whether what was measured at the instant is to be measured again. A
// clock that went back makes it due.
func due(at, ts int64) bool { return ts < at || ts-at >= measureEvery.Milliseconds() }

// explain asks for the value alone, so that a failed query is told in the words
// of the rule where it is the rule that fails.
func (e *Evaluator) explain(ctx context.Context, t *tracker, ts int64, err error) error {
	value := t.text(t.compiled.value, func(u *closeUp) oneKey { return u.value })
	if value == "" || ctx.Err() != nil {
		return err
	}
	if _, alone := e.Query(ctx, value, ts); alone != nil {
		return alone
	}
	return fmt.Errorf("the age of its inputs: %w", err)
}

// seed finds what was there before the first evaluation, so that a restart
// forgets no component, and what came and went between two that lie far apart.
func (e *Evaluator) seed(ctx context.Context, t *tracker, ts int64) error {
	span := t.question.forget
	if t.seeded {
		span = min(span, time.Duration(ts-t.seededAt)*time.Millisecond)
	}
	if query := t.compiled.before(span); query != "" && (!t.seeded || span > t.compiled.pastStep) {
		samples, err := e.Query(ctx, query, ts)
		if err != nil {
			return fmt.Errorf("the components of the last %s: %w", span, err)
		}
		if err := t.remember(samples); err != nil {
			return err
		}
	}
	t.seeded, t.seededAt = true, ts
	return nil
}

// upkeep finds out what became of components that gave no sign: those that a
// marker ended are forgotten, the others stay expected.
func (e *Evaluator) upkeep(ctx context.Context, t *tracker, ts int64) error {
	if t.scope == nil {
		t.expire(ts)
	}
	absent := t.unaccounted()
	if len(absent) == 0 {
		return nil
	}
	there, err := e.present(ctx, t, ts)
	if err != nil {
		return err
	}
	for _, c := range absent {
		age := time.Duration(ts-c.last) * time.Millisecond
		switch {
		case there[c] || age < 0:
		case age < lookback:
			t.drop(c)
		default:
			// The last sample is out of sight. Just before it went out of sight a
			// marker would have hidden it.
			before, err := e.present(ctx, t, c.last+lookback.Milliseconds()-1)
			if err != nil {
				return err
			}
			if c.silent = before[c]; !c.silent {
				t.drop(c)
			}
		}
	}
	return nil
}

// present are the known components whose selectors answer at the instant.
func (e *Evaluator) present(ctx context.Context, t *tracker, ts int64) (map[*component]bool, error) {
	samples, err := e.Query(ctx, t.text(t.compiled.seen, func(u *closeUp) oneKey { return u.seen }), ts)
	if err != nil {
		return nil, fmt.Errorf("the components that are there: %w", err)
	}
	return t.known(samples)
}

// filtered finds the keys that have no value because the expression's own
// comparisons leave them out.
func (e *Evaluator) filtered(ctx context.Context, t *tracker, ts int64) error {
	if t.compiled.bare == "" || !t.anyKeyWithoutValue() {
		return nil
	}
	samples, err := e.Query(ctx, t.text(t.compiled.bare, func(u *closeUp) oneKey { return u.bare }), ts)
	if err != nil {
		return fmt.Errorf("the value without its comparisons: %w", err)
	}
	for _, s := range samples {
		t.key(s.Metric).leftOut = t.round
	}
	return nil
}

// measure knows the export interval of each selector of a plan, at most a
// minute old, and says once which windows are widened for it.
func (e *Evaluator) measure(ctx context.Context, p *plan, rule string, ts int64) (map[string]time.Duration, error) {
	if e.Interval == nil {
		return nil, nil
	}
	if e.intervals == nil {
		e.intervals, e.told = map[string]measured{}, map[string]bool{}
	}
	out := make(map[string]time.Duration, len(p.selectors))
	for _, sel := range p.selectors {
		m, ok := e.intervals[sel]
		if !ok || due(m.at, ts) {
			interval, err := e.Interval(ctx, sel, ts)
			if err != nil {
				return nil, fmt.Errorf("the export interval of %s: %w", sel, err)
			}
			m = measured{interval, ts}
			e.intervals[sel] = m
		}
		out[sel] = m.interval
	}
	for _, w := range p.windows {
		to, id := w.widened(out[w.selector]), rule+" "+w.selector+" "+w.length.String()
		if to > w.length && !e.told[id] && e.Widened != nil {
			e.told[id] = true
			e.Widened(rule, w.selector, w.length, to)
		}
	}
	return out, nil
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
