package ingest

import (
	"encoding/binary"
	"slices"
	"unicode/utf8"
)

// stamper writes a request anew in which every reserved attribute of a workload
// is gone, at every level, and what the channel says stands on each resource.
// What it is given has been scanned: it is well formed and no deeper than
// maxDepth, which bounds the recursion here.
//
// A field that is not in the schema goes too. What it means is not known here
// and may be to whoever reads it next: it could name an identity.
type stamper struct {
	st  *stamp
	set []trusted // on each resource
	// nodes are the values of k8s.node.name that a node channel takes; empty means
	// any.
	nodes []string
	// since is the least start time of a point, in Unix nanoseconds.
	since uint64
	// only, unless nil, are the keys that a resource keeps of its own.
	only []string

	out []byte
	// parent is the normal form of the keys around a value that lies in an
	// attribute; inside says that there are some, content that the value lies in
	// no attribute.
	parent          []byte
	inside, content bool

	// decisions are what becomes of each record or point, in the order in which
	// they come in the request; next is the one that comes next.
	decisions []decision
	next      int

	rewritten bool // out is the whole request

	added int  // bytes that stand for the channel
	over  bool // more than maxStamped of them
}

// maxStamped bounds what the attributes of a channel may add to one request,
// which may have a resource for each record.
const maxStamped = 16 << 20

// reset makes ready for a request.
func (s *stamper) reset() {
	s.out, s.parent, s.inside, s.content = s.out[:0], s.parent[:0], false, false
	s.decisions, s.next = s.decisions[:0], 0
	s.added, s.over, s.rewritten = 0, false, false
	if cap(s.out) > 4<<20 {
		s.out = nil
	}
	if cap(s.decisions) > maxScratch {
		s.decisions = nil
	}
}

// mark is a length-delimited field that is being written.
type mark struct{ tag, data, width int }

// open begins a field of about size bytes.
func (s *stamper) open(num uint32, size int) mark {
	m := mark{tag: len(s.out)}
	s.out = binary.AppendUvarint(s.out, uint64(num)<<3|wireBytes)
	m.width = uvarintLen(size)
	for range m.width {
		s.out = append(s.out, 0)
	}
	m.data = len(s.out)
	return m
}

// close puts the length before what was written since open.
func (s *stamper) close(m mark) {
	size := len(s.out) - m.data
	width := uvarintLen(size)
	switch {
	case width < m.width:
		s.out = append(s.out[:m.data-m.width+width], s.out[m.data:]...)
	case width > m.width:
		s.out = slices.Insert(s.out, m.data, make([]byte, width-m.width)...)
	}
	binary.PutUvarint(s.out[m.data-m.width:], uint64(size))
}

// copied begins a field and writes all that is in it.
func (s *stamper) copied(num uint32, b []byte) mark {
	m := s.open(num, len(b))
	s.out = append(s.out, b...)
	return m
}

// cancel takes the field back.
func (s *stamper) cancel(m mark) { s.out = s.out[:m.tag] }

func uvarintLen(v int) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}

// message writes the fields of one message.
func (s *stamper) message(m message, b []byte) {
	f := fields{b: b}
	for from := 0; f.next(); from = len(b) - len(f.b) {
		s.field(m, &f, b[from:len(b)-len(f.b)])
	}
}

// field writes one field of a message; raw is all of it.
func (s *stamper) field(m message, f *fields, raw []byte) {
	c, known := schema[m][f.num]
	switch {
	case !known, c.typ != f.typ && c.typ != wireEither:
	case c.text && !utf8.Valid(f.data):
		// Of the texts that a store does not look at: another reader would refuse
		// the whole request for it.
	case c.msg == msgNone:
		s.out = append(s.out, raw...)
	case c.msg == msgKeyValue:
		s.attribute(f.num, f.data)
	case c.msg == msgEntityRef: // names the keys of an identity
	default:
		was := s.content
		// The body of a log is what it says, not what is said of it.
		s.content = was || m == msgLogRecord && c.msg == msgAny
		at := s.open(f.num, len(f.data))
		s.message(c.msg, f.data)
		s.close(at)
		s.content = was
	}
}

