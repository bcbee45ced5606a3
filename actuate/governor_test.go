package actuate_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wattloop/wattloop/actuate"
)

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
		{"not to be clamped", "blocked/out_of_range", func(d *actuate.DeviceState) { d.Low, d.High, d.Rejects = 100, 150, true }},
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
