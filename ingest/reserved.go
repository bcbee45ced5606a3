package ingest

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// reservedKeys is what a workload may say nothing about, in whatever spelling: keys
// are compared in a form in which all that a translation of names, or an eye,
// takes for the same is the same (S2-31, S2-41, S2-42, S2-45).
type reservedKeys struct {
	families []string            // normal forms, reserved with all that lies below
	names    map[string]struct{} // normal forms without underscores
	room     int                 // length of a normal form beyond which it is no name
}

// newReserved lists what the channel sets, and what is reserved whoever sets it.
// Underscores count for nothing in names: what has none in the payload could be
// split by some later translation, and what has some could be joined.
func newReserved(prefix string, set []trusted, more ...string) reservedKeys {
	r := reservedKeys{names: map[string]struct{}{}}
	for _, family := range []string{"ate", prefix, "k8s", "host"} {
		if n := appendNormal(nil, family, 0, maxNormal); len(n) > 0 {
			r.families = append(r.families, string(n))
		}
	}
	add := func(key string) {
		n := squeeze(appendNormal(nil, key, 0, maxNormal))
		r.names[string(n)] = struct{}{}
		r.room = max(r.room, 2*len(n))
	}
	for _, t := range set {
		add(t.key)
	}
	for _, key := range more {
		add(key)
	}
	for _, key := range []string{
		serviceInstance, serviceNamespace, "job", "instance", channelLabel,
		"k8s.node.uid", "k8s.namespace.name", "k8s.cluster.name", "k8s.container.name", "k8s.deployment.name",
		attrNode, attrPodName, attrPodUID, "host.name", "host.id", "host.ip",
	} {
		add(key)
	}
	for _, attr := range []string{attrActorUID, attrActorName, attrAtespace, attrTemplateNamespace, attrTemplateName,
		attrContainer, attrPlane, "worker.pod", "worker.node"} {
		add("ate." + attr)
		add("ate.dev." + attr)
		add(prefix + "." + attr)
	}
	return r
}

// maxNormal bounds the normal form of a name in the table.
const maxNormal = 256

// has reports whether an attribute key is reserved.
func (r *reservedKeys) has(key string) bool {
	return r.below(nil, key)
}

// below is has for a key inside a value: parent is the normal form of the keys
// around it, since many a backend writes a map out as one attribute a leaf.
func (r *reservedKeys) below(parent []byte, key string) bool {
	if unescaped, ok := unescape(key); ok && r.below(parent, unescaped) {
		return true
	}
	if len(parent) == 0 && dunder(key) {
		return true
	}
	capitals, odd := false, false
	for i := 0; i < len(key); i++ {
		capitals = capitals || key[i] >= 'A' && key[i] <= 'Z'
		odd = odd || key[i] < 0x20 || key[i] >= 0x7f
	}
	var buf [2 * maxNormal]byte
	for m := manner(0); m < manners; m++ {
		if m&camel != 0 && !capitals || m != 0 && m != camel && !odd {
			continue
		}
		n := append(buf[:0], parent...)
		if len(n) > 0 {
			n = append(n, '_')
		}
		if r.match(appendNormal(n, key, m, r.room+8)) {
			return true
		}
	}
	return false
}

func (r *reservedKeys) match(n []byte) bool {
	for _, family := range r.families {
		if len(n) >= len(family) && string(n[:len(family)]) == family && (len(n) == len(family) || n[len(family)] == '_') {
			return true
		}
	}
	if len(n) > r.room {
		return false
	}
	_, ok := r.names[string(squeeze(n))]
	return ok
}

// dunder reports whether a key is one between double underscores, as the labels
// are that Prometheus keeps for itself, or becomes the metric's name where only
// letters of ASCII are left.
func dunder(key string) bool {
	if key == "" || key[0] < utf8.RuneSelf && letters[key[0]] != 0 {
		return false
	}
	head, tail := 0, 0
	mark := func(c rune, run *int) (more bool) {
		switch {
		case unseen(c):
			return true
		case unicode.IsLetter(c), unicode.IsDigit(c):
			return false
		}
		*run++
		return *run < 2
	}
	for _, c := range key {
		if !mark(c, &head) {
			break
		}
	}
	for rest := key; len(rest) > 0; {
		c, size := utf8.DecodeLastRuneInString(rest)
		if !mark(c, &tail) {
			break
		}
		rest = rest[:len(rest)-size]
	}
	return head >= 2 && tail >= 2 || len(key) < 64 && strings.EqualFold(strings.Map(ascii, key), metricLabel)
}

// ascii is what a translation to the old names of Prometheus makes of a
// character.
func ascii(c rune) rune {
	if c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' {
		return c
	}
	return '_'
}

// manner says how a key is read: one that can be read as a reserved one is.
// Others decompose and fold characters beyond ASCII, put an underscore for each,
// as the older translations do, or leave them out, and they may do the same to
// what is not seen.
type manner uint8

