package ingest

import "time"

// seriesCount is what a channel has of the series in the store's head. It belongs
// to the receiver's lock.
type seriesCount struct {
	n     int // in the cache
	left  leavers
	fresh bucket // of series that were not there
}

// init sets the bucket. It begins with room for all that the channel may have,
// since after a start of the receiver they are all new to it.
func (s *seriesCount) init(l Limits) {
	s.fresh = newBucket(l.NewSeries/60, l.NewSeries)
	s.fresh.level = max(s.fresh.size, float64(l.Series))
}

// leavers count series of workload channels that the cache has let go of. They
// stay in the store's head until that is written out, at most 3 h later with
// blocks of 2 h: who sends ever new ones must not have more of them by waiting.
type leavers struct {
	slots [12]int
	slot  int64 // the newest
}

const leaverSlot = 15 * 60_000 // ms

func (l *leavers) add(now int64) {
	l.turn(now)
	l.slots[l.slot%int64(len(l.slots))]++
}

func (l *leavers) sum(now int64) (n int) {
	l.turn(now)
	for _, left := range l.slots {
		n += left
	}
	return n
}

// turn forgets the slots that are over.
func (l *leavers) turn(now int64) {
	slot, size := now/leaverSlot, int64(len(l.slots))
	if slot <= l.slot { // also where the clock was set back
		return
	}
	for i := max(l.slot, slot-size) + 1; i <= slot; i++ {
		l.slots[i%size] = 0
	}
	l.slot = slot
}

// room says why the channel may not make one series more, or takes one from what
// it may. The last quarter of all is for node channels.
func (w *walk) room(c *Channel) reason {
	now, most := time.UnixMilli(w.now), w.cache.maxSeries
	if c.o.Class == Workload {
		most -= most / 4
	}
	n := &c.series
	switch {
	case n.n+n.left.sum(w.now) >= c.o.Limits.Series, w.cache.nSeries+w.cache.left.sum(w.now) >= most:
		return seriesLimit
	case !n.fresh.open(now, 1):
		return newSeriesLimit
	}
	n.fresh.spend(now, 1)
	n.n++
	w.cache.nSeries++
	return fine
}

// dropped takes a series that the cache has let go of out of the counts.
func (c *cache) dropped(s *series, now int64) {
	c.nSeries--
	s.by.series.n--
	if s.by.o.Class == Workload {
		s.by.series.left.add(now)
		c.left.add(now)
	}
}
