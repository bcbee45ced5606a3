package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Severities of a Message. A set with an error is not loaded; a warning is
// printed and the set runs.
const (
	SeverityError   = "error"
	SeverityWarning = "warning"
)

// Message is one thing that the loader has to say about a rule file. Line, Col
// and EndCol count from 1, columns in characters; EndCol is the first column
// behind the marked text. Line is 0 where the cause is no place in a file, as
// with a setting.
type Message struct {
	File       string `json:"file"`
	Line       int    `json:"line"`
	Col        int    `json:"col"`
	EndCol     int    `json:"end_col"`
	Severity   string `json:"severity"`
	Rule       string `json:"rule,omitempty"` // "control node_power_budget"
	Text       string `json:"message"`
	SourceLine string `json:"source_line,omitempty"`
	Suggestion string `json:"suggestion,omitempty"` // the word that was probably meant
}

// String is the printed form: path:line:col, severity, text and suggestion, the
// source line with a caret under the marked text, and the rule it stands in.
// It has no newline at its end.
func (m Message) String() string {
	var b strings.Builder
	b.WriteString(m.File)
	if m.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", m.Line, m.Col)
	}
	fmt.Fprintf(&b, ": %s: %s", m.Severity, m.Text)
	if m.Suggestion != "" {
		fmt.Fprintf(&b, " (did you mean %q?)", m.Suggestion)
	}
	if m.Line > 0 {
		number := strconv.Itoa(m.Line)
		line, col, endCol := excerpt(m.SourceLine, m.Col, m.EndCol)
		fmt.Fprintf(&b, "\n  %s | %s", number, line)
		fmt.Fprintf(&b, "\n  %s | %s", strings.Repeat(" ", len(number)), caret(line, col, endCol))
	}
	if m.Rule != "" {
		fmt.Fprintf(&b, "\n  in %s", m.Rule)
	}
	return b.String()
}

// excerptWidth is the longest source line that is printed whole, in characters.
const excerptWidth = 200

// excerpt cuts a long line around the marked text.
func excerpt(line string, col, endCol int) (string, int, int) {
	runes := []rune(line)
	if len(runes) <= excerptWidth {
		return line, col, endCol
	}
	from := min(max(col-excerptWidth/4, 1), len(runes))
	to := min(from+excerptWidth, len(runes)+1)
	col, endCol = col-from+1, min(endCol, to)-from+1
	cut := string(runes[from-1 : to-1])
	if from > 1 {
		cut, col, endCol = "..."+cut, col+3, endCol+3
	}
	if to <= len(runes) {
		cut += "..."
	}
	return cut, col, endCol
}

// caret is the line below a source line: blanks as wide as the text before the
// column, tabs kept so that both lines stay aligned in a terminal.
func caret(line string, col, endCol int) string {
	var b strings.Builder
	at := 1
	for _, r := range line {
		if at == col {
			break
		}
		if r != '\t' {
			r = ' '
		}
		b.WriteRune(r)
		at++
	}
	b.WriteString(strings.Repeat("^", max(1, endCol-col)))
	return b.String()
}

// HasErrors reports whether one of the messages keeps the set from loading.
func HasErrors(messages []Message) bool {
	return slices.ContainsFunc(messages, func(m Message) bool { return m.Severity == SeverityError })
}

// report collects messages while files are read. The order in which the stages
// find them is not the order in which a person reads them: sorted puts them
// back into the order of the files, and drops the doubles that come from
// reading one expression under several sets of parameters.
type report struct {
	messages []Message
	order    map[string]int // a file's place among the sources
	count    map[string]int // messages by severity and file
}

// maxMessages of each severity are kept for a file: who has more reads the
// first ones first.
const maxMessages = 100

func newReport() *report {
	return &report{order: map[string]int{}, count: map[string]int{}}
}

// full reports whether more errors in the file would only be dropped.
func (r *report) full(f *file) bool { return r.count[SeverityError+f.name] >= maxMessages }

func (r *report) add(severity, rule string, at place, suggestion, format string, args ...any) {
	if r.count[severity+at.file.name] >= maxMessages {
		return
	}
	r.count[severity+at.file.name]++
	m := Message{
		File: at.file.name, Line: at.line, Col: at.col, EndCol: at.endCol,
		Severity: severity, Rule: rule, Text: fmt.Sprintf(format, args...), Suggestion: suggestion,
	}
	if at.line > 0 {
		m.SourceLine = at.file.line(at.line)
	}
	r.messages = append(r.messages, m)
}

func (r *report) errorf(rule string, at place, format string, args ...any) {
	r.add(SeverityError, rule, at, "", format, args...)
}

func (r *report) warnf(rule string, at place, format string, args ...any) {
	r.add(SeverityWarning, rule, at, "", format, args...)
}

func (r *report) sorted() []Message {
	slices.SortStableFunc(r.messages, func(a, b Message) int {
		return cmp.Or(
			cmp.Compare(r.order[a.File], r.order[b.File]),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Col, b.Col),
			cmp.Compare(a.Text, b.Text),
		)
	})
	return slices.CompactFunc(r.messages, func(a, b Message) bool { return a == b })
}
