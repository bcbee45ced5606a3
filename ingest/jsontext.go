package ingest

import (
	"bytes"
	"encoding/base64"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// peek skips white space and returns the byte that follows, or 0 at the end. A
// NUL in the body reads as the end, and no place that it can stand in is valid.
func (d *jsonDecoder) peek() byte {
	for d.i < len(d.b) {
		switch c := d.b[d.i]; c {
		case ' ', '\t', '\n', '\r':
			d.i++
		case 0:
			return 1
		default:
			return c
		}
	}
	return 0
}

// next moves to the next element of an object or an array, or past its end.
func (d *jsonDecoder) next(end byte, first bool) (done bool, err error) {
	switch c := d.peek(); {
	case c == end:
		d.i++
		return true, nil
	case first:
		return false, nil
	case c != ',':
		return false, d.errorf("want a comma or %q", end)
	}
	d.i++
	if d.peek() == end {
		return false, d.errorf("a comma before %q", end)
	}
	return false, nil
}

// word reads one of the bare words.
func (d *jsonDecoder) word(word string) bool {
	d.peek()
	if !bytes.HasPrefix(d.b[d.i:], []byte(word)) {
		return false
	}
	d.i += len(word)
	return true
}

// quoted is text, with an error that fits a value.
func (d *jsonDecoder) quoted(to []byte) ([]byte, error) {
	if d.peek() != '"' {
		return to, d.errorf("want a string")
	}
	return d.text(to)
}

// text appends the string that begins here. A surrogate without its other half is
// an error: it has no UTF-8 form.
func (d *jsonDecoder) text(to []byte) ([]byte, error) {
	d.i++
	for d.i < len(d.b) {
		c := d.b[d.i]
		switch {
		case c == '"':
			d.i++
			return to, nil
		case c < 0x20:
			return to, d.errorf("a control character in a string")
		case c != '\\':
			to = append(to, c)
			d.i++
			continue
		}
		if d.i+1 >= len(d.b) {
			break
		}
		c = d.b[d.i+1]
		d.i += 2
		switch c {
		case '"', '\\', '/':
			to = append(to, c)
		case 'b':
			to = append(to, '\b')
		case 'f':
			to = append(to, '\f')
		case 'n':
			to = append(to, '\n')
		case 'r':
			to = append(to, '\r')
		case 't':
			to = append(to, '\t')
		case 'u':
			r, ok := d.hex4()
			if ok && utf16.IsSurrogate(r) {
				ok = bytes.HasPrefix(d.b[d.i:], []byte(`\u`))
				if ok {
					d.i += 2
					var low rune
					low, ok = d.hex4()
					r = utf16.DecodeRune(r, low)
					ok = ok && r != utf8.RuneError
				}
			}
			if !ok {
				return to, d.errorf(`a \u escape that is no character`)
			}
			to = utf8.AppendRune(to, r)
		default:
			return to, d.errorf("an unknown escape in a string")
		}
	}
	return to, d.errorf("a string without an end")
}

// hex4 reads the four digits of a \u escape.
func (d *jsonDecoder) hex4() (rune, bool) {
	if d.i+4 > len(d.b) {
		return 0, false
	}
	v, err := strconv.ParseUint(string(d.b[d.i:d.i+4]), 16, 16)
	if err != nil || d.b[d.i] == '+' {
		return 0, false
	}
	d.i += 4
	return rune(v), true
}

// base64 appends the bytes of a string in either alphabet, padded or not.
func (d *jsonDecoder) base64(to []byte) ([]byte, error) {
	s, err := d.quoted(nil)
	if err != nil {
		return to, err
	}
	s = bytes.TrimRight(s, "=")
	for i, c := range s {
		switch c {
		case '-':
			s[i] = '+'
		case '_':
			s[i] = '/'
		}
	}
	to, err = base64.RawStdEncoding.AppendDecode(to, s)
	if err != nil {
		return to, d.errorf("a string that is no base64")
	}
	return to, nil
}

// number reads a bare number.
func (d *jsonDecoder) number() ([]byte, error) {
	d.peek()
	n := numberLen(d.b[d.i:])
	if n == 0 {
		return nil, d.errorf("want a number")
	}
	token := d.b[d.i : d.i+n]
	d.i += n
	return token, nil
}

// isNumber reports whether a text is one JSON number and nothing else.
func isNumber(b []byte) bool { return len(b) > 0 && numberLen(b) == len(b) }

// numberLen is how much of the head of b is a JSON number, 0 for none.
func numberLen(b []byte) int {
	i := 0
	digits := func() bool {
		from := i
		for i < len(b) && b[i] >= '0' && b[i] <= '9' {
			i++
		}
		return i > from
	}
	if i < len(b) && b[i] == '-' {
		i++
	}
	from := i
	if !digits() || b[from] == '0' && i > from+1 {
		return 0
	}
	if i < len(b) && b[i] == '.' {
		i++
		if !digits() {
			return 0
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if !digits() {
			return 0
		}
	}
	return i
}

// wholeNumber gives the exact value of a JSON number, such as 12, 12.0 or 1.2e1,
// that is whole and of 64 bits.
func wholeNumber(token []byte) (size uint64, negative, ok bool) {
	if token[0] == '-' {
		negative, token = true, token[1:]
	}
	exponent := 0
	if at := bytes.IndexAny(token, "eE"); at >= 0 {
		var err error
		if exponent, err = strconv.Atoi(string(token[at+1:])); err != nil || exponent > 40 || exponent < -40 {
			return 0, false, false
		}
		token = token[:at]
	}
	whole, part, _ := bytes.Cut(token, []byte("."))
	if len(part) > 0 || exponent != 0 {
		digits := append(bytes.Clone(whole), part...)
		at := len(whole) + exponent // of the point
		for len(digits) < at {
			digits = append(digits, '0')
		}
		for at < 0 {
			digits, at = append([]byte("0"), digits...), at+1
		}
		if len(bytes.Trim(digits[at:], "0")) > 0 {
			return 0, false, false
		}
		whole = digits[:at]
	}
	whole = bytes.TrimLeft(whole, "0")
	if len(whole) == 0 {
		return 0, negative, true
	}
	size, err := strconv.ParseUint(string(whole), 10, 64)
	return size, negative, err == nil
}

// skip reads over one value of any kind, without recursion.
func (d *jsonDecoder) skip() error {
	var open []byte // the brackets that are to be closed
	for {
		switch c := d.peek(); c {
		case '{', '[':
			if len(open) >= 2*maxDepth {
				return d.errorf("values are nested deeper than %d", 2*maxDepth)
			}
			open = append(open, c+2) // '}' and ']' come two after their openings
			d.i++
			if d.peek() != c+2 {
				if err := d.skipKey(c); err != nil {
					return err
				}
				continue
			}
		case '"':
			var err error
			if d.key, err = d.text(d.key[:0]); err != nil {
				return err
			}
		case 't', 'f', 'n':
			if !d.word("true") && !d.word("false") && !d.word("null") {
				return d.errorf("an unknown word")
			}
		default:
			if _, err := d.number(); err != nil {
				return err
			}
		}
		// A value has ended here, or the brackets around it do.
		for {
			if len(open) == 0 {
				return nil
			}
			end := open[len(open)-1]
			done, err := d.next(end, false)
			if err != nil {
				return err
			}
			if !done {
				if err := d.skipKey(end - 2); err != nil {
					return err
				}
				break
			}
			open = open[:len(open)-1]
		}
	}
}

// skipKey reads over a key and its colon, where the bracket has keys.
func (d *jsonDecoder) skipKey(bracket byte) error {
	if bracket != '{' {
		return nil
	}
	var err error
	if d.key, err = d.quoted(d.key[:0]); err != nil {
		return err
	}
	if d.peek() != ':' {
		return d.errorf("want a colon after the key")
	}
	d.i++
	return nil
}
