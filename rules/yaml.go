package rules

import (
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// Bounds on rule files, so that a hostile or broken one costs little.
const (
	maxFileBytes = 1 << 20
	maxDepth     = 20
	maxRules     = 500 // readings and controls, all files together
)

type kind uint8

const (
	scalar kind = iota
	list
	mapping
)

func (k kind) String() string { return [...]string{"a single value", "a list", "a mapping"}[k] }

type style uint8

const (
	unquoted     style = iota
	singleQuoted       // 'single-quoted'
	doubleQuoted       // "double-quoted"
	blockStyle         // | or >
)

// value is one node of a YAML file with its place. This file is the only one
// that knows the YAML library.
type value struct {
	file      *file
	line, col int
	kind      kind
	style     style
	text      string // of a scalar
	null      bool   // a scalar that is null, ~ or nothing
	broken    bool   // of the wrong kind, which the report says already
	items     []*value
	entries   []entry // of a mapping, in the order of the file
}

type entry struct{ key, value *value }

// get returns the value that stands under a key, nil when there is none.
func (v *value) get(key string) *value {
	if v != nil {
		for _, e := range v.entries {
			if e.key.text == key {
				return e.value
			}
		}
	}
	return nil
}

// keyOf returns the key itself, for its place.
func (v *value) keyOf(key string) *value {
	for _, e := range v.entries {
		if e.key.text == key {
			return e.key
		}
	}
	return nil
}

// parseYAML reads a file's only document. It returns nil when the file cannot be
// used; the report then says why.
func parseYAML(f *file, r *report) *value {
	if len(f.text) > maxFileBytes {
		r.errorf("", f.lineAt(1), "the file is larger than 1 MiB")
		return nil
	}
	if !checkBytes(f, r) {
		return nil
	}
	decoder := yaml.NewDecoder(strings.NewReader(f.text))
	var document, more yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		r.errorf("", f.lineAt(1), "the file is empty: it needs at least version: 1")
		return nil
	case err != nil:
		syntaxError(f, r, err)
		return nil
	}
	switch err := decoder.Decode(&more); {
	case err == nil:
		r.errorf("", f.lineAt(more.Line), "a second document: a rule file holds one; write a second file")
		return nil
	case !errors.Is(err, io.EOF):
		syntaxError(f, r, err)
		return nil
	}
	if key := keyNode(document.Content[0], "groups"); key != nil {
		// Before anything else is said: such a file may have anchors, for one.
		at := &value{file: f, line: key.Line, col: key.Column, text: key.Value}
		r.errorf("", at.at(), "%s", language.later["groups"])
		return nil
	}
	c := converter{file: f, report: r}
	v := c.convert(document.Content[0], 1)
	if c.tooDeep {
		return nil
	}
	return v
}

func keyNode(n *yaml.Node, key string) *yaml.Node {
	if n.Kind == yaml.MappingNode {
		for i := 0; i < len(n.Content); i += 2 {
			if n.Content[i].Value == key {
				return n.Content[i]
			}
		}
	}
	return nil
}

