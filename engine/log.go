package engine

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wattloop/wattloop/actuate"
	"github.com/wattloop/wattloop/internal/numberless"
	"github.com/wattloop/wattloop/rules"
)

// teller logs a subject when what there is to say of it changes, and forgets
// one that a report no longer has.
type teller struct {
	log       *slog.Logger
	last, now map[string]string
}

func newTeller(log *slog.Logger) *teller { return &teller{log: log} }

// report logs what differs from the report before.
func (t *teller) report(c change) {
	if c.before == nil {
		t.now = make(map[string]string, len(t.last))
		t.rows(c.rep)
		t.last = t.now
		return
	}
	t.now = map[string]string{}
	t.rows(c.now)
	was := teller{log: slog.New(slog.DiscardHandler), now: map[string]string{}}
	was.rows(c.before)
	for subject := range was.now {
		delete(t.last, subject)
	}
	maps.Copy(t.last, t.now)
}

// rows says what there is to say of each row of a report, or of a part of one.
func (t *teller) rows(rep *Report) {
	for _, r := range rep.Readings {
		if r.Err != "" && !r.Keyless { // failures says that of the rule
			t.say("reading "+r.Name+r.Key.String(), numberless.Of(r.Err), "", slog.LevelWarn, "reading without a value",
				"reading", r.Name, "key", r.Key.String(), "err", r.Err)
		}
	}
	for _, r := range rep.Rules {
		t.say("left out of "+r.Name, r.LeftOut, "", slog.LevelWarn, "answers are left out", "rule", r.Name, "answers", r.LeftOut,
			"do", "have the label set where the series come from; wattloop rules explain "+r.Name+" has what is read")
	}
	for _, c := range rep.Controls {
		t.control(c)
	}
	for _, o := range rep.Outcomes {
		t.outcome(rep, o)
	}
}

// failures logs what a step could not do, a rule at a time.
func (t *teller) failures(rep *Report) {
	t.now = make(map[string]string, len(t.last))
	causes := map[string]int{}
	for _, r := range rep.Rules {
		if r.Cause != "" {
			causes[r.Cause]++
			continue
		}
		t.say(r.Name, numberless.Of(r.Err), "", slog.LevelWarn, "rule not evaluated", "rule", r.Name, "err", r.Err)
	}
	for _, cause := range slices.Sorted(maps.Keys(causes)) {
		t.say(causePrefix+numberless.Of(cause), "stands", "", slog.LevelWarn, "rules not evaluated, for one cause",
			"rules", causes[cause], "of", len(rep.Rules), "cause", cause)
	}
	if len(causes) == 0 && slices.ContainsFunc(slices.Collect(maps.Keys(t.last)), isCause) {
		t.log.Info("rules are evaluated again")
	}
	t.say("", numberless.Of(rep.Unstored), "", slog.LevelWarn, "series not stored", "err", rep.Unstored)
	t.last = t.now
}

// causePrefix begins the subject of a cause; no rule's name has a blank.
const causePrefix = "cause "

func isCause(subject string) bool { return strings.HasPrefix(subject, causePrefix) }

// control logs a change of phase. A control for protection that cannot see is
// an alarm, engaged or not.
func (t *teller) control(c *ControlReport) {
	level, msg, text := slog.LevelInfo, "control", string(c.Phase)
	blind := c.Purpose == actuate.PurposeProtect && c.Quality != rules.Fresh
	switch {
	case blind:
		level, msg, text = slog.LevelError, "a control for protection has no input that it can trust", text+" blind"
		if c.Quality == rules.Warming || c.Keyless { // as at every start
			level = slog.LevelWarn
		}
	case c.Phase == Restoring:
		level = slog.LevelWarn
	}
	subject := c.Name + c.Key.String()
	args := []any{"control", c.Name, "key", c.Key.String(), "phase", c.Phase}
	if c.Phase.asks() { // otherwise there is no value, which is no 0
		args = append(args, "value", c.Value)
	}
	t.say("control "+subject, text, string(Idle), level, msg, append(args, "why", c.Why)...)
	if c.Err != "" && !c.Keyless {
		t.say("error "+subject, numberless.Of(c.Err), "", slog.LevelWarn, "control without an answer", "control", c.Name, "key", c.Key.String(), "err", c.Err)
	}
}

func (t *teller) outcome(rep *Report, o actuate.Outcome) {
	level := slog.LevelInfo
	switch {
	case o.Result == actuate.Error:
		level = slog.LevelError
	case o.Result == actuate.Blocked && o.Reason != actuate.ReasonObserve && o.Reason != actuate.ReasonOverridden:
		level = slog.LevelWarn
	}
	args := []any{"control", o.Control, "key", o.Key, "device", o.Device, "desired", o.Desired, "applied", o.Applied,
		"result", o.Result, "reason", o.Reason, "message", o.Message}
	limit, clamped := rep.ClampedTo(o)
	if clamped {
		args = append(args, "clamped_to", limit)
	}
	t.say("outcome "+o.Control+o.Key+" "+o.Device, fmt.Sprint(o.Result, o.Reason, o.Applied, clamped, limit), "", level, "outcome", args...)
}

// say logs msg when text is not what was said of the subject last, unless there
// is nothing to say. A subject that is new counts as having been quiet.
func (t *teller) say(subject, text, quiet string, level slog.Level, msg string, args ...any) {
	before, ok := t.last[subject]
	if !ok {
		before = quiet
	}
	if text != before && text != "" {
		t.log.Log(context.Background(), level, msg, args...)
	}
	t.now[subject] = text
}

// widened says once that a rule's window is longer than it was written.
func widened(log *slog.Logger) func(rule, selector string, window, wide time.Duration) {
	return func(rule, selector string, window, wide time.Duration) {
		log.Info("window widened for a slow exporter", "rule", rule, "selector", selector, "window", window, "widened", wide)
	}
}
