package ingest

import (
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// reserved reports whether an attribute key is the channel's alone to set on a
// workload channel, in whatever spelling: keys are compared in a form in which
// all that a translation of names, or an eye, takes for the same is the same.
func (s *stamp) reserved(key string) bool {
	if strings.HasPrefix(key, "__") && strings.HasSuffix(key, "__") {
		return true
	}
	n := normalForm(key)
	if under(n, normalForm(s.prefix)) {
		return true
	}
	for _, family := range reservedFamilies {
		if under(n, family) {
			return true
		}
	}
	squeezed := strings.ReplaceAll(n, "_", "")
	for _, one := range reservedKeys {
		if squeezed == one {
			return true
		}
	}
	switch n {
	case "service_name":
		return s.id.ServiceName != ""
	case "container_name":
		return s.id.Container != ""
	}
	return false
}

// reservedFamilies are reserved with all that lies below them.
var reservedFamilies = []string{"ate", "k8s", "host"}

// reservedKeys are reserved by themselves, without the underscores: what has
// none in the payload could be joined or split by some later translation.
var reservedKeys = []string{
	"serviceinstanceid", "servicenamespace", "job", "instance", "channel",
	"k8snodename", "k8snodeuid", "k8spodname", "k8spoduid", "k8snamespacename", "k8sclustername",
	"hostname", "hostid", "ateactoruid", "ateactorname",
}

func under(n, family string) bool {
	return n == family || strings.HasPrefix(n, family) && n[len(family)] == '_'
}

// normalForm is a key in lower case, letters that look alike made one, and
// every run of other characters made one underscore, none at the ends.
func normalForm(key string) string {
	var b strings.Builder
	gap := false
	for _, c := range norm.NFKD.String(key) {
		switch c = lookalike(unicode.ToLower(c)); {
		case unicode.In(c, unicode.Mn, unicode.Me, unicode.Cf):
			continue // an accent, or a character that is not seen
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			if gap && b.Len() > 0 {
				b.WriteByte('_')
			}
			gap = false
			b.WriteRune(c)
		default:
			gap = true
		}
	}
	return b.String()
}

// lookalikes are the letters of other scripts that are drawn as those of the
// reserved keys.
var lookalikes = map[rune]rune{
	'а': 'a', 'α': 'a', 'ɑ': 'a', 'с': 'c', 'ϲ': 'c', 'ԁ': 'd', 'е': 'e', 'ε': 'e', 'һ': 'h', 'н': 'h', 'і': 'i', 'ι': 'i', 'ı': 'i',
	'ј': 'j', 'к': 'k', 'κ': 'k', 'ӏ': 'l', 'ⅼ': 'l', 'м': 'm', 'ո': 'n', 'п': 'n', 'о': 'o', 'ο': 'o', 'օ': 'o', 'р': 'p', 'ρ': 'p',
	'ѕ': 's', 'ꜱ': 's', 'т': 't', 'τ': 't', 'υ': 'u', 'ս': 'u', 'ѵ': 'v', 'ν': 'v', 'ԝ': 'w', 'х': 'x', 'у': 'y', 'ү': 'y', 'ȣ': '8', 'ზ': '8',
}

func lookalike(c rune) rune {
	if l, ok := lookalikes[c]; ok {
		return l
	}
	return c
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
