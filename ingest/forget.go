package ingest

// What is idle is let go of: after a day, or after ten minutes where there is no
// room for others.

const (
	forgetAfter = 24 * 60 * 60_000 // ms: how long an idle sum or stream is kept
	forgetFull  = 10 * 60_000      // ms: the same when there is no room
)

// room says whether there is room, and makes some where something is idle.
func (a *accumulator) room(is func() bool, now int64) bool {
	if is() {
		return true
	}
	if !sweepsAgain(&a.cramped, now) {
		return false
	}
	a.forget(now - forgetFull)
	return is()
}

// roomOf is room in what a channel may have: what is idle elsewhere stays.
func (a *accumulator) roomOf(c *Channel, now int64) bool {
	if c.streams < c.o.Limits.Series {
		return true
	}
	if !sweepsAgain(&c.cramped, now) {
		return false
	}
	a.forgetStreams(now-forgetFull, c)
	return c.streams < c.o.Limits.Series
}

// sweepsAgain reports whether the last sweep for want of room is a minute ago.
func sweepsAgain(last *int64, now int64) bool {
	if now-*last < 60_000 && now >= *last {
		return false
	}
	*last = now
	return true
}

// tidy runs between requests.
func (a *accumulator) tidy(now int64) {
	a.blind = min(a.blind, now) // a clock that was ahead must not make all that begins unknown
	if now-a.swept < sweepEvery && now >= a.swept {
		return
	}
	if a.swept != 0 {
		a.forget(now - forgetAfter)
	}
	a.swept = now
}

// forget drops what was not used since before. The next snapshot leaves it out.
func (a *accumulator) forget(before int64) {
	for hash, s := range a.sums {
		var kept *runningSum
		for s != nil {
			next := s.same
			if s.used >= before {
				s.same, kept = kept, s
			} else {
				s.same, s.gone = nil, true
				a.nSums--
				a.m.state.forgottenSeries.Inc()
			}
			s = next
		}
		if kept == nil {
			delete(a.sums, hash)
		} else {
			a.sums[hash] = kept
		}
	}
	a.forgetStreams(before, nil)
}

// forgetStreams drops the streams of a channel, or of all where it is nil, that
// were not used since before.
func (a *accumulator) forgetStreams(before int64, of *Channel) {
	for _, st := range a.streams {
		if st.used < before && (of == nil || st.by == of) {
			a.drop(st)
			a.m.state.forgottenStreams.Inc()
			if st.lastValue != nil {
				a.blind = max(a.blind, st.used)
			}
		}
	}
}
