package ingest

import (
	"encoding/binary"
	"unicode/utf8"
)

// Bounds on one request, from reliability.md section 2.
const (
	maxDepth    = 32
	maxMessages = 2_000_000
	maxPoints   = 50_000
)

// Wire types of protobuf. The two group types are refused: no OTLP message has
// one, and skipping one means recursion.
const (
	wireVarint = 0
	wireFixed8 = 1
	wireBytes  = 2
	wireFixed4 = 5
)

// fields walks the fields of one message. next moves to the next one; when it
// returns false, broken says whether that was the end.
type fields struct {
	b      []byte // what follows
	num    uint32
	typ    uint8
	val    uint64 // of a varint or a fixed field
	data   []byte // of a length-delimited field
	broken bool
}

func (f *fields) next() bool {
	b := f.b
	if len(b) == 0 {
		return false
	}
	tag, n := uint64(b[0]), 1
	if tag >= 0x80 {
		if tag, n = binary.Uvarint(b); n <= 0 || tag > 1<<32-1 {
			f.broken = true
			return false
		}
	}
	b = b[n:]
	f.num, f.typ = uint32(tag>>3), uint8(tag&7)
	switch f.typ {
	case wireBytes:
		if len(b) == 0 {
			f.broken = true
			return false
		}
		size, n := uint64(b[0]), 1
		if size >= 0x80 {
			size, n = binary.Uvarint(b)
		}
		if n <= 0 || size > uint64(len(b)-n) {
			f.broken = true
			return false
		}
		end := n + int(size)
		f.data, f.b = b[n:end:end], b[end:]
	case wireFixed8:
		if len(b) < 8 {
			f.broken = true
			return false
		}
		f.val, f.b = binary.LittleEndian.Uint64(b), b[8:]
	case wireVarint:
		v, n := binary.Uvarint(b)
		if n <= 0 {
			f.broken = true
			return false
		}
		f.val, f.b = v, b[n:]
	case wireFixed4:
		if len(b) < 4 {
			f.broken = true
			return false
		}
		f.val, f.b = uint64(binary.LittleEndian.Uint32(b)), b[4:]
	default:
		f.broken = true
		return false
	}
	if f.num == 0 {
		f.broken = true
		return false
	}
	return true
}

// message is a kind of OTLP message, as far as it must be told apart.
type message uint8

const (
	msgNone message = iota
	msgResource
	msgScope
	msgAttributes // the attributes of a point alone
	msgKeyValue
	msgAny
	msgArray
	msgKeyValueList
	msgEntityRef
	msgExemplar
	msgNumberPoint
	msgHistogramPoint
	msgExpHistogramPoint
	msgExpBuckets
	msgSummaryPoint
	msgQuantile
	msgMetadata // the field of that name in Metric
	// The outer levels, which the walk of a live request reads itself.
	msgRequest
	msgResourceMetrics
	msgScopeMetrics
	msgMetric
	msgNumberData // Gauge and Sum
	msgHistogramData
	msgExpHistogramData
	msgSummaryData
	msgTraceRequest
	msgResourceSpans
	msgScopeSpans
	msgSpan
	msgSpanEvent
	msgSpanLink
	msgStatus
	msgLogsRequest
	msgResourceLogs
	msgScopeLogs
	msgLogRecord
)

// child is what a field holds: its wire type, the message in it, and whether it
// is text.
type child struct {
	typ  uint8
	msg  message
	text bool
}

// The fields that need no more than their wire type.
var (
	number  = child{typ: wireFixed8}
	integer = child{typ: wireVarint}
	opaque  = child{typ: wireBytes}
	text    = child{typ: wireBytes, text: true}
	small   = child{typ: wireFixed4}
	packed  = child{typ: wireEither} // or its numbers one by one
)

// wireEither stands for any wire type.
const wireEither = 0xff

func in(m message) child { return child{typ: wireBytes, msg: m} }

