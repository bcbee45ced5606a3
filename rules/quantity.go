package rules

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// quantity is a number or a duration as a file writes it.
type quantity struct {
	text       string
	isDuration bool
	number     float64
	duration   time.Duration
	at         *value // nil for a setting
}

func (q quantity) kind() string {
	if q.isDuration {
		return "a duration"
	}
	return "a number"
}

// less compares two quantities of one kind.
func (q quantity) less(o quantity) bool {
	if q.isDuration {
		return q.duration < o.duration
	}
	return q.number < o.number
}

// promQL is the quantity as it goes into an expression. A negative number gets
// brackets, so that it can stand behind any operator.
func (q quantity) promQL() string {
	text := strings.TrimPrefix(q.text, "+")
	if !q.isDuration && strings.HasPrefix(text, "-") {
		return "(" + text + ")"
	}
	return text
}

func (q quantity) origin(name string) Field {
	f := Field{Name: name, Value: q.text, File: settingsFile}
	if q.at != nil {
		f.File, f.Line = q.at.file.name, q.at.line
	}
	return f
}

var decimal = regexp.MustCompile(`^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$`)

func parseNumber(text string) (float64, bool) {
	if !decimal.MatchString(text) {
		return 0, false
	}
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil && !math.IsInf(n, 0)
}

var (
	durationWords = regexp.MustCompile(`^(?:([0-9]+)y)?(?:([0-9]+)w)?(?:([0-9]+)d)?(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?(?:([0-9]+)ms)?$`)
	durationUnits = []struct {
		word string
		unit time.Duration
	}{
		{"y", 365 * 24 * time.Hour}, {"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour},
		{"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond},
	}
)

// parseDuration reads a duration as Prometheus writes it: whole numbers with
// their units, the largest first, each at most once (1h30m), or 0.
func parseDuration(text string) (time.Duration, bool) {
	if text == "0" {
		return 0, true
	}
	found := durationWords.FindStringSubmatch(text)
	if found == nil || text == "" {
		return 0, false
	}
	var sum time.Duration
	for i, u := range durationUnits {
		if found[i+1] == "" {
			continue
		}
		n, err := strconv.ParseInt(found[i+1], 10, 64)
		if err != nil || n > int64((math.MaxInt64-sum)/u.unit) {
			return 0, false
		}
		sum += time.Duration(n) * u.unit
	}
	return sum, true
}

// formatDuration writes a duration so that parseDuration reads it.
func formatDuration(d time.Duration) string {
	if d == 0 {
		return "0s"
	}
	var b strings.Builder
	for _, u := range durationUnits {
		// Years and weeks only where nothing is left over: 8d, not 1w1d.
		if (u.word == "y" || u.word == "w") && d%u.unit != 0 {
			continue
		}
		if n := d / u.unit; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, u.word)
			d -= n * u.unit
		}
	}
	return b.String()
}

// meantDuration guesses the duration behind one that is written wrongly: 5 m,
// 1.5h, 30m1h, or a bare 300, which Prometheus would read as seconds. It
// returns "" where there is nothing to guess.
func meantDuration(text string) string {
	text = strings.ReplaceAll(text, " ", "")
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return formatDuration(time.Duration(n) * time.Second)
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 || d%time.Millisecond != 0 {
		return ""
	}
	return formatDuration(d)
}
