package ingest

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	native "github.com/prometheus/prometheus/model/histogram"
)

// streamKey names one stream of a sender for good: over activations, caches and
// restarts.
type streamKey [16]byte

// streamState is what is known of one stream of increments.
type streamState struct {
	past
	key  streamKey
	id   uint64   // in the journal; 0: not in it yet
	used int64    // Unix milliseconds
	gone bool     // out of the accumulator, for want of room
	req  uint64   // request that has saved it for undo
	by   *Channel // that it counts for; nil for one of an earlier process
}

// past is the part of a streamState that a request changes: the intervals of a
// delta stream, the last value of a cumulative one.
type past struct {
	*deltas
	*lastValue
}

type savedPast struct {
	st     *streamState
	deltas deltas
	last   lastValue
}

// interval is one delta point that was counted: (start, end] in Unix
// nanoseconds, start 0 when the sender does not know it.
type interval struct {
	start, end uint64
	v          float64
}

// deltas are the newest intervals of one stream, those that end last.
type deltas struct {
	ring [8]interval
	n    int // counted so far
}

// lastValue is the newest value of a cumulative stream, and since when it counts.
type lastValue struct {
	start, end uint64  // Unix nanoseconds
	v          float64 // of a sum; of a histogram its count, below 2^53
	// Of a histogram:
	sum    float64
	bounds uint64 // hash of its bounds
	counts []uint64
	h      *native.FloatHistogram // of an exponential one, in place of the three; never changed in place
}

// size is how many bucket counts it holds.
func (l *lastValue) size() int {
	if l.h != nil {
		return bucketsOf(l.h)
	}
	return len(l.counts)
}

// verdict is what to do with a delta point.
type verdict uint8

const (
	addNew  verdict = iota // add it and write the sum at its time
	addLate                // add it, though the sum at its time is written
	retry                  // it is in the sum already
	refuse
)

// judge compares a point with what its stream has counted.
func (d *deltas) judge(start, end uint64, v float64) (verdict, reason) {
	known := d.ring[:min(d.n, len(d.ring))]
	newest, oldest := uint64(0), ^uint64(0)
	overlaps := false
	for _, k := range known {
		if k.end == end {
			if k.start == start && k.v == v {
				return retry, fine
			}
			return refuse, duplicate
		}
		newest, oldest = max(newest, k.end), min(oldest, k.end)
		overlaps = overlaps || start < k.end && k.start < end
	}
	switch {
	case end > newest:
		// Also where the start lies inside an earlier interval: some senders keep
		// one start for ever.
		return addNew, fine
	case start == 0 || start > end || overlaps:
		return refuse, outOfOrder
	case end < oldest && d.n > len(d.ring):
		return refuse, outOfOrder // it may have been counted and forgotten
	}
	return addLate, fine
}

// gap reports whether a newer interval begins later than the newest one ended:
// what lies between is lost, unless it lies before since and was counted
// elsewhere.
func (d *deltas) gap(start, since uint64) bool {
	newest := uint64(0)
	for _, k := range d.ring[:min(d.n, len(d.ring))] {
		newest = max(newest, k.end)
	}
	return newest != 0 && start > max(newest, since)
}

// count remembers an interval, and lets the oldest of all go: so what was
// forgotten is older than all that is known, and judge can tell.
func (d *deltas) count(start, end uint64, v float64) {
	k := interval{start, end, v}
	d.n++
	if d.n <= len(d.ring) {
		d.ring[d.n-1] = k
		return
	}
	oldest := 0
	for i := range d.ring {
		if d.ring[i].end < d.ring[oldest].end {
			oldest = i
		}
	}
	if end > d.ring[oldest].end {
		d.ring[oldest] = k
	}
}

// known reports whether the stream has a last value at all.
func (l *lastValue) known() bool { return l.end != 0 }