const (
	// gapped makes a gap of what is not seen, of control characters and of broken
	// UTF-8, which else are nothing.
	gapped manner = 1
	// camel begins a word at a capital after a small letter.
	camel manner = 2
	// foreign and without take letters beyond ASCII for a gap, and for nothing.
	foreign manner = 4
	without manner = 8
	manners manner = 12
)

// appendNormal appends a key in lower case, characters that look alike made one,
// and every run of other characters made one underscore, none at the ends. It
// ends once it has added max bytes.
func appendNormal(to []byte, key string, how manner, max int) []byte {
	n := normal{to: to, start: len(to), how: how}
	for i := 0; i < len(key) && len(n.to)-n.start < max; i++ {
		switch b := key[i]; {
		case b < utf8.RuneSelf && letters[b] != 0:
			n.letter(letters[b], b <= 'Z' && b >= 'A')
		case b < utf8.RuneSelf:
			n.add(rune(b))
		case how&(foreign|without) != 0:
			c, size := utf8.DecodeRuneInString(key[i:])
			if unicode.IsLetter(c) && !unseen(c) {
				c = 'Ж' // no letter of the keys, nor drawn as one
			}
			n.add(c)
			i += size - 1
		default:
			// The decomposition of what is left; what it was before is taken.
			var it norm.Iter
			it.InitString(norm.NFKD, key[i:])
			for !it.Done() && len(n.to)-n.start < max {
				for b := it.Next(); len(b) > 0; {
					c, size := utf8.DecodeRune(b)
					n.add(c)
					b = b[size:]
				}
			}
			return n.to
		}
	}
	return n.to
}

// normal is a normal form that is being written.
type normal struct {
	to         []byte
	start      int
	gap, small bool // before the next letter, and the last one
	how        manner
}

func (n *normal) letter(c byte, capital bool) {
	if len(n.to) > n.start && (n.gap || capital && n.small && n.how&camel != 0) {
		n.to = append(n.to, '_')
	}
	n.gap, n.small = false, !capital
	n.to = append(n.to, c)
}

func (n *normal) add(c rune) {
	capital := c >= 'A' && c <= 'Z'
	switch c = lookalike(unicode.ToLower(c)); {
	case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
		n.letter(byte(c), capital)
	case c >= utf8.RuneSelf && n.how&without != 0 && !unseen(c) && c != utf8.RuneError:
	case unseen(c), c < 0x20, c >= 0x7f && c < 0xa0, c == utf8.RuneError:
		n.gap = n.gap || n.how&gapped != 0
	default:
		n.gap = true
	}
}

// letters are what add makes of the letters and digits of ASCII.
var letters = func() (table [utf8.RuneSelf]byte) {
	for c := range rune(utf8.RuneSelf) {
		if l := lookalike(unicode.ToLower(c)); l >= 'a' && l <= 'z' || l >= '0' && l <= '9' {
			table[c] = byte(l)
		}
	}
	return table
}()

// squeeze takes the underscores out, in place.
func squeeze(n []byte) []byte {
	kept := n[:0]
	for _, c := range n {
		if c != '_' {
			kept = append(kept, c)
		}
	}
	return kept
}

// unseen are characters that leave no trace on a screen: accents, format
// characters, fillers.
func unseen(c rune) bool {
	return c >= utf8.RuneSelf && unicode.In(c, unicode.Mn, unicode.Mc, unicode.Me, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point)
}

// unescape reads a name in the scheme with which Prometheus writes any UTF-8
// name in its old alphabet, U__k8s_2e_node_2e_name, since others read it back.
func unescape(key string) (string, bool) {
	rest, ok := strings.CutPrefix(key, "U__")
	if !ok {
		return "", false
	}
	var b strings.Builder
	for rest != "" {
		if rest[0] != '_' {
			b.WriteByte(rest[0])
			rest = rest[1:]
			continue
		}
		code, after, ok := strings.Cut(rest[1:], "_")
		if !ok {
			return "", false
		}
		rest = after
		if code == "" {
			b.WriteByte('_')
			continue
		}
		c, err := strconv.ParseUint(code, 16, 32)
		if err != nil || c > unicode.MaxRune {
			return "", false
		}
		b.WriteRune(rune(c))
	}
	return b.String(), true
}

// unknownService reports what an SDK says when nobody named the service.
func unknownService(name string) bool {
	return name == "unknown_service" || strings.HasPrefix(name, "unknown_service:") || strings.HasPrefix(name, "unknown_service_")
}

// strip deletes what is reserved.
func (s *stamp) strip(attrs []attribute) []attribute {
	kept := attrs[:0]
	for _, a := range attrs {
		if !s.reserved(a.key) {
			kept = append(kept, a)
		}
	}
	return kept
}

// reserved reports whether an attribute key is the channel's alone to set.
func (s *stamp) reserved(key string) bool { return s.keys.has(key) }
