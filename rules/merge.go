package rules

import (
	"maps"
	"slices"

	"github.com/wattloop/wattloop/internal/nearest"
)

// definition is a parameter, reading or control while files are merged into it.
type definition struct {
	key  *value // the name where it is defined, for its place
	body *value
	home *file // the file whose rate and interval hold for it
}

func (d *definition) get(key string) *value { return d.body.get(key) }

// required are the keys that a rule cannot stand without. Who writes all of them
// defines a rule, who writes fewer changes one.
var required = map[string][]string{
	"readings": {"key", "expr"},
	"controls": {"key", "engage", "release", "action", "target", "value", "limits", "ttl", "purpose"},
	// A parameter with a help text introduces itself; {value: 650} sets one.
	"params": {"value", "help"},
	// Of a reading that has variants, each of these.
	"variants": {"key", "expr"},
}

// core are the keys of which a new rule has at least one: without any it was
// meant to change a rule that does not exist.
var core = map[string][]string{
	"params":   {"value"},
	"readings": {"expr", "key"},
	"controls": {"action", "engage", "value"},
}

// latest is the place of that value which the latest file set: of two that do
// not go together, the one that was put to the other.
func (l *loader) latest(values ...*value) place {
	found := values[0]
	for _, v := range values[1:] {
		if v != nil && (found == nil || l.order[v.file.name] > l.order[found.file.name]) {
			found = v
		}
	}
	return found.at()
}

func hasAll(v *value, keys []string) bool {
	return !slices.ContainsFunc(keys, func(k string) bool { return v.get(k) == nil })
}

// defines says whether a rule is written at full length. A reading with variants
// is where it brings a variant that is there already: one that is new is a change.
func (l *loader) defines(section string, v, before *value) bool {
	if section != "readings" || v.get("variants") == nil {
		return hasAll(v, required[section])
	}
	return v.get("use") != nil && slices.ContainsFunc(v.get("variants").entries, func(e entry) bool {
		return hasAll(e.value, required["variants"]) && before.get("variants").get(e.key.text) != nil
	})
}

// isNew says whether a rule that no earlier file has can be meant to be new.
func isNew(section string, v *value) bool {
	return hasAny(v, core[section]) || section == "readings" && v.get("use") != nil && v.get("variants") != nil
}

// addsVariants is a change that only brings variants. It may come before the file
// that defines the reading.
func addsVariants(v *value) bool { return len(v.entries) == 1 && v.entries[0].key.text == "variants" }

// takeEarly are the variants that came before their reading, nil without any.
func (l *loader) takeEarly(section, name string) *value {
	if section != "readings" {
		return nil
	}
	var body *value
	for _, e := range l.early[name] {
		body = l.overlay(body, e.value, ruleName(section, name))
	}
	delete(l.early, name)
	return body
}

// checkEarly reports variants of a reading that no file has.
func (l *loader) checkEarly() {
	for _, name := range slices.Sorted(maps.Keys(l.early)) {
		for _, e := range l.early[name] {
			l.nothingBefore("readings", e.key, "nothing to change: no %s is defined in any file")
		}
	}
}

func hasAny(v *value, keys []string) bool {
	return slices.ContainsFunc(keys, func(k string) bool { return v.get(k) != nil })
}

// merge lays a file over those before it.
func (l *loader) merge(f *file, root *value) {
	if l.merged == nil {
		l.merged = map[string]map[string]*definition{"params": {}, "readings": {}, "controls": {}}
		l.removed, l.readers, l.off = map[string]*value{}, map[string][]string{}, map[string]string{}
		l.early = map[string][]entry{}
	}
	if why := l.settings.Off[f.name]; why != "" {
		l.turnOff(root, why)
		return
	}
	l.fileWide(f, root)
	for _, section := range sections {
		named := root.get(section)
		switch {
		case named == nil:
			continue
		case named.null:
			l.errorf("", root.keyOf(section).at(), "%s is empty: it takes a mapping from names to what they name", section)
			continue
		}
		for _, e := range named.entries {
			if section != "params" {
				l.countRule(e.key)
			}
			l.mergeOne(section, e)
		}
	}
}

// fileWide keeps what the file says for all rules that it defines, where it can
// be used; said once, not once a rule.
func (l *loader) fileWide(f *file, root *value) {
	fs := fields{loader: l}
	for key, into := range map[string]**value{"rate": &f.rate, "interval": &f.interval} {
		v := root.get(key)
		switch {
		case v == nil || v.broken:
			continue
		case v.null:
			l.errorf("", root.keyOf(key).at(), "%s is empty", key)
			continue
		case key == "rate":
			if _, ok := fs.choice(v, key, RateCovered, RatePrometheus); !ok {
				continue
			}
		default:
			if fs.span(v, key, 0, minInterval, maxDuration) < minInterval {
				continue
			}
		}
		*into = v
	}
}

