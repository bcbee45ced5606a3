package actuate

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"sync"
)

// Dry is a Link without hardware, for replay: its devices are numbers. It
// grants what a warden would with the default limits, reads back what it
// granted, and keeps a lease until it is released.
type Dry struct {
	mu      sync.Mutex
	devices []DeviceState // sorted by ID
}

// NewDry describes the devices up front. originals says by ID what each holds
// before the first command; one that is not in it holds its Default, or its
// Max where it has none.
func NewDry(devices []Description, originals map[string]float64) *Dry {
	d := &Dry{}
	for _, desc := range devices {
		original, ok := originals[desc.ID]
		if !ok {
			original = cmp.Or(desc.Default, desc.Max)
		}
		s := DeviceState{
			Description: desc, Current: original, Original: original, State: StateArmed, Enabled: true,
			Low: desc.Min, High: cmp.Or(desc.Max, original),
		}
		switch desc.Action {
		case ActionThrottle: // the higher the tighter, and never above 60 %
			s.Low = max(s.Low, original)
			s.High = min(cmp.Or(desc.Max, 100), 60)
		default:
			s.Low = max(s.Low, 0.4*desc.Default)
			s.High = min(s.High, original)
		}
		d.devices = append(d.devices, s)
	}
	slices.SortFunc(d.devices, func(a, b DeviceState) int { return strings.Compare(a.ID, b.ID) })
	return d
}

// Devices says what every device holds.
func (d *Dry) Devices() []DeviceState {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.devices)
}

// Do carries the commands out on its numbers. It never fails.
func (d *Dry) Do(_ context.Context, cmds []Command) ([]Reply, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	replies := make([]Reply, 0, len(cmds))
	for _, c := range cmds {
		r := Reply{Result: Blocked, Reason: ReasonNoDevice}
		if i := slices.IndexFunc(d.devices, func(s DeviceState) bool { return s.ID == c.Device }); i >= 0 {
			r = d.devices[i].apply(c)
		}
		r.Seq, r.Device = c.Seq, c.Device
		replies = append(replies, r)
	}
	return replies, nil
}

func (s *DeviceState) apply(c Command) Reply {
	r := Reply{Result: Applied}
	owned := s.Owner == c.Control && s.Key == c.Key
	switch {
	case c.Control == "" || !finite(c.Value) || c.Value < 0:
		r.Result, r.Reason = Blocked, ReasonBadCommand
	case c.Op == OpSet && !s.Writable:
		r.Result, r.Reason, r.Message = Blocked, ReasonNotWritable, s.Description.Reason
	case c.Op == OpSet && s.Low > s.High:
		r.Result, r.Reason = Blocked, ReasonOutOfRange
	case c.Op == OpSet:
		s.Current = math.Min(math.Max(c.Value, s.Low), s.High)
		s.Granted, s.Clamped, s.State = s.Current, s.Current != c.Value, StateApplied
		s.Owner, s.Key, s.Purpose, s.OnStop, s.SafeCap = c.Control, c.Key, c.Purpose, c.OnStop, c.SafeCap
		s.LeaseMillis = c.TTLMillis
	case c.Op == OpRenew && owned:
		s.State, s.LeaseMillis, r.Reason = StateApplied, c.TTLMillis, ReasonUnchanged
	case c.Op == OpHold && owned:
		s.State, s.LeaseMillis, r.Reason = StateHolding, 0, ReasonHolding
	case c.Op == OpRelease && owned:
		s.Current, s.Granted, s.Clamped, s.State = s.Original, 0, false, StateArmed
		s.Owner, s.Key, s.Purpose, s.OnStop, s.SafeCap, s.LeaseMillis = "", "", "", "", 0, 0
		r.Reason = ReasonRestored
	case c.Op == OpRelease:
		r.Result, r.Reason = None, ReasonNotOwner
	case c.Op == OpRenew || c.Op == OpHold:
		r.Result, r.Reason = Blocked, ReasonNoLease
	default:
		r.Result, r.Reason = Blocked, ReasonBadCommand
	}
	r.Granted, r.Applied, r.Clamped = s.Granted, s.Current, s.Clamped
	return r
}
