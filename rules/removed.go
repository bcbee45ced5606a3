package rules

import (
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
)

// readBy notes which rule names which metrics, for checkRemoved.
func (l *loader) readBy(t *tree) {
	if t == nil || len(l.removed) == 0 {
		return
	}
	parser.Inspect(t.root, func(n parser.Node, _ []parser.Node) error {
		if vs, ok := n.(*parser.VectorSelector); ok && l.removed[vs.Name] != nil && !slices.Contains(l.readers[vs.Name], t.rule) {
			l.readers[vs.Name] = append(l.readers[vs.Name], t.rule)
		}
		return nil
	})
}

// turnOff leaves the readings of a file out, and remembers why.
func (l *loader) turnOff(root *value, why string) {
	for _, e := range root.get("readings").listed() {
		l.off[e.key.text] = why
	}
}

// checkOff refuses a reading that is off where it is named.
func (l *loader) checkOff(t *tree) {
	parser.Inspect(t.root, func(n parser.Node, _ []parser.Node) error {
		if vs, ok := n.(*parser.VectorSelector); ok && l.off[vs.Name] != "" {
			l.errorf(t.rule, t.place(vs.PosRange), "%s: %s", vs.Name, l.off[vs.Name])
		}
		return nil
	})
}

// checkRemoved refuses to remove a reading that another rule goes on to name:
// there the name would turn into a metric that nobody sends, and a control that
// reads it would never act again without a word.
func (l *loader) checkRemoved() {
	if l.incomplete {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(l.removed)) {
		if by := l.readers[name]; len(by) > 0 {
			slices.Sort(by)
			l.errorf(ruleName("readings", name), l.removed[name].at(),
				"%s cannot be removed, it is read by %s: remove or change those as well", name, strings.Join(by, ", "))
		}
	}
}
