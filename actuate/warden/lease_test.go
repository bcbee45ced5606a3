package warden

import (
	"math"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/wattloop/wattloop/actuate"
)

// P8: the end of a lease gives an efficiency cap back.
func TestLeaseEnds(t *testing.T) {
	p := plugIn(t, t.TempDir(), "a", 200)
	r := bench(t, nil, p)
	r.says(set("plug:a", 150), "applied 150")
	r.pass(29 * time.Second)
	wantHolds(t, p, "150/250")
	r.pass(time.Second)
	wantHolds(t, p, "200/250")
	r.wantState("plug:a", actuate.StateArmed)
	r.says(with(set("plug:a", 0), actuate.OpRenew), "blocked no_lease 200")
	if ids := r.journal.ids(); len(ids) != 0 {
		t.Errorf("originals of %v are still open", ids)
	}
}

// The knob's own loop meets a deadline without waiting for the next tick, on
// whatever clock: here one that runs four times as fast.
func TestLeaseEndsExactly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := plugIn(t, t.TempDir(), "a", 200)
		begin := time.Now()
		r := bench(t, func(o *Options) {
			o.Tick, o.Speed = time.Minute, 4
			o.Clock = func() time.Duration { return 4 * time.Since(begin) }
		}, p)
		go r.knobs[0].run(t.Context())
		synctest.Wait()
		r.says(set("plug:a", 150), "applied 150") // 30 s of the clock
		time.Sleep(7500*time.Millisecond - time.Nanosecond)
		synctest.Wait()
		wantHolds(t, p, "150/250")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		wantHolds(t, p, "200/250")
	})
}

// A suspended machine wakes up with its leases ended, for the clock went on.
func TestLeaseEndsInSuspend(t *testing.T) {
	p := plugIn(t, t.TempDir(), "a", 200)
	r := bench(t, nil, p)
	r.says(set("plug:a", 150), "applied 150")
	r.now += 8 * time.Hour
	r.look()
	wantHolds(t, p, "200/250")
}

// Protection: lease end, hold, safe cap; its own control takes it up again.
func TestHolding(t *testing.T) {
	start := func(t *testing.T) (*rig, *plug) {
		p := plugIn(t, t.TempDir(), "a", 200)
		r := bench(t, nil, p)
		r.says(guard("plug:a", 150), "applied 150")
		return r, p
	}
	t.Run("lease ends", func(t *testing.T) {
		r, p := start(t)
		r.pass(30 * time.Second)
		r.wantState("plug:a", actuate.StateHolding)
		r.pass(15*time.Minute - time.Second)
		wantHolds(t, p, "150/150")
		r.pass(time.Second)
		wantHolds(t, p, "120/120")
		r.wantState("plug:a", actuate.StateSafe)
		r.pass(24 * time.Hour)
		wantHolds(t, p, "120/120")
		r.says(with(guard("plug:a", 0), actuate.OpRenew), "applied unchanged 120")
		r.wantState("plug:a", actuate.StateApplied)
		r.says(guard("plug:a", 160), "applied 160")
		r.says(with(guard("plug:a", 0), actuate.OpRelease), "applied restored 200")
		wantHolds(t, p, "200/250")
	})
	t.Run("input lost", func(t *testing.T) {
		r, p := start(t)
		r.says(with(guard("plug:a", 0), actuate.OpHold), "applied holding 150")
		r.wantState("plug:a", actuate.StateHolding)
		r.pass(10 * time.Minute)
		r.says(with(guard("plug:a", 0), actuate.OpHold), "applied holding 150")
		r.pass(5 * time.Minute) // counted from when it began
		r.wantState("plug:a", actuate.StateSafe)
		r.says(with(guard("plug:a", 0), actuate.OpHold), "applied holding 120")
		r.says(with(guard("plug:a", 0), actuate.OpRelease), "applied restored 200")
		wantHolds(t, p, "200/250")
	})
	t.Run("input lost, nothing engaged", func(t *testing.T) {
		p := plugIn(t, t.TempDir(), "a", 200)
		r := bench(t, nil, p)
		r.says(with(guard("plug:a", 0), actuate.OpHold), "blocked no_lease 200")
		wantHolds(t, p, "200/250")
	})
	t.Run("input lost, efficiency gives back", func(t *testing.T) {
		p := plugIn(t, t.TempDir(), "a", 200)
		r := bench(t, nil, p)
		r.says(set("plug:a", 150), "applied 150")
		r.says(with(set("plug:a", 0), actuate.OpHold), "applied restored 200")
		wantHolds(t, p, "200/250")
	})
	t.Run("another control may go lower, never higher", func(t *testing.T) {
		r, p := start(t)
		r.pass(30 * time.Second)
		r.says(set("plug:a", 180), "blocked overridden_by 150")
		r.says(set("plug:a", 130), "applied 130")
		wantHolds(t, p, "130/150")
		r.says(with(guard("plug:a", 0), actuate.OpRenew), "blocked overridden_by 130")
		r.says(with(set("plug:a", 0), actuate.OpRelease), "applied overridden_by 150")
		wantHolds(t, p, "150/150")
		r.wantState("plug:a", actuate.StateHolding)
		r.says(set("plug:a", 130), "applied 130")
		r.pass(30 * time.Second) // its lease ends: back to what is held
		wantHolds(t, p, "150/150")
		r.says(with(guard("plug:a", 0), actuate.OpRenew), "applied unchanged 150")
		r.says(set("plug:a", 180), "applied 180") // an orderly change of owner, by the governor
		r.says(with(set("plug:a", 0), actuate.OpRelease), "applied restored 200")
	})
	t.Run("safe cap that cannot be written is tried for ever", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r, p := start(t)
			p.break_(always(syscall.EIO))
			r.pass(16 * time.Minute)
			if got := r.state("plug:a"); got.Reason != actuate.ReasonWriteFailed {
				t.Errorf("reason %q; want an alarm", got.Reason)
			}
			r.says(with(guard("plug:a", 0), actuate.OpHold), "error write_failed 150")
			p.break_(nil)
			r.pass(10 * time.Second)
			wantHolds(t, p, "120/120")
			r.wantState("plug:a", actuate.StateSafe)
		})
	})
}

