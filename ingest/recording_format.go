package ingest

import (
	"bytes"
	"strings"
)

// format is how a recording is written.
type format int

const (
	formatUnknown format = iota
	formatJSON
	formatVarint     // protobuf, a varint length before each request
	formatFixed      // protobuf, a big-endian length of four bytes
	formatCompressed // gzip or zstd around any of them
)

const (
	// headLen is enough of a recording to tell its format.
	headLen = 512
	// requestTag begins each request that holds anything: field 1, with a length.
	requestTag = 0x0a
	blanks     = " \t\r\n"
	// byteOrderMark is what some editors put before a text.
	byteOrderMark = "\xef\xbb\xbf"
)

// formatOf tells a recording's format from its first headLen bytes, or from
// fewer when it has no more. A recording cut to a stump of a few bytes is taken
// for any format that it could be the beginning of.
//
// A four-byte length begins with 0, or from 16 MiB on with 1; as varints these
// would be lengths that no request has which holds anything.
func formatOf(head []byte) format {
	for _, magic := range []string{"\x1f\x8b\x08", "\x28\xb5\x2f\xfd"} {
		if bytes.HasPrefix(head, []byte(magic)) {
			return formatCompressed
		}
	}
	if beginsJSON(string(head)) {
		return formatJSON
	}
	if head[0] <= 1 {
		if len(head) > 4 && head[4] != requestTag {
			return formatUnknown
		}
		return formatFixed
	}
	for i, b := range head {
		if b < 0x80 { // the last byte of the length
			if i+1 < len(head) && head[i+1] != requestTag {
				return formatUnknown
			}
			break
		}
	}
	return formatVarint
}

// beginsJSON says whether head begins a stream of JSON objects.
//
// A protobuf length can look like text: 123 is '{', and the tag after it is a
// newline, with which a pretty-printed document goes on as well. But there JSON
// has a quote or a brace next, after blanks, and in the quotes no control
// character, where protobuf has a length and then a tag that is one. And a run
// of nested lengths that are all blanks (32, 13, 10, 9) gets below 9 before it
// can come to a brace. So no recording is both.
func beginsJSON(head string) bool {
	if strings.HasPrefix(byteOrderMark, head) {
		return true // empty, or cut inside the mark
	}
	text := strings.TrimLeft(strings.TrimPrefix(head, byteOrderMark), blanks)
	if text == "" {
		return true
	}
	if text[0] != '{' {
		return false
	}
	text = strings.TrimLeft(text[1:], blanks)
	if text == "" || text[0] == '}' {
		return true
	}
	key, _, _ := strings.Cut(text[1:], `"`)
	return text[0] == '"' && strings.IndexFunc(key, func(r rune) bool { return r < ' ' }) < 0
}
