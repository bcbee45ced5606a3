package actuate_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wattloop/wattloop/actuate"
)

// tap is a Link that keeps what went through it, and answers for devices that
// are to fail.
type tap struct {
	*actuate.Dry
	sent  []actuate.Command
	fail  map[string]actuate.Reply // by device: what a set is answered
	edit  func([]actuate.DeviceState)
	down  error
	calls int
}

func (l *tap) Do(ctx context.Context, cmds []actuate.Command) ([]actuate.Reply, error) {
	l.calls++
	l.sent = append(l.sent, cmds...)
	if l.down != nil {
		return nil, l.down
	}
	var out []actuate.Reply
	for _, c := range cmds {
		if r, ok := l.fail[c.Device]; ok && c.Op == actuate.OpSet {
			r.Seq, r.Device = c.Seq, c.Device
			out = append(out, r)
			continue
		}
		r, err := l.Dry.Do(ctx, []actuate.Command{c})
		if err != nil {
			return nil, err
		}
		out = append(out, r...)
	}
	return out, nil
}

func (l *tap) Devices() []actuate.DeviceState {
	ds := l.Dry.Devices()
	if l.edit != nil {
		l.edit(ds)
	}
	return ds
}

// cmds is what was sent since the last call, one a line.
func (l *tap) cmds() string {
	var lines []string
	for _, c := range l.sent {
		s := c.Op + " " + c.Device + " " + c.Control
		if c.Op == actuate.OpSet {
			s += fmt.Sprintf(" %g", c.Value)
		}
		lines = append(lines, s)
	}
	l.sent = nil
	return strings.Join(lines, "; ")
}

// cpu is a package that may be capped between 100 and 250 W: 30 W/s down and
// 7.5 W/s up by default.
func cpu(n int) actuate.Description {
	return actuate.Description{
		ID: fmt.Sprintf("rapl:package-%d", n), Name: fmt.Sprintf("cpu%d", n), Action: actuate.ActionRAPLCap, Unit: "W",
		Labels: map[string]string{"hw_type": "cpu", "hw_id": fmt.Sprintf("cpu%d", n)},
		Min:    100, Max: 250, Default: 250, Tolerance: 1, Writable: true,
	}
}

func gpu(n int, low, high float64) actuate.Description {
	return actuate.Description{
		ID: fmt.Sprintf("nvml:GPU-%d", n), Name: fmt.Sprintf("gpu%d", n), Action: actuate.ActionGPUCap, Unit: "W",
		Labels: map[string]string{"hw_type": "gpu", "hw_id": fmt.Sprintf("gpu%d", n)},
		Min:    low, Max: high, Default: high, Tolerance: 1, Writable: true,
	}
}

func newTap(devices ...actuate.Description) *tap {
	return &tap{Dry: actuate.NewDry(devices, nil), fail: map[string]actuate.Reply{}}
}

// want is an intent of an efficiency control for every CPU package, which may
// go anywhere in one step.
func want(control string, watts float64, edits ...func(*actuate.Intent)) actuate.Intent {
	in := actuate.Intent{
		Control: control, Action: actuate.ActionRAPLCap, Target: map[string]string{"hw_type": "cpu"},
		Kind: actuate.Set, Value: watts, Mode: actuate.ModeEnforce, Purpose: actuate.PurposeEfficient,
		TTL: 30 * time.Second, Slew: actuate.Slew{Down: 1000, Up: 1000, Every: time.Second},
	}
	for _, edit := range edits {
		edit(&in)
	}
	return in
}

func kind(k actuate.Kind) func(*actuate.Intent)   { return func(in *actuate.Intent) { in.Kind = k } }
func protection(in *actuate.Intent)               { in.Purpose, in.SafeCap = actuate.PurposeProtect, 150 }
func observe(in *actuate.Intent)                  { in.Mode = actuate.ModeObserve }
func partial(in *actuate.Intent)                  { in.Partial = true }
func defaultSlew(in *actuate.Intent)              { in.Slew = actuate.Slew{} }
func gpus(in *actuate.Intent)                     { in.Action, in.Target = actuate.ActionGPUCap, nil }
func slew(down, up float64) func(*actuate.Intent) { return every(down, up, time.Second) }
func target(name, v string) func(*actuate.Intent) {
	return func(in *actuate.Intent) { in.Target = map[string]string{name: v} }
}
func every(down, up float64, d time.Duration) func(*actuate.Intent) {
	return func(in *actuate.Intent) { in.Slew = actuate.Slew{Down: down, Up: up, Every: d} }
}

