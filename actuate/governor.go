package actuate

import (
	"context"
	"slices"
	"strings"
	"sync"
)

// Link carries commands to whoever holds the devices: the warden, or Dry.
type Link interface {
	// Do carries the commands out and answers each of them. On an error, what
	// became of a command without a reply is unknown, and Devices will tell.
	Do(ctx context.Context, cmds []Command) ([]Reply, error)
	// Devices shows what every command did whose reply Do has returned.
	Devices() []DeviceState
}

// Governor decides what each device is asked for. It matches intents to
// devices, lets the tightest win, and moves a device no faster, no more often
// and no further than its limits allow. It is level-triggered: every Step is
// given all that is wanted now, and what the Link says of a device outweighs
// what the Governor remembers, so that after a restart it goes on from where
// the device stands.
//
// Step is called by one goroutine at a time, and the exported fields do not
// change after the first. Devices may be called from anywhere.
type Governor struct {
	Link Link
	// Pace says by action how gently its devices are written. An action that is
	// not in it takes DefaultPace.
	Pace map[string]Pace
	// AllowPartial lets a control act on those of its devices that can be written
	// when others cannot. Without it the control writes none.
	AllowPartial bool

	// now counts the milliseconds between steps; a clock that is set back neither
	// stretches an interval nor ends one.
	now    int64
	lastTS int64
	seq    uint64
	knobs  map[string]*knob

	mu     sync.Mutex
	status []DeviceStatus
}

// Reasons that the governor gives beside those of the warden.
const (
	ReasonObserve    = "observe"     // mode observe: nothing is written
	ReasonRamping    = "ramping"     // applied, on the way to the value
	ReasonFlapping   = "flapping"    // latched after too many reversals
	ReasonRateLimit  = "rate_limit"  // the device was written too short a time ago
	ReasonNotEngaged = "not_engaged" // nothing of this control is on the device
	ReasonLink       = "no_answer"   // of the warden
)

// Step brings the devices closer to what intents want at ts (Unix
// milliseconds) and says what became of it: one outcome for each control and
// device, in the order of the intents and then of the devices' ids. A control
// that matches no device has one outcome without a device. A control that an
// earlier Step was given and this one is not is released, and has outcomes
// until its devices are given back.
func (g *Governor) Step(ctx context.Context, ts int64, intents []Intent) []Outcome {
	g.advance(ts)
	knobs := g.refresh()
	groups := gather(ts, knobs, intents)
	for _, gr := range groups {
		gr.preflight(g.AllowPartial)
	}
	plan(knobs)
	g.unhold(ctx, knobs)
	g.carryOut(ctx, knobs)
	if !g.AllowPartial {
		g.rollBack(ctx, groups)
	}
	outcomes := outcomes(groups)
	g.forget(knobs)
	g.publish(outcomes)
	return outcomes
}

func (g *Governor) advance(ts int64) {
	if g.knobs == nil {
		g.knobs, g.lastTS = map[string]*knob{}, ts
	}
	g.now += max(ts-g.lastTS, 0)
	g.lastTS = ts
}

// refresh takes over what the link says of its devices, and answers with all,
// sorted by id. One that the link no longer names is gone.
func (g *Governor) refresh() []*knob {
	for _, k := range g.knobs {
		k.begin(g.now)
	}
	for _, s := range g.Link.Devices() {
		k := g.knobs[s.ID]
		if k == nil {
			k = newKnob(g.pace(s.Action), g.now)
			k.begin(g.now)
			g.knobs[s.ID] = k
		}
		k.load(s)
	}
	knobs := make([]*knob, 0, len(g.knobs))
	for _, k := range g.knobs {
		knobs = append(knobs, k)
	}
	slices.SortFunc(knobs, func(a, b *knob) int { return strings.Compare(a.state.ID, b.state.ID) })
	return knobs
}

// forget drops what no later step needs.
func (g *Governor) forget(knobs []*knob) {
	for _, k := range knobs {
		k.ramp.seen = k.now
		for o, c := range k.claims {
			if !c.engaged && !c.held && !k.holds(o) && !c.remembered(k.now) {
				delete(k.claims, o)
			}
		}
		if k.gone && len(k.claims) == 0 {
			delete(g.knobs, k.state.ID)
		}
	}
}

// DeviceStatus is a device as the last Step left it.
type DeviceStatus struct {
	DeviceState
	// Known is whether Current was read from the device.
	Known bool
	// Desired, Applied and the words are those of the owner's outcome, or of the
	// first control that asked in vain; without either Result is None. Reason is
	// the outcome's, DeviceState.Reason the device's.
	Desired, Applied        float64
	Result, Reason, Message string
	// Overridden names the controls that want a looser value than the owner.
	Overridden []string
}

// Devices says how every device stands. It may be called at any time, from any
// goroutine.
func (g *Governor) Devices() []DeviceStatus {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.status == nil {
		return statuses(g.Link.Devices(), nil)
	}
	return slices.Clone(g.status)
}

func (g *Governor) publish(outcomes []Outcome) {
	status := statuses(g.Link.Devices(), outcomes)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.status = status
}

func statuses(states []DeviceState, outcomes []Outcome) []DeviceStatus {
	out := make([]DeviceStatus, 0, len(states))
	for _, s := range states {
		st := DeviceStatus{
			DeviceState: s, Applied: s.Current, Result: None,
			Known: s.State != StateGone && s.Reason != ReasonReadFailed,
		}
		for _, o := range outcomes {
			switch {
			case o.Device != s.ID:
			case o.Result == Blocked && o.Reason == ReasonOverridden:
				st.Overridden = append(st.Overridden, o.Control+o.Key)
			case st.Result == None || o.Control == s.Owner && o.Key == s.Key:
				st.Desired, st.Applied = o.Desired, o.Applied
				st.Result, st.Reason, st.Message = o.Result, o.Reason, o.Message
			}
		}
		out = append(out, st)
	}
	return out
}

// Summarize is the one word for a control over all its devices: error before
// blocked before applied before none.
func Summarize(outcomes []Outcome) string {
	worst := None
	for _, o := range outcomes {
		if severity(o.Result) > severity(worst) {
			worst = o.Result
		}
	}
	return worst
}

func severity(result string) int {
	return slices.Index([]string{None, Applied, Blocked, Error}, result)
}
