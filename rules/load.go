package rules

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/wattloop/wattloop/internal/nearest"
	"github.com/wattloop/wattloop/presets/names"
)

// Settings come from the configuration of the program, not from rule files.
type Settings struct {
	// RateWindow replaces the parameter rate_window of every file; what a control
	// sets by `with` stays. 0 leaves it as the files have it.
	RateWindow time.Duration
	// Rate is how rate( is read where neither a reading nor its file says so:
	// RateCovered or RatePrometheus. Empty means RateCovered.
	Rate string
	// Use chooses the variants of readings, by the reading's name, before what
	// the files say.
	Use map[string]Choice
	// Naming is the strategy by which the store spells OpenTelemetry's names,
	// a names.Strategy. Empty means the default, in which rule files are written.
	Naming string
	// Attributes says where the node of an OpenTelemetry series stands:
	// AttributesLabels, AttributesTargetInfo or AttributesAuto. Empty means labels.
	Attributes string
	// Off are files whose rules do not run, with the reason and the way to turn
	// them on. Who names a reading of theirs is told.
	Off map[string]string
}

// settingsFile is the name under which messages and origins show a setting.
const settingsFile = "settings"

// atSettings is the place of what the configuration says.
func atSettings() place { return place{file: &file{name: settingsFile}} }

// rateWindow is the parameter that Settings.RateWindow replaces (S0-125).
const rateWindow = "rate_window"

// Load reads the sources in their order, presets first, a file with the same
// bytes as an earlier one but once, merges what later ones
// override, and expands every expression. It reports all that it finds in all
// files in one run; with an error among the messages the set is nil, never half.
func Load(sources []Source, set Settings) (*Set, []Message) {
	l := &loader{report: newReport(), settings: set}
	l.checkSettings()
	for i, source := range sources {
		// The same file once more, as when a folder of the shipped rules is named
		// beside those in the binary, says nothing new.
		if slices.ContainsFunc(sources[:i], func(s Source) bool { return bytes.Equal(s.Data, source.Data) }) {
			continue
		}
		l.order[source.Name] = i
		l.read(source)
	}
	out := l.build()
	messages := l.sorted()
	if HasErrors(messages) {
		return nil, messages
	}
	return out, messages
}

// loader carries one load through its stages: read and walk every file, merge
// them by name, build and expand the rules, check what they say.
type loader struct {
	*report
	settings Settings
	merged   map[string]map[string]*definition // by section and name
	rules    int                               // readings and controls so far
	removed  map[string]*value                 // the nulls that removed readings, by name
	readers  map[string][]string               // of those, the rules that name one
	off      map[string]string                 // why readings of files that are off do not run, by name
	early    map[string][]entry                // variants whose reading no file has defined so far
	// incomplete is true once a file could not be used: a name that is missing
	// may stand in it, so nothing is said about missing names.
	incomplete bool

	params   map[string]*param
	readings map[string]*rawReading
	controls map[string]*rawControl
	acting   map[string]bool // rules that a control depends on, by their names in messages
}

func (l *loader) checkSettings() {
	l.checkSetting("rate", l.settings.Rate, RateCovered, RatePrometheus)
	var namings []string
	for _, s := range names.Strategies() {
		namings = append(namings, string(s))
	}
	l.checkSetting("naming", l.settings.Naming, namings...)
	l.checkSetting("attributes", l.settings.Attributes, AttributesLabels, AttributesTargetInfo, AttributesAuto)
}

// checkSetting refuses a word that a setting does not have. Empty is its default.
func (l *loader) checkSetting(name, word string, words ...string) {
	if word != "" && !slices.Contains(words, word) {
		l.add(SeverityError, "", atSettings(), nearest.Of(word, words), "%s is %q: it is %s", name, word, strings.Join(words, " or "))
	}
}

func (l *loader) read(source Source) {
	f := newFile(source.Name, source.Data)
	root := parseYAML(f, l.report)
	if root != nil {
		root = l.walk(root)
	}
	if root == nil {
		l.incomplete = true
		return
	}
	l.merge(f, root)
}

func (l *loader) build() *Set {
	l.checkEarly()
	l.buildParams()
	l.buildReadings()
	l.buildControls()
	l.link()
	out := l.expand()
	l.checkRemoved()
	l.checkUnused()
	slices.SortFunc(out.Readings, func(a, b *Reading) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(out.Controls, func(a, b *Control) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
