package ingest

import (
	"encoding/hex"
	"math"
	"slices"
	"strings"
)

// enum is a set of names for the numbers from 0.
type enum struct {
	prefix string
	names  []string
	want   string // what to write instead of a word that is none
}

// enums are the enums of OTLP, by the kind of their fields.
var enums = map[jsonKind]enum{
	jsonEnum: {"AGGREGATION_TEMPORALITY_", []string{"UNSPECIFIED", "DELTA", "CUMULATIVE"},
		"no aggregation temporality: write 1 for delta, 2 for cumulative"},
	jsonSpanKind: {"SPAN_KIND_", []string{"UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"},
		"no kind of a span: write a number from 0 to 5"},
	jsonStatusCode: {"STATUS_CODE_", []string{"UNSET", "OK", "ERROR"},
		"no status code of a span: write a number from 0 to 2"},
	jsonSeverity: {"SEVERITY_NUMBER_", []string{"UNSPECIFIED",
		"TRACE", "TRACE2", "TRACE3", "TRACE4", "DEBUG", "DEBUG2", "DEBUG3", "DEBUG4",
		"INFO", "INFO2", "INFO3", "INFO4", "WARN", "WARN2", "WARN3", "WARN4",
		"ERROR", "ERROR2", "ERROR3", "ERROR4", "FATAL", "FATAL2", "FATAL3", "FATAL4"},
		"no severity: write a number from 0 to 24"},
}

// enum reads one value of an enum. OTLP wants its number; senders that write its
// name are understood, since another reading would lose the metric in silence
// (C08).
func (d *jsonDecoder) enum(e enum) (uint64, error) {
	if d.peek() != '"' {
		v, negative, err := d.integer()
		if err == nil && (negative || v > math.MaxInt32) {
			err = d.errorf("the enum is out of range")
		}
		return v, err
	}
	name, err := d.text(nil)
	if err != nil {
		return 0, err
	}
	if short, ok := strings.CutPrefix(string(name), e.prefix); ok {
		if i := slices.Index(e.names, short); i >= 0 {
			return uint64(i), nil
		}
	}
	return 0, d.errorf("%s is %s", excerpt(string(name)), e.want)
}

// hex appends the bytes of a string of hexadecimal digits.
func (d *jsonDecoder) hex(to []byte) ([]byte, error) {
	s, err := d.quoted(nil)
	if err != nil {
		return to, err
	}
	to, err = hex.AppendDecode(to, s)
	if err != nil {
		return to, d.errorf("an id that is not in hexadecimal")
	}
	return to, nil
}
