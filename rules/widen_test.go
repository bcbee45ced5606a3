package rules

import (
	"testing"
	"time"
)

// A push that comes a quarter of its interval late does not make the key warm
// anew: the widened window still holds two samples. A window of two intervals as
// written had one for as long as a push was late.
func TestLatePushDoesNotWarmAnew(t *testing.T) {
	f := func(window string, interval, lag float64, fresh bool) {
		t.Helper()
		w := newWorld(t)
		r := reading(t, RateCovered, `sum by (n) (rate(joules[`+window+`]))`, "n")
		sent := 0.0
		warm := 0
		for now := 0.0; now <= 20*interval; now++ {
			for ; sent+lag <= now; sent += interval {
				w.add(`joules{n="a"}`, sent, 100*sent+1000)
			}
			if now < 10*interval {
				continue
			}
			if k := w.one(r, now); k.Quality != Fresh || k.Value != 100 {
				warm++
			}
		}
		if (warm == 0) != fresh {
			t.Errorf("[%s] read of pushes every %g s, %g s late: not fresh in %d seconds of %g; want fresh all the time: %v",
				window, interval, lag, warm, 10*interval, fresh)
		}
	}
	f("30s", 60, 0, true)
	f("30s", 60, 1, true)
	f("30s", 60, 14, true)
	f("2m", 60, 14, true) // two intervals as written
	f("30s", 15, 3, true)
	f("30s", 13, 3, true)
	f("30s", 5, 1, true)
	f("30s", 60, 40, false) // as late as that it is flagged (S0-163), and not trusted
	f("5m", 60, 40, true)
}

// The measured interval of a timer that jitters does not move the window.
func TestWidenedWindowStands(t *testing.T) {
	f := func(window, interval, want time.Duration) {
		t.Helper()
		if got := (rangeOf(window)).widened(interval); got != want {
			t.Errorf("[%s] at an interval of %s is read over %s; want %s", window, interval, got, want)
		}
	}
	f(30*time.Second, 60*time.Second, 135*time.Second)
	f(30*time.Second, 60*time.Second+49*time.Millisecond, 135*time.Second)
	f(30*time.Second, 60*time.Second-49*time.Millisecond, 135*time.Second)
	f(2*time.Minute, 60*time.Second, 135*time.Second)
	f(135*time.Second, 60*time.Second, 135*time.Second)
	f(5*time.Minute, 60*time.Second, 5*time.Minute)
	f(30*time.Second, 13*time.Second, 30*time.Second)
	f(30*time.Second, 0, 30*time.Second) // unknown
}

func rangeOf(d time.Duration) window { return window{length: d} }
