package actuate_test

import (
	"context"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wattloop/wattloop/actuate"
)

func TestDry(t *testing.T) {
	link := actuate.NewDry([]actuate.Description{cpu(1), cpu(0)}, map[string]float64{"rapl:package-0": 220})
	ds := link.Devices()
	if ds[0].ID != "rapl:package-0" || ds[0].Original != 220 || ds[1].Original != 250 {
		t.Fatalf("devices = %+v; want them by ID with their originals", ds)
	}
	f := func(c actuate.Command, want actuate.Reply) {
		t.Helper()
		got, err := link.Do(context.Background(), []actuate.Command{c})
		if err != nil {
			t.Fatal(err)
		}
		want.Seq, want.Device = c.Seq, c.Device
		if diff := cmp.Diff([]actuate.Reply{want}, got); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", c, diff)
		}
	}
	cmd := func(op string, v float64) actuate.Command {
		return actuate.Command{Seq: 7, Op: op, Device: "rapl:package-0", Value: v, Control: "a", TTLMillis: 30_000}
	}
	word := func(result, reason string, v float64) actuate.Reply {
		return actuate.Reply{Result: result, Reason: reason, Applied: v, Granted: v}
	}
	idle := func(result, reason string) actuate.Reply {
		return actuate.Reply{Result: result, Reason: reason, Applied: 220}
	}
	clamped := func(v float64) actuate.Reply {
		return actuate.Reply{Result: actuate.Applied, Applied: v, Granted: v, Clamped: true}
	}
	f(cmd(actuate.OpRenew, 0), idle(actuate.Blocked, actuate.ReasonNoLease))
	f(cmd(actuate.OpHold, 0), idle(actuate.Blocked, actuate.ReasonNoLease))
	f(cmd(actuate.OpRelease, 0), idle(actuate.None, actuate.ReasonNotOwner))
	f(cmd("reset", 0), idle(actuate.Blocked, actuate.ReasonBadCommand))
	f(cmd(actuate.OpSet, math.NaN()), idle(actuate.Blocked, actuate.ReasonBadCommand))
	f(actuate.Command{Op: actuate.OpSet, Device: "rapl:package-9", Control: "a"},
		actuate.Reply{Result: actuate.Blocked, Reason: actuate.ReasonNoDevice})
	f(cmd(actuate.OpSet, 150), word(actuate.Applied, "", 150))
	f(cmd(actuate.OpSet, 240), clamped(220)) // never above the original
	f(cmd(actuate.OpSet, 20), clamped(100))  // the hardware's minimum, and 40 % of the default
	f(cmd(actuate.OpSet, 150), word(actuate.Applied, "", 150))
	f(cmd(actuate.OpRenew, 0), word(actuate.Applied, actuate.ReasonUnchanged, 150))
	f(cmd(actuate.OpHold, 0), word(actuate.Applied, actuate.ReasonHolding, 150))
	f(cmd(actuate.OpRelease, 0), actuate.Reply{Result: actuate.Applied, Reason: actuate.ReasonRestored, Applied: 220})
	if got := link.Devices()[0]; got.Owner != "" || got.State != actuate.StateArmed || got.Current != 220 {
		t.Errorf("after the release: %+v; want 220 W and no owner", got)
	}
}