// run drives one governor; each step says what was sent and what came of it.
type run struct {
	t    *testing.T
	link *tap
	g    *actuate.Governor
}

func newRun(t *testing.T, devices ...actuate.Description) *run {
	t.Helper()
	link := newTap(devices...)
	return &run{t, link, &actuate.Governor{Link: link}}
}

// step is one Step at a time in seconds.
func (r *run) step(at float64, intents ...actuate.Intent) []actuate.Outcome {
	r.t.Helper()
	return r.g.Step(context.Background(), int64(at*1000), intents)
}

// is steps and compares: the commands, and the outcomes as words.
func (r *run) is(at float64, cmds, words string, intents ...actuate.Intent) []actuate.Outcome {
	r.t.Helper()
	outcomes := r.step(at, intents...)
	if got := r.link.cmds(); got != cmds {
		r.t.Errorf("at %g s: sent %q; want %q", at, got, cmds)
	}
	if got := say(outcomes); got != words {
		r.t.Errorf("at %g s: outcomes\n\t%s\nwant\n\t%s", at, got, words)
	}
	return outcomes
}

// say is one outcome after the other: control device result/reason granted.
func say(outcomes []actuate.Outcome) string {
	var parts []string
	for _, o := range outcomes {
		s := o.Control + " " + o.Name + " " + o.Result
		if o.Reason != "" {
			s += "/" + o.Reason
		}
		if o.Result == actuate.Applied || o.Reason == actuate.ReasonObserve {
			s += fmt.Sprintf(" %g", o.Granted)
		}
		if o.Clamped {
			s += " clamped"
		}
		if o.Ended {
			s += " ended"
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, "; ")
}

// Table of actuation.md section 4, the rows that are the governor's. S0-10,
// S0-11, S0-12.
func TestRows(t *testing.T) {
	t.Run("no intent is none", func(t *testing.T) {
		r := newRun(t, cpu(0))
		r.is(0, "", "")
		if got := r.g.Devices()[0].Result; got != actuate.None {
			t.Errorf("result of an idle device = %q; want none", got)
		}
		if got := actuate.Summarize(nil); got != actuate.None {
			t.Errorf("Summarize(nil) = %q; want none", got)
		}
	})
	t.Run("no device is blocked", func(t *testing.T) { // S0-184
		r := newRun(t, cpu(0))
		r.is(0, "", "a  blocked/no_device ended", want("a", 200, gpus))
		r.is(1, "", "a  blocked/no_device ended", want("a", 200, target("hw_id", "cpu7")))
		r.is(2, "", "a  blocked/no_device ended", want("a", 200, target("rack", "")))
	})
	t.Run("a change is written, and the same value renewed", func(t *testing.T) {
		r := newRun(t, cpu(0))
		r.is(0, "set rapl:package-0 a 200", "a cpu0 applied 200", want("a", 200))
		r.is(5, "renew rapl:package-0 a", "a cpu0 applied/unchanged 200", want("a", 200))
		r.is(10, "renew rapl:package-0 a", "a cpu0 applied/unchanged 200", want("a", 196))
		r.is(15, "set rapl:package-0 a 195.9", "a cpu0 applied 195.9", want("a", 195.9))
	})
	t.Run("the dead band is at least 2 W", func(t *testing.T) {
		small := cpu(0)
		small.Min, small.Max, small.Default = 20, 100, 100
		r := newRun(t, small)
		r.is(0, "set rapl:package-0 a 60", "a cpu0 applied 60", want("a", 60))
		r.is(5, "renew rapl:package-0 a", "a cpu0 applied/unchanged 60", want("a", 58))
		r.is(9, "set rapl:package-0 a 57.9", "a cpu0 applied 57.9", want("a", 57.9))
	})
	t.Run("a large change is ramped by the control's slew", func(t *testing.T) {
		r := newRun(t, cpu(0))
		in := want("a", 140, every(60, 15, 10*time.Second))
		r.is(0, "set rapl:package-0 a 190", "a cpu0 applied/ramping 190", in)
		r.is(5, "renew rapl:package-0 a", "a cpu0 applied/ramping 190", in)
		r.is(10, "set rapl:package-0 a 140", "a cpu0 applied 140", in)
		in.Value = 200
		r.is(15, "set rapl:package-0 a 155", "a cpu0 applied/ramping 155", in)
		r.is(19, "renew rapl:package-0 a", "a cpu0 applied/ramping 155", in)
		r.is(25, "set rapl:package-0 a 170", "a cpu0 applied/ramping 170", in)
	})
	t.Run("the default slew is 20 %/s down and 5 %/s up", func(t *testing.T) {
		r := newRun(t, cpu(0))
		r.is(0, "set rapl:package-0 a 220", "a cpu0 applied/ramping 220", want("a", 110, defaultSlew))
		r.is(1, "set rapl:package-0 a 190", "a cpu0 applied/ramping 190", want("a", 110, defaultSlew))
		r.is(3, "set rapl:package-0 a 130", "a cpu0 applied/ramping 130", want("a", 110, defaultSlew))
		r.is(4, "set rapl:package-0 a 110", "a cpu0 applied 110", want("a", 110, defaultSlew))
		r.is(60, "renew rapl:package-0 a", "a cpu0 applied/unchanged 110", want("a", 110, defaultSlew))
		r.is(61, "set rapl:package-0 a 117.5", "a cpu0 applied/ramping 117.5", want("a", 250, defaultSlew))
	})
	t.Run("the interval between writes", func(t *testing.T) {
		r := newRun(t, cpu(0))
		r.is(0, "set rapl:package-0 a 200", "a cpu0 applied 200", want("a", 200))
		r.is(0.5, "renew rapl:package-0 a", "a cpu0 applied/ramping 200", want("a", 150))
		r.is(0.9, "renew rapl:package-0 a", "b cpu0 blocked/rate_limit; a cpu0 blocked/overridden_by", want("b", 150), want("a", 200))
		r.is(1, "set rapl:package-0 a 150", "a cpu0 applied 150; b cpu0 none/not_engaged ended", want("a", 150))
	})
	t.Run("outside the limits is clamped", func(t *testing.T) {
		r := newRun(t, cpu(0))
		r.is(0, "set rapl:package-0 a 100", "a cpu0 applied 100 clamped", want("a", 20))
		r.is(5, "renew rapl:package-0 a", "a cpu0 applied/unchanged 100 clamped", want("a", 20))
		r.is(10, "set rapl:package-0 a 250", "a cpu0 applied 250 clamped", want("a", 900))
	})
	t.Run("what is no value", func(t *testing.T) {
		r := newRun(t, cpu(0))
		for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1} {
			r.is(0, "", "a cpu0 error/bad_command ended", want("a", v))
		}
		r.is(5, "set rapl:package-0 a 200", "a cpu0 applied 200", want("a", 200))
		got := r.is(6, "renew rapl:package-0 a", "a cpu0 error/bad_command", want("a", math.NaN()))
		if got[0].Desired != 0 {
			t.Errorf("desired = %g; want a number that JSON can carry", got[0].Desired)
		}
		r.is(7, "renew rapl:package-0 a", "a cpu0 error/bad_command", want("a", 200, kind("raise")))
	})
	t.Run("a throttle outside 0 to 100 is refused", func(t *testing.T) { // S0-16
		r := newRun(t, throttle())
		in := want("a", 101, func(in *actuate.Intent) { in.Action, in.Target = actuate.ActionThrottle, nil })
		r.is(0, "", "a cpu0 blocked/out_of_range ended", in)
	})
	t.Run("observe writes nothing and says what it would", func(t *testing.T) {
		r := newRun(t, cpu(0))
		in := want("a", 20, observe, defaultSlew)
		r.is(0, "", "a cpu0 blocked/observe 220 clamped ended", in)
		r.is(5, "", "a cpu0 blocked/observe 220 clamped ended", in)
		r.is(6, "", "a cpu0 blocked/observe 250 ended", want("a", 200, observe, kind(actuate.Keep)))
		r.is(7, "", "a cpu0 none/not_engaged ended", want("a", 200, observe, kind(actuate.Release)))
	})
	t.Run("a control set to observe gives back by its slew", func(t *testing.T) {
		r := newRun(t, cpu(0))
		r.is(0, "set rapl:package-0 a 200", "a cpu0 applied 200", want("a", 200))
		in := want("a", 200, observe, slew(30, 30))
		r.is(1, "set rapl:package-0 a 230", "a cpu0 blocked/observe 200", in)
		r.is(2, "release rapl:package-0 a", "a cpu0 blocked/observe 200 ended", in)
		r.is(3, "", "a cpu0 blocked/observe 220 ended", in)
	})
}