// RESTORE_FAILED: an alarm, and tried for ever, at most ten seconds apart.
func TestRestoreFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := plugIn(t, t.TempDir(), "a", 200)
		r := bench(t, nil, p)
		r.says(set("plug:a", 150), "applied 150")
		p.break_(always(syscall.EIO))
		r.says(with(set("plug:a", 0), actuate.OpRelease), "error restore_failed 150")
		r.wantState("plug:a", actuate.StateRestoreFailed)
		r.says(set("plug:a", 120), "error restore_failed 150")
		r.pass(time.Hour)
		r.wantState("plug:a", actuate.StateRestoreFailed)
		p.break_(nil)
		r.pass(10 * time.Second)
		r.wantState("plug:a", actuate.StateArmed)
		wantHolds(t, p, "200/250")
	})
}

// A write that is refused at the restore too leaves nothing undone where
// nothing had been written.
func TestRestoreOfNothing(t *testing.T) {
	p := plugIn(t, t.TempDir(), "a", 200)
	r := bench(t, nil, p)
	p.break_(always(syscall.EPERM))
	r.says(set("plug:a", 150), "blocked not_writable 200")
	r.wantState("plug:a", actuate.StateArmed)
}

// I2, P9: whatever is asked, what is granted lies between floor and original.
func TestLimits(t *testing.T) {
	d := plugDescription("a")
	f := func(d actuate.Description, c Clamp, original float64, raise bool, low, high float64) {
		t.Helper()
		if c.Floor == 0 {
			c.Floor = defaultFloor
		}
		if got := limitsOf(d, c, original, raise); math.Abs(got.low-low) > 1e-9 || math.Abs(got.high-high) > 1e-9 {
			t.Errorf("limits of %+v, original %g, raise %t = %g to %g; want %g to %g", c, original, raise, got.low, got.high, low, high)
		}
	}
	f(d, Clamp{}, 200, false, 80, 200)
	f(d, Clamp{}, 150, false, 80, 150)
	f(d, Clamp{}, 150, true, 80, 300)
	f(d, Clamp{Min: 100, Max: 140}, 200, false, 100, 140)
	f(d, Clamp{Floor: 0.6}, 200, false, 120, 200)
	f(d, Clamp{Max: 400}, 250, true, 80, 300)
	f(d, Clamp{}, 50, false, 80, 50) // empty: below the floor already
	d.Max, d.Default = 0, 0          // the hardware states nothing
	f(d, Clamp{}, 150, false, 60, 150)
	f(d, Clamp{}, 150, true, 60, 150)
	f(d, Clamp{Max: 180}, 150, true, 60, 180)
	th := actuate.Description{Action: actuate.ActionThrottle, Max: 100}
	f(th, Clamp{}, 0, false, 0, 60)
	f(th, Clamp{Max: 50}, 10, false, 10, 50)
	f(th, Clamp{Floor: 0.7}, 10, true, 0, 30)
}

func TestLimitsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		watt := rapid.Float64Range(0, 1000)
		d := actuate.Description{
			Action: rapid.SampledFrom([]string{actuate.ActionRAPLCap, actuate.ActionGPUCap, actuate.ActionThrottle}).Draw(t, "action"),
			Min:    watt.Draw(t, "min"), Max: watt.Draw(t, "max"), Default: watt.Draw(t, "default"),
		}
		c := Clamp{Min: watt.Draw(t, "admin min"), Max: watt.Draw(t, "admin max"), Floor: rapid.Float64Range(0.01, 1).Draw(t, "floor")}
		original := watt.Draw(t, "original")
		l := limitsOf(d, c, original, false)
		if l.empty() {
			return
		}
		v := l.clamp(rapid.Float64().Draw(t, "asked"))
		if !l.hold(v) || tighter(d, original, v) || v < d.Min || v < c.Min || d.Max > 0 && v > d.Max || c.Max > 0 && v > c.Max {
			t.Fatalf("granted %g within %+v of %+v, %+v, original %g", v, l, d, c, original)
		}
		if !inverted(d) && d.Default > 0 && v < c.Floor*d.Default {
			t.Fatalf("granted %g, below the floor", v)
		}
	})
}