func (l *loader) countRule(key *value) {
	if l.rules++; l.rules == maxRules+1 {
		l.errorf("", key.at(), "more than %d readings and controls in all files", maxRules)
	}
}

func (l *loader) mergeOne(section string, e entry) {
	name, rule := e.key.text, ruleName(section, e.key.text)
	before := l.merged[section][name]
	if e.value.broken {
		return
	}
	if e.value.null {
		if before == nil {
			l.nothingBefore(section, e.key, "nothing to remove: no %s")
		}
		delete(l.merged[section], name)
		if section == "readings" && before != nil {
			l.removed[name] = e.value
		}
		return
	}
	replace := l.replaces(e.value, rule)
	switch {
	case before == nil && replace:
		l.nothingBefore(section, e.key, "replace: true, but no %s is defined before this file")
	case before == nil && section == "readings" && addsVariants(e.value):
		l.early[name] = append(l.early[name], e)
		return
	case before == nil && !isNew(section, e.value):
		l.nothingBefore(section, e.key, "nothing to change: no %s is defined before this file")
		return
	case before != nil && !replace && l.defines(section, e.value, before.body):
		l.errorf(rule, e.key.at(), "defined twice, first at %s:%d; write only the keys that change, or add replace: true",
			before.key.file.name, before.key.line)
		return
	}
	body := l.changes(e.value, section, rule)
	if before == nil || replace {
		if section == "readings" {
			delete(l.removed, name)
			delete(l.off, name)
		}
		l.merged[section][name] = &definition{key: e.key, body: l.overlay(l.takeEarly(section, name), body, rule), home: e.key.file}
		return
	}
	if section == "params" && !l.keepsKind(rule, before.get("value"), body.get("value")) {
		return
	}
	before.body = l.overlay(before.body, body, rule)
}

// changes is what a rule's mapping says of the rule itself: without replace, and
// without the removal of what no rule can do without.
func (l *loader) changes(v *value, section, rule string) *value {
	out := *v
	out.entries = slices.DeleteFunc(slices.Clone(v.entries), func(e entry) bool {
		if e.value.null && slices.Contains(required[section], e.key.text) && e.key.text != "help" {
			l.errorf(rule, e.key.at(), "%s is empty: a rule cannot do without it", e.key.text)
			return true
		}
		return e.key.text == "replace"
	})
	return &out
}

// nothingBefore reports a change to a rule that no earlier file defines. When a
// file could not be read the rule may stand there, and nothing is said.
func (l *loader) nothingBefore(section string, key *value, format string) {
	if l.incomplete {
		return
	}
	if why := l.off[key.text]; why != "" && section == "readings" {
		l.errorf(ruleName(section, key.text), key.at(), "%s", why)
		return
	}
	near := nearest.Of(key.text, slices.Sorted(maps.Keys(l.merged[section])))
	l.add(SeverityError, ruleName(section, key.text), key.at(), near, format, ruleName(section, key.text))
}

func ruleName(section, name string) string {
	switch section {
	case "params":
		return "parameter " + name
	case "readings":
		return "reading " + name
	}
	return "control " + name
}

func (l *loader) replaces(v *value, rule string) bool {
	flag := v.get("replace")
	if flag == nil {
		return false
	}
	on, ok := flag.boolean()
	if !ok {
		l.errorf(rule, flag.at(), "replace takes true or false")
	}
	return on
}

// overlay lays one mapping over another: mappings merge, what is single or a
// list replaces, null removes. Each value keeps the file it came from.
func (l *loader) overlay(base, over *value, rule string) *value {
	out := *over
	out.entries = nil
	if base != nil {
		out = *base
		out.entries = slices.Clone(base.entries)
	}
	for _, e := range over.entries {
		i := slices.IndexFunc(out.entries, func(o entry) bool { return o.key.text == e.key.text })
		switch {
		case e.value.null && i < 0:
			l.errorf(rule, e.key.at(), "%s is empty: null removes what an earlier file says, and there is nothing", e.key.text)
		case e.value.null:
			out.entries = slices.Delete(out.entries, i, i+1)
		case i < 0 && e.value.kind == mapping:
			out.entries = append(out.entries, entry{e.key, l.overlay(nil, e.value, rule)})
		case i < 0:
			out.entries = append(out.entries, e)
		case e.value.kind == mapping:
			out.entries[i].value = l.overlay(out.entries[i].value, e.value, rule)
		default:
			out.entries[i] = e
		}
	}
	return &out
}
