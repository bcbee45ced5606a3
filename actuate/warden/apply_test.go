package warden

import (
	"math"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattloop/wattloop/actuate"
)

// The rows of actuation.md, section 4, that a set can end in.
func TestSet(t *testing.T) {
	run := func(name string, f func(*testing.T)) {
		t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
	}
	run("normal change, then release", func(t *testing.T) {
		p := plugIn(t, t.TempDir(), "a", 200)
		r := bench(t, nil, p)
		r.says(set("plug:a", 150), "applied 150")
		r.says(set("plug:a", 120), "applied 120")
		wantHolds(t, p, "120/250")
		r.wantState("plug:a", actuate.StateApplied)
		r.says(with(set("plug:a", 0), actuate.OpRelease), "applied restored 200")
		wantHolds(t, p, "200/250")
		r.wantState("plug:a", actuate.StateArmed)
		r.says(with(set("plug:a", 0), actuate.OpRelease), "none not_owner 200")
	})
	run("value equal: lease renewed, no write", func(t *testing.T) {
		p := plugIn(t, t.TempDir(), "a", 200)
		r := bench(t, nil, p)
		r.says(set("plug:a", 150), "applied 150")
		r.now += 20 * time.Second
		r.says(set("plug:a", 150), "applied unchanged 150")
		r.now += 20 * time.Second
		r.says(with(set("plug:a", 0), actuate.OpRenew), "applied unchanged 150")
		r.now += 20 * time.Second
		r.look()
		wantHolds(t, p, "150/250")
		if got := p.written(); len(got) != 1 {
			t.Errorf("writes %v; want one", got)
		}
	})
	run("strict lowers the short term too and gives it back", func(t *testing.T) {
		p := plugIn(t, t.TempDir(), "a", 200)
		r := bench(t, nil, p)
		r.says(guard("plug:a", 150), "applied 150")
		wantHolds(t, p, "150/150")
		r.says(with(guard("plug:a", 0), actuate.OpRelease), "applied restored 200")
		wantHolds(t, p, "200/250")
	})
	run("outside the limits", func(t *testing.T) {
		p := plugIn(t, t.TempDir(), "a", 200)
		r := bench(t, nil, p)
		r.says(set("plug:a", 20), "applied clamped 80")
		r.says(set("plug:a", 290), "applied clamped 200")
		r.opt.RejectOutOfRange = true
		r.start(inheritance{})
		r.says(set("plug:a", 20), "blocked out_of_range 200")
		wantHolds(t, p, "200/250")
	})
	run("device that cannot be written", func(t *testing.T) {
		p := plugIn(t, t.TempDir(), "a", 200)
		p.desc.Writable, p.desc.Reason = false, "a/limit: read-only"
		r := bench(t, nil, p)
		if got := r.says(set("plug:a", 150), "blocked not_writable 200"); got.Message != "plug:a: a/limit: read-only" {
			t.Errorf("message %q", got.Message)
		}
	})
	run("C55: locked by the firmware", func(t *testing.T) {
		p := plugIn(t, t.TempDir(), "a", 200)
		p.break_(always(syscall.EACCES))
		r := bench(t, nil, p)
		r.says(set("plug:a", 150), "blocked not_writable 200")
		if got := p.written(); len(got) != 1 {
			t.Errorf("writes %v; want one, for trying again heals nothing", got)
		}
		r.wantState("plug:a", actuate.StateArmed)
	})
	run("C55: write ignored", func(t *testing.T) {
		p := plugIn(t, t.TempDir(), "a", 200)
		p.break_(func(float64) (float64, error) { return 200, nil })
		r := bench(t, nil, p)
		got := r.says(set("plug:a", 150), "error readback_mismatch 200")
		if want := "warden: plug:a: reads 200 W: hardware did not take the setpoint: a/limit, a/short"; got.Message != want {
			t.Errorf("message %q; want %q", got.Message, want)
		}
		r.wantState("plug:a", actuate.StateArmed)
		if got := p.written(); len(got) != 2 {
			t.Errorf("writes %v; want two, one of them the rewrite", got)
		}
	})
	run("hardware has a tighter limit of its own", func(t *testing.T) {
		p := plugIn(t, t.TempDir(), "a", 200)
		p.break_(func(v float64) (float64, error) { return min(v, 110), nil })
		r := bench(t, nil, p)
		if got := r.says(set("plug:a", 150), "applied clamped 110"); got.Granted != 150 {
			t.Errorf("granted %g; want 150", got.Granted)
		}
		r.look()
		r.wantState("plug:a", actuate.StateApplied)
		r.says(set("plug:a", 150), "applied unchanged clamped 110")
	})
	run("hardware answers late", func(t *testing.T) {
		p := plugIn(t, t.TempDir(), "a", 200)
		p.break_(func(v float64) (float64, error) {
			time.AfterFunc(400*time.Millisecond, func() { p.put(t, v) })
			return 200, nil
		})
		r := bench(t, nil, p)
		r.says(set("plug:a", 150), "applied 150")
	})
	run("write fails twice, then works", func(t *testing.T) {
		p := plugIn(t, t.TempDir(), "a", 200)
		tries := 0
		p.break_(func(v float64) (float64, error) {
			if tries++; tries < 3 {
				return 0, syscall.EBUSY
			}
			return v, nil
		})
		r := bench(t, nil, p)
		begin := time.Now()
		r.says(set("plug:a", 150), "applied 150")
		if got := time.Since(begin); got != 150*time.Millisecond {
			t.Errorf("took %s; want the pauses of 50 and 100 ms", got)
		}
	})
	run("write fails for good: efficiency restores the original", func(t *testing.T) {
		p := plugIn(t, t.TempDir(), "a", 200)
		r := bench(t, nil, p)
		r.says(set("plug:a", 150), "applied 150")
		fails := 0
		p.break_(func(v float64) (float64, error) {
			if fails++; fails <= 4 {
				return 0, syscall.EIO
			}
			return v, nil
		})
		r.says(set("plug:a", 120), "error write_failed 200")
		wantHolds(t, p, "200/250")
		r.wantState("plug:a", actuate.StateArmed)
	})
	run("write fails for good: protection keeps the value it had", func(t *testing.T) {
		p := plugIn(t, t.TempDir(), "a", 200)
		r := bench(t, nil, p)
		r.says(guard("plug:a", 150), "applied 150")
		fails := 0
		p.break_(func(v float64) (float64, error) {
			if fails++; fails <= 4 {
				return 0, syscall.EIO
			}
			return v, nil
		})
		r.says(guard("plug:a", 120), "error write_failed 150")
		wantHolds(t, p, "150/150")
		r.wantState("plug:a", actuate.StateApplied)
	})
	run("a driver that hangs blocks its own device alone", func(t *testing.T) {
		dir := t.TempDir()
		p, q := plugIn(t, dir, "a", 200), plugIn(t, dir, "b", 200)
		r := bench(t, func(o *Options) { o.Partial = true }, p, q)
		p.hang = make(chan struct{})
		begin := time.Now()
		replies := r.ask(set("plug:a", 150), set("plug:b", 150))
		if got := word(replies[0]); got != "error read_failed 200" {
			t.Errorf("hanging device: %q", got)
		}
		if got := word(replies[1]); got != "applied 150" {
			t.Errorf("other device: %q", got)
		}
		if got := time.Since(begin); got != callLimit {
			t.Errorf("took %s; want %s", got, callLimit)
		}
		r.says(set("plug:a", 150), "error read_failed 200") // at once, without a second call
		if got := time.Since(begin); got != callLimit {
			t.Errorf("second call waited: %s", got)
		}
		close(p.hang)
		synctest.Wait()
		r.says(set("plug:a", 150), "applied 150")
	})
}

