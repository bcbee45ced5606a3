package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"github.com/wattloop/wattloop/internal/nearest"
	"github.com/wattloop/wattloop/rules"
)

// envRef is a variable as a whole value: ${env:NAME} or ${env:NAME:-default}.
// There is no expansion inside a longer text.
var envRef = regexp.MustCompile(`^\$\{env:([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\}$`)

// configError is every message about one configuration file, printed as those
// about rule files are.
type configError struct{ messages []rules.Message }

func (e *configError) Error() string {
	lines := make([]string, len(e.messages))
	for i, m := range e.messages {
		lines[i] = m.String()
	}
	return strings.Join(lines, "\n")
}

// apply reads one configuration file into c. warden says that it is the
// warden's own file; the keys of one file are refused in the other.
func (c *config) apply(path string, data []byte, warden bool, env func(string) (string, bool)) error {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	f := fileReader{c: c, path: path, warden: warden, env: env, lines: withoutTokens(strings.Split(string(data), "\n")), known: c.settings(), seen: map[string]int{}}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	err := dec.Decode(&doc)
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		f.broken(err, data)
	case doc.Content[0].ShortTag() == "!!null": // "---" alone
	default:
		f.walk("", doc.Content[0])
	}
	if err == nil {
		if err := dec.Decode(&doc); err == nil {
			f.fail(&doc, "", "a second YAML document; one file has one")
		} else if !errors.Is(err, io.EOF) {
			f.broken(err, data)
		}
	}
	if len(f.messages) > 0 {
		return &configError{f.messages}
	}
	return nil
}

// nodeValue is a value with a structure of its own. It says what is wrong with it
// at the place in the file.
type nodeValue interface {
	read(v *yaml.Node, f *fileReader)
}

// fileReader is one file while it is read.
type fileReader struct {
	c        *config
	path     string
	warden   bool
	env      func(string) (string, bool)
	lines    []string // without tokens
	known    []setting
	seen     map[string]int // key -> its line
	messages []rules.Message
}

// fail names the place, shows the line and points at the node.
func (f *fileReader) fail(n *yaml.Node, suggestion, format string, args ...any) {
	width := 1
	if n.Kind == yaml.ScalarNode && !strings.Contains(n.Value, "\n") {
		width = max(utf8.RuneCountInString(n.Value), 1)
	}
	f.say(n.Line, n.Column, width, suggestion, fmt.Sprintf(format, args...))
}

func (f *fileReader) say(line, col, width int, suggestion, text string) {
	m := rules.Message{
		File: f.path, Line: line, Col: col, EndCol: col + width,
		Severity: rules.SeverityError, Text: text, Suggestion: suggestion,
	}
	if line > 0 && line <= len(f.lines) {
		m.SourceLine = f.lines[line-1]
		m.EndCol = max(col+1, min(m.EndCol, utf8.RuneCountInString(m.SourceLine)+1))
	}
	f.messages = append(f.messages, m)
}

// yamlLine is how the YAML library names a place.
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

// unknownAnchor is what the YAML library says of an alias that stands for nothing,
// without a place.
var unknownAnchor = regexp.MustCompile(`^yaml: unknown anchor '(.*)' referenced$`)

// broken is a file that is no YAML. The name of an alias may be a token that
// nobody put in quotes: it is not said.
func (f *fileReader) broken(err error, data []byte) {
	if m := unknownAnchor.FindStringSubmatch(err.Error()); m != nil {
		at := max(bytes.Index(data, []byte("*"+m[1])), 0)
		begin := bytes.LastIndexByte(data[:at], '\n') + 1
		f.say(bytes.Count(data[:at], []byte{'\n'})+1, utf8.RuneCount(data[begin:at])+1, 1, "",
			"not YAML: an alias without its anchor; put a text that begins with * in quotes")
		return
	}
	m := yamlLine.FindStringSubmatch(err.Error())
	if m == nil {
		f.say(0, 0, 0, "", err.Error())
		return
	}
	line, _ := strconv.Atoi(m[1]) // "" is 0: the library knows no place
	f.say(line, 1, 1, "", "not YAML: "+m[2])
}

// walk takes nested maps and dotted keys alike: storage: {path: x} is storage.path.
func (f *fileReader) walk(prefix string, n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		if prefix == "" {
			f.fail(n, "", "want keys and their values, like node: worker-01")
		} else {
			f.fail(n, "", "%s: want a map of keys", strings.TrimSuffix(prefix, "."))
		}
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		f.pair(prefix, n.Content[i], n.Content[i+1])
	}
}

