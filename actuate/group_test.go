package actuate_test

import (
	"context"
	"testing"

	"github.com/wattloop/wattloop/actuate"
)

func TestRetry(t *testing.T) {
	failed := actuate.Reply{Result: actuate.Error, Reason: actuate.ReasonWriteFailed, Message: "input/output error"}
	r := newRun(t, cpu(0))
	r.link.fail["rapl:package-0"] = failed
	r.is(0, "set rapl:package-0 a 200", "a cpu0 error/write_failed", want("a", 200))
	r.is(5, "", "a cpu0 error/write_failed ended", want("a", 200))
	r.is(10, "set rapl:package-0 a 200", "a cpu0 error/write_failed", want("a", 200))
	r.is(11, "set rapl:package-0 p 180", "p cpu0 error/write_failed; a cpu0 none/not_engaged ended", want("p", 180, protection))
	r.is(12, "set rapl:package-0 p 180", "p cpu0 error/write_failed", want("p", 180, protection))
	delete(r.link.fail, "rapl:package-0")
	r.is(13, "set rapl:package-0 p 180", "p cpu0 applied 180", want("p", 180, protection))
}

func TestAllOrNothing(t *testing.T) {
	two := []actuate.Description{cpu(0), cpu(1)}
	t.Run("one cannot be written: none is", func(t *testing.T) {
		r := newRun(t, two...)
		r.link.edit = func(ds []actuate.DeviceState) {
			ds[1].Writable, ds[1].Description.Reason = false, "constraint_0_power_limit_uw: permission denied"
		}
		got := r.is(0, "", "a cpu0 blocked/group ended; a cpu1 blocked/not_writable ended", want("a", 200))
		if want := "cpu1: not_writable: constraint_0_power_limit_uw: permission denied"; got[0].Message != want {
			t.Errorf("message = %q; want %q", got[0].Message, want)
		}
		r.g.AllowPartial = true
		r.is(5, "set rapl:package-0 a 200", "a cpu0 applied 200; a cpu1 blocked/not_writable ended", want("a", 200))
		r.g.AllowPartial = false
		r.is(10, "renew rapl:package-0 a", "a cpu0 blocked/group; a cpu1 blocked/not_writable ended", want("a", 150))
	})
	t.Run("efficiency rolls back", func(t *testing.T) {
		r := newRun(t, two...)
		r.step(0, want("a", 200))
		r.link.fail["rapl:package-1"] = actuate.Reply{Result: actuate.Error, Reason: actuate.ReasonWriteFailed, Message: "EIO"}
		r.link.cmds()
		got := r.is(5, "set rapl:package-0 a 150; set rapl:package-1 a 150; set rapl:package-0 a 200",
			"a cpu0 error/rolled_back; a cpu1 error/write_failed", want("a", 150))
		if got[0].Applied != 200 || got[0].Message != "cpu1: write_failed: EIO" {
			t.Errorf("rolled back = %+v; want 200 W applied and cpu1's failure", got[0])
		}
		r.is(6, "renew rapl:package-0 a; renew rapl:package-1 a", "a cpu0 blocked/group; a cpu1 error/write_failed", want("a", 150))
		delete(r.link.fail, "rapl:package-1")
		r.is(15, "set rapl:package-0 a 150; set rapl:package-1 a 150", "a cpu0 applied 150; a cpu1 applied 150", want("a", 150))
	})
	t.Run("to the original where nothing was", func(t *testing.T) {
		r := newRun(t, two...)
		r.link.fail["rapl:package-1"] = actuate.Reply{Result: actuate.Blocked, Reason: actuate.ReasonNotSaved}
		r.is(0, "set rapl:package-0 a 150; set rapl:package-1 a 150; release rapl:package-0 a",
			"a cpu0 error/rolled_back; a cpu1 blocked/originals_not_saved", want("a", 150))
		r.is(5, "", "a cpu0 blocked/group ended; a cpu1 blocked/originals_not_saved ended", want("a", 150))
	})
	t.Run("to the control that had it before", func(t *testing.T) {
		r := newRun(t, two...)
		b := want("b", 200, target("hw_id", "cpu0"))
		r.step(0, b)
		r.link.fail["rapl:package-1"] = actuate.Reply{Result: actuate.Error, Reason: actuate.ReasonWriteFailed}
		r.link.cmds()
		r.is(5, "set rapl:package-0 a 150; set rapl:package-1 a 150; set rapl:package-0 b 200",
			"a cpu0 error/rolled_back; a cpu1 error/write_failed; b cpu0 blocked/overridden_by", want("a", 150), b)
		r.is(6, "renew rapl:package-0 b", "a cpu0 blocked/group ended; a cpu1 error/write_failed ended; b cpu0 applied/unchanged 200",
			want("a", 150), b)
	})
	t.Run("protection keeps what it lowered", func(t *testing.T) {
		r := newRun(t, two...)
		r.link.fail["rapl:package-1"] = actuate.Reply{Result: actuate.Error, Reason: actuate.ReasonWriteFailed}
		p := want("p", 150, protection)
		got := r.is(0, "set rapl:package-0 p 150; set rapl:package-1 p 150", "p cpu0 applied 150; p cpu1 error/write_failed", p)
		if s := actuate.Summarize(got); s != actuate.Error {
			t.Errorf("Summarize = %q; want error: never applied with one of two", s)
		}
		delete(r.link.fail, "rapl:package-1")
		r.is(1, "renew rapl:package-0 p; set rapl:package-1 p 150", "p cpu0 applied/unchanged 150; p cpu1 applied 150", p)
	})
	t.Run("somebody else's value is no failure", func(t *testing.T) {
		for _, reason := range []string{actuate.ReasonExternalLower, actuate.ReasonContested} {
			r := newRun(t, two...)
			r.link.fail["rapl:package-1"] = actuate.Reply{Result: actuate.Blocked, Reason: reason}
			r.is(0, "set rapl:package-0 a 150; set rapl:package-1 a 150", "a cpu0 applied 150; a cpu1 blocked/"+reason, want("a", 150))
			r.is(5, "renew rapl:package-0 a; set rapl:package-1 a 150", "a cpu0 applied/unchanged 150; a cpu1 blocked/"+reason, want("a", 150))
		}
	})
	t.Run("a device that goes leaves the others", func(t *testing.T) {
		r := newRun(t, two...)
		r.step(0, want("a", 200))
		r.link.cmds()
		r.link.edit = func(ds []actuate.DeviceState) { ds[1].State, ds[1].Owner = actuate.StateGone, "" }
		r.is(5, "set rapl:package-0 a 150", "a cpu0 applied 150; a cpu1 error/gone ended", want("a", 150))
		r.link.edit = nil
		r.is(10, "renew rapl:package-0 a; set rapl:package-1 a 150", "a cpu0 applied/unchanged 150; a cpu1 applied 150", want("a", 150))
	})
}