// schema lists the fields of each kind by number. A field that is not listed is
// unknown, and skipped.
var schema = [...]map[uint32]child{
	msgResource:        {1: in(msgKeyValue), 2: integer, 3: in(msgEntityRef)},
	msgScope:           {1: text, 2: text, 3: in(msgKeyValue), 4: integer},
	msgMetadata:        {12: in(msgKeyValue)},
	msgRequest:         {1: in(msgResourceMetrics)},
	msgResourceMetrics: {1: in(msgResource), 2: in(msgScopeMetrics), 3: text},
	msgScopeMetrics:    {1: in(msgScope), 2: in(msgMetric), 3: text},
	msgMetric: {1: text, 2: text, 3: text, 5: in(msgNumberData), 7: in(msgNumberData), 9: in(msgHistogramData),
		10: in(msgExpHistogramData), 11: in(msgSummaryData), 12: in(msgKeyValue)},
	msgNumberData:       {1: in(msgNumberPoint), 2: integer, 3: integer},
	msgHistogramData:    {1: in(msgHistogramPoint), 2: integer},
	msgExpHistogramData: {1: in(msgExpHistogramPoint), 2: integer},
	msgSummaryData:      {1: in(msgSummaryPoint)},
	msgAttributes:       {1: in(msgKeyValue), 7: in(msgKeyValue), 9: in(msgKeyValue)},
	msgKeyValue:         {1: text, 2: in(msgAny)},
	msgAny: {1: text, 2: integer, 3: integer, 4: number, 5: in(msgArray),
		6: in(msgKeyValueList), 7: opaque},
	msgArray:        {1: in(msgAny)},
	msgKeyValueList: {1: in(msgKeyValue)},
	msgEntityRef:    {1: text, 2: text, 3: text, 4: text},
	msgExemplar: {2: number, 3: number, 4: opaque, 5: opaque, 6: number,
		7: in(msgKeyValue)},
	msgNumberPoint: {2: number, 3: number, 4: number, 5: in(msgExemplar), 6: number,
		7: in(msgKeyValue), 8: integer},
	msgHistogramPoint: {2: number, 3: number, 4: number, 5: number, 6: packed, 7: packed,
		8: in(msgExemplar), 9: in(msgKeyValue), 10: integer, 11: number, 12: number},
	msgExpHistogramPoint: {1: in(msgKeyValue), 2: number, 3: number, 4: number, 5: number,
		6: integer, 7: number, 8: in(msgExpBuckets), 9: in(msgExpBuckets), 10: integer,
		11: in(msgExemplar), 12: number, 13: number, 14: number},
	msgExpBuckets: {1: integer, 2: packed},
	msgSummaryPoint: {2: number, 3: number, 4: number, 5: number, 6: in(msgQuantile),
		7: in(msgKeyValue), 8: integer},
	msgQuantile: {1: number, 2: number},

	msgTraceRequest:  {1: in(msgResourceSpans)},
	msgResourceSpans: {1: in(msgResource), 2: in(msgScopeSpans), 3: text},
	msgScopeSpans:    {1: in(msgScope), 2: in(msgSpan), 3: text},
	msgSpan: {1: opaque, 2: opaque, 3: text, 4: opaque, 5: text, 6: integer, 7: number, 8: number,
		9: in(msgKeyValue), 10: integer, 11: in(msgSpanEvent), 12: integer, 13: in(msgSpanLink),
		14: integer, 15: in(msgStatus), 16: small},
	msgSpanEvent:    {1: number, 2: text, 3: in(msgKeyValue), 4: integer},
	msgSpanLink:     {1: opaque, 2: opaque, 3: text, 4: in(msgKeyValue), 5: integer, 6: small},
	msgStatus:       {2: text, 3: integer},
	msgLogsRequest:  {1: in(msgResourceLogs)},
	msgResourceLogs: {1: in(msgResource), 2: in(msgScopeLogs), 3: text},
	msgScopeLogs:    {1: in(msgScope), 2: in(msgLogRecord), 3: text},
	msgLogRecord: {1: number, 2: integer, 3: text, 5: in(msgAny), 6: in(msgKeyValue), 7: integer,
		8: small, 9: opaque, 10: opaque, 11: number, 12: text},
}

// scan walks one message and all that is in it without recursion, before
// anything is built from it. depth is how deep the message itself lies; n counts
// the messages found, itself included; invalid says that a text in it is not
// UTF-8.
func scan(m message, b []byte, depth int) (n int, invalid bool, err error) {
	type level struct {
		f fields
		m message
	}
	var stack [maxDepth + 1]level
	base := depth
	stack[depth] = level{fields{b: b}, m}
	n = 1
	for depth >= base {
		l := &stack[depth]
		if !l.f.next() {
			if l.f.broken {
				return n, invalid, undecodable("a message is cut short or malformed")
			}
			depth--
			continue
		}
		c, known := schema[l.m][l.f.num]
		if !known {
			continue
		}
		if c.typ != l.f.typ && c.typ != wireEither {
			return n, invalid, undecodable("field %d has the wrong wire type", l.f.num)
		}
		if c.text && !utf8.Valid(l.f.data) {
			invalid = true
		}
		if c.msg == msgNone {
			continue
		}
		n++
		if depth++; depth > maxDepth {
			return n, invalid, undecodable("messages are nested deeper than %d", maxDepth)
		}
		stack[depth] = level{fields{b: l.f.data}, c.msg}
	}
	return n, invalid, nil
}
