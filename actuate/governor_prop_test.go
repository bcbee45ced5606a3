package actuate_test

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/wattloop/wattloop/actuate"
)

// watcher is a Link that checks every command as a warden would see it, and
// after each step what the step has left.
type watcher struct {
	t *rapid.T
	*tap
	known     map[string]actuate.Intent // the last of each control
	ts        int64
	pause     int64            // since the step before
	wrote     map[string]int64 // when each device was last written
	emergency map[string]int64
	settled   bool // this step has written: what it writes now rolls back
}

func (w *watcher) Do(ctx context.Context, cmds []actuate.Command) ([]actuate.Reply, error) {
	set := false
	for _, c := range cmds {
		w.check(c)
		set = set || c.Op == actuate.OpSet
	}
	w.settled = w.settled || set
	return w.tap.Do(ctx, cmds)
}

func (w *watcher) device(id string) actuate.DeviceState {
	ds := w.Devices()
	return ds[slices.IndexFunc(ds, func(d actuate.DeviceState) bool { return d.ID == id })]
}

func (w *watcher) check(c actuate.Command) {
	in, ok := w.known[c.Control]
	if !ok || c.TTLMillis > in.TTL.Milliseconds() || c.Purpose != in.Purpose { // I5
		w.t.Fatalf("%+v: want an intent's control, lease and purpose: %+v", c, in)
	}
	if c.Op != actuate.OpSet {
		return
	}
	d := w.device(c.Device)
	if math.IsNaN(c.Value) || c.Value < d.Low || c.Value > d.High || c.Value > d.Original { // I2
		w.t.Fatalf("set %s to %g: outside %g to %g", d.ID, c.Value, d.Low, d.High)
	}
	if w.settled {
		return
	}
	// I6. A leftover of an earlier engine moves by the governor's own slew.
	delta, pause := c.Value-d.Current, time.Duration(w.pause)*time.Millisecond
	up := max(in.Slew.Up*periods(pause, in.Slew.Every), 7.5*periods(pause, time.Second))
	down := in.Slew.Down * periods(pause, in.Slew.Every)
	at, before := w.wrote[d.ID]
	if delta > up+1e-9 {
		w.t.Fatalf("set %s from %g to %g: more than %g W up", d.ID, d.Current, c.Value, up)
	}
	if early := before && w.ts-at < 1000; early || -delta > down+1e-9 {
		last, ok := w.emergency[d.ID]
		if c.Purpose != actuate.PurposeProtect || delta >= 0 || ok && w.ts-last < 60_000 {
			w.t.Fatalf("%+v: set %s from %g to %g %d ms after the last write, at most %g W down", c, d.ID, d.Current, c.Value, w.ts-at, down)
		}
		if _, fails := w.fail[d.ID]; !fails {
			w.emergency[d.ID] = w.ts
		}
	}
	w.wrote[d.ID] = w.ts
}

func periods(pause, every time.Duration) float64 { return float64(max(1, pause/every)) }

// step makes one step and checks what it has left.
func (w *watcher) step(g *actuate.Governor, pause int64, intents []actuate.Intent) {
	w.ts, w.pause, w.settled = w.ts+pause, pause, false
	asked := map[string]actuate.Intent{}
	for _, in := range intents {
		asked[in.Control], w.known[in.Control] = in, in
	}
	before := map[string]actuate.DeviceState{}
	for _, d := range w.Devices() {
		before[d.ID] = d
	}
	outcomes := g.Step(context.Background(), w.ts, intents)
	owners := map[string]actuate.Outcome{}
	for _, o := range outcomes {
		d := w.device(o.Device)
		if d.Owner == o.Control {
			owners[d.ID] = o
		}
		if o.Result == actuate.Applied && (o.Applied != d.Current || math.Abs(o.Applied-o.Granted) > d.Tolerance) { // I4
			w.t.Fatalf("applied, but the device holds %g W: %+v", d.Current, o)
		}
	}
	for id, o := range owners {
		d, in := w.device(id), asked[o.Control]
		if o.Reason == actuate.ReasonFlapping { // gives back whatever it is asked
			continue
		}
		if in.Partial && in.Kind == actuate.Set && d.Current > before[id].Current {
			w.t.Fatalf("partial input raised %s from %g to %g: %+v", id, before[id].Current, d.Current, o)
		}
		if math.IsNaN(in.Value) && before[id].Owner == d.Owner && d.Current != before[id].Current { // I8
			w.t.Fatalf("NaN moved %s from %g to %g", id, before[id].Current, d.Current)
		}
		if o.Result != actuate.Applied || in.Kind != actuate.Set || in.Partial {
			continue
		}
		for _, loser := range outcomes {
			other := asked[loser.Control]
			if loser.Device != id || loser.Reason != actuate.ReasonOverridden || other.Kind != actuate.Set {
				continue
			}
			if min(max(other.Value, d.Low), d.High) < min(max(in.Value, d.Low), d.High) {
				w.t.Fatalf("%s wants %g W and loses %s to %s with %g W", other.Control, other.Value, id, in.Control, in.Value)
			}
		}
	}
}

