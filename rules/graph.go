package rules

import (
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
)

// maxNodes bounds an expression after readings are put in: ten readings that
// each use the one before twice would otherwise grow a thousandfold.
const maxNodes = 2000

// node is a reading's place in the graph of readings that use readings. It is
// made from the reading's expression under the parameters of the files; what a
// control sets by `with` changes numbers, never the graph.
type node struct {
	tree   *tree // nil when the expression does not parse
	refs   []*parser.VectorSelector
	reads  map[string]bool // parameters of the expression and of all that it uses
	size   int             // in nodes of the expanded tree
	broken bool            // it cannot be expanded, which the report says
	state  state
}

type state uint8

const (
	unseen state = iota
	open         // on the path that is being followed
	done
)

// link parses every reading, finds which reading uses which, and refuses
// circles.
func (l *loader) link() {
	names := slices.Sorted(maps.Keys(l.readings))
	for _, name := range names {
		r := l.readings[name]
		r.spareReads = map[string]bool{}
		for _, s := range r.spares {
			s.tree = l.parse(s.expr, env{params: l.params})
			l.readBy(s.tree)
			if s.expr != nil {
				maps.Copy(r.spareReads, s.expr.uses)
			}
		}
		r.tree = l.parse(r.expr, env{params: l.params})
		r.reads = map[string]bool{}
		if r.broken = r.tree == nil; r.broken {
			continue
		}
		l.readBy(r.tree)
		maps.Copy(r.reads, r.expr.uses)
		r.refs = l.references(r.tree.root)
	}
	for _, name := range names {
		l.follow(name, nil)
	}
	for _, name := range names {
		if r := l.readings[name]; !r.broken && l.speller().of(r.tree.root) == respelt {
			r.Key = l.speller().labels(r.written)
		}
	}
}

// references are the selectors of an expression that are readings by name.
func (l *loader) references(e parser.Expr) []*parser.VectorSelector {
	var refs []*parser.VectorSelector
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if vs, ok := n.(*parser.VectorSelector); ok && l.readings[vs.Name] != nil {
			refs = append(refs, vs)
		}
		return nil
	})
	return refs
}

func (l *loader) follow(name string, path []string) {
	r := l.readings[name]
	path = append(path, name)
	r.state = open
	r.size = countNodes(r.tree)
	for _, ref := range r.refs {
		used := l.readings[ref.Name]
		if used.state == open {
			circle := append(path[slices.Index(path, ref.Name):], ref.Name)
			l.errorf(r.expr.rule, r.tree.place(ref.PosRange), "%s uses itself: %s", ref.Name, strings.Join(circle, " -> "))
			r.broken = true
			continue
		}
		if used.state == unseen {
			l.follow(ref.Name, slices.Clip(path))
		}
		maps.Copy(r.reads, used.reads)
		maps.Copy(r.spareReads, used.spareReads)
		r.broken = r.broken || used.broken
		r.size = min(r.size+used.size, maxNodes+1)
	}
	if r.size > maxNodes && !r.broken {
		l.tooLarge(r.expr)
		r.broken = true
	}
	r.state = done
}

func (l *loader) tooLarge(x *expression) {
	l.errorf(x.rule, x.at.at(), "the expression has more than %d parts once the readings are put in", maxNodes)
}

func countNodes(t *tree) int {
	n := 0
	if t != nil {
		parser.Inspect(t.root, func(node parser.Node, _ []parser.Node) error {
			if node != nil {
				n++
			}
			return nil
		})
	}
	return n
}
