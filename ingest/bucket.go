package ingest

import "time"

// bucket is a token bucket over a clock that the caller reads. It may be in debt:
// what a request costs is known only once it was read, and what comes next waits
// until it is paid for. A rate of 0 or below is unbounded.
type bucket struct {
	rate  float64 // tokens a second
	size  float64 // it fills up to
	level float64
	at    time.Time // of level
}

func newBucket(rate, size float64) bucket { return bucket{rate: rate, size: size, level: size} }

// fill adds what has come since the last look. A clock that was set back adds
// nothing, and one set far ahead no more than the bucket holds.
func (b *bucket) fill(now time.Time) {
	if since := now.Sub(b.at); since > 0 && !b.at.IsZero() && b.level < b.size {
		b.level = min(b.size, b.level+b.rate*since.Seconds())
	}
	b.at = now
}

// open reports whether a request may begin that costs about n tokens, 0 when
// nobody knows. One that costs more than a full bucket begins when it is full.
func (b *bucket) open(now time.Time, n float64) bool {
	if b.rate <= 0 {
		return true
	}
	b.fill(now)
	return b.level > 0 && b.level >= min(n, b.size)
}

// spend takes n tokens, into debt if need be.
func (b *bucket) spend(now time.Time, n float64) {
	if b.rate > 0 {
		b.fill(now)
		b.level -= n
	}
}