func throttle() actuate.Description {
	return actuate.Description{
		ID: "cpufreq:policy0", Name: "cpu0", Action: actuate.ActionThrottle, Unit: "%", Max: 100, Writable: true,
	}
}

func TestThrottleIsTighterUpwards(t *testing.T) { // S0-15, S0-16
	link := &tap{Dry: actuate.NewDry([]actuate.Description{throttle()}, map[string]float64{"cpufreq:policy0": 0})}
	r := &run{t, link, &actuate.Governor{Link: link}}
	on := func(control string, pct float64, edits ...func(*actuate.Intent)) actuate.Intent {
		in := want(control, pct, slew(10, 5))
		in.Action, in.Target = actuate.ActionThrottle, nil
		for _, edit := range edits {
			edit(&in)
		}
		return in
	}
	r.is(0, "set cpufreq:policy0 b 10", "a cpu0 blocked/overridden_by; b cpu0 applied/ramping 10", on("a", 5), on("b", 20))
	r.is(1, "set cpufreq:policy0 b 20", "a cpu0 blocked/overridden_by; b cpu0 applied 20", on("a", 5), on("b", 20))
	r.is(2, "renew cpufreq:policy0 b", "b cpu0 applied/unchanged 20; a cpu0 none/not_engaged ended", on("b", 10, partial))
	r.is(3, "set cpufreq:policy0 b 30", "b cpu0 applied/ramping 30 clamped", on("b", 80))
	r.is(4, "set cpufreq:policy0 b 25", "b cpu0 applied/ramping 25")
	for at := 5.0; at < 9; at++ {
		r.step(at)
	}
	r.link.cmds()
	r.is(9, "release cpufreq:policy0 b", "b cpu0 applied/restored 0 ended")
}