// state returns what is known of the stream that the walk stands on, saved for
// undo. It is nil when there is no room.
func (w *walk) state(st *stream) *streamState {
	s := st.state
	if s == nil || s.gone {
		c := &w.sums
		if s == nil {
			key := w.streamKey()
			if s = c.streams[key]; s == nil {
				s = &streamState{key: key, gone: true}
			}
		}
		switch {
		case s.gone && !c.take(s, w.src.channel, w.now):
			return nil
		case s.by == nil: // of an earlier process
			c.own(s, w.src.channel, 1)
		}
		st.state = s
	}
	s.used = w.now
	if w.me.v.temporality == temporalityDelta {
		if s.deltas == nil {
			s.deltas = &deltas{}
		}
	} else if s.lastValue == nil {
		s.lastValue = &lastValue{}
	}
	if s.req != w.n {
		s.req = w.n
		saved := savedPast{st: s}
		if s.deltas != nil {
			saved.deltas = *s.deltas
		}
		if s.lastValue != nil {
			saved.last = *s.lastValue
			s.counts = slices.Clone(s.counts) // the saved ones stay as they are
		}
		w.savedPasts = append(w.savedPasts, saved)
	}
	return s
}

// maxCounts bounds the bucket counts that are kept, for each stream that may be.
const maxCounts = 8

// take keeps a stream, if there is room. The last quarter of all is for node
// channels, as of the series.
func (a *accumulator) take(s *streamState, by *Channel, now int64) bool {
	if !a.roomOf(by, now) || !a.room(func() bool {
		return len(a.streams) < a.max && (by.o.Class != Workload || a.actors < a.max-a.max/4)
	}, now) {
		return false
	}
	s.gone = false
	a.streams[s.key] = s
	if s.lastValue != nil {
		a.nCounts += s.size()
	}
	a.own(s, by, 1)
	return true
}

// own has a stream count for a channel, or with -1 no longer.
func (a *accumulator) own(s *streamState, by *Channel, n int) {
	s.by = by
	by.streams += n
	if by.o.Class == Workload {
		a.actors += n
	}
	if s.lastValue != nil {
		by.counts += n * s.size()
	}
}

// drop lets a stream go.
func (a *accumulator) drop(s *streamState) {
	s.gone = true
	delete(a.streams, s.key)
	if s.by != nil {
		a.own(s, s.by, -1)
	}
	if s.lastValue != nil {
		a.nCounts -= s.size()
	}
}

// roomForCounts reports whether a stream of a channel may have that many bucket
// counts more.
func (a *accumulator) roomForCounts(by *Channel, more int) bool {
	return more <= 0 || a.nCounts+more <= maxCounts*a.max && by.counts+more <= maxCounts*by.o.Limits.Series
}

// resized counts what a stream has more of bucket counts.
func (a *accumulator) resized(s *streamState, more int) {
	a.nCounts += more
	if s.by != nil {
		s.by.counts += more
	}
}

func (s *savedPast) undo(a *accumulator) {
	if s.st.deltas != nil {
		*s.st.deltas = s.deltas
	}
	if s.st.lastValue != nil {
		a.resized(s.st, s.last.size()-s.st.size())
		*s.st.lastValue = s.last
	}
}

// streamKey is a hash of the sender and of what leads to the stream, whoever
// encoded it: a window that comes as protobuf and as JSON is one window. On a
// workload channel the sender is the actor, wherever on this node it is.
func (w *walk) streamKey() streamKey {
	who := "c" + w.src.channel.o.Name
	if w.src.actor != "" {
		who = "a" + w.src.actor
	}
	b := make([]byte, 0, 512)
	for _, part := range [][]byte{
		[]byte(who), canonicalForm(msgResource, []byte(w.re.key), nil), canonicalForm(msgScope, []byte(w.se.key), nil),
		[]byte(w.me.key), canonicalForm(msgAttributes, []byte(w.last.key), nil),
	} {
		b = binary.AppendUvarint(b, uint64(len(part)))
		b = append(b, part...)
	}
	sum := sha256.Sum256(b)
	return streamKey(sum[:len(streamKey{})])
}