func TestVanishedDevice(t *testing.T) {
	r := newRun(t, cpu(0))
	r.step(0, want("a", 200))
	gone := &actuate.Governor{Link: &vanishing{tap: r.link, after: 1}}
	again := &run{t, r.link, gone}
	r.link.cmds()
	again.is(0, "renew rapl:package-0 a", "a cpu0 applied/unchanged 200", want("a", 200))
	again.is(5, "", "a cpu0 error/gone ended", want("a", 200))
	again.is(6, "", "a cpu0 error/gone ended", want("a", 200))
	again.is(7, "", "a cpu0 none/not_engaged ended")
	again.is(8, "", "a  blocked/no_device ended", want("a", 200))
}

// vanishing stops naming its devices after so many commands.
type vanishing struct {
	*tap
	after int
}

func (v *vanishing) Do(ctx context.Context, cmds []actuate.Command) ([]actuate.Reply, error) {
	v.after--
	return v.tap.Do(ctx, cmds)
}

func (v *vanishing) Devices() []actuate.DeviceState {
	if v.after <= 0 {
		return nil
	}
	return v.tap.Devices()
}

func TestOneCapForUnequalGPUs(t *testing.T) { // X12, S0-20, S0-21
	r := newRun(t, gpu(0, 100, 300), gpu(1, 200, 700))
	got := r.is(0, "", "a gpu0 blocked/out_of_range ended; a gpu1 blocked/out_of_range ended", want("a", 150, gpus))
	if want := "150 is below a minimum: gpu0 takes 100 to 300 W, gpu1 takes 200 to 700 W"; got[1].Message != want {
		t.Errorf("message = %q; want %q", got[1].Message, want)
	}
	r.is(5, "set nvml:GPU-0 a 300; set nvml:GPU-1 a 400", "a gpu0 applied 300 clamped; a gpu1 applied 400", want("a", 400, gpus))
	r.is(9, "renew nvml:GPU-0 a; renew nvml:GPU-1 a", "a gpu0 applied/unchanged 300 clamped; a gpu1 applied/ramping 400", want("a", 350, gpus))
}
