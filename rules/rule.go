package rules

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/wattloop/wattloop/internal/nearest"
)

// rawReading is a reading before its expression is expanded.
type rawReading struct {
	Reading
	def  *definition
	expr *expression
	node // its place in the graph of readings

	written []string // its key as the file has it
	spares  []*spare
	// spareReads are the parameters that it would read under another choice of
	// variants.
	spareReads map[string]bool
}

// rawControl is a control before its expressions are expanded.
type rawControl struct {
	Control
	def                    *definition
	with                   map[string]quantity
	engage, release, value *expression
	fieldParams            map[string]bool // read outside expressions: `for: $hot_for`
}

func (l *loader) buildReadings() {
	l.readings = make(map[string]*rawReading, len(l.merged["readings"]))
	for name, def := range l.merged["readings"] {
		l.readings[name] = l.buildReading(name, def)
	}
}

func (l *loader) buildReading(name string, def *definition) *rawReading {
	rule := ruleName("readings", name)
	f := fields{loader: l, rule: rule, env: env{params: l.params}}
	if e, err := dialect.ParseExpr(name); err != nil || e.Type() != parser.ValueTypeVector {
		l.errorf(rule, def.key.at(), "%s means something else in PromQL: give the reading another name", name)
	}
	c := l.choose(rule, name, def)
	r := &rawReading{def: def, expr: l.expression(rule, c.expr, "expr"), spares: l.spares(rule, def, c.name)}
	r.Reading = Reading{
		Name: name, Help: f.text(c.help), Unit: f.text(def.get("unit")),
		Key: f.key(c.key), Variant: c.name, Variants: c.all, Note: f.text(c.note),
		Expr:        f.text(c.expr),
		Rate:        l.rate(rule, def),
		Interval:    f.interval(def),
		ForgetAfter: f.span(def.get("forget_after"), "forget_after", defaultForgetAfter, time.Minute, maxDuration),
		StaleAfter:  f.span(def.get("stale_after"), "stale_after", 0, minStaleAfter, maxStaleAfter),
		File:        def.home.name, Line: def.key.line,
		origins: c.origins(def.origins()),
	}
	r.written = r.Key
	if r.As = r.Key; c.public != nil {
		r.As = f.key(c.public)
	}
	if r.ForgetAfter <= r.StaleAfter {
		l.errorf(rule, l.latest(def.get("forget_after"), def.get("stale_after")), "forget_after is %s: it must be longer than stale_after (%s)",
			formatDuration(r.ForgetAfter), formatDuration(r.StaleAfter))
	}
	return r
}

func (l *loader) missing(rule string, def *definition, keys []string) {
	var missing []string
	for _, key := range keys {
		if def.get(key) == nil {
			missing = append(missing, key)
		}
	}
	if len(missing) > 0 {
		l.errorf(rule, def.key.at(), "%s missing: %s", isAre(len(missing)), strings.Join(missing, ", "))
	}
}

func isAre(n int) string {
	if n == 1 {
		return "a key is"
	}
	return "keys are"
}

// rate says how the rates of a rule are read: by the rule, its file, or the settings.
func (l *loader) rate(rule string, def *definition) string {
	f := fields{loader: l, rule: rule}
	for _, v := range []*value{def.get("rate"), def.home.rate} {
		if v != nil {
			word, _ := f.choice(v, "rate", RateCovered, RatePrometheus)
			return word
		}
	}
	if l.settings.Rate != "" {
		return l.settings.Rate
	}
	return RateCovered
}

func (f fields) interval(def *definition) time.Duration {
	v := def.get("interval")
	if v == nil {
		v = def.home.interval
	}
	return f.span(v, "interval", defaultInterval, minInterval, maxDuration)
}