// The row of everything that blocks a write; none is ever silent.
func TestWhatBlocks(t *testing.T) {
	for _, tc := range []struct {
		name, words string
		edit        func(*actuate.DeviceState)
	}{
		{"read-only", "blocked/not_writable", func(d *actuate.DeviceState) { d.Writable = false }},
		{"not armed", "blocked/actuation_disabled", func(d *actuate.DeviceState) { d.Enabled = false }},
		{"latched", "blocked/latched", func(d *actuate.DeviceState) { d.Latched = true }},
		{"observed first", "blocked/observing", func(d *actuate.DeviceState) { d.Reason = actuate.ReasonObserving }},
		{"originals not saved", "blocked/originals_not_saved", func(d *actuate.DeviceState) { d.Reason = actuate.ReasonNotSaved }},
		{"stopping", "blocked/shutting_down", func(d *actuate.DeviceState) { d.Reason = actuate.ReasonShuttingDown }},
		{"no room", "blocked/out_of_range", func(d *actuate.DeviceState) { d.Low, d.High = 1, 0 }},
		{"unreadable", "error/read_failed", func(d *actuate.DeviceState) { d.Reason = actuate.ReasonReadFailed }},
		{"journal lost", "error/journal_corrupt", func(d *actuate.DeviceState) { d.Reason = actuate.ReasonJournal }},
		{"unplugged", "error/gone", func(d *actuate.DeviceState) { d.State = actuate.StateGone }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRun(t, cpu(0))
			r.link.edit = func(ds []actuate.DeviceState) { tc.edit(&ds[0]) }
			r.is(0, "", "a cpu0 "+tc.words+" ended", want("a", 200))
			r.is(5, "", "a cpu0 "+tc.words+" ended; p cpu0 "+tc.words+" ended", want("a", 200), want("p", 200, protection))
		})
	}
}

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