func (f *fileReader) pair(prefix string, k, v *yaml.Node) {
	if k.Kind != yaml.ScalarNode || k.Value == "<<" {
		f.fail(k, "", "want a plain key; anchors, aliases and merges are not read here")
		return
	}
	key := prefix + k.Value
	if line, twice := f.seen[key]; twice {
		f.fail(k, "", "key %s is already set in line %d", key, line)
		return
	}
	f.seen[key] = k.Line
	within := func(s setting) bool { return strings.HasPrefix(s.key, key+".") }
	switch j := slices.IndexFunc(f.known, func(s setting) bool { return s.key == key }); {
	case j >= 0:
		f.set(f.known[j], k, v)
	case isLater(key):
		f.fail(k, "", "key %s is not in this version", key)
	case slices.ContainsFunc(f.known, within):
		f.walk(key+".", v)
	default:
		f.fail(k, f.nearest(key), "unknown key %s", key)
	}
}

// nearest is the key that a mistyped one probably means.
func (f *fileReader) nearest(key string) string {
	var words []string
	for _, s := range f.known {
		words = append(words, s.key)
	}
	return nearest.Of(key, words)
}

func (f *fileReader) set(s setting, k, v *yaml.Node) {
	if (s.change == changeWarden) != f.warden {
		if f.warden {
			f.fail(k, "", "%s belongs into %s, not into the warden's file", s.key, f.c.File)
		} else {
			f.fail(k, "", "%s is the warden's own: it belongs into %s, which only root writes", s.key, f.c.WardenFile)
		}
		return
	}
	if r, ok := s.value.(nodeValue); ok {
		r.read(v, f)
		f.c.origin[s.key] = fmt.Sprintf("file %s:%d", f.path, k.Line)
		return
	}
	if s.value.Type() == kindPath && !f.paths(s, v) {
		return
	}
	all, err := f.values(s, v)
	if err == nil {
		err = setItems(s.value, all)
	}
	if err != nil {
		f.fail(v, "", "%s: %s", s.key, err)
		return
	}
	f.c.origin[s.key] = fmt.Sprintf("file %s:%d", f.path, k.Line)
}

// paths reports whether v can be names of files: whoever wrote 5 or true there had
// another key in mind.
func (f *fileReader) paths(s setting, v *yaml.Node) bool {
	all := []*yaml.Node{v}
	if v.Kind == yaml.SequenceNode {
		all = v.Content
	}
	ok := true
	for _, n := range all {
		what := map[string]string{"!!int": "a number", "!!float": "a number", "!!bool": "a truth value"}[n.ShortTag()]
		if n.Kind == yaml.ScalarNode && what != "" {
			f.fail(n, "", "%s: %s is %s and no path; write ./%s, or put it in quotes", s.key, n.Value, what, n.Value)
			ok = false
		}
	}
	return ok
}

// values are what a node says, as flags would spell it.
func (f *fileReader) values(s setting, v *yaml.Node) ([]string, error) {
	switch v.Kind {
	case yaml.ScalarNode:
		one, err := f.scalar(v)
		return []string{one}, err
	case yaml.SequenceNode:
		if s.value.Type() == "yaml" {
			return f.tree(v)
		}
		if _, ok := s.value.(*listValue); !ok {
			return nil, errors.New("want one value, not a list")
		}
		var all []string
		for _, e := range v.Content {
			if e.Kind != yaml.ScalarNode {
				return nil, errors.New("want a list of plain values")
			}
			one, err := f.scalar(e)
			if err != nil {
				return nil, err
			}
			all = append(all, one)
		}
		return all, nil
	case yaml.MappingNode:
		if s.value.Type() != "yaml" {
			return nil, errors.New("takes a value, no keys of its own")
		}
		return f.tree(v)
	default:
		return nil, errors.New("aliases are not read here; write the value itself")
	}
}

// tree is a value with keys or items of its own, references to variables
// resolved, as text.
func (f *fileReader) tree(v *yaml.Node) ([]string, error) {
	if err := f.resolve(v); err != nil {
		return nil, err
	}
	b, err := yaml.Marshal(v)
	return []string{string(b)}, err
}

func (f *fileReader) resolve(v *yaml.Node) error {
	if v.Kind == yaml.AliasNode {
		return errors.New("aliases are not read here; write the value itself")
	}
	if v.Kind == yaml.ScalarNode && envRef.MatchString(v.Value) {
		text, err := f.scalar(v)
		v.SetString(text)
		return err
	}
	for _, c := range v.Content {
		if err := f.resolve(c); err != nil {
			return err
		}
	}
	return nil
}

func (f *fileReader) scalar(v *yaml.Node) (string, error) {
	if v.ShortTag() == "!!null" {
		return "", errors.New(`has no value; write "" for an empty one, or leave the key out`)
	}
	m := envRef.FindStringSubmatch(v.Value)
	if m == nil {
		return v.Value, nil
	}
	if s, ok := f.env(m[1]); ok {
		return s, nil
	}
	if m[2] != "" {
		return m[3], nil
	}
	return "", fmt.Errorf("variable %s is not set; give a default with ${env:%s:-DEFAULT}", m[1], m[1])
}
