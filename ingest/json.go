package ingest

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
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
//   - null stands for an absent field.
//   - Exemplars, and the contents of exponential histogram and summary points, are
//     not read: they are not stored.

// jsonKind is how a field is written, in JSON and on the wire.
type jsonKind uint8

const (
	jsonMessage jsonKind = iota
	jsonMessages
	jsonString
	jsonBytes
	jsonBool
	jsonInt64   // varint
	jsonUint32  // varint
	jsonTime    // fixed64
	jsonSigned  // sfixed64
	jsonDouble  // fixed64
	jsonTimes   // packed fixed64
	jsonDoubles // packed
	jsonEnum
)

type jsonField struct {
	num  uint32
	kind jsonKind
	msg  jsonType
}

type jsonType uint8

const (
	jsonRequest jsonType = iota
	jsonResourceMetrics
	jsonResource
	jsonScopeMetrics
	jsonScope
	jsonMetric
	jsonGauge
	jsonSum
	jsonHistogram
	jsonUnsupported
	jsonNumberPoint
	jsonHistogramPoint
	jsonUnsupportedPoint
	jsonKeyValue
	jsonAny
	jsonArray
	jsonKeyValueList
)

var jsonSchema = [...]map[string]jsonField{
	jsonRequest: camelAndSnake(map[string]jsonField{
		"resource_metrics": {1, jsonMessages, jsonResourceMetrics}}),
	jsonResourceMetrics: camelAndSnake(map[string]jsonField{
		"resource": {1, jsonMessage, jsonResource}, "scope_metrics": {2, jsonMessages, jsonScopeMetrics}}),
	jsonResource: {"attributes": {1, jsonMessages, jsonKeyValue}},
	jsonScopeMetrics: {
		"scope": {1, jsonMessage, jsonScope}, "metrics": {2, jsonMessages, jsonMetric}},
	jsonScope: {
		"name": {1, jsonString, 0}, "version": {2, jsonString, 0}, "attributes": {3, jsonMessages, jsonKeyValue}},
	jsonMetric: camelAndSnake(map[string]jsonField{
		"name": {1, jsonString, 0}, "unit": {3, jsonString, 0},
		"gauge": {5, jsonMessage, jsonGauge}, "sum": {7, jsonMessage, jsonSum},
		"histogram":             {9, jsonMessage, jsonHistogram},
		"exponential_histogram": {10, jsonMessage, jsonUnsupported},
		"summary":               {11, jsonMessage, jsonUnsupported}}),
	jsonGauge: camelAndSnake(map[string]jsonField{
		"data_points": {1, jsonMessages, jsonNumberPoint}}),
	jsonSum: camelAndSnake(map[string]jsonField{
		"data_points":             {1, jsonMessages, jsonNumberPoint},
		"aggregation_temporality": {2, jsonEnum, 0}, "is_monotonic": {3, jsonBool, 0}}),
	jsonHistogram: camelAndSnake(map[string]jsonField{
		"data_points":             {1, jsonMessages, jsonHistogramPoint},
		"aggregation_temporality": {2, jsonEnum, 0}}),
	jsonUnsupported: camelAndSnake(map[string]jsonField{
		"data_points": {1, jsonMessages, jsonUnsupportedPoint}}),
	jsonNumberPoint: camelAndSnake(map[string]jsonField{
		"attributes": {7, jsonMessages, jsonKeyValue}, "flags": {8, jsonUint32, 0},
		"start_time_unix_nano": {2, jsonTime, 0}, "time_unix_nano": {3, jsonTime, 0},
		"as_double": {4, jsonDouble, 0}, "as_int": {6, jsonSigned, 0}}),
	jsonHistogramPoint: camelAndSnake(map[string]jsonField{
		"attributes": {9, jsonMessages, jsonKeyValue}, "flags": {10, jsonUint32, 0},
		"start_time_unix_nano": {2, jsonTime, 0}, "time_unix_nano": {3, jsonTime, 0},
		"count": {4, jsonTime, 0}, "sum": {5, jsonDouble, 0},
		"bucket_counts": {6, jsonTimes, 0}, "explicit_bounds": {7, jsonDoubles, 0}}),
	jsonUnsupportedPoint: {},
	jsonKeyValue:         {"key": {1, jsonString, 0}, "value": {2, jsonMessage, jsonAny}},
	jsonAny: camelAndSnake(map[string]jsonField{
		"string_value": {1, jsonString, 0}, "bool_value": {2, jsonBool, 0},
		"int_value": {3, jsonInt64, 0}, "double_value": {4, jsonDouble, 0},
		"array_value":  {5, jsonMessage, jsonArray},
		"kvlist_value": {6, jsonMessage, jsonKeyValueList}, "bytes_value": {7, jsonBytes, 0}}),
	jsonArray:        {"values": {1, jsonMessages, jsonAny}},
	jsonKeyValueList: {"values": {1, jsonMessages, jsonKeyValue}},
}

// camelAndSnake adds the lowerCamelCase spelling of each name of a .proto file.
func camelAndSnake(snake map[string]jsonField) map[string]jsonField {
	both := make(map[string]jsonField, 2*len(snake))
	for name, f := range snake {
		both[name] = f
		var camel []byte
		for i := 0; i < len(name); i++ {
			if name[i] == '_' {
				i++
				camel = append(camel, name[i]-'a'+'A')
				continue
			}
			camel = append(camel, name[i])
		}
		both[string(camel)] = f
	}
	return both
}

