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

// grown lists the rules that select what was appended, each once.
func (w *walk) grown() []int32 {
	watch := &w.o.Watch
	if watch.Grew == nil || watch.Rules == nil || watch.Gen == nil || w.appended == 0 {
		return nil
	}
	gen := watch.Gen()
	var rules []int32
	for i := range w.samples {
		if w.samples[i].done {
			rules = w.touch(rules, w.samples[i].s, gen)
		}
	}
	return rules
}

// touch is the rules that select a series, as of one generation of them.
type touch struct {
	gen   uint64
	rules []int32
}

// touchOf asks for the rules of a series. Most have none, and share that.
func (w *walk) touchOf(s *series, gen uint64) *touch {
	if rules := w.o.Watch.Rules(s.labels); len(rules) > 0 {
		return &touch{gen, rules}
	}
	if w.untouched == nil || w.untouched.gen != gen {
		w.untouched = &touch{gen: gen}
	}
	return w.untouched
}

// touch adds the rules of one series that are not listed yet.
func (w *walk) touch(rules []int32, s *series, gen uint64) []int32 {
	if s.touch == nil || s.touch.gen != gen {
		s.touch = w.touchOf(s, gen)
	}
	for _, rule := range s.touch.rules {
		if int(rule) >= len(w.marks) {
			w.marks = append(w.marks, make([]uint64, int(rule)+1-len(w.marks))...)
		}
		if w.marks[rule] != w.n {
			w.marks[rule] = w.n
			rules = append(rules, rule)
		}
	}
	return rules
}
