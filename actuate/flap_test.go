package actuate_test

import (
	"testing"

	"github.com/wattloop/wattloop/actuate"
)

// flip makes n writes of in, 20 s apart, alternately at 150 and 200 W, and
// ends at 200 where n is even.
func flip(r *run, at float64, n int, in actuate.Intent) float64 {
	for i := range n {
		in.Value = 150
		if i%2 == 1 {
			in.Value = 200
		}
		r.step(at, in)
		at += 20
	}
	r.link.cmds()
	return at
}

func TestFlapping(t *testing.T) {
	t.Run("efficiency gives the original back", func(t *testing.T) {
		r := newRun(t, cpu(0))
		at := flip(r, 0, 7, want("a", 0)) // six reversals
		r.is(at, "release rapl:package-0 a", "a cpu0 blocked/flapping ended", want("a", 200))
		r.is(at+5, "", "a cpu0 blocked/flapping ended", want("a", 150))
		r.is(at+6, "", "")
		r.is(at+599, "", "a cpu0 blocked/flapping ended", want("a", 150))
		r.is(at+600, "set rapl:package-0 a 150", "a cpu0 applied 150", want("a", 150))
	})
	t.Run("another control is not latched", func(t *testing.T) {
		r := newRun(t, cpu(0))
		at := flip(r, 0, 7, want("a", 0))
		r.step(at, want("a", 200))
		r.link.cmds()
		r.is(at+5, "set rapl:package-0 b 180", "a cpu0 blocked/flapping ended; b cpu0 applied 180", want("a", 150), want("b", 180))
	})
	t.Run("protection stays at its lowest", func(t *testing.T) {
		r := newRun(t, cpu(0))
		at := flip(r, 0, 7, want("p", 0, protection))
		r.is(at, "renew rapl:package-0 p", "p cpu0 blocked/flapping", want("p", 200, protection))
		r.is(at+5, "renew rapl:package-0 p", "p cpu0 blocked/flapping")
		r.is(at+10, "renew rapl:package-0 p", "p cpu0 blocked/flapping; b cpu0 blocked/overridden_by", want("p", 200, protection), want("b", 180))
		r.is(at+15, "set rapl:package-0 p 120", "p cpu0 blocked/flapping; b cpu0 none/not_engaged ended", want("p", 120, protection))
		r.is(at+20, "set rapl:package-0 p 150", "p cpu0 blocked/flapping", want("p", 200, protection))
		r.is(at+25, "hold rapl:package-0 p", "p cpu0 blocked/flapping", want("p", 200, protection, kind(actuate.Hold)))
		r.is(at+601, "set rapl:package-0 p 200", "p cpu0 applied 200", want("p", 200, protection))
	})
	t.Run("protection that ends is latched all the same", func(t *testing.T) {
		r := newRun(t, cpu(0))
		at := flip(r, 0, 7, want("p", 0, protection))
		r.is(at, "renew rapl:package-0 p", "p cpu0 blocked/flapping")
		r.is(at+599, "renew rapl:package-0 p", "p cpu0 blocked/flapping")
		r.is(at+600, "release rapl:package-0 p", "p cpu0 applied/restored 250 ended")
	})
	t.Run("but can be restored", func(t *testing.T) {
		r := newRun(t, cpu(0))
		at := flip(r, 0, 7, want("p", 0, protection))
		r.step(at)
		r.link.cmds()
		r.is(at+1, "release rapl:package-0 p", "p cpu0 applied/restored 250 ended", want("p", 0, protection, kind(actuate.Restore)))
		r.is(at+2, "", "")
	})
	t.Run("nor does the restore itself latch it", func(t *testing.T) {
		r := newRun(t, cpu(0))
		at := flip(r, 0, 7, want("p", 0, protection))
		r.is(at, "release rapl:package-0 p", "p cpu0 applied/restored 250 ended", want("p", 0, protection, kind(actuate.Restore)))
		r.is(at+1, "", "")
	})
	t.Run("engaging and releasing is turning too", func(t *testing.T) {
		r := newRun(t, cpu(0))
		at := 0.0
		for range 4 { // down, up, down ... : six reversals, and the seventh is the last release
			r.step(at, want("a", 150))
			r.step(at + 20)
			at += 40
		}
		r.link.cmds()
		r.is(at, "", "a cpu0 blocked/flapping ended", want("a", 150))
	})
	t.Run("the control that lets go is to blame, not who takes over", func(t *testing.T) {
		r := newRun(t, cpu(0))
		at := 0.0
		for range 4 {
			r.step(at, want("a", 150), want("b", 200))
			r.step(at+20, want("b", 200))
			at += 40
		}
		r.link.cmds()
		r.is(at, "renew rapl:package-0 b", "a cpu0 blocked/flapping ended; b cpu0 applied/unchanged 200", want("a", 150), want("b", 200))
	})
	t.Run("all devices of the control are latched", func(t *testing.T) {
		r := newRun(t, cpu(0), cpu(1))
		at := flip(r, 0, 7, want("a", 0))
		r.is(at, "release rapl:package-0 a; release rapl:package-1 a",
			"a cpu0 blocked/flapping ended; a cpu1 blocked/flapping ended", want("a", 200))
	})
	t.Run("six in five minutes are none", func(t *testing.T) {
		r := newRun(t, cpu(0))
		at := flip(r, 0, 7, want("a", 0))
		r.is(at+181, "set rapl:package-0 a 200", "a cpu0 applied 200", want("a", 200))
	})
	t.Run("without a bound there is no latch", func(t *testing.T) {
		r := newRun(t, cpu(0))
		r.g.Pace = map[string]actuate.Pace{actuate.ActionRAPLCap: {}}
		for i := range 100 {
			in := want("a", 150+float64(i%2))
			if got := r.step(float64(i)/1000, in); !got[0].Wrote || got[0].Result != actuate.Applied {
				t.Fatalf("write %d: %+v; want it applied", i, got[0])
			}
		}
	})
}
