// Package names is the one table of the metric and attribute names that producers
// send and presets read: as OpenTelemetry writes them, and as the store spells
// them under each translation strategy. It translates nothing; a test holds the
// table against the translator library that Prometheus uses (S0-91).
package names

import "slices"

// Kind is the OpenTelemetry instrument behind a metric.
type Kind string

// The kinds that the table has.
const (
	Counter       Kind = "counter" // a monotonic sum
	UpDownCounter Kind = "updowncounter"
	Gauge         Kind = "gauge"
)

// Strategy is how a receiver spells names, in the words of Prometheus's
// otlp.translation_strategy.
type Strategy string

// The four strategies (S0-144). The first is the default everywhere.
const (
	UnderscoreEscapingWithSuffixes    Strategy = "UnderscoreEscapingWithSuffixes"
	UnderscoreEscapingWithoutSuffixes Strategy = "UnderscoreEscapingWithoutSuffixes"
	NoUTF8EscapingWithSuffixes        Strategy = "NoUTF8EscapingWithSuffixes"
	NoTranslation                     Strategy = "NoTranslation"
)

// Strategies are all four, the default first.
func Strategies() []Strategy {
	return []Strategy{UnderscoreEscapingWithSuffixes, UnderscoreEscapingWithoutSuffixes, NoUTF8EscapingWithSuffixes, NoTranslation}
}

// Metric is one metric and its spellings.
type Metric struct {
	Name  string // as sent
	Unit  string // UCUM; any other word for it changes the stored name (S0-146)
	Kind  Kind
	About string

	stored, bare, quoted string
}

// Stored is the name in the store under a strategy. The UTF-8 strategies give
// names that PromQL wants in quotes. An unknown strategy gives the empty string.
func (m Metric) Stored(s Strategy) string {
	switch s {
	case UnderscoreEscapingWithSuffixes:
		return m.stored
	case UnderscoreEscapingWithoutSuffixes:
		return m.bare
	case NoUTF8EscapingWithSuffixes:
		return m.quoted
	case NoTranslation:
		return m.Name
	}
	return ""
}

// Attribute is one attribute and its label.
type Attribute struct {
	Name  string // as sent
	About string

	stored string
}

// Stored is the label's name in the store under a strategy.
func (a Attribute) Stored(s Strategy) string {
	switch s {
	case UnderscoreEscapingWithSuffixes, UnderscoreEscapingWithoutSuffixes:
		return a.stored
	case NoUTF8EscapingWithSuffixes, NoTranslation:
		return a.Name
	}
	return ""
}

// Metrics lists the table, hw.* first. The caller may keep and change the slice.
func Metrics() []Metric { return slices.Clone(metrics) }

// Attributes lists the attributes that identify what was measured.
func Attributes() []Attribute { return slices.Clone(attributes) }

// Lookup finds a metric by the name that is sent.
func Lookup(name string) (Metric, bool) {
	i := slices.IndexFunc(metrics, func(m Metric) bool { return m.Name == name })
	if i < 0 {
		return Metric{}, false
	}
	return metrics[i], true
}

// Sent is Lookup for a name that may have underscores for dots: both are stored
// alike where names are escaped (decisions.md X15).
func Sent(name string) (Metric, bool) {
	i := slices.IndexFunc(metrics, func(m Metric) bool { return likeButDots(m.Name, name) })
	if i < 0 {
		return Metric{}, false
	}
	return metrics[i], true
}

func likeButDots(dotted, name string) bool {
	if len(dotted) != len(name) {
		return false
	}
	for i := range len(name) {
		if dotted[i] != name[i] && (dotted[i] != '.' || name[i] != '_') {
			return false
		}
	}
	return true
}

// Respell is how a strategy stores the metric that the default one stores under
// this name; false for a name that is not in the table.
func Respell(stored string, s Strategy) (string, bool) {
	i := slices.IndexFunc(metrics, func(m Metric) bool { return m.stored == stored })
	if i < 0 {
		return "", false
	}
	return metrics[i].Stored(s), true
}

// RespellLabel is Respell for the label of an attribute.
func RespellLabel(stored string, s Strategy) (string, bool) {
	i := slices.IndexFunc(attributes, func(a Attribute) bool { return a.stored == stored })
	if i < 0 {
		return "", false
	}
	return attributes[i].Stored(s), true
}
