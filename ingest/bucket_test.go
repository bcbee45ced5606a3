package ingest

import (
	"testing"
	"time"
)

func TestBucket(t *testing.T) {
	at := func(seconds float64) time.Time { return time.UnixMilli(base + int64(seconds*1000)) }
	b := newBucket(10, 20)
	f := func(seconds, size float64, want bool, spend, level float64) {
		t.Helper()
		if got := b.open(at(seconds), size); got != want {
			t.Errorf("%g s: open for %g is %v; want %v", seconds, size, got, want)
		}
		if b.spend(at(seconds), spend); b.level != level {
			t.Errorf("%g s: holds %g; want %g", seconds, b.level, level)
		}
	}
	f(0, 0, true, 5, 15)
	f(0, 16, false, 0, 15) // not enough for one that says its size
	f(0, 15, true, 0, 15)
	f(0.4, 25, false, 0, 19)
	f(1, 25, true, 25, -5) // and one that is larger begins only then
	f(1.5, 0, false, 0, 0) // the debt is paid, and nothing is there
	f(1.6, 0, true, 0, 1)
	f(0.6, 0, true, 0, 1)  // a clock that was set back adds nothing
	f(1.6, 0, true, 0, 11) // and goes on from there
	f(1e9, 0, true, 0, 20)

	if free := (&bucket{}); !free.open(at(0), 1e12) {
		t.Error("a bucket without a rate refuses")
	}
}

// Series that the cache let go of count for three hours.
func TestLeavers(t *testing.T) {
	var l leavers
	const hour = 3600_000
	l.add(base)
	l.add(base + hour)
	for _, c := range []struct {
		after int64
		want  int
	}{{hour, 2}, {hour - 1, 2}, {3*hour - leaverSlot, 2}, {3 * hour, 1}, {4*hour - leaverSlot, 1}, {4 * hour, 0}, {2 * hour, 0}, {99 * hour, 0}} {
		if got := l.sum(base + c.after); got != c.want {
			t.Errorf("after %d ms: %d; want %d", c.after, got, c.want)
		}
	}
}
