package ingest

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// OTLP's JSON mapping is read into protobuf wire bytes, so that both forms of a
// request take one path. It is protobuf's JSON mapping with these points made
// plain:
//
//   - Keys are lowerCamelCase; the snake_case names of the .proto files are read
//     too, as protobuf's own mapping wants, since some senders write them. Unknown
//     keys are skipped, as OTLP demands. A key that comes twice, in either
//     spelling, is an error.
//   - A 64-bit integer is a number or a decimal string, and is never taken through
//     a float. An object such as {"low": 1, "high": 2} is an error: to guess a time
//     would store a point in 1970.
//   - A double is a number, a number in quotes, "NaN", "Infinity" or "-Infinity".
//   - An enum is a number or one of its names; another word is an error.
//   - Trace and span ids are in hexadecimal, in either case; all other bytes in
//     base64.
//   - null stands for an absent field.

// WireFromJSON reads a metrics request in OTLP's JSON mapping and returns it as
// protobuf. What it cannot read is a *DecodeError that names the byte.
func WireFromJSON(body []byte) ([]byte, error) { return wireFromJSON(body) }

// wireFromJSON reads a metrics request.
func wireFromJSON(body []byte) ([]byte, error) {
	return wireOfJSON(jsonRequest, body, func(int) error { return nil })
}

// wireOfJSON reads one JSON document, and nothing after it. hold is asked for
// memory before it is made, for n bytes of wire in all; it fails with what hold
// says, or with errTooLarge.
func wireOfJSON(t jsonType, body []byte, hold func(n int) error) ([]byte, error) {
	if !utf8.Valid(body) {
		return nil, undecodable("json: the body is not valid UTF-8")
	}
	d := jsonDecoder{b: body, hold: hold}
	if err := d.room(); err != nil {
		return nil, err
	}
	err := d.message(t, 1)
	if err == nil && d.peek() != 0 {
		err = d.errorf("more follows after the document")
	}
	if err != nil {
		if d.refused {
			return nil, err
		}
		return nil, undecodable("json: %w", err)
	}
	return d.out, nil
}

// room sees to it that out has some, and is asked before each element of a list:
// nothing else makes more bytes of wire than it has of JSON.
func (d *jsonDecoder) room() error {
	if cap(d.out)-len(d.out) >= jsonRoom && d.out != nil {
		return nil
	}
	size := min(max(2*cap(d.out), len(d.b)/2)+2*jsonRoom, max(maxBody, len(d.b))+2*jsonRoom)
	err := d.hold(size)
	if err == nil && len(d.out) >= size-jsonRoom {
		err = tooLarge(maxBody, " as protobuf")
	}
	if err != nil {
		d.refused = true
		return err
	}
	d.out = append(make([]byte, 0, size), d.out...)
	return nil
}

// jsonRoom is more than an element of a list needs besides its own bytes.
const jsonRoom = 64

// jsonDecoder reads b from i and writes to out.
type jsonDecoder struct {
	b   []byte
	i   int
	out []byte
	key []byte // scratch

	hold     func(n int) error
	refused  bool // by hold
	messages int
}

func (d *jsonDecoder) errorf(format string, args ...any) error {
	return fmt.Errorf("byte %d: %w", d.i, fmt.Errorf(format, args...))
}

// message writes the fields of one object, without its length.
func (d *jsonDecoder) message(t jsonType, depth int) error {
	if depth > maxDepth {
		return d.errorf("messages are nested deeper than %d", maxDepth)
	}
	if d.messages++; d.messages > maxMessages {
		return d.errorf("more than %d messages in one request", maxMessages)
	}
	if d.peek() != '{' {
		return d.errorf("want an object")
	}
	d.i++
	var seen uint32
	for first := true; ; first = false {
		done, err := d.next('}', first)
		if done || err != nil {
			return err
		}
		if d.peek() != '"' {
			return d.errorf("want a key in quotes")
		}
		if d.key, err = d.text(d.key[:0]); err != nil {
			return err
		}
		f, known := jsonSchema[t][string(d.key)]
		if d.peek() != ':' {
			return d.errorf("want a colon after the key")
		}
		d.i++
		switch {
		case !known || d.peek() == 'n':
			// A null is checked as any other value that is not read.
			err = d.skip()
		case seen&(1<<f.num) != 0:
			err = d.errorf("the key %+q, or its other spelling, comes twice", d.key)
		default:
			seen |= 1 << f.num
			err = d.field(f, depth)
		}
		if err != nil {
			return err
		}
	}
}

// field writes one field with its tag.
func (d *jsonDecoder) field(f jsonField, depth int) error {
	switch f.kind {
	case jsonMessages:
		return d.list(func() error { return d.nested(f, depth) })
	case jsonMessage:
		return d.nested(f, depth)
	case jsonTimes, jsonDoubles, jsonCounts:
		one := jsonTime
		switch f.kind {
		case jsonDoubles:
			one = jsonDouble
		case jsonCounts:
			one = jsonCount
		}
		return d.sized(f.num, func() error {
			return d.list(func() error { return d.scalar(one) })
		})
	case jsonString:
		return d.sized(f.num, func() (err error) {
			d.out, err = d.quoted(d.out)
			return err
		})
	case jsonStrings:
		return d.list(func() error { return d.field(jsonField{f.num, jsonString, 0}, depth) })
	case jsonBytes:
		return d.sized(f.num, func() (err error) {
			d.out, err = d.base64(d.out)
			return err
		})
	case jsonHex:
		return d.sized(f.num, func() (err error) {
			d.out, err = d.hex(d.out)
			return err
		})
	case jsonFixed4:
		d.out = binary.AppendUvarint(d.out, uint64(f.num)<<3|wireFixed4)
	case jsonTime, jsonSigned, jsonDouble:
		d.out = binary.AppendUvarint(d.out, uint64(f.num)<<3|wireFixed8)
	default:
		d.out = binary.AppendUvarint(d.out, uint64(f.num)<<3|wireVarint)
	}
	return d.scalar(f.kind)
}

func (d *jsonDecoder) nested(f jsonField, depth int) error {
	return d.sized(f.num, func() error { return d.message(f.msg, depth+1) })
}

// sized writes a length-delimited field. The length takes four bytes whatever it
// is, which protobuf allows, so that what follows need not be moved.
func (d *jsonDecoder) sized(num uint32, write func() error) error {
	d.out = binary.AppendUvarint(d.out, uint64(num)<<3|wireBytes)
	at := len(d.out)
	d.out = append(d.out, 0, 0, 0, 0)
	if err := write(); err != nil {
		return err
	}
	size := len(d.out) - at - 4
	if size >= 1<<28 {
		return d.errorf("a field is longer than 256 MiB")
	}
	for i := range 3 {
		d.out[at+i] = byte(size>>(7*i))&0x7f | 0x80
	}
	d.out[at+3] = byte(size >> 21)
	return nil
}

// list calls each at every element of an array.
func (d *jsonDecoder) list(each func() error) error {
	if d.peek() != '[' {
		return d.errorf("want an array")
	}
	d.i++
	for first := true; ; first = false {
		done, err := d.next(']', first)
		if done || err != nil {
			return err
		}
		if err := d.room(); err != nil {
			return err
		}
		if err := each(); err != nil {
			return err
		}
	}
}
