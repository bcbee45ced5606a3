package rules

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// at is the place of a value: a scalar whole, the first character of what is
// longer than a line.
func (v *value) at() place {
	p := place{v.file, v.line, v.col, v.col + 1}
	if v.kind != scalar || v.style == blockStyle {
		return p
	}
	found := v.scan()
	if len(found) == 0 {
		return p
	}
	last := found[len(found)-1]
	if last.line != p.line {
		p.endCol = max(p.endCol, v.file.lineAt(p.line).endCol)
		return p
	}
	p.endCol = last.col + 1
	if v.style == singleQuoted || v.style == doubleQuoted {
		p.endCol++ // the closing quote
	}
	return p
}

// within maps a stretch of bytes of a scalar's text to its place in the file,
// whatever the scalar's style: YAML's folding changes blanks only, so the n-th
// printing character of the text is the n-th one in the file.
func (v *value) within(start, end int) place {
	found := v.scan()
	if found == nil {
		return v.at()
	}
	start = min(max(start, 0), len(v.text))
	end = min(max(end, start), len(v.text))
	before, upTo := printing(v.text[:start]), printing(v.text[:end])
	p := place{file: v.file, line: v.line, col: v.col}
	switch r, size := utf8.DecodeRuneInString(v.text[start:]); {
	case size > 0 && !unicode.IsSpace(r):
		p.line, p.col = found[before].line, found[before].col
	case before > 0:
		p.line, p.col = found[before-1].line, found[before-1].col+1
	}
	p.endCol = p.col + 1
	if upTo > before {
		if last := found[upTo-1]; last.line == p.line {
			p.endCol = max(p.endCol, last.col+1)
		} else {
			p.endCol = max(p.endCol, v.file.lineAt(p.line).endCol)
		}
	}
	return p
}

func printing(s string) int {
	n := 0
	for _, r := range s {
		if !unicode.IsSpace(r) {
			n++
		}
	}
	return n
}

type position struct{ line, col int }

// scan finds the printing characters of a scalar's text in the file, in order.
// It returns nil when the file does not hold them as expected.
func (v *value) scan() []position {
	line, col := v.line, v.col // where the next character is looked for
	switch v.style {
	case blockStyle:
		line, col = line+1, 1
	case singleQuoted, doubleQuoted:
		col++
	}
	found := []position{}
	rest := skipRunes(v.file.line(line), col-1)
	for _, want := range v.text {
		if unicode.IsSpace(want) {
			continue
		}
		for {
			r, width, size := nextRune(rest, v.style)
			if size == 0 {
				if line++; line > len(v.file.lines) {
					return nil
				}
				rest, col = v.file.line(line), 1
				continue
			}
			at := position{line, col}
			rest, col = rest[size:], col+width
			if unicode.IsSpace(r) {
				continue
			}
			if r != want {
				return nil
			}
			found = append(found, at)
			break
		}
	}
	return found
}

func skipRunes(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[i:]
		}
		n--
	}
	return ""
}

// nextRune reads one character of a scalar as its style writes it, and returns
// it with its width in characters and in bytes of the file.
func nextRune(text string, s style) (r rune, width, size int) {
	r, size = utf8.DecodeRuneInString(text)
	switch {
	case size == 0:
		return 0, 0, 0
	case s == singleQuoted && strings.HasPrefix(text, "''"):
		return r, 2, 2
	case s == doubleQuoted && r == '\\':
		return escaped(text)
	}
	return r, 1, size
}

// escaped reads one escape sequence of a double-quoted YAML scalar (YAML 1.2,
// section 5.7) and returns its character with its width in characters and in
// bytes of the file. A backslash at the end of a line joins lines: it stands
// for no printing character, and is read as a blank.
func escaped(text string) (r rune, width, size int) {
	if len(text) == 1 {
		return ' ', 1, 1
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[text[1]]
	if digits > 0 {
		if len(text) < 2+digits {
			return utf8.RuneError, 1, len(text)
		}
		n, err := strconv.ParseUint(text[2:2+digits], 16, 32)
		if err != nil {
			return utf8.RuneError, 2, 2
		}
		return rune(n), 2 + digits, 2 + digits
	}
	switch text[1] {
	case '0':
		r = 0
	case 'a':
		r = '\a'
	case 'b':
		r = '\b'
	case 'e':
		r = 0x1b
	case 't', 'n', 'v', 'f', 'r', '\t', ' ', 'N', '_', 'L', 'P':
		r = ' '
	default: // \" \\ \/ and \'
		r, size = utf8.DecodeRuneInString(text[1:])
		return r, 2, 1 + size
	}
	return r, 2, 2
}
