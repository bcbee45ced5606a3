package rules

import (
	"fmt"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"
)

// markOf finds the place of a mark in a file by counting, without knowing YAML.
func markOf(text, mark string) (line, col int) {
	before, _, _ := strings.Cut(text, mark)
	lines := strings.Split(strings.ReplaceAll(before, "\r\n", "\n"), "\n")
	return len(lines), len([]rune(lines[len(lines)-1])) + 1
}

// However YAML writes a scalar, the place of a word in it is found again.
func TestPositionInEveryStyle(t *testing.T) {
	f := func(doc string) {
		t.Helper()
		r := newReport()
		root := parseYAML(newFile("f", []byte(doc)), r)
		if root == nil {
			t.Errorf("%q: %s", doc, printed(r.messages))
			return
		}
		v := root.get("e")
		i := strings.Index(v.text, "MARK")
		got := v.within(i, i+4)
		line, col := markOf(doc, "MARK")
		if got.line != line || got.col != col || got.endCol != col+4 {
			t.Errorf("%q: MARK at %d:%d-%d; want %d:%d", doc, got.line, got.col, got.endCol, line, col)
		}
	}
	f("e: a MARK b")
	f("x: 1\r\ne: a MARK b\r\n")
	f("\u00e9: 1\ne: \u00e9\u00e9 MARK")
	f("{x: é, e: a MARK b}")
	f("e: a\n  b\n\n  c MARK d\n")
	f("e: 'it''s ''a'' MARK'")
	f("e: 'a\n  b MARK'")
	f(`e: "\"a\"\t\\ \x41\u00e9\U0001F600 MARK"`)
	f("e: \"a \\\n   b MARK\"")
	f("e: \"a\n\n   b MARK\"")
	f("e: |\n  a\n    b\n\n  c MARK d\n")
	f("e: |2-\n    a\n  MARK\n")
	f("e: >\n  a\n  b\n\n    more\n  c MARK d\n")
	f("e: >-  # a comment\n  # no comment\n  MARK\n")
	f("e: # why\n  a MARK")
	f("e:\n\n  a\n  MARK")
}

// The same over generated words, and for both ends of a stretch.
func TestPositionProperty(t *testing.T) {
	word := rapid.StringMatching(`[a-z(){}"'\\é=~$|]{1,6}`)
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(word, 1, 8).Draw(t, "words")
		at := rapid.IntRange(0, len(words)-1).Draw(t, "at")
		style := rapid.SampledFrom([]string{"single", "double", "literal", "folded"}).Draw(t, "style")
		words[at] = "MARK"
		var doc strings.Builder
		doc.WriteString("x: 1\ne: ")
		switch style {
		case "single":
			fmt.Fprintf(&doc, "'%s'", strings.ReplaceAll(strings.Join(words, " "), "'", "''"))
		case "double":
			fmt.Fprintf(&doc, "\"%s\"", strings.NewReplacer(`\`, `\\`, `"`, `\"`, "é", `\u00e9`).Replace(strings.Join(words, " ")))
		case "literal":
			doc.WriteString("|\n   " + strings.Join(words, "\n   ") + "\n")
		case "folded":
			doc.WriteString(">\n   " + strings.Join(words, "\n   ") + "\n")
		}
		root := parseYAML(newFile("f", []byte(doc.String())), newReport())
		if root == nil {
			t.Fatalf("%q does not parse", doc.String())
		}
		v := root.get("e")
		i := strings.Index(v.text, "MARK")
		got := v.within(i, i+4)
		line, col := markOf(doc.String(), "MARK")
		if got.line != line || got.col != col || got.endCol != col+4 {
			t.Fatalf("%q: MARK at %d:%d-%d; want %d:%d", doc.String(), got.line, got.col, got.endCol, line, col)
		}
	})
}

// An offset in the parsed text leads back to the text as written.
func TestWritten(t *testing.T) {
	// a $long b $x c  ->  a 5m b 400 c
	pieces := []piece{{2, 7, 2, 4}, {10, 12, 7, 10}}
	f := func(offset int, end bool, want int) {
		t.Helper()
		if got := written(pieces, offset, end); got != want {
			t.Errorf("written(%d, %v) = %d; want %d", offset, end, got, want)
		}
	}
	f(0, false, 0)
	f(2, false, 2)
	f(3, false, 2)
	f(3, true, 7)
	f(4, true, 7)
	f(5, false, 8)
	f(7, false, 10)
	f(8, true, 12)
	f(10, true, 12)
	f(11, false, 13)
	f(12, true, 14)
}

// FuzzLoad: no file makes the loader panic or hang, a set comes without an error
// and only then, and every message points into its file.
func FuzzLoad(f *testing.F) {
	for _, s := range shipped(f) {
		f.Add(string(s.Data))
	}
	f.Add(expandBase)
	f.Add("\ufeffversion: 1\r\nreadings: {r: {key: [a], expr: \"rate(x[$w])\"}}\r\n")
	f.Add("version: 1\nreadings:\n  a: {key: [n], expr: >\n    b\n\n    + $é}\n")
	f.Add("version: 1\ncontrols: {c: null, d: {with: {}, limits: 1}}\n--- \n")
	f.Add("groups:\n- name: g\n")
	base := shipped(f)
	f.Fuzz(func(t *testing.T, data string) {
		for _, sources := range [][]Source{{{"fuzz.yaml", []byte(data)}}, append(base[:len(base):len(base)], Source{"fuzz.yaml", []byte(data)})} {
			set, messages := Load(sources, Settings{})
			if (set == nil) != HasErrors(messages) {
				t.Fatalf("set %v with messages\n%s", set != nil, printed(messages))
			}
			for _, m := range messages {
				checkPlace(t, m)
			}
			if set != nil {
				for _, r := range set.Readings {
					_ = r.Explain().String()
				}
				for _, c := range set.Controls {
					_ = c.Explain().String()
				}
			}
		}
	})
}

func checkPlace(t *testing.T, m Message) {
	t.Helper()
	_ = m.String()
	if m.Line == 0 {
		return
	}
	width := len([]rune(m.SourceLine))
	if m.Line < 0 || m.Col < 1 || m.EndCol <= m.Col || m.Col > width+1 || m.EndCol > max(width, m.Col)+1 {
		t.Fatalf("place %d:%d-%d of %q: %s", m.Line, m.Col, m.EndCol, m.SourceLine, m.Text)
	}
	if strings.IndexFunc(m.Text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }) >= 0 {
		t.Fatalf("control characters in %q", m.Text)
	}
}

// A line that is longer than a screen is printed around its mark.
func TestExcerpt(t *testing.T) {
	line := strings.Repeat("a", 300) + "MARK" + strings.Repeat("b", 300)
	m := Message{File: "f", Line: 7, Col: 301, EndCol: 305, Severity: SeverityError, Text: "x", SourceLine: line}
	lines := strings.Split(m.String(), "\n")
	if len(lines) != 3 || len(lines[1]) > excerptWidth+20 {
		t.Fatalf("printed as %q", lines)
	}
	if i := strings.Index(lines[1], "MARK"); i != strings.Index(lines[2], "^^^^") {
		t.Errorf("the mark is off:\n%s\n%s", lines[1], lines[2])
	}
	m = Message{File: "f", Line: 7, Col: 2, EndCol: 600, Severity: SeverityError, Text: "x", SourceLine: "\t" + line}
	if lines := strings.Split(m.String(), "\n"); len(lines[2]) > excerptWidth+20 || !strings.Contains(lines[2], "\t^") {
		t.Errorf("printed as %q", lines)
	}
}
