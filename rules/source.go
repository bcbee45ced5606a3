package rules

import (
	"io/fs"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Source is one rule file: its bytes, and the name that messages print.
type Source struct {
	Name string
	Data []byte
}

// Sources reads the rule files (*.yaml, *.yml) of a tree in lexical order, the
// order in which later ones override earlier ones. Names that begin with a dot
// are passed over: an editor's swap files, and the folders behind a mounted
// ConfigMap, whose files would be read twice. A file is named by its path below
// prefix.
func Sources(fsys fs.FS, prefix string) ([]Source, error) {
	var sources []Source
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := name != "." && strings.HasPrefix(path.Base(name), ".")
		if d.IsDir() {
			if hidden {
				return fs.SkipDir
			}
			return nil
		}
		if ext := path.Ext(name); hidden || ext != ".yaml" && ext != ".yml" {
			return nil
		}
		data, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		sources = append(sources, Source{Name: path.Join(prefix, name), Data: data})
		return nil
	})
	return sources, err
}

// file is a source while it is read.
type file struct {
	name  string
	text  string   // UTF-8, without a byte order mark
	lines []string // without their line ends, broken where YAML breaks them

	// What the file says for all rules that it defines, nil where it says nothing.
	rate, interval *value
}

func newFile(name string, data []byte) *file {
	text := strings.TrimPrefix(string(data), "\ufeff")
	return &file{name: name, text: text, lines: breaks(text)}
}

// breaks cuts a text into lines at the five line ends that the YAML library
// counts (YAML 1.1: LF, CR LF, CR, NEL, LS and PS), so that both agree on what
// line 7 is.
func breaks(text string) []string {
	var lines []string
	start := 0
	for i, r := range text {
		switch r {
		case '\n':
			if i > 0 && text[i-1] == '\r' {
				start = i + 1 // counted at the CR
				continue
			}
		case '\r', 0x85, 0x2028, 0x2029:
		default:
			continue
		}
		lines = append(lines, text[start:i])
		start = i + utf8.RuneLen(r)
	}
	return append(lines, text[start:])
}

// place is a stretch of one line of a file; see Message for how it counts.
type place struct {
	file              *file
	line, col, endCol int
}

func (f *file) line(n int) string {
	if n < 1 || n > len(f.lines) {
		return ""
	}
	return f.lines[n-1]
}

// lineAt is a place that covers the text of a whole line.
func (f *file) lineAt(n int) place {
	n = min(max(n, 1), max(len(f.lines), 1))
	text := f.line(n)
	indent := utf8.RuneCountInString(text) - utf8.RuneCountInString(strings.TrimLeftFunc(text, unicode.IsSpace))
	end := utf8.RuneCountInString(strings.TrimRightFunc(text, unicode.IsSpace))
	return place{f, n, indent + 1, max(indent+1, end) + 1}
}
