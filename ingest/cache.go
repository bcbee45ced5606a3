package ingest

import (
	"math"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
)

// The cache leads from the bytes of a point to its series: origin, resource
// bytes, scope bytes, what a metric says of itself, attribute bytes, each compared whole. It
// holds only what was decoded, checked and translated once, so that a point of a
// known stream costs a comparison of bytes. Two byte forms of one stream are two
// entries that lead to one series.
type cache struct {
	sources map[*origin]struct{} // those that have sent
	series  map[uint64]*series   // by hash of the labels, chained by same
	// epoch is what a series must agree with for its ref to be used.
	epoch              uint64
	nodes, keyBytes    int     // entries on all levels, and the bytes of their keys
	src                *origin // whose entries come and go now
	strained           bool    // no entry is remembered in the rest of this request
	nSeries, maxSeries int
	left               leavers
	swept              int64 // Unix milliseconds
}

// origin is whom a request comes from: a channel, under one activation. The same
// bytes from two sources may mean two series.
type origin struct {
	channel   *Channel
	resources level[resource]
	// On a workload channel: what it sets, whose work it is, and since when, in
	// Unix nanoseconds.
	stamp *stamp
	actor string
	since uint64
	// alone is since when no other node can have counted the actor's cumulative
	// work.
	alone uint64

	nodes, keyBytes int  // as the cache's
	full            bool // it has had more than it may
}

const (
	keyBytes = 320       // of keys, for each series that may be
	maxKey   = 128 << 10 // bytes of one key: 64 labels of the largest size fit
	// What one activation of a workload channel may have: the keys, and for each of
	// its series this many entries.
	sourceKeyBytes = 8 << 20
	sourceNodes    = 4
	sweepEvery     = 30 * 60_000 // ms
	idleAfter      = 60 * 60_000 // ms: how long an unused entry stays
	idleWhenFul    = 10 * 60_000 // ms: the same when there is no room
)

// level is the children of one entry of the level above.
type level[T any] struct {
	byKey map[string]*entry[T]
	first *entry[T]
}

// entry is one child. next is the one that came after it the last time.
type entry[T any] struct {
	key  string
	next *entry[T]
	used int64 // Unix milliseconds
	v    T
}

// find returns the child with that key or nil. It tries the one that came after
// prev in the last request first: senders repeat themselves.
func (l *level[T]) find(prev *entry[T], key []byte) *entry[T] {
	guess := l.first
	if prev != nil {
		guess = prev.next
	}
	if guess != nil && guess.key == string(key) {
		return guess
	}
	e := l.byKey[string(key)]
	if e != nil {
		l.follow(prev, e)
	}
	return e
}

func (l *level[T]) follow(prev, e *entry[T]) {
	if prev == nil {
		l.first = e
	} else {
		prev.next = e
	}
}

// add makes a child. Where there is no room to remember it, it serves the request
// at hand, and so do its children.
func (l *level[T]) add(c *cache, prev *entry[T], key []byte) *entry[T] {
	if !c.remembers(len(key)) {
		return &entry[T]{}
	}
	e := &entry[T]{key: string(key)}
	if l.byKey == nil {
		l.byKey = make(map[string]*entry[T])
	}
	l.byKey[e.key] = e
	l.follow(prev, e)
	c.count(1, len(e.key))
	return e
}

// remembers reports whether an entry with a key of n bytes may stay.
func (c *cache) remembers(n int) bool {
	src := c.src
	if src.channel.o.Class == Workload {
		src.full = src.full || src.nodes >= sourceNodes*src.channel.o.Limits.Series || src.keyBytes+n > sourceKeyBytes
	}
	c.strained = c.strained || src.full || n > maxKey || c.nodes >= 4*c.maxSeries || c.keyBytes+n > c.maxKeyBytes()
	return !c.strained
}

func (c *cache) count(entries, bytes int) {
	c.nodes += entries
	c.keyBytes += bytes
	c.src.nodes += entries
	c.src.keyBytes += bytes
}

// forget drops all of a source's entries, but for their series.
func (c *cache) forget(src *origin) {
	c.nodes -= src.nodes
	c.keyBytes -= src.keyBytes
	src.resources = level[resource]{}
	src.nodes, src.keyBytes, src.full = 0, 0, false
}

// sweep removes the children for which keep is false, and all guesses, which may
// lead to a removed one.
func (l *level[T]) sweep(c *cache, keep func(*entry[T]) bool) {
	l.first = nil
	for key, e := range l.byKey {
		e.next = nil
		if !keep(e) {
			delete(l.byKey, key)
			c.count(-1, -len(key))
		}
	}
}

type scope struct {
	metrics  level[metric]
	messages int // as of a resource
}