func (l *loader) buildControls() {
	l.controls = make(map[string]*rawControl, len(l.merged["controls"]))
	for name, def := range l.merged["controls"] {
		l.controls[name] = l.buildControl(name, def)
		if r := l.readings[name]; r != nil {
			l.errorf(ruleName("controls", name), def.key.at(), "%s is a reading already (%s:%d): give the control another name",
				name, r.File, r.Line)
		}
	}
}

func (l *loader) buildControl(name string, def *definition) *rawControl {
	rule := ruleName("controls", name)
	l.missing(rule, def, required["controls"])
	c := &rawControl{def: def, with: l.with(rule, def.get("with"))}
	f := fields{loader: l, rule: rule, env: env{params: l.params, with: c.with, seen: map[string]bool{}}}
	c.Control = Control{
		Name: name, Help: f.text(def.get("help")),
		Mode: Observe, Key: f.labels(def.get("key"), "key", false),
		Value:           f.text(def.get("value")),
		Action:          f.action(def.get("action")),
		Target:          f.target(def.get("target")),
		Interval:        f.interval(def),
		StaleAfter:      f.span(def.get("stale_after"), "stale_after", 0, minStaleAfter, maxStaleAfter),
		TrustedChannels: f.channels(def.get("trusted_channels")),
		ObserveAfter:    f.boolean(def.get("observe_after"), "observe_after", true),
		File:            def.home.name, Line: def.key.line,
		origins: def.origins(),
	}
	if mode, ok := f.choice(def.get("mode"), "mode", string(Observe), string(Enforce)); ok {
		c.Mode = Mode(mode)
	}
	f.warnTrusting(c)
	c.value = l.expression(rule, def.get("value"), "value")
	c.Engage, c.engage = f.condition(def, "engage", defaultEngageFor)
	c.Release, c.release = f.condition(def, "release", defaultReleaseFor)
	c.Limits = f.limits(def.get("limits"))
	c.Slew = f.slew(def.get("slew"))
	c.TTL = f.ttl(def, c.Interval)
	f.purpose(c)
	c.fieldParams = f.env.seen
	return c
}

// condition reads engage or release; its expression is nil when there is none.
func (f fields) condition(def *definition, key string, holds time.Duration) (Condition, *expression) {
	v := def.get(key)
	if v == nil || v.broken {
		return Condition{}, nil
	}
	if v.get("when") == nil {
		f.errorf(f.rule, v.at(), "%s has no when: it says under which condition", key)
	}
	name := key + ".for"
	c := Condition{When: f.text(v.get("when")), For: f.span(v.get("for"), name, holds, 0, maxDuration)}
	return c, f.expression(f.rule, v.get("when"), key+".when")
}

func (f fields) limits(v *value) (out Limits) {
	if v == nil || v.broken {
		return out
	}
	for _, key := range []string{"min", "max"} {
		if v.get(key) == nil {
			f.errorf(f.rule, v.at(), "limits has no %s: it takes min and max, in the unit of the action", key)
		}
	}
	low, okLow := f.positive(v.get("min"), "limits.min")
	high, okHigh := f.positive(v.get("max"), "limits.max")
	if okLow && okHigh && low >= high {
		f.errorf(f.rule, f.latest(v.get("max"), v.get("min")), "limits.max is %g: it must be above limits.min (%g)", high, low)
	}
	return Limits{low, high}
}

func (f fields) slew(v *value) (out Slew) {
	if v == nil || v.broken {
		return out
	}
	out.Down, _ = f.positive(v.get("down"), "slew.down")
	out.Up, _ = f.positive(v.get("up"), "slew.up")
	out.Every = f.span(v.get("every"), "slew.every", 0, minInterval, maxDuration)
	switch steps := v.get("down") != nil || v.get("up") != nil; {
	case steps && v.get("every") == nil:
		f.errorf(f.rule, v.at(), "slew has no every: down and up are steps, every says how often one is taken")
	case !steps && v.get("every") != nil:
		f.errorf(f.rule, v.at(), "slew has neither down nor up: every says how often a step is taken, they say how long it is")
	}
	return out
}