// wireFromJSON reads one JSON document, and nothing after it.
func wireFromJSON(body []byte) ([]byte, error) {
	if !utf8.Valid(body) {
		return nil, undecodable("json: the body is not valid UTF-8")
	}
	d := jsonDecoder{b: body, out: make([]byte, 0, len(body)/2)}
	err := d.message(jsonRequest, 1)
	if err == nil && d.peek() != 0 {
		err = d.errorf("more follows after the document")
	}
	if err != nil {
		return nil, undecodable("json: %w", err)
	}
	return d.out, nil
}

// jsonDecoder reads b from i and writes to out.
type jsonDecoder struct {
	b   []byte
	i   int
	out []byte
	key []byte // scratch
}

func (d *jsonDecoder) errorf(format string, args ...any) error {
	return fmt.Errorf("byte %d: %w", d.i, fmt.Errorf(format, args...))
}

// message writes the fields of one object, without its length.
func (d *jsonDecoder) message(t jsonType, depth int) error {
	if depth > maxDepth {
		return d.errorf("messages are nested deeper than %d", maxDepth)
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
	case jsonTimes, jsonDoubles:
		one := jsonTime
		if f.kind == jsonDoubles {
			one = jsonDouble
		}
		return d.sized(f.num, func() error {
			return d.list(func() error { return d.scalar(one) })
		})
	case jsonString:
		return d.sized(f.num, func() (err error) {
			d.out, err = d.quoted(d.out)
			return err
		})
	case jsonBytes:
		return d.sized(f.num, func() (err error) {
			d.out, err = d.base64(d.out)
			return err
		})
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
		if err := each(); err != nil {
			return err
		}
	}
}

// scalar writes one number or truth value, without a tag.
func (d *jsonDecoder) scalar(k jsonKind) error {
	switch k {
	case jsonBool:
		switch {
		case d.word("true"):
			d.out = append(d.out, 1)
		case d.word("false"):
			d.out = append(d.out, 0)
		default:
			return d.errorf("want true or false")
		}
		return nil
	case jsonDouble:
		v, err := d.double()
		d.out = binary.LittleEndian.AppendUint64(d.out, math.Float64bits(v))
		return err
	case jsonEnum:
		v, err := d.temporality()
		d.out = binary.AppendUvarint(d.out, v)
		return err
	}
	v, negative, err := d.integer()
	if err != nil {
		return err
	}
	signed := k == jsonInt64 || k == jsonSigned
	switch {
	case negative && (!signed || v > 1<<63), !negative && signed && v > math.MaxInt64,
		k == jsonUint32 && v > math.MaxUint32:
		return d.errorf("the integer is out of range")
	case negative:
		v = -v
	}
	if k == jsonInt64 || k == jsonUint32 {
		d.out = binary.AppendUvarint(d.out, v)
	} else {
		d.out = binary.LittleEndian.AppendUint64(d.out, v)
	}
	return nil
}

// temporality reads an AggregationTemporality. OTLP wants its number; senders
// that write its name are understood, since another reading would lose the metric
// in silence (C08).
func (d *jsonDecoder) temporality() (uint64, error) {
	if d.peek() != '"' {
		v, negative, err := d.integer()
		if err == nil && (negative || v > math.MaxInt32) {
			err = d.errorf("the enum is out of range")
		}
		return v, err
	}
	name, err := d.text(nil)
	switch {
	case err != nil:
		return 0, err
	case string(name) == "AGGREGATION_TEMPORALITY_UNSPECIFIED":
		return 0, nil
	case string(name) == "AGGREGATION_TEMPORALITY_DELTA":
		return temporalityDelta, nil
	case string(name) == "AGGREGATION_TEMPORALITY_CUMULATIVE":
		return temporalityCumulative, nil
	}
	return 0, d.errorf("%s is no aggregation temporality: write 1 for delta, 2 for cumulative", excerpt(string(name)))
}

// double reads a JSON number, also in quotes, or one of the three words.
func (d *jsonDecoder) double() (float64, error) {
	var token []byte
	var err error
	if d.peek() == '"' {
		if d.key, err = d.text(d.key[:0]); err != nil {
			return 0, err
		}
		switch string(d.key) {
		case "NaN":
			return math.NaN(), nil
		case "Infinity":
			return math.Inf(1), nil
		case "-Infinity":
			return math.Inf(-1), nil
		}
		if token = d.key; numberLen(token) != len(token) {
			return 0, d.errorf("%s is no number", excerpt(string(token)))
		}
	} else if token, err = d.number(); err != nil {
		return 0, err
	}
	v, err := strconv.ParseFloat(string(token), 64)
	if err != nil {
		return 0, d.errorf("the number is out of range")
	}
	return v, nil
}

// integer reads a whole number, also in quotes, as its size and sign.
func (d *jsonDecoder) integer() (size uint64, negative bool, err error) {
	var token []byte
	if d.peek() == '"' {
		if d.key, err = d.text(d.key[:0]); err != nil {
			return 0, false, err
		}
		if token = d.key; numberLen(token) != len(token) {
			return 0, false, d.errorf("%s is no integer", excerpt(string(token)))
		}
	} else if token, err = d.number(); err != nil {
		return 0, false, err
	}
	size, negative, ok := wholeNumber(token)
	if !ok {
		return 0, false, d.errorf("%s is no integer of 64 bits", excerpt(string(token)))
	}
	return size, negative, nil
}
