package warden

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wattloop/wattloop/actuate"
)

// Options is all that a warden needs to know. Everything in it comes from the
// owner of the machine; nothing of it can be changed by the engine.
type Options struct {
	Devices []actuate.Device // what this binary can touch; IDs differ
	// Tree is the folder that the devices lie in, the root of sysfs. One process
	// at a time is the warden of a tree, whatever its other paths are; "" is for
	// devices that lie in none.
	Tree   string
	Meters []actuate.Meter // opened by the caller, handed to each engine, closed by the caller

	StatePath string // the originals lie in StatePath/warden, on a disk
	RunPath   string // intents, lock and socket lie in RunPath/warden; best on a tmpfs
	// Dirs are made and given to the engine's user before the engine starts.
	Dirs []string

	Enabled      bool          // actuation.enabled; false: nothing is written but originals given back
	ObserveFirst time.Duration // a device is watched that long before its first write

	// Clamps holds the administrator's limits by device ID; the entry "" is for
	// every device without one of its own.
	Clamps           map[string]Clamp
	AllowRaise       bool // a cap may be above the original
	RejectOutOfRange bool // a value outside the limits is blocked, not clamped
	Partial          bool // one device of a control may be set while another cannot
	// RestoreDefaultOnCorrupt says whether a device found below its default with
	// the originals lost is set to that default; nil: GPUs only.
	RestoreDefaultOnCorrupt *bool

	MaxHold time.Duration // protection: how long HOLDING lasts before the safe cap; 0 is 15 min
	TTLMax  time.Duration // the longest lease that is granted; 0 is 300 s
	Tick    time.Duration // wall time between two looks at each device; 0 is 1 s

	// Clock is what leases, ObserveFirst and MaxHold are counted on. It must go
	// on while the machine is suspended; nil is CLOCK_BOOTTIME. Speed is how many
	// seconds it shows a second of wall time; 0 is 1.
	Clock  func() time.Duration
	Speed  float64
	BootID func() (string, error) // nil is the kernel's
	Log    *slog.Logger           // nil discards

	Engine Spawn
	// Reload, when set, makes the engine read its rules again at each receive.
	Reload <-chan struct{}
	// Started, when set, is told the process ID of each engine started.
	Started func(pid int)
	// Ready, when set, is called when an engine has said that it serves.
	Ready func()
	// Standing, when set, is called before Run returns, with the devices on which
	// a cap of ours was left on purpose: Reason is ReasonHolding (on_stop: hold)
	// or ReasonHandedOver.
	Standing func([]Restored)
	// Ticked, when set, is called after each tick in which every device was
	// looked at in time and the engine's heartbeat was judged: the one place from
	// which systemd's watchdog may be fed.
	Ticked func()

	// Fault, when set, is called at each of the points in the life of a cap at
	// which a test kills the process. Nothing but a test sets it.
	Fault func(point string)
}

// Clamp bounds the values for a device, in its unit; 0 is no bound.
type Clamp struct {
	Min, Max float64
	Floor    float64 // share of the default below which no cap goes; 0 is 0.4
}

const (
	defaultFloor   = 0.4
	defaultMaxHold = 15 * time.Minute
	defaultTTLMax  = 300 * time.Second
	defaultTick    = time.Second
	minTTL         = time.Second
)

// withDefaults checks the options and fills in what is left to be filled in.
func (o Options) withDefaults() (Options, error) {
	if o.StatePath == "" || o.RunPath == "" {
		return o, fmt.Errorf("warden: state.path %q, run.path %q: both are needed", o.StatePath, o.RunPath)
	}
	seen := map[string]bool{}
	for _, dev := range o.Devices {
		d := dev.Describe()
		id := d.ID
		if id == "" || len(id) > maxID || seen[id] {
			return o, fmt.Errorf("warden: device %q: want an ID of its own of at most %d bytes", id, maxID)
		}
		seen[id] = true
		if !finite(d.Min+d.Max+d.Default+d.Tolerance) || d.Min < 0 || d.Max < 0 || d.Default < 0 {
			return o, fmt.Errorf("warden: device %q: min %g, max %g, default %g, tolerance %g: want finite numbers", id, d.Min, d.Max, d.Default, d.Tolerance)
		}
	}
	for id, c := range o.Clamps {
		if !(c.Min >= 0) || !(c.Max >= 0) || !(c.Floor >= 0 && c.Floor <= 1) || c.Max > 0 && c.Min > c.Max {
			return o, fmt.Errorf("warden: actuation.clamps: %q: min %g, max %g, floor %g: want 0 <= min <= max and a floor from 0 to 1", id, c.Min, c.Max, c.Floor)
		}
	}
	if o.Speed < 0 {
		return o, fmt.Errorf("warden: clock speed %g: want more than 0", o.Speed)
	}
	o.MaxHold = orDefault(o.MaxHold, defaultMaxHold)
	o.TTLMax = max(orDefault(o.TTLMax, defaultTTLMax), minTTL)
	o.Tick = orDefault(o.Tick, defaultTick)
	o.Speed = orDefault(o.Speed, 1)
	if o.Clock == nil {
		o.Clock = bootTime
	}
	if o.BootID == nil {
		o.BootID = bootID
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Fault == nil {
		o.Fault = func(string) {}
	}
	return o, nil
}

// wall is how much wall time passes while the clock goes on by d.
func (o *Options) wall(d time.Duration) time.Duration {
	return time.Duration(float64(d) / o.Speed)
}

func (o *Options) clampOf(id string) Clamp {
	c, ok := o.Clamps[id]
	if !ok {
		c = o.Clamps[""]
	}
	c.Floor = orDefault(c.Floor, defaultFloor)
	return c
}

func (o *Options) defaultOnCorrupt(d actuate.Description) bool {
	if o.RestoreDefaultOnCorrupt != nil {
		return *o.RestoreDefaultOnCorrupt
	}
	return d.Action == actuate.ActionGPUCap
}

func orDefault[T int64 | float64 | time.Duration](v, def T) T {
	if v == 0 {
		return def
	}
	return v
}

// bootTime is the time since boot, suspension included (clock_gettime(2)).
func bootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("BUG: CLOCK_BOOTTIME: " + err.Error()) // cannot fail since Linux 2.6.39
	}
	return time.Duration(ts.Nano())
}

// bootID is a number that the kernel draws anew at each boot (random(4)).
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("warden: boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// pause sleeps for wall time d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