func TestClockSetBack(t *testing.T) {
	r := newRun(t, cpu(0))
	r.step(1000, want("a", 200))
	r.link.cmds()
	r.is(10, "renew rapl:package-0 a", "a cpu0 applied/ramping 200", want("a", 150))
	r.is(11, "set rapl:package-0 a 150", "a cpu0 applied 150", want("a", 150))
}

func TestReplies(t *testing.T) {
	for _, tc := range []struct {
		reply actuate.Reply
		words string
	}{
		{actuate.Reply{Result: actuate.Applied, Granted: 200, Applied: 200.9}, "applied 200"},
		{actuate.Reply{Result: actuate.Applied, Granted: 200, Applied: 250}, "error/readback_mismatch"},
		{actuate.Reply{Result: actuate.Applied, Granted: 200, Applied: 250, Clamped: true}, "error/readback_mismatch clamped"},
		{actuate.Reply{Result: actuate.Applied, Granted: 200, Applied: 180}, "error/readback_mismatch"},
		{actuate.Reply{Result: actuate.Applied, Granted: 200, Applied: 180, Clamped: true}, "applied 200 clamped"},
		{actuate.Reply{Result: actuate.Blocked, Reason: actuate.ReasonExternalLower}, "blocked/external_lower"},
		{actuate.Reply{Result: actuate.Error, Reason: actuate.ReasonWriteFailed}, "error/write_failed"},
		{actuate.Reply{Result: "done"}, "error/no_answer"}, // S0-78: never applied
	} {
		r := newRun(t, cpu(0))
		r.link.fail["rapl:package-0"] = tc.reply
		r.is(0, "set rapl:package-0 a 200", "a cpu0 "+tc.words, want("a", 200))
	}
}

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

func TestLinkDown(t *testing.T) {
	r := newRun(t, cpu(0))
	r.link.down = errors.New("actuate: the warden is gone")
	got := r.is(0, "set rapl:package-0 a 200", "a cpu0 error/no_answer", want("a", 200))
	if got[0].Message != "actuate: the warden is gone" {
		t.Errorf("message = %q; want the link's error", got[0].Message)
	}
}

func TestOneBatch(t *testing.T) {
	r := newRun(t, cpu(0), cpu(1), gpu(0, 100, 700))
	r.step(0, want("a", 200), want("b", 300, gpus))
	if r.link.calls != 1 {
		t.Errorf("%d calls of the link for one step; want 1", r.link.calls)
	}
	want := []actuate.Command{{
		Seq: 1, Op: actuate.OpSet, Device: "nvml:GPU-0", Value: 300, Control: "b", Purpose: actuate.PurposeEfficient, TTLMillis: 30_000,
	}}
	if diff := cmp.Diff(want, r.link.sent[:1]); diff != "" {
		t.Errorf("command (-want +got):\n%s", diff)
	}
}

func TestSummarize(t *testing.T) {
	f := func(want string, results ...string) {
		t.Helper()
		var os []actuate.Outcome
		for _, r := range results {
			os = append(os, actuate.Outcome{Result: r})
		}
		if got := actuate.Summarize(os); got != want {
			t.Errorf("Summarize(%v) = %s; want %s", results, got, want)
		}
	}
	f("none")
	f("none", "none")
	f("applied", "none", "applied")
	f("blocked", "applied", "blocked", "none")
	f("error", "blocked", "error", "applied")
}
