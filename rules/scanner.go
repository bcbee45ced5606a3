package rules

import "strings"

// scanner cuts a PromQL expression into parameters and what stands between
// them. It knows just enough of PromQL for that: strings and comments, in which
// a $ is only a $, and where a duration is expected.
type scanner struct {
	text  string
	at    int // behind what next found
	start int // where it begins

	token    string
	param    string // without its $; empty when the token is none
	duration bool   // it stands where PromQL takes a duration

	depth int    // of square brackets
	word  string // the identifier right before, for `offset $d`
}

// next finds the next token; it reports false at the end.
func (s *scanner) next() bool {
	s.start, s.param = s.at, ""
	if s.at >= len(s.text) {
		return false
	}
	c := s.text[s.at]
	switch {
	case c == '"' || c == '\'' || c == '`':
		s.at += stringLength(s.text[s.at:])
		s.word = ""
	case c == '#':
		s.at += len(s.text[s.at:])
		if end := strings.IndexByte(s.text[s.start:], '\n'); end >= 0 {
			s.at = s.start + end
		}
	case c == '$' && identifier(s.text[s.at+1:]) > 0:
		s.at += 1 + identifier(s.text[s.at+1:])
		s.param = s.text[s.start+1 : s.at]
		s.duration = s.depth > 0 || strings.EqualFold(s.word, "offset")
		s.word = ""
	case identifier(s.text[s.at:]) > 0:
		s.at += identifier(s.text[s.at:])
		s.word = s.text[s.start:s.at]
	default:
		s.at++
		s.note(c)
	}
	s.token = s.text[s.start:s.at]
	return true
}

// note follows brackets, and forgets the word once something else than blanks
// or a sign stands behind it.
func (s *scanner) note(c byte) {
	switch c {
	case '[':
		s.depth++
	case ']':
		s.depth = max(0, s.depth-1)
	}
	if !strings.ContainsRune(" \t\r\n+-", rune(c)) {
		s.word = ""
	}
}

func identifier(s string) int {
	n := 0
	for n < len(s) && (s[n] == '_' || s[n] >= 'a' && s[n] <= 'z' || s[n] >= 'A' && s[n] <= 'Z' || n > 0 && s[n] >= '0' && s[n] <= '9') {
		n++
	}
	return n
}

// stringLength is the length of the string literal that s begins with, or of s
// when the literal does not end; the parser says so later.
func stringLength(s string) int {
	quote := s[0]
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '\\' && quote != '`':
			i++
		case s[i] == quote:
			return i + 1
		}
	}
	return len(s)
}
