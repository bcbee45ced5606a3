package api

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// checkText refuses text that encoding/json would quietly make another text of,
// so that two names could become one: a surrogate without its other half, and
// bytes that are no UTF-8. data is valid JSON otherwise.
func checkText(data []byte) error {
	for i := 0; i < len(data); {
		switch c := data[i]; {
		case c == '\\':
			n, ok := escape(data[i:])
			if !ok {
				return fmt.Errorf(`%s: %s is half a character: send both halves, or the character itself`, position(data, i), data[i:i+n])
			}
			i += n
		case c < utf8.RuneSelf:
			i++
		default:
			r, n := utf8.DecodeRune(data[i:])
			if r == utf8.RuneError && n == 1 {
				return fmt.Errorf("%s: the byte %#02x is no UTF-8", position(data, i), c)
			}
			i += n
		}
	}
	return nil
}

// escape is the length of the escape that b begins with, with both halves of a
// pair, and whether it stands for a character.
func escape(b []byte) (int, bool) {
	r, ok := unit(b)
	switch {
	case !ok:
		return min(2, len(b)), true
	case !utf16.IsSurrogate(r):
		return 6, true
	}
	next, ok := unit(b[6:])
	if !ok || utf16.DecodeRune(r, next) == utf8.RuneError {
		return 6, false
	}
	return 12, true
}

// unit reads \uXXXX.
func unit(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return rune(n), err == nil
}

// position names a byte of a text for a person: the column counts characters, and
// the line is named where there is more than one.
func position(data []byte, at int) string {
	begin := bytes.LastIndexByte(data[:at], '\n') + 1
	col := fmt.Sprintf("column %d", utf8.RuneCount(data[begin:at])+1)
	if line := bytes.Count(data[:at], []byte{'\n'}) + 1; line > 1 {
		return fmt.Sprintf("line %d, %s", line, col)
	}
	return col
}
