package actuate_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/wattloop/wattloop/actuate"
)

func TestLowestWins(t *testing.T) {
	r := newRun(t, cpu(0))
	a, b := want("a", 150, slew(1000, 20)), want("b", 200, slew(1000, 20))
	got := r.is(0, "set rapl:package-0 a 150", "b cpu0 blocked/overridden_by; a cpu0 applied 150", b, a)
	if got[0].Message != "a wants 150 W" || got[0].Applied != 150 || got[0].Desired != 200 {
		t.Errorf("loser = %+v; want the winner's name, 150 W applied, 200 W desired", got[0])
	}
	dev := r.g.Devices()[0]
	if dev.Owner != "a" || !slices.Equal(dev.Overridden, []string{"b"}) || dev.Result != actuate.Applied || dev.Desired != 150 {
		t.Errorf("device = %+v; want owner a over b", dev)
	}
	// The winner ends: the next lowest takes over where the cap stands.
	r.is(1, "set rapl:package-0 b 170", "b cpu0 applied/ramping 170; a cpu0 none/not_engaged ended", b)
	r.is(2, "set rapl:package-0 b 190", "b cpu0 applied/ramping 190", b)
	r.is(3, "set rapl:package-0 b 200", "b cpu0 applied 200", b)
	// Equals leave the device with whom it is.
	r.is(4, "renew rapl:package-0 b", "a cpu0 blocked/overridden_by; b cpu0 applied/unchanged 200", want("a", 200), b)
}

func TestKeys(t *testing.T) {
	r := newRun(t, cpu(0))
	at := func(key string, v float64) actuate.Intent {
		return want("a", v, func(in *actuate.Intent) { in.Key = key })
	}
	r.is(0, "set rapl:package-0 a 150", "a cpu0 applied 150; a cpu0 blocked/overridden_by", at(`{k="1"}`, 150), at(`{k="2"}`, 200))
	r.is(5, "set rapl:package-0 a 200", "a cpu0 applied 200; a cpu0 none/not_engaged ended", at(`{k="2"}`, 200))
}

func TestReleaseRampsUp(t *testing.T) {
	for name, last := range map[string][]actuate.Intent{
		"absent":  nil,
		"release": {want("a", 150, slew(1000, 40), kind(actuate.Release))},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRun(t, cpu(0))
			r.is(0, "set rapl:package-0 a 150", "a cpu0 applied 150", want("a", 150, slew(1000, 40)))
			r.is(0.5, "renew rapl:package-0 a", "a cpu0 applied/ramping 150", last...)
			r.is(1, "set rapl:package-0 a 190", "a cpu0 applied/ramping 190", last...)
			r.is(2, "set rapl:package-0 a 230", "a cpu0 applied/ramping 230", last...)
			r.is(3, "release rapl:package-0 a", "a cpu0 applied/restored 250 ended", last...)
			after := ""
			if last != nil {
				after = "a cpu0 none/not_engaged ended"
			}
			r.is(4, "", after, last...)
		})
	}
	t.Run("an engaged intent takes over where the ramp stands", func(t *testing.T) {
		r := newRun(t, cpu(0))
		in := want("a", 150, slew(1000, 40))
		r.step(0, in)
		r.step(1)
		r.link.cmds()
		r.is(2, "set rapl:package-0 b 210", "b cpu0 applied 210; a cpu0 none/not_engaged ended", want("b", 210))
		r.is(3, "set rapl:package-0 a 150", "a cpu0 applied 150; b cpu0 none/not_engaged ended", in)
	})
	t.Run("partial input ends nothing", func(t *testing.T) {
		r := newRun(t, cpu(0))
		r.step(0, want("a", 150))
		r.link.cmds()
		r.is(5, "renew rapl:package-0 a", "a cpu0 applied/unchanged 150", want("a", 150, kind(actuate.Release), partial))
	})
	t.Run("restore is at once", func(t *testing.T) {
		r := newRun(t, cpu(0))
		r.step(0, want("a", 150))
		r.link.cmds()
		r.is(0.1, "release rapl:package-0 a", "a cpu0 applied/restored 250 ended", want("a", 150, kind(actuate.Restore)))
		r.is(0.2, "", "a cpu0 none/not_engaged ended", want("a", 150, kind(actuate.Restore)))
	})
	t.Run("until the original is back, nothing has ended", func(t *testing.T) {
		r := newRun(t, cpu(0))
		r.step(0, want("a", 150))
		r.link.cmds()
		r.link.edit = func(ds []actuate.DeviceState) { ds[0].State, ds[0].Owner = actuate.StateRestoreFailed, "" }
		r.is(5, "", "a cpu0 error/restore_failed", want("a", 150, kind(actuate.Restore)))
		r.link.edit = func(ds []actuate.DeviceState) { ds[0].State, ds[0].Owner = actuate.StateRestoring, "" }
		r.is(6, "", "a cpu0 none/not_engaged", want("a", 150, kind(actuate.Release)))
	})
	t.Run("a restore that fails is tried again", func(t *testing.T) {
		r := newRun(t, cpu(0))
		r.step(0, want("a", 150))
		r.link.cmds()
		r.link.down = errors.New("the warden is gone")
		r.is(5, "release rapl:package-0 a", "a cpu0 error/no_answer", want("a", 150, kind(actuate.Restore)))
		r.link.down = nil
		r.is(6, "release rapl:package-0 a", "a cpu0 applied/restored 250 ended", want("a", 150, kind(actuate.Restore)))
	})
}

