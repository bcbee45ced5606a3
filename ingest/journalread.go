package ingest

import "fmt"

// reading puts a journal's records together again.
type reading struct {
	a       *accumulator
	series  map[uint64]*runningSum
	streams map[uint64]*streamState
	ended   bool // an entry says that the snapshot is whole
}

// file takes one file. torn says that its last record was not written to its end;
// an error wraps errDamaged, or refuses a newer format.
func (r *reading) file(b []byte) (torn bool, err error) {
	b, torn, err = checkHeader(b)
	for n := 0; !torn && err == nil; n++ {
		var payload []byte
		payload, b, torn, err = nextRecord(b)
		if payload == nil {
			break
		}
		if err = r.record(payload); err != nil {
			err = fmt.Errorf("record %d: %w", n, err)
		}
	}
	return torn, err
}

func (r *reading) record(payload []byte) error {
	e := entries{b: payload}
	for len(e.b) > 0 && !e.bad {
		r.entry(&e)
	}
	if e.bad {
		return fmt.Errorf("%w: it cannot be read", errDamaged)
	}
	return nil
}

func (r *reading) entry(e *entries) {
	what := e.byte()
	if what == entryEnd {
		r.ended = true
		return
	}
	id := e.uvarint()
	if id == 0 {
		e.bad = true
		return
	}
	switch what {
	case entrySeries:
		r.defineSeries(e, id)
	case entryStream:
		r.defineStream(e, id)
	case entryTotal:
		t, v := e.varint(), e.float()
		if s := r.series[id]; s != nil && !e.bad {
			s.v, s.t, s.any = v, t, true
			s.used = max(s.used, t)
			return
		}
		e.bad = true
	case entryNative:
		t, f := e.varint(), e.native()
		if s := r.series[id]; s != nil && !e.bad {
			s.f, s.t, s.any = f, t, true
			s.used = max(s.used, t)
			return
		}
		e.bad = true
	default:
		s := r.streams[id]
		if s == nil {
			e.bad = true
			return
		}
		r.streamEntry(e, what, s)
	}
}

func (r *reading) defineSeries(e *entries, id uint64) {
	s := &runningSum{id: id, monotonic: e.byte() == 1, labels: e.labels()}
	if e.bad || r.series[id] != nil {
		e.bad = true
		return
	}
	if old := r.a.sum(s.labels.Hash(), s.labels); old != nil {
		// Forgotten by the process that wrote it, and met again.
		old.total, old.monotonic = total{}, s.monotonic
		r.series[id] = old
		return
	}
	r.a.addSum(s)
	r.series[id] = s
	r.a.lastSum = max(r.a.lastSum, id)
}

func (r *reading) defineStream(e *entries, id uint64) {
	var key streamKey
	copy(key[:], e.take(uint64(len(key))))
	if e.bad || r.streams[id] != nil {
		e.bad = true
		return
	}
	s := &streamState{key: key, id: id}
	if old := r.a.streams[key]; old != nil { // forgotten by the process that wrote it, and met again
		r.a.drop(old)
	}
	if string(key[:]) != blindKey {
		r.a.streams[key] = s
	}
	r.streams[id] = s
	r.a.lastStream = max(r.a.lastStream, id)
}

// streamEntry reads one of a stream's entries. What is read is taken over only
// when it was read to its end.
func (r *reading) streamEntry(e *entries, what byte, s *streamState) {
	switch what {
	case entryCounted:
		n := e.uvarint()
		if e.bad || n > 1<<62 {
			e.bad = true
			return
		}
		if s.deltas == nil {
			s.deltas = &deltas{}
		}
		s.n = max(s.n, int(n))
	case entryInterval:
		start, end, v := e.uvarint(), e.uvarint(), e.float()
		if e.bad {
			return
		}
		if s.deltas == nil {
			s.deltas = &deltas{}
		}
		s.deltas.count(start, end, v)
		s.used = max(s.used, int64(end/1e6))
	case entryLast, entryLastCount, entryLastNative:
		l := lastValue{start: e.uvarint(), end: e.uvarint()}
		if what == entryLastNative {
			if l.h = e.native(); l.h != nil {
				l.v = l.h.Count
			}
		} else {
			l.v = e.float()
		}
		if what == entryLastCount {
			l.sum, l.bounds = e.float(), e.fixed()
			n := e.uvarint()
			if n > uint64(len(e.b)) {
				e.bad = true
				return
			}
			l.counts = make([]uint64, n)
			for i := range l.counts {
				l.counts[i] = e.uvarint()
			}
		}
		if e.bad {
			return
		}
		if s.lastValue != nil {
			r.a.nCounts -= s.size()
		}
		s.lastValue = &l
		r.a.nCounts += l.size()
		s.used = max(s.used, int64(l.end/1e6))
		if string(s.key[:]) == blindKey {
			r.a.blind = max(r.a.blind, int64(l.end/1e6))
		}
	default:
		e.bad = true
	}
}

// blindKey is of no stream: what stands under it is accumulator.blind, as the end
// of a last value. A version that does not know it forgets it like an idle stream.
const blindKey = "forgotten before"

// snapshot writes all that is known, in records of a handy size.
func (a *accumulator) snapshot() []byte {
	out := journalHeader()
	out, at := beginRecord(out)
	split := func() {
		if len(out)-at > 64<<10 {
			endRecord(out, at)
			out, at = beginRecord(out)
		}
	}
	for _, s := range a.sums {
		for ; s != nil; s = s.same {
			if s.any {
				out = appendTotal(appendSeries(out, a.named(s)), s)
				split()
			}
		}
	}
	for _, s := range a.streams {
		out = appendPast(appendStream(out, a.namedStream(s)), s)
		split()
	}
	if a.blind > 0 {
		s := a.namedStream(&streamState{key: streamKey([]byte(blindKey)), past: past{lastValue: &lastValue{end: uint64(a.blind) * 1e6}}})
		out = appendLast(appendStream(out, s), s)
	}
	out = append(out, entryEnd)
	endRecord(out, at)
	return out
}

// appendPast writes all that is known of a stream.
func appendPast(b []byte, s *streamState) []byte {
	if s.deltas != nil {
		b = appendIntervals(b, s, &deltas{})
	}
	if s.lastValue != nil && s.known() {
		b = appendLast(b, s)
	}
	return b
}

// named gives a sum its number in the journal.
func (a *accumulator) named(s *runningSum) *runningSum {
	if s.id == 0 {
		a.lastSum++
		s.id = a.lastSum
	}
	return s
}

func (a *accumulator) namedStream(s *streamState) *streamState {
	if s.id == 0 {
		a.lastStream++
		s.id = a.lastStream
	}
	return s
}

// changes appends what the request at hand has changed.
func (w *walk) changes(b []byte) []byte {
	a := &w.sums
	for _, saved := range w.savedTotals {
		s := saved.s
		if s.total == saved.was {
			continue
		}
		if s.id == 0 {
			b = appendSeries(b, a.named(s))
		}
		b = appendTotal(b, s)
	}
	for i := range w.savedPasts {
		was, s := &w.savedPasts[i], w.savedPasts[i].st
		fresh := s.id == 0
		changed := s.deltas != nil && s.n != was.deltas.n
		last := s.lastValue != nil && (s.end != was.last.end || s.start != was.last.start)
		if !changed && !last {
			continue
		}
		if fresh {
			b = appendStream(b, a.namedStream(s))
		}
		if changed {
			b = appendIntervals(b, s, &was.deltas)
		}
		if last {
			b = appendLast(b, s)
		}
	}
	return b
}
