package actuate_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

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

func throttle() actuate.Description {
	return actuate.Description{
		ID: "cpufreq:policy0", Name: "cpu0", Action: actuate.ActionThrottle, Unit: "%", Max: 100, Writable: true,
	}
}