func TestPartialNeverRaises(t *testing.T) {
	r := newRun(t, cpu(0))
	r.is(0, "set rapl:package-0 a 200", "a cpu0 applied 200", want("a", 200, partial))
	r.is(5, "set rapl:package-0 a 150", "a cpu0 applied 150", want("a", 150, partial))
	r.is(10, "renew rapl:package-0 a", "a cpu0 applied/unchanged 150", want("a", 220, partial))
	// What stands counts, so that a looser control cannot have it raised.
	r.is(15, "renew rapl:package-0 a", "b cpu0 blocked/overridden_by; a cpu0 applied/unchanged 150", want("b", 180), want("a", 220, partial))
	// Nor does a partial control raise what another leaves behind.
	r.is(20, "set rapl:package-0 b 150", "b cpu0 applied 150; a cpu0 none/not_engaged ended", want("b", 220, partial))
}

func TestKeepAndHold(t *testing.T) {
	t.Run("keep renews the value that stands", func(t *testing.T) {
		r := newRun(t, cpu(0))
		r.is(0, "set rapl:package-0 a 190", "a cpu0 applied/ramping 190", want("a", 140, slew(60, 15)))
		r.is(5, "renew rapl:package-0 a", "a cpu0 applied/unchanged 190", want("a", 140, kind(actuate.Keep)))
	})
	t.Run("nothing engaged is nothing to keep or to hold", func(t *testing.T) {
		r := newRun(t, cpu(0))
		r.is(0, "", "a cpu0 none/not_engaged ended", want("a", 140, kind(actuate.Keep)))
		r.is(1, "", "a cpu0 none/not_engaged ended", want("a", 140, kind(actuate.Hold), protection))
	})
	t.Run("hold, then go on", func(t *testing.T) {
		r := newRun(t, cpu(0))
		r.step(0, want("p", 140, protection))
		r.link.cmds()
		hold := want("p", 140, protection, kind(actuate.Hold))
		r.is(5, "hold rapl:package-0 p", "p cpu0 applied/holding 140", hold)
		r.is(10, "hold rapl:package-0 p", "p cpu0 applied/holding 140", hold)
		r.is(15, "renew rapl:package-0 p", "p cpu0 applied/unchanged 140", want("p", 141, protection))
		r.is(20, "renew rapl:package-0 p", "p cpu0 applied/unchanged 140", want("p", 140, protection))
	})
	t.Run("an overridden control keeps what it wanted", func(t *testing.T) {
		r := newRun(t, cpu(0))
		r.step(0, want("a", 180), want("b", 150))
		r.link.cmds()
		r.is(5, "set rapl:package-0 a 180", "a cpu0 applied 180; b cpu0 none/not_engaged ended", want("a", 0, kind(actuate.Keep)))
	})
	t.Run("what was kept is what is wanted later", func(t *testing.T) {
		r := newRun(t, cpu(0))
		r.step(0, want("p", 110, protection))
		r.step(1, want("p", 250, protection, slew(1000, 30))) // at 140 when the input is lost
		r.step(2, want("p", 250, protection, kind(actuate.Hold)))
		r.step(3, want("p", 250, protection, kind(actuate.Hold)), want("e", 120))
		r.link.cmds()
		r.is(4, "set rapl:package-0 p 140", "p cpu0 applied 140; b cpu0 blocked/overridden_by; e cpu0 none/not_engaged ended",
			want("p", 250, protection, kind(actuate.Hold)), want("b", 200))
	})
	t.Run("a held value does not outlive its control", func(t *testing.T) {
		r := newRun(t, cpu(0))
		r.step(0, want("p", 150, protection))
		r.step(1, want("p", 150, protection, kind(actuate.Hold)))
		r.step(2, want("p", 150, protection, kind(actuate.Hold)), want("e", 120))
		r.link.cmds()
		r.is(3, "release rapl:package-0 p; renew rapl:package-0 e",
			"p cpu0 blocked/overridden_by; e cpu0 applied/unchanged 120", want("p", 200, protection), want("e", 120))
		r.is(4, "renew rapl:package-0 e",
			"p cpu0 blocked/overridden_by; e cpu0 applied/unchanged 120", want("p", 200, protection), want("e", 120))
	})
	t.Run("a looser control takes over from a held value", func(t *testing.T) {
		r := newRun(t, cpu(0))
		r.step(0, want("p", 150, protection))
		r.step(1, want("p", 150, protection, kind(actuate.Hold)))
		r.link.cmds()
		r.is(2, "renew rapl:package-0 p; set rapl:package-0 e 180",
			"p cpu0 none/not_engaged ended; e cpu0 applied 180", want("p", 150, protection, kind(actuate.Release)), want("e", 180))
	})
}