var everyone = []string{"e1", "e2", "p1", "p2"}

func drawIntent(t *rapid.T, control string) actuate.Intent {
	in := actuate.Intent{
		Control: control, Action: actuate.ActionRAPLCap, Target: map[string]string{"hw_type": "cpu"},
		Kind: actuate.Set, Mode: actuate.ModeEnforce, Purpose: actuate.PurposeEfficient, TTL: 30 * time.Second,
		Slew: actuate.Slew{Down: 40, Up: 15, Every: 2 * time.Second},
	}
	if control[0] == 'p' {
		in.Purpose, in.SafeCap = actuate.PurposeProtect, 120
	}
	if control == "e2" {
		in.Target = map[string]string{"hw_id": "cpu1"}
		in.Slew = actuate.Slew{Down: 100, Up: 5, Every: time.Second}
	}
	in.Value = rapid.Float64Range(50, 300).Draw(t, control+" watts")
	switch rapid.IntRange(0, 19).Draw(t, control+" kind") {
	case 0:
		in.Kind = actuate.Keep
	case 1:
		in.Kind = actuate.Release
	case 2:
		in.Kind = actuate.Restore
	case 3:
		in.Kind = actuate.Keep
		if in.Purpose == actuate.PurposeProtect {
			in.Kind = actuate.Hold
		}
	case 4:
		in.Value = math.NaN()
	case 5:
		in.Mode = actuate.ModeObserve
	case 6, 7, 8:
		in.Partial = true
	}
	return in
}

// Whatever is asked, in whatever order, over restarts of the engine and failed
// writes: I2, I4, I5, I6 and I8 hold, the tightest wins, partial input raises
// nothing, and what nobody wants any more is given back.
func TestGovernorProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &watcher{
			t: t, tap: newTap(cpu(0), cpu(1)), known: map[string]actuate.Intent{},
			wrote: map[string]int64{}, emergency: map[string]int64{},
		}
		g := &actuate.Governor{Link: w}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			pause := rapid.SampledFrom([]int64{100, 500, 1000, 2000, 5000, 20_000}).Draw(t, "pause")
			if rapid.IntRange(0, 30).Draw(t, "restart") == 30 {
				g, pause = &actuate.Governor{Link: w}, 1
				clear(w.wrote) // the next engine cannot know
				clear(w.emergency)
			}
			clear(w.fail)
			if rapid.IntRange(0, 9).Draw(t, "fail") == 9 {
				w.fail["rapl:package-1"] = actuate.Reply{Result: actuate.Error, Reason: actuate.ReasonWriteFailed}
			}
			var intents []actuate.Intent
			for _, c := range everyone {
				if rapid.IntRange(0, 3).Draw(t, c) > 0 {
					intents = append(intents, drawIntent(t, c))
				}
			}
			w.step(g, pause, intents)
		}
		clear(w.fail)
		var all []actuate.Intent // what an earlier engine has left is heard of once
		for _, c := range everyone {
			in := drawIntent(t, c)
			in.Kind, in.Mode = actuate.Keep, actuate.ModeEnforce
			all = append(all, in)
		}
		w.step(g, 2000, all)
		for range 50 { // longer than a latch and the slowest ramp
			w.step(g, 20_000, nil)
		}
		for _, d := range w.Devices() {
			if d.Owner != "" || d.Current != d.Original {
				t.Fatalf("nobody wants anything, and %s holds %g W for %q", d.ID, d.Current, d.Owner)
			}
		}
	})
}