// attribute writes a KeyValue, or an entry of a map in one, unless it is
// reserved.
func (s *stamper) attribute(num uint32, b []byte) {
	key := keyOf(b)
	if s.refuses(key) {
		return
	}
	at := s.open(num, len(b))
	if key != "" {
		s.text(1, key)
	}
	parent, inside := len(s.parent), s.inside
	s.enter(key)
	for f := (fields{b: b}); f.next(); {
		if f.num == 2 {
			value := s.open(2, len(f.data))
			s.message(msgAny, f.data)
			s.close(value)
		}
	}
	s.parent, s.inside = s.parent[:parent], inside
	s.close(at)
}

// refuses reports whether an attribute, or an entry of a map in one, must go.
func (s *stamper) refuses(key string) bool {
	switch {
	case s.content:
		return false
	case !utf8.ValidString(key):
		return true // what it names hangs on who reads it
	case !s.inside:
		return s.st.keys.has(key)
	case len(s.parent) > s.st.keys.room:
		return false // the keys around it are longer than any reserved one
	}
	return s.st.keys.below(s.parent, key)
}

// enter goes into the value of an attribute.
func (s *stamper) enter(key string) {
	if s.inside && len(s.parent) > 0 {
		s.parent = append(s.parent, '_')
	}
	s.inside = true
	if len(s.parent) <= s.st.keys.room {
		s.parent = appendNormal(s.parent, key, 0, s.st.keys.room+1)
	}
}

// keyOf is the key of a KeyValue: of several the last counts.
func keyOf(b []byte) (key string) {
	for f := (fields{b: b}); f.next(); {
		if f.num == 1 {
			key = string(f.data)
		}
	}
	return key
}

func (s *stamper) text(num uint32, v string) {
	s.out = binary.AppendUvarint(s.out, uint64(num)<<3|wireBytes)
	s.out = binary.AppendUvarint(s.out, uint64(len(v)))
	s.out = append(s.out, v...)
}

// resource writes field 1 of a block: what its resource, which may come in
// pieces, in any place, or not at all, says beside the channel.
func (s *stamper) resource(block []byte) {
	at := s.open(1, len(block))
	name := ""
	for f := (fields{b: block}); f.next(); {
		if f.num == 1 {
			s.resourceFields(f.data, &name)
		}
	}
	own := len(s.out)
	s.stringAttribute(serviceName, s.st.serviceName(name))
	for _, t := range s.set {
		s.stringAttribute(t.key, t.value)
	}
	s.added += len(s.out) - own
	s.over = s.added > maxStamped
	s.close(at)
}

// foreign reports whether a block's resource names a node that the channel does
// not speak for (decisions.md X1).
func (s *stamper) foreign(block []byte) bool {
	if len(s.nodes) == 0 {
		return false
	}
	for f := (fields{b: block}); f.next(); {
		if f.num != 1 || f.typ != wireBytes {
			continue
		}
		for _, a := range attributes(f.data, 1) {
			if a.key == attrNode && a.value != "" && !slices.Contains(s.nodes, a.value) {
				return true
			}
		}
	}
	return false
}

func (s *stamper) resourceFields(b []byte, name *string) {
	f := fields{b: b}
	for from := 0; f.next(); from = len(b) - len(f.b) {
		if f.num == 1 {
			key := keyOf(f.data)
			if key == serviceName {
				*name = keyValue(f.data).value
				continue
			}
			if s.only != nil && !slices.Contains(s.only, key) {
				continue
			}
		}
		s.field(msgResource, &f, b[from:len(b)-len(f.b)])
	}
}

// stringAttribute writes an attribute of a resource.
func (s *stamper) stringAttribute(key, value string) {
	text := 1 + uvarintLen(len(value)) + len(value)
	at := s.open(1, 2+len(key)+2+text)
	s.text(1, key)
	v := s.open(2, text)
	s.text(1, value)
	s.close(v)
	s.close(at)
}