func (f fields) ttl(def *definition, interval time.Duration) time.Duration {
	v := def.get("ttl")
	ttl := f.span(v, "ttl", 0, minTTL, maxTTL)
	if ttl > 0 && ttl < ttlIntervals*interval {
		f.errorf(f.rule, f.latest(v, def.get("interval")), "ttl is %s: it must be at least %d times the interval (%s), so that a late step loses no cap",
			formatDuration(ttl), ttlIntervals, formatDuration(interval))
	}
	return ttl
}

// purpose reads what a control does on doubt. What only a protection needs is
// refused on an efficiency: there it would do nothing.
func (f fields) purpose(c *rawControl) {
	def := c.def
	purpose, ok := f.choice(def.get("purpose"), "purpose", Efficiency, Protection)
	c.Purpose = purpose
	if stop, ok := f.choice(def.get("on_stop"), "on_stop", "restore", "hold"); ok && stop == "hold" {
		c.OnStop = stop
	}
	c.SafeWhenBlind = f.boolean(def.get("safe_when_blind"), "safe_when_blind", false)
	safe := def.get("safe_cap")
	if safe != nil {
		var fine bool
		c.SafeCap, fine = f.positive(safe, "safe_cap")
		if fine && c.Limits.Min < c.Limits.Max && (c.SafeCap < c.Limits.Min || c.SafeCap > c.Limits.Max) {
			f.errorf(f.rule, f.latest(safe, def.get("limits").get("min"), def.get("limits").get("max")), "safe_cap is %g: it must lie within limits (%g to %g)", c.SafeCap, c.Limits.Min, c.Limits.Max)
		}
	}
	switch {
	case ok && purpose == Protection && safe == nil:
		f.errorf(f.rule, def.get("purpose").at(), "purpose: protection needs safe_cap, the cap to go to when the input stays away")
	case ok && purpose == Efficiency:
		for key, on := range map[string]bool{"safe_cap": safe != nil, "safe_when_blind": c.SafeWhenBlind, "on_stop": c.OnStop != ""} {
			if on {
				f.errorf(f.rule, f.latest(def.get(key), def.get("purpose")), "%s belongs to purpose: protection; an efficiency gives the original back on every doubt", key)
			}
		}
	}
}

// actions of the language, and whether this version writes them.
var actions = map[string]bool{
	"rapl.set_power_cap_watts": true,
	"dvfs.set_throttle_pct":    false,
	"gpu.set_power_cap_watts":  false,
}

func (f fields) action(v *value) string {
	if v == nil || v.broken {
		return ""
	}
	runs, known := actions[v.text]
	switch names := slices.Sorted(maps.Keys(actions)); {
	case !known:
		f.add(SeverityError, f.rule, v.at(), nearest.Of(v.text, names), "unknown action %s", v.text)
	case !runs:
		f.errorf(f.rule, v.at(), "action %s comes later: %s, which writes rapl.set_power_cap_watts", v.text, laterText)
	}
	return v.text
}

// targetLabels are those by which devices are told apart today. Another one is
// no error, since a device's labels are the backend's; a near miss is a warning.
var targetLabels = []string{"hw_type", "hw_id", "k8s_node_name"}

func (f fields) target(v *value) map[string]string {
	if v == nil || v.broken {
		return nil
	}
	if len(v.entries) == 0 {
		f.errorf(f.rule, v.at(), "target is empty: it names the devices to move, as {hw_type: cpu} does")
	}
	out := make(map[string]string, len(v.entries))
	for _, e := range v.entries {
		out[e.key.text] = e.value.text
		if near := nearest.Of(e.key.text, targetLabels); near != "" && !slices.Contains(targetLabels, e.key.text) {
			f.add(SeverityWarning, f.rule, e.key.at(), near, "no device has a label %s", e.key.text)
		}
	}
	return out
}
