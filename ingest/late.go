package ingest

import (
	"cmp"
	"math"
	"slices"
)

// late is what a series is known to hold, kept from its first late sample on: two
// senders whose clocks lie apart are late by turns, and to ask the store of each
// of their samples takes ten times what it takes to store one.
type late struct {
	// complete is the time in Unix milliseconds from which all that the series
	// holds is in list.
	complete int64
	list     []fact // the newest ones, in the order of t
}

// fact is one sample that is in the store.
type fact struct {
	t int64
	v float64
}

// maxFacts reaches back over two senders that are half a minute apart and send
// every 5 s.
const maxFacts = 16

// at says what the series holds at t; known is false where the store must be asked.
func (l *late) at(t int64) (v float64, found, known bool) {
	i, found := l.search(t)
	if found {
		return l.list[i].v, true, true
	}
	return 0, false, t >= l.complete
}

func (l *late) search(t int64) (int, bool) {
	return slices.BinarySearchFunc(l.list, t, func(f fact, t int64) int { return cmp.Compare(f.t, t) })
}

// put remembers one sample that is in the store. The oldest gives way.
func (l *late) put(t int64, v float64) {
	i, found := l.search(t)
	switch {
	case found:
		l.list[i].v = v
	case len(l.list) < maxFacts:
		l.list = slices.Insert(l.list, i, fact{t, v})
	case i == 0: // older than all: it gives way at once
		l.complete = max(l.complete, t+1)
	default:
		l.complete = max(l.complete, l.list[0].t+1)
		copy(l.list, l.list[1:i])
		l.list[i-1] = fact{t, v}
	}
}

// holds returns what the series is known to hold.
func (s *series) holds() *late {
	if s.late == nil {
		s.late = &late{complete: math.MaxInt64}
	}
	if s.late.complete == math.MaxInt64 && s.inOrder { // whatever is newer will be put here
		s.late.complete = s.newest + 1
		s.late.put(s.newest, s.value)
	}
	return s.late
}