func TestEmergencyLowering(t *testing.T) {
	gentle := slew(10, 1000)
	r := newRun(t, cpu(0))
	r.is(0, "set rapl:package-0 e 240", "e cpu0 applied/ramping 240", want("e", 120, gentle))
	r.is(0.2, "set rapl:package-0 p 110", "e cpu0 blocked/overridden_by; p cpu0 applied 110",
		want("e", 120, gentle), want("p", 110, protection, gentle))
	r.is(5, "set rapl:package-0 p 250", "p cpu0 applied 250; e cpu0 none/not_engaged ended", want("p", 250, protection, gentle))
	// Only the first write of an engagement.
	r.is(10, "set rapl:package-0 p 200", "p cpu0 applied/ramping 200", want("p", 110, protection, gentle))
	r.step(20)
	r.step(30)
	r.link.cmds()
	// At most once in 60 s.
	r.is(40, "set rapl:package-0 p 240", "p cpu0 applied/ramping 240", want("p", 110, protection, gentle))
	r.step(50)
	r.link.cmds()
	r.is(61, "set rapl:package-0 p 110", "p cpu0 applied 110", want("p", 110, protection, gentle))
}

func TestBumpless(t *testing.T) { // engine restart
	r := newRun(t, cpu(0))
	in := want("a", 150, slew(1000, 10))
	r.step(0, in)
	r.link.cmds()

	t.Run("the same control renews without a write", func(t *testing.T) {
		again := &run{t, r.link, &actuate.Governor{Link: r.link}}
		again.is(0, "", "") // not heard of yet: left to its lease
		again.is(5, "renew rapl:package-0 a", "a cpu0 applied/unchanged 150", want("a", 152))
		again.is(6, "set rapl:package-0 a 160", "a cpu0 applied/ramping 160", want("a", 200, slew(1000, 10)))
		again.is(7, "set rapl:package-0 a 150", "a cpu0 applied 150", want("a", 150))
	})
	t.Run("it can be released", func(t *testing.T) {
		again := &run{t, r.link, &actuate.Governor{Link: r.link}}
		again.is(0, "release rapl:package-0 a", "a cpu0 applied/restored 250 ended", want("a", 150, kind(actuate.Restore)))
		r.step(20, in)
		r.link.cmds()
	})
	t.Run("another starts from the cap on the device", func(t *testing.T) {
		again := &run{t, r.link, &actuate.Governor{Link: r.link}}
		again.is(0, "set rapl:package-0 b 160", "b cpu0 applied/ramping 160", want("b", 200, slew(1000, 10)))
	})
	t.Run("what the warden holds beneath the owner is ended too", func(t *testing.T) {
		r := newRun(t, cpu(0))
		r.step(0, want("e", 150))
		r.link.cmds()
		again := &run{t, r.link, &actuate.Governor{Link: r.link}}
		again.is(0, "release rapl:package-0 p; renew rapl:package-0 e", "p cpu0 none/not_engaged ended; e cpu0 applied/unchanged 150",
			want("p", 200, protection, kind(actuate.Release)), want("e", 150))
		again.is(5, "release rapl:package-0 q; renew rapl:package-0 e", "q cpu0 blocked/overridden_by; e cpu0 applied/unchanged 150",
			want("q", 200, protection), want("e", 150))
		again.is(10, "renew rapl:package-0 e", "q cpu0 blocked/overridden_by; e cpu0 applied/unchanged 150",
			want("q", 200, protection), want("e", 150))
	})
	t.Run("protection is not lifted by another control", func(t *testing.T) {
		r := newRun(t, cpu(0))
		p := want("p", 150, protection)
		r.step(0, p)
		r.link.cmds()
		again := &run{t, r.link, &actuate.Governor{Link: r.link}}
		again.is(0, "", "b cpu0 blocked/overridden_by", want("b", 200))
		again.is(5, "set rapl:package-0 b 120", "b cpu0 applied 120", want("b", 120))
		again.is(6, "set rapl:package-0 p 127.5", "b cpu0 none/not_engaged ended")
		again.is(7, "renew rapl:package-0 p", "p cpu0 applied/unchanged 127.5", want("p", 127.5, protection))
	})
}
