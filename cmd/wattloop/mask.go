package main

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/wattloop/wattloop/rules"
)

var (
	tokenKey = regexp.MustCompile(`(?i)token["']?\s*:(\s+|$|["'{\[])`)
	// plainEnd is where a value that is not quoted may end before its line does.
	plainEnd = regexp.MustCompile(`,\s|[}\]]\s*(?:[,}\]]|$)`)
	// noValue is what stands where the value follows on the next line.
	noValue = regexp.MustCompile(`^\s*(?:[|>&!#].*)?$`)
)

// userInfo is what stands before the host of a URL.
var userInfo = regexp.MustCompile(`://[^/\s@]*@`)

// withoutTokens are the lines of a file, YAML or meant to be, as they may be shown
// to anybody: without what follows a key that ends in token, on further lines too,
// and without the user and the password of a URL. What it cannot tell apart it
// masks.
func withoutTokens(lines []string) []string {
	m := masker{}
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = userInfo.ReplaceAllString(m.line(strings.TrimRight(l, "\r")), "://"+masked+"@")
	}
	return out
}

// masker is between two lines of a file.
type masker struct {
	quote  byte // of a value that is still open
	awaits bool // a value, from whatever the next line holds
	column int  // of the key; lines that are further in go on with its value
	inside bool
}

func (m *masker) line(l string) string {
	text := strings.TrimLeft(l, " \t")
	indent := l[:len(l)-len(text)]
	switch {
	case m.quote != 0:
		if end := closing("x"+text, m.quote) - 1; end >= 0 {
			m.quote = 0
			return indent + masked + m.keys(text[end:], len(indent)+end)
		}
		return indent + masked
	case text == "":
		return l
	case m.awaits, m.inside && len(indent) > m.column:
		if m.awaits = noValue.MatchString(text); m.awaits {
			return indent + masked
		}
		end := m.value(text)
		return indent + masked + m.keys(text[end:], len(indent)+end)
	}
	m.inside = false
	return m.keys(l, 0)
}

// keys masks the values in what is left of a line, which begins at a column.
func (m *masker) keys(l string, column int) string {
	at := tokenKey.FindStringIndex(l)
	if at == nil {
		return l
	}
	colon := at[0] + strings.IndexByte(l[at[0]:], ':') + 1
	for colon < len(l) && (l[colon] == ' ' || l[colon] == '\t') {
		colon++
	}
	key := strings.TrimRight(l[:at[0]], "_-.abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789\"'")
	m.column, m.inside = column+len(key), true
	rest := l[colon:]
	if m.awaits = noValue.MatchString(rest); m.awaits {
		if rest != "" {
			rest = masked
		}
		return l[:colon] + rest
	}
	end := m.value(rest)
	return l[:colon] + masked + m.keys(rest[end:], column+colon+end)
}

// value is where the value ends that s begins with.
func (m *masker) value(s string) int {
	if q := s[0]; q == '"' || q == '\'' {
		if end := closing(s, q); end >= 0 {
			return end
		}
		m.quote = q
		return len(s)
	}
	if at := plainEnd.FindStringIndex(s); at != nil && at[0] > 0 {
		m.inside = false
		return at[0]
	}
	return len(s)
}

// closing is the place behind the quote that ends what s begins with, or -1.
func closing(s string, quote byte) int {
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '\\' && quote == '"':
			i++
		case s[i] == quote && quote == '\'' && i+1 < len(s) && s[i+1] == quote:
			i++
		case s[i] == quote:
			return i + 1
		}
	}
	return -1
}

// loadMasked is rules.Load, with messages that show no token: what is meant as a
// configuration may come here by mistake.
func loadMasked(sources []rules.Source, s rules.Settings) (*rules.Set, []rules.Message) {
	set, msgs := rules.Load(sources, s)
	lines := map[string][]string{}
	for _, src := range sources {
		if tokenKey.Match(src.Data) {
			lines[src.Name] = withoutTokens(strings.Split(string(src.Data), "\n"))
		}
	}
	for i := range msgs {
		m := &msgs[i]
		if of := lines[m.File]; m.Line > 0 && m.Line <= len(of) {
			m.SourceLine = of[m.Line-1]
			m.EndCol = max(m.Col+1, min(m.EndCol, utf8.RuneCountInString(m.SourceLine)+1))
		}
	}
	return set, msgs
}