// What the owner of the machine or the moment forbids is blocked, in words.
func TestBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := func(want string, change func(*Options), then func(*rig)) {
			t.Helper()
			p := plugIn(t, t.TempDir(), "a", 200)
			r := bench(t, change, p)
			if then != nil {
				then(r)
			}
			r.says(set("plug:a", 150), want)
			if got := p.written(); len(got) != 0 {
				t.Errorf("%s: wrote %v", want, got)
			}
		}
		f("blocked actuation_disabled 200", func(o *Options) { o.Enabled = false }, nil)
		f("blocked observing 200", func(o *Options) { o.ObserveFirst = 30 * time.Second }, func(r *rig) { r.pass(29 * time.Second) })
		f("blocked latched 200", nil, func(r *rig) { r.latch.close() })
		f("blocked shutting_down 200", nil, func(r *rig) { r.closing.Store(true) })
		f("blocked out_of_range 200", func(o *Options) { o.Clamps = map[string]Clamp{"plug:a": {Min: 250}} }, nil)
		f("blocked originals_not_saved 200", nil, func(r *rig) { r.journal.dir = "/nowhere" })
	})
}

// A device that could not be written at the start is looked at again, and the
// engine is told; a cap that stands stays when it cannot be written any more.
func TestWritableLater(t *testing.T) {
	p := plugIn(t, t.TempDir(), "a", 200)
	p.lock("read-only file system")
	r := bench(t, nil, p)
	r.says(set("plug:a", 150), "blocked not_writable 200")
	p.lock("")
	r.look()
	if s := r.state("plug:a"); !s.Writable || s.Description.Reason != "" || s.Reason != "" {
		t.Errorf("state %+v; want it writable", s)
	}
	r.says(set("plug:a", 150), "applied 150")
	p.lock("read-only file system")
	r.look()
	r.says(with(set("plug:a", 0), actuate.OpRenew), "applied unchanged 150")
	r.says(with(set("plug:a", 0), actuate.OpRelease), "applied restored 200")
	if s := r.state("plug:a"); s.Writable {
		t.Errorf("state %+v; want it looked at after the restore", s)
	}
	r.says(set("plug:a", 150), "blocked not_writable 200")
}