// stream is one point's way to its series.
type stream struct {
	s        *series      // of a gauge or a sum
	h        *histogram   // of a histogram
	state    *streamState // of increments; nil until asked for
	bad      reason       // why its points are refused, whatever their values
	messages int32        // in its attributes, as of a resource
}

// series is one series of the store. What each sample looks at stands first: at
// 100,000 series most of a point's cost is fetching this from memory.
type series struct {
	labels labels.Labels
	ref    storage.SeriesRef
	epoch  uint64 // of ref and newest

	// newest and value are the newest sample of this epoch that was committed
	// here; inOrder says that there is one.
	newest int64
	value  float64

	// What follows, to ready, belongs to the request numbered req.
	req     uint64
	owner   *metric // whose points it takes
	lastT   int64   // of the newest sample in walk.samples, whose index is last
	readyT  int64   // of the newest sample that was given to the appender
	readyV  float64
	last    int32 // -1 for none
	ready   bool  // there is a readyT
	inOrder bool  // of newest
	falls   bool  // its sum may go down though its metric is no such sum

	touch *Touch // the rules that select it; nil: nobody has asked yet
	used  int64

	by    *Channel    // that made it
	same  *series     // next one with the same hash
	sum   *runningSum // of increments; nil until asked for
	gauge *gaugeSet   // of a workload's gauge; nil until asked for
	wrote *[]int64    // of target_info: its newest times, in order
	late  *late       // nil until a sample came late
}

// lookup returns the series with these labels, nil when there is none.
func (c *cache) lookup(hash uint64, ls labels.Labels) *series {
	for s := c.series[hash]; s != nil; s = s.same {
		if labels.Equal(s.labels, ls) {
			return s
		}
	}
	return nil
}

// make adds a series that lookup did not find.
func (c *cache) make(by *Channel, hash uint64, ls labels.Labels) *series {
	s := &series{labels: ls, by: by, same: c.series[hash]}
	c.series[hash] = s
	return s
}

// tidy drops what has not been used for long. It runs between requests only,
// since a request holds entries.
func (c *cache) tidy(now int64) {
	idle := int64(idleAfter)
	full := c.nSeries >= c.maxSeries || c.crowded()
	for src := range c.sources {
		full = full || src.full
	}
	switch {
	case full && now-c.swept >= 60_000:
		idle = idleWhenFul
	case now-c.swept < sweepEvery && c.swept != 0 && now >= c.swept:
		return
	}
	if c.swept == 0 { // nothing can be idle yet
		c.swept = now
		return
	}
	c.swept = now
	c.dropStreams(now - idle)
	crowded := c.crowded()
	for src := range c.sources {
		if crowded || src.full {
			c.forget(src)
		}
	}
	c.dropSeries(now, now-idle, full)
}

func (c *cache) maxKeyBytes() int { return keyBytes*c.maxSeries + 2*maxKey }

// crowded says that there is hardly room for entries, whoever they are for.
func (c *cache) crowded() bool {
	return c.nodes >= 4*c.maxSeries || c.keyBytes > c.maxKeyBytes()-maxKey
}

func (c *cache) dropStreams(before int64) {
	for src := range c.sources {
		c.dropStreamsOf(src, before)
	}
}

func (c *cache) dropStreamsOf(src *origin, before int64) {
	c.src = src
	src.resources.sweep(c, func(re *entry[resource]) bool {
		re.v.scopes.sweep(c, func(se *entry[scope]) bool {
			se.v.metrics.sweep(c, func(me *entry[metric]) bool {
				me.v.streams.sweep(c, func(e *entry[stream]) bool { return e.used >= before })
				return len(me.v.streams.byKey) > 0
			})
			return len(se.v.metrics.byKey) > 0
		})
		if len(re.v.scopes.byKey) == 0 {
			return false
		}
		if re.v.info != nil { // stays while a resource points to it
			re.v.info.used = max(re.v.info.used, before)
		}
		return true
	})
}

// dropSource forgets all of a source's streams.
func (c *cache) dropSource(src *origin) {
	if _, there := c.sources[src]; there {
		c.dropStreamsOf(src, math.MaxInt64)
		delete(c.sources, src)
	}
}

// dropSeries spares the running sums as long as there is room: a delta stream that
// does not move sends nothing.
func (c *cache) dropSeries(now, before int64, full bool) {
	for hash, s := range c.series {
		var kept *series
		for s != nil {
			next := s.same
			if s.used >= before || s.sum != nil && !s.sum.gone && !full {
				s.same, kept = kept, s
			} else {
				c.dropped(s, now)
			}
			s = next
		}
		if kept == nil {
			delete(c.series, hash)
		} else {
			c.series[hash] = kept
		}
	}
}
