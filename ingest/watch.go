package ingest

import (
	"github.com/prometheus/prometheus/model/labels"
)

// Watch says which rules select a series and is told when those series grew.
// All three nil means that nobody watches.
type Watch struct {
	// Gen changes when the rule set does.
	Gen func() uint64
	// Rules lists the rules that select the series, as small numbers from 0. It
	// is asked once per series and generation.
	Rules func(labels.Labels) []int32
	// Grew is called once per request, right after Commit and before Sync, with
	// the rules whose series grew, each once, and the newest time in Unix
	// milliseconds. It must not block. The slice is the callee's to keep.
	Grew func(rules []int32, newest int64)
}

// Growth gathers the rules whose series grew in one round of samples, each rule
// once. Who writes series of its own to the same store uses one too, so that a
// control reacts to them as they arrive. It is not safe for concurrent use.
type Growth struct {
	Watch Watch

	round uint64
	gen   uint64
	rules []int32
	marks []uint64 // by rule, the last round that had it
	none  *Touch   // of series that no rule selects
}

// Touch is the rules that select a series, as of one generation of them.
type Touch struct {
	gen   uint64
	rules []int32
}

// Begin starts a round; false means that nobody watches.
func (g *Growth) Begin() bool {
	if g.Watch.Grew == nil || g.Watch.Rules == nil || g.Watch.Gen == nil {
		return false
	}
	g.round++
	g.gen, g.rules = g.Watch.Gen(), nil
	return true
}

// Add says that a series grew. The caller keeps touch with the series, nil at
// first, so that its rules are asked for once.
func (g *Growth) Add(touch **Touch, ls labels.Labels) {
	if *touch == nil || (*touch).gen != g.gen {
		*touch = g.touchOf(ls)
	}
	for _, rule := range (*touch).rules {
		if int(rule) >= len(g.marks) {
			g.marks = append(g.marks, make([]uint64, int(rule)+1-len(g.marks))...)
		}
		if g.marks[rule] != g.round {
			g.marks[rule] = g.round
			g.rules = append(g.rules, rule)
		}
	}
}

// touchOf asks for the rules of a series. Most have none, and share that.
func (g *Growth) touchOf(ls labels.Labels) *Touch {
	if rules := g.Watch.Rules(ls); len(rules) > 0 {
		return &Touch{g.gen, rules}
	}
	if g.none == nil || g.none.gen != g.gen {
		g.none = &Touch{gen: g.gen}
	}
	return g.none
}

// Tell ends the round: the watcher hears of the rules, if there are any. newest
// is the newest time that was stored, Unix milliseconds.
func (g *Growth) Tell(newest int64) {
	if len(g.rules) > 0 {
		g.Watch.Grew(g.rules, newest)
	}
}

// tellGrown tells which rules select what the request appended.
func (w *walk) tellGrown() {
	if w.appended == 0 || !w.growth.Begin() {
		return
	}
	for i := range w.samples {
		if s := w.samples[i].s; w.samples[i].done {
			w.growth.Add(&s.touch, s.labels)
		}
	}
	w.growth.Tell(w.newest)
}
