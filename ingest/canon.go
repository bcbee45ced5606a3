package ingest

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
)

// canonicalForm appends a message that scan has passed in a form that does not hang
// on who encoded it: fields in the order of their numbers, attributes in the
// order of their bytes, each length and number as short as it can be, and
// nothing that names no part of an identity. One stream that comes as protobuf
// and as JSON, or from two encoders, has one such form.
func canonicalForm(m message, b, out []byte) []byte {
	type field struct {
		num  uint32
		list bool // whose order means nothing
		enc  []byte
	}
	var all []field
	for f := (fields{b: b}); f.next(); {
		c, known := schema[m][f.num]
		if !known || c.typ != f.typ {
			continue
		}
		enc := binary.AppendUvarint(nil, uint64(f.num)<<3|uint64(f.typ))
		switch f.typ {
		case wireVarint:
			enc = binary.AppendUvarint(enc, f.val)
		case wireFixed8:
			enc = binary.LittleEndian.AppendUint64(enc, f.val)
		case wireBytes:
			data := f.data
			if c.msg != msgNone {
				data = canonicalForm(c.msg, data, nil)
			} else if len(data) == 0 && m != msgAny {
				continue // the same as absent, but in a choice of kinds
			}
			enc = append(binary.AppendUvarint(enc, uint64(len(data))), data...)
		}
		all = append(all, field{f.num, c.msg == msgKeyValue, enc})
	}
	slices.SortStableFunc(all, func(a, b field) int {
		if a.num == b.num && a.list {
			return bytes.Compare(a.enc, b.enc)
		}
		return cmp.Compare(a.num, b.num)
	})
	for _, f := range all {
		out = append(out, f.enc...)
	}
	return out
}