func TestObserveFirst(t *testing.T) {
	p := plugIn(t, t.TempDir(), "a", 200)
	r := bench(t, func(o *Options) { o.ObserveFirst = 30 * time.Second }, p)
	r.says(set("plug:a", 150), "blocked observing 200")
	r.pass(30 * time.Second)
	r.says(set("plug:a", 150), "applied 150")
}

// Nothing that an engine can say makes the warden do what it should not.
func TestBadCommand(t *testing.T) {
	p := plugIn(t, t.TempDir(), "a", 200)
	r := bench(t, nil, p)
	f := func(want string, change func(*actuate.Command)) {
		t.Helper()
		cmd := set("plug:a", 150)
		change(&cmd)
		r.says(cmd, want)
	}
	f("blocked no_device 0", func(c *actuate.Command) { c.Device = "plug:z" })
	f("blocked bad_command 0", func(c *actuate.Command) { c.Op = "drop" })
	f("blocked bad_command 0", func(c *actuate.Command) { c.Value = math.NaN() })
	f("blocked bad_command 0", func(c *actuate.Command) { c.Value = math.Inf(1) })
	f("blocked bad_command 0", func(c *actuate.Command) { c.Value = -1 })
	f("blocked bad_command 0", func(c *actuate.Command) { c.Control = "" })
	f("blocked bad_command 0", func(c *actuate.Command) { c.Purpose = "" })
	f("blocked bad_command 0", func(c *actuate.Command) { c.Purpose = actuate.PurposeProtect })
	f("blocked bad_command 0", func(c *actuate.Command) { c.OnStop = "keep" })
	if got := p.written(); len(got) != 0 {
		t.Errorf("wrote %v", got)
	}
	if got := r.bad.n.Load(); got != 9 {
		t.Errorf("counted %d bad commands; want 9", got)
	}
	f("applied 150", func(c *actuate.Command) { c.TTLMillis = math.MaxInt64 })
	if got := r.state("plug:a").LeaseMillis; got != 300_000 {
		t.Errorf("lease of %d ms; want ttl_max", got)
	}
	f("applied 140", func(c *actuate.Command) { c.TTLMillis, c.Value = -5, 140 })
	if got := r.state("plug:a").LeaseMillis; got != 1000 {
		t.Errorf("lease of %d ms; want the least, 1 s", got)
	}
}
