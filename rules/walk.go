package rules

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/wattloop/wattloop/internal/nearest"
)

// Names of readings and controls are PromQL identifiers without a colon, so
// that they can never be taken for a recorded series of Prometheus.
var validName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// sections of a file, in the order in which they are read.
var sections = []string{"params", "readings", "controls"}

// walk holds a file's tree against the language and returns the part of it that
// fits: what it reports is taken out, so that later stages see known keys with
// the right kind of value only. It returns nil when nothing of the file can be
// used.
func (l *loader) walk(root *value) *value {
	if root.kind != mapping {
		l.errorf("", root.at(), "a rule file is a mapping that begins with version: 1, this is %s", root.kind)
		return nil
	}
	if !l.version(root) {
		return nil
	}
	return l.fit(root, language, "", nil)
}

func (l *loader) version(root *value) bool {
	v := root.get("version")
	switch {
	case v == nil:
		l.errorf("", root.file.lineAt(root.line), "version: 1 is missing at the top of the file")
	case v.kind == scalar && v.text == "1" && v.style == unquoted:
		return true
	case v.kind == scalar && isNewer(v.text):
		l.errorf("", v.at(), "written for a newer wattloop: version %s, this one reads version 1", v.text)
	default:
		l.errorf("", v.at(), "version takes the number 1")
	}
	return false
}

// isNewer reports whether a version is a whole number above 1.
func isNewer(version string) bool {
	digits := strings.TrimLeft(version, "0123456789")
	return digits == "" && version != "" && version != "1" && version[0] != '0'
}

// fit checks v against s; path leads to it. What does not fit comes back as
// broken: there, but with nothing to be said about it any more.
func (l *loader) fit(v *value, s *shape, rule string, path []string) *value {
	if v.null {
		return v // removes what an earlier file says; merging sees to it
	}
	broken := &value{file: v.file, line: v.line, col: v.col, kind: s.kind, broken: true}
	if v.kind != s.kind {
		l.errorf(rule, v.at(), "%s takes %s, this is %s", last(path), s.kind, v.kind)
		return broken
	}
	if s.kind == list {
		for _, item := range v.items {
			if item.kind != scalar || item.null {
				l.errorf(rule, item.at(), "%s takes a list of names", last(path))
				return broken
			}
		}
	}
	if s.kind != mapping {
		return v
	}
	fitting := *v
	fitting.entries = nil
	for _, e := range v.entries {
		if l.full(v.file) {
			break
		}
		in := rule
		if len(path) == 1 && path[0] != "params" {
			in = strings.TrimSuffix(path[0], "s") + " " + e.key.text
		} else if len(path) == 1 {
			in = "parameter " + e.key.text
		}
		if child := l.childShape(e.key, s, in, path); child != nil {
			val := l.fit(e.value, child, in, append(slices.Clip(path), e.key.text))
			fitting.entries = append(fitting.entries, entry{e.key, val})
		}
	}
	return &fitting
}

func last(path []string) string {
	if len(path) == 0 {
		return "the file"
	}
	return path[len(path)-1]
}

// childShape finds what may stand under a key, and reports a key that may not.
func (l *loader) childShape(key *value, s *shape, rule string, path []string) *shape {
	if s.any != nil {
		if len(path) == 1 && !validName.MatchString(key.text) {
			l.errorf(rule, key.at(), "a name is made of letters, digits and underscores, and does not begin with a digit")
			return nil
		}
		return s.any
	}
	if child := s.keys[key.text]; child != nil {
		return child
	}
	if text := s.later[key.text]; text != "" {
		l.errorf(rule, key.at(), "%s", text)
		return nil
	}
	known := slices.Sorted(maps.Keys(s.keys))
	if near := nearest.Of(key.text, known); near != "" {
		l.add(SeverityError, rule, key.at(), near, "unknown key %s", key.text)
	} else {
		l.errorf(rule, key.at(), "unknown key %s; known here: %s", key.text, strings.Join(known, ", "))
	}
	return nil
}
