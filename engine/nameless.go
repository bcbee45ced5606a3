package engine

import (
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/wattloop/wattloop/rules"
)

// nameless reports whether an answer has none of the labels that its rule tells
// answers apart by. It is of nothing that anybody could name: a control on it would
// act for what it does not know. A rule has at most one.
func nameless(key labels.Labels, by []string) bool { return len(by) > 0 && key.IsEmpty() }

// named leaves out the answer that is nameless, and says so on the rule. In all it
// stands as one that is missing.
func (r *rule) named(krs []rules.KeyReading) (named, all []rules.KeyReading) {
	by := r.reading.Key
	r.leftOut = ""
	i := slices.IndexFunc(krs, func(k rules.KeyReading) bool { return nameless(k.Key, by) })
	if i < 0 {
		return krs, krs
	}
	lacks := strings.Join(by, ", ")
	if krs[i].Valid {
		r.leftOut = "an answer without the label " + lacks
	}
	all = slices.Clone(krs)
	all[i] = rules.KeyReading{Quality: rules.Missing, Nameless: lacks}
	return slices.Delete(slices.Clone(krs), i, i+1), all
}
