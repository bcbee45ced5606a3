package ingest

import (
	"encoding/binary"
	"math"
	"strconv"
)

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
	case jsonEnum, jsonSpanKind, jsonStatusCode, jsonSeverity:
		v, err := d.enum(enums[k])
		d.out = binary.AppendUvarint(d.out, v)
		return err
	}
	v, negative, err := d.integer()
	if err != nil {
		return err
	}
	signed := k == jsonInt64 || k == jsonSigned || k == jsonZigzag
	switch {
	case negative && (!signed || v > 1<<63), !negative && signed && v > math.MaxInt64,
		(k == jsonUint32 || k == jsonFixed4) && v > math.MaxUint32,
		k == jsonZigzag && (v > 1<<31 || v == 1<<31 && !negative):
		return d.errorf("the integer is out of range")
	case negative:
		v = -v
	}
	switch k {
	case jsonZigzag:
		d.out = binary.AppendUvarint(d.out, uint64(uint32(v<<1)^uint32(int32(v)>>31)))
	case jsonInt64, jsonUint32, jsonCount:
		d.out = binary.AppendUvarint(d.out, v)
	case jsonFixed4:
		d.out = binary.LittleEndian.AppendUint32(d.out, uint32(v))
	default:
		d.out = binary.LittleEndian.AppendUint64(d.out, v)
	}
	return nil
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
		if token = d.key; !isNumber(token) {
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
		if token = d.key; !isNumber(token) {
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