// checkBytes finds what the YAML library refuses without saying where.
func checkBytes(f *file, r *report) bool {
	for i, text := range f.lines {
		for at, c := range text {
			invalid := false
			if c == utf8.RuneError {
				_, size := utf8.DecodeRuneInString(text[at:])
				invalid = size == 1
			}
			if invalid || unicode.IsControl(c) && c != '\t' {
				col := utf8.RuneCountInString(text[:at]) + 1
				p := place{f, i + 1, col, col + 1}
				if invalid {
					r.errorf("", p, "the file is not UTF-8 text")
				} else {
					r.errorf("", p, "control character %q", c)
				}
				return false
			}
		}
	}
	return true
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?`)

// syntaxError reports the YAML library's error. The library gives the line on
// which the construct around the error began, so the error is looked for: it
// stands on the line behind the longest beginning of the file that is YAML. A
// tab there gets a message of its own: the library speaks of a character that
// cannot start a token.
func syntaxError(f *file, r *report, err error) {
	found := yamlLine.FindStringSubmatch(err.Error())
	line, _ := strconv.Atoi(found[1])
	if len(f.text) <= maxSearch {
		line = firstBroken(f, line)
	}
	indent := f.line(line)[:len(f.line(line))-len(strings.TrimLeft(f.line(line), " \t"))]
	if tab := strings.IndexByte(indent, '\t'); tab >= 0 {
		r.errorf("", place{f, line, tab + 1, tab + 2}, "a tab in the indentation: YAML wants blanks")
		return
	}
	text := strings.TrimPrefix(err.Error(), found[0])
	if strings.HasPrefix(text, "unknown anchor") { // the library names it, and it may be a token that was not quoted
		text = "an alias without its anchor: version 1 has neither; a text that begins with * stands in quotes"
	}
	if strings.Contains(text, "did not find expected ','") {
		text += "; inside {} and [], an expression with brackets, braces or commas stands in quotes"
	}
	r.errorf("", f.lineAt(line), "%s", text)
}

// maxSearch is the size of a file in which a syntax error is looked for: the
// file is parsed once a line.
const maxSearch = 32 << 10

func firstBroken(f *file, from int) int {
	last := max(from-1, 0)
	for n := last + 1; n < len(f.lines); n++ {
		if isYAML(strings.Join(f.lines[:n], "\n")) {
			last = n
		}
	}
	return last + 1
}

func isYAML(text string) bool {
	decoder := yaml.NewDecoder(strings.NewReader(text))
	for {
		var n yaml.Node
		switch err := decoder.Decode(&n); {
		case errors.Is(err, io.EOF):
			return true
		case err != nil:
			return false
		}
	}
}

// converter turns the library's nodes into values and refuses the parts of YAML
// that this language has no use for.
type converter struct {
	file    *file
	report  *report
	tooDeep bool
}

func (c *converter) convert(n *yaml.Node, depth int) *value {
	v := &value{file: c.file, line: n.Line, col: n.Column}
	switch {
	case depth > maxDepth:
		if !c.tooDeep {
			c.tooDeep = true
			c.report.errorf("", v.at(), "nested deeper than %d levels", maxDepth)
		}
		return nil
	case n.Kind == yaml.AliasNode:
		c.report.errorf("", v.at(), "an alias: version 1 has none, use a parameter or write it out")
		return nil
	case n.Anchor != "":
		c.report.errorf("", v.at(), "an anchor: version 1 has none, use a parameter or write it out")
	case n.Style&yaml.TaggedStyle != 0:
		c.report.errorf("", v.at(), "a YAML tag (%s): version 1 has none, values are read as they are written", n.Tag)
	}
	switch n.Kind {
	case yaml.ScalarNode:
		v.text = n.Value
		v.style = styleOf(n.Style)
		v.null = v.style == unquoted && n.Tag == "!!null"
	case yaml.SequenceNode:
		v.kind = list
		for _, node := range n.Content {
			if item := c.convert(node, depth+1); item != nil {
				v.items = append(v.items, item)
			}
		}
	case yaml.MappingNode:
		v.kind = mapping
		c.entries(v, n.Content, depth)
	}
	return v
}

// entries keeps the first of two values under one key: never does the last win.
func (c *converter) entries(v *value, content []*yaml.Node, depth int) {
	lines := make(map[string]int, len(content)/2)
	for i := 0; i+1 < len(content) && !c.report.full(c.file); i += 2 {
		key := c.convert(content[i], depth+1)
		if key == nil {
			continue
		}
		if key.kind != scalar {
			c.report.errorf("", key.at(), "a key is %s: it must be a name", key.kind)
			continue
		}
		if line, ok := lines[key.text]; ok {
			c.report.errorf("", key.at(), "%s is already defined at line %d", key.text, line)
			continue
		}
		lines[key.text] = key.line
		if val := c.convert(content[i+1], depth+1); val != nil {
			v.entries = append(v.entries, entry{key, val})
		}
	}
}

func styleOf(s yaml.Style) style {
	switch {
	case s&yaml.SingleQuotedStyle != 0:
		return singleQuoted
	case s&yaml.DoubleQuotedStyle != 0:
		return doubleQuoted
	case s&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		return blockStyle
	}
	return unquoted
}
