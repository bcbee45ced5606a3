package rules

import (
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// Mode says whether a control writes.
type Mode string

const (
	Observe Mode = "observe" // show what would be written, write nothing
	Enforce Mode = "enforce" // write
)

// Purposes of a control: what happens to its cap on every doubt.
const (
	Efficiency = "efficiency" // give the original back
	Protection = "protection" // hold the cap, later go to the safe cap
)

// Ways to read rate( and increase( in an expression.
const (
	RateCovered    = "covered"    // as covered_rate and covered_increase
	RatePrometheus = "prometheus" // as the words stand
)

// Bounds and defaults of the language; actuation.md section 6 is their source.
const (
	defaultInterval    = 5 * time.Second
	minInterval        = time.Second
	defaultForgetAfter = time.Hour
	defaultEngageFor   = 15 * time.Second
	defaultReleaseFor  = time.Minute
	minTTL             = 5 * time.Second
	maxTTL             = 300 * time.Second
	ttlIntervals       = 3 // a lease lasts at least as many intervals
	minStaleAfter      = 10 * time.Second
	maxStaleAfter      = 10 * time.Minute
	minHysteresis      = 0.02
)

// Set is all rules of a load, merged and expanded. It is immutable; its slices
// are sorted by name. A name is a reading or a control, never both.
type Set struct {
	Params   []Param
	Readings []*Reading
	Controls []*Control
	// Off are the readings that do not run, by name, and why (Settings.Off).
	Off map[string]string
}

// Reading returns the reading of that name, nil when there is none.
func (s *Set) Reading(name string) *Reading {
	i := slices.IndexFunc(s.Readings, func(r *Reading) bool { return r.Name == name })
	if i < 0 {
		return nil
	}
	return s.Readings[i]
}

// Control returns the control of that name, nil when there is none.
func (s *Set) Control(name string) *Control {
	i := slices.IndexFunc(s.Controls, func(c *Control) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return s.Controls[i]
}

// Selectors returns the matchers of every selector that the reading or control
// of that name reads, those of the readings that it uses included. It is nil for
// an unknown name.
func (s *Set) Selectors(rule string) [][]*labels.Matcher {
	if r := s.Reading(rule); r != nil {
		return r.selectors
	}
	if c := s.Control(rule); c != nil {
		return c.selectors
	}
	return nil
}

// Param is one knob as it stands after all files.
type Param struct {
	Name  string
	Value string // as written: a number or a duration
	Unit  string
	Help  string
	File  string // where the value was set
	Line  int
}

// Reading is a named expression that answers with one number a key.
type Reading struct {
	Name, Help string
	Unit       string   // UCUM, as OpenTelemetry writes units: W, J, Cel, 1
	Key        []string // the labels that tell answers apart
	// As are those labels as other rules know them, one for one: what a reading
	// with variants is read by whichever is used. It is Key where they are alike.
	As       []string
	Variant  string   // the one that is used; "" where the reading has none
	Variants []string // all of them, sorted
	Note     string   // what to know of the answers; "" for nothing
	Expr     string   // as written
	Query    string   // the exact query that runs
	Rate     string   // RateCovered or RatePrometheus
	Interval time.Duration
	// ForgetAfter is how long a component that was seen is still expected.
	ForgetAfter time.Duration
	// StaleAfter is the age that makes a component stale. 0 leaves it to the
	// measured export interval: max(3 intervals, 30 s).
	StaleAfter time.Duration
	File       string // where the reading is defined
	Line       int

	plan      *plan
	joined    *plan // under AttributesAuto, where plan does not answer; nil: plan is all
	selectors [][]*labels.Matcher
	origins   []Field // every field with the place that set it
	params    []Field // the parameters that the query was expanded with
}

// Condition is one side of a control's switch: an expression that answers for
// the keys where it holds, and how long it must hold.
type Condition struct {
	When string // as written
	For  time.Duration
}

// Limits are the lowest and the highest value that a control asks for, in the
// unit of its action.
type Limits struct{ Min, Max float64 }

// Slew bounds how fast a control's value moves: units a step, one step in Every.
// A zero field leaves it to the governor's default.
type Slew struct {
	Down, Up float64
	Every    time.Duration
}

// Control moves a device while its engage condition has held, until its release
// condition has.
type Control struct {
	Name, Help      string
	Mode            Mode
	Key             []string
	Purpose         string // Efficiency or Protection
	Engage, Release Condition
	Value           string            // the expression of the value, as written
	Action          string            // "rapl.set_power_cap_watts"
	Target          map[string]string // labels of the devices that it moves
	Limits          Limits
	Slew            Slew
	TTL             time.Duration // how long a write lasts unless it is renewed
	Interval        time.Duration
	StaleAfter      time.Duration // 0: as Reading.StaleAfter
	// TrustedChannels are the workload channels that the control reads beside the
	// node channels, sorted.
	TrustedChannels []string
	SafeCap         float64 // with Protection, else 0
	// SafeWhenBlind goes to the safe cap although the control was not engaged
	// when its input went away.
	SafeWhenBlind bool
	// ObserveAfter refuses an input that is older than the control's last write.
	ObserveAfter bool
	OnStop       string // "hold", or "" to restore
	// Uses are the readings that the control's expressions name. A reading whose
	// parameters the control overrides, and every one of a control with trusted
	// channels, is an instance of its own; any other is the same pointer as in
	// Set.Readings.
	Uses []*Reading
	File string // where the control is defined
	Line int

	engage, release, value *plan
	joined                 [exprCount]*plan // as of a reading; nil where there is one form
	selectors              [][]*labels.Matcher
	origins                []Field
	params                 []Field
}
