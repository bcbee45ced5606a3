package rules

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/wattloop/wattloop/internal/nearest"
)

// fields reads the values of one rule. Each getter takes the value that stands
// under a key, nil where there is none, and the key's name for messages; it
// reports what it cannot read and then answers with ok false.
type fields struct {
	*loader
	rule string
	env  env
}

// boolean reads true or false; YAML 1.1's yes and on are not taken.
func (v *value) boolean() (on, ok bool) {
	switch {
	case v.style != unquoted:
		return false, false
	case v.text == "true":
		return true, true
	}
	return false, v.text == "false"
}

func (f fields) boolean(v *value, name string, fallback bool) bool {
	if v == nil || v.broken {
		return fallback
	}
	on, ok := v.boolean()
	if !ok {
		f.errorf(f.rule, v.at(), "%s takes true or false", name)
	}
	return on
}

func (f fields) text(v *value) string {
	if v == nil || v.broken {
		return ""
	}
	return strings.TrimSpace(v.text)
}

// choice reads one of a few words.
func (f fields) choice(v *value, name string, options ...string) (string, bool) {
	if v == nil || v.broken {
		return "", false
	}
	if slices.Contains(options, v.text) {
		return v.text, true
	}
	f.add(SeverityError, f.rule, v.at(), nearest.Of(v.text, options),
		"%s takes %s", name, strings.Join(options, " or "))
	return "", false
}

// labelName is a label as Prometheus's default or OpenTelemetry's own spelling
// has it.
var labelName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_.]*$`)

// key reads the key of a reading. An empty list says that there is one answer.
func (f fields) key(v *value) []string { return f.labels(v, "key", true) }

// labels reads a list of label names: at least one unless none is fine, and none
// twice.
func (f fields) labels(v *value, name string, none bool) []string {
	if v == nil || v.broken {
		return nil
	}
	if len(v.items) == 0 && !none {
		f.errorf(f.rule, v.at(), "%s is empty: it names the labels that tell one answer from another", name)
		return nil
	}
	names := []string{}
	for _, item := range v.items {
		switch {
		case !labelName.MatchString(item.text):
			f.errorf(f.rule, item.at(), "%s: %q is no label name", name, item.text)
		case slices.Contains(names, item.text):
			f.errorf(f.rule, item.at(), "%s: %s stands there twice", name, item.text)
		default:
			names = append(names, item.text)
		}
	}
	return names
}

var wholeParam = regexp.MustCompile(`^\$([a-zA-Z_][a-zA-Z0-9_]*)$`)

// resolve follows a value that is a parameter as a whole, such as `for: $hot_for`.
func (f fields) resolve(v *value, duration bool) (text string, ok bool) {
	found := wholeParam.FindStringSubmatch(v.text)
	if found == nil {
		return v.text, true
	}
	q, ok := f.env.lookup(found[1])
	switch {
	case !ok:
		f.unknownParam(f.rule, found[1], v.at(), f.env)
	case q.text == "": // reported where it is set
	case q.isDuration != duration:
		f.wrongKind(f.rule, v.at(), found[1], q)
	default:
		return q.text, true
	}
	return "", false
}

func (f fields) duration(v *value, name string, fallback time.Duration) (time.Duration, bool) {
	if v == nil || v.broken {
		return fallback, v == nil
	}
	text, ok := f.resolve(v, true)
	if !ok {
		return fallback, false
	}
	d, ok := parseDuration(text)
	if !ok {
		f.add(SeverityError, f.rule, v.at(), meantDuration(text),
			"%s: invalid duration %q, write it as 30s, 5m or 1h30m", name, text)
		return fallback, false
	}
	return d, true
}

// span is a duration that must lie within two bounds.
func (f fields) span(v *value, name string, fallback, low, high time.Duration) time.Duration {
	d, ok := f.duration(v, name, fallback)
	if ok && v != nil && (d < low || d > high) {
		bounds := fmt.Sprintf("between %s and %s", formatDuration(low), formatDuration(high))
		if high == maxDuration {
			bounds = "at least " + formatDuration(low)
		}
		f.errorf(f.rule, v.at(), "%s is %s: it must be %s", name, formatDuration(d), bounds)
	}
	return d
}

// maxDuration as an upper bound is none.
const maxDuration = time.Duration(1<<63 - 1)

func (f fields) number(v *value, name string) (float64, bool) {
	if v == nil || v.broken {
		return 0, false
	}
	text, ok := f.resolve(v, false)
	if !ok {
		return 0, false
	}
	n, ok := parseNumber(text)
	if !ok {
		f.errorf(f.rule, v.at(), "%s takes a number, not %q", name, text)
	}
	return n, ok
}

// positive is a number above 0.
func (f fields) positive(v *value, name string) (float64, bool) {
	n, ok := f.number(v, name)
	if ok && n <= 0 {
		f.errorf(f.rule, v.at(), "%s is %g: it must be above 0", name, n)
		return n, false
	}
	return n, ok
}
