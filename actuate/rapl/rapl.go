// Package rapl caps the power of CPU packages through the powercap class. It
// writes the long-term limit, and on a strict setting the short-term one; it
// never touches enabled, the time windows, or any zone that is not a package.
package rapl

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/wattloop/wattloop/actuate"
	"github.com/wattloop/wattloop/sysfs"
)

const (
	microwatts = 1e6 // per watt
	// tolerance in watts: the register counts in units of 1/8 W and a driver may
	// round to the next one.
	tolerance = 1
)

// Open returns one device for each CPU package that has a long-term limit, in
// the order of sockets. A package of several dies that are limited apart is one
// device: a cap is the package's, and each die gets its share. Absent hardware
// is no device and no error; a tree or a limit's name that cannot be read is an
// error that names the file. A device that cannot be written says why in its
// Description.
func Open(f sysfs.FS) ([]actuate.Device, error) {
	zones, err := sysfs.Zones(f)
	if err != nil {
		return nil, fmt.Errorf("rapl: %w", err)
	}
	bySocket := map[int]*device{}
	var devices []actuate.Device
	for _, z := range zones {
		if z.Kind != sysfs.Package {
			continue
		}
		long, ok := z.Constraint(sysfs.LongTerm)
		if !ok {
			continue
		}
		d := bySocket[z.Socket]
		if d == nil {
			d = &device{fs: f, name: "package-" + strconv.Itoa(z.Socket), lowered: map[string]lowering{}}
			bySocket[z.Socket] = d
			devices = append(devices, d)
		}
		p := part{zone: z, long: long}
		if short, ok := z.Constraint(sysfs.ShortTerm); ok {
			p.shortFile = short.LimitFile
			if _, err := d.limit(short.LimitFile); err == nil {
				p.short = short.LimitFile
			}
		}
		d.parts = append(d.parts, p)
	}
	for _, d := range bySocket {
		d.description = d.describe()
	}
	return devices, nil
}

// part is one zone of a package: the package itself, or one of its dies.
type part struct {
	zone      sysfs.Zone
	long      sysfs.Constraint
	short     string // file of the short-term limit; "" where there is none that can be read
	shortFile string // the same, whether it can be read or not: a restore may name it
}

// device is one package.
type device struct {
	fs          sysfs.FS
	name        string // package-0
	parts       []part
	description actuate.Description // but for Writable and Reason
	// lowered remembers short-term limits that a strict setting of ours brought
	// down, so that the next one may raise them again, never above what they were.
	lowered map[string]lowering
}

type lowering struct{ from, to uint64 } // microwatts

// Describe implements actuate.Device. Max is what the hardware states for the
// long-term limit, which Intel calls thermal design power, and with it the
// default; both are 0 where it states nothing. Whether the limits can be written
// is looked at each time: a mount or a permission changes while we run.
func (d *device) Describe() actuate.Description {
	out := d.description
	out.Writable, out.Reason = true, ""
	for _, p := range d.parts {
		if reason := d.unwritable(p); reason != "" {
			out.Writable, out.Reason = false, reason
			break
		}
	}
	out.Files = slices.Clone(out.Files)
	out.Labels = map[string]string{"hw_type": "cpu", "hw_id": out.Name}
	return out
}

func (d *device) describe() actuate.Description {
	out := actuate.Description{
		ID:        "rapl:" + d.name,
		Name:      "cpu" + strings.TrimPrefix(d.name, "package-"),
		Action:    actuate.ActionRAPLCap,
		Unit:      "W",
		Tolerance: tolerance,
	}
	maxKnown := true
	var low, high uint64
	for _, p := range d.parts {
		out.Files = append(out.Files, p.long.LimitFile)
		if p.short != "" {
			out.Files = append(out.Files, p.short)
		}
		low += p.long.MinMicrowatts
		high += p.long.MaxMicrowatts
		maxKnown = maxKnown && p.long.MaxMicrowatts > 0
	}
	out.Min = float64(low) / microwatts
	if maxKnown {
		out.Max = float64(high) / microwatts
		out.Default = out.Max
	}
	return out
}

// unwritable says why a part cannot be capped, or nothing. What the firmware has
// locked still opens for writing; that shows at the first write.
func (d *device) unwritable(p part) string {
	if _, err := d.limit(p.long.LimitFile); err != nil {
		return fmt.Sprintf("rapl: %s: %v", p.zone.Name, err)
	}
	enabled, err := d.fs.ReadString(p.zone.File("enabled"))
	if err != nil {
		enabled = p.zone.Enabled
	}
	if strings.TrimSpace(enabled) == "0" {
		return fmt.Sprintf("rapl: %s: %s reads 0: the package enforces no limit, and wattloop does not switch it on", p.zone.Name, p.zone.File("enabled"))
	}
	if err := d.fs.Probe(p.long.LimitFile); err != nil {
		return fmt.Sprintf("rapl: %s: %v", p.zone.Name, writeHint(err))
	}
	return ""
}

// limit reads a limit in microwatts. It takes 64 bits: 4,090 W stands for "no
// limit" on some machines and does not fit 31.
func (d *device) limit(file string) (uint64, error) {
	text, err := d.fs.ReadString(file)
	if err != nil {
		return 0, err
	}
	return parse(file, text)
}

func parse(file, text string) (uint64, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: holds %.40q: not a number of microwatts", file, text)
	}
	return n, nil
}

// Read implements actuate.Device. Value is the long-term limit, the sum of its
// dies' where there are several; Files are the contents of every limit that a
// write may touch.
func (d *device) Read() (actuate.State, error) {
	state := actuate.State{Files: map[string]string{}}
	var sum uint64
	for _, p := range d.parts {
		for _, file := range []string{p.long.LimitFile, p.short} {
			if file == "" {
				continue
			}
			text, err := d.fs.ReadString(file)
			if err != nil {
				return actuate.State{}, d.error(p, err)
			}
			n, err := parse(file, text)
			if err != nil {
				return actuate.State{}, d.error(p, err)
			}
			state.Files[file] = text
			if file == p.long.LimitFile {
				sum += n
			}
		}
	}
	state.Value = float64(sum) / microwatts
	return state, nil
}

func (d *device) error(p part, err error) error {
	return fmt.Errorf("rapl: %s: %w", p.zone.Name, err)
}

// Write implements actuate.Device. A value outside what the hardware states is
// brought inside, as the read-back shows. A value that is no positive number is
// an error, and nothing is written. It does not try again, and does not read
// back: the hardware may ignore a write, or firmware lock it.
func (d *device) Write(s actuate.Setting) error {
	if !(s.Value > 0) || s.Value > math.MaxInt64/microwatts {
		return fmt.Errorf("rapl: %s: %g W is no power limit", d.name, s.Value)
	}
	share := uint64(math.Round(s.Value*microwatts)) / uint64(len(d.parts))
	for _, p := range d.parts {
		if err := d.writePart(p, p.clamp(share), s.Strict); err != nil {
			return d.error(p, writeHint(err))
		}
	}
	return nil
}

// clamp brings a limit into what the hardware states of this one.
func (p part) clamp(uw uint64) uint64 {
	if p.long.MaxMicrowatts > 0 {
		uw = min(uw, p.long.MaxMicrowatts)
	}
	return max(uw, p.long.MinMicrowatts, 1)
}

// writePart sets the limits of one zone so that the short-term one does not fall
// below the long-term one on the way: a rising short-term limit goes first, a
// falling one last. A short-term limit is lowered by a strict setting alone, and
// raised never, but for what a strict setting of ours took from it.
func (d *device) writePart(p part, uw uint64, strict bool) error {
	long := func() error { return d.set(p.long.LimitFile, uw) }
	lowered, ours := d.lowered[p.short]
	if p.short == "" || !strict && !ours {
		return long()
	}
	now, err := d.limit(p.short)
	if err != nil {
		return err
	}
	found := now
	if ours && lowered.to == now { // nobody else has set it since
		found = lowered.from
	}
	target := found
	if strict {
		target = min(uw, found)
	}
	short := func() error {
		if target == now {
			return nil
		}
		if err := d.set(p.short, target); err != nil {
			return err
		}
		d.lowered[p.short] = lowering{from: found, to: target}
		return nil
	}
	if target > now {
		return inOrder(short, long)
	}
	return inOrder(long, short)
}

func inOrder(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (d *device) set(file string, uw uint64) error {
	return d.fs.WriteString(file, strconv.FormatUint(uw, 10))
}

// writeHint says what a person can do about a write that was refused.
func writeHint(err error) error {
	var p *fs.PathError
	if !errors.Is(err, fs.ErrPermission) || !errors.As(err, &p) {
		return err
	}
	if p.Op == "write" { // it opened: the kernel answers so for a limit with the lock bit set
		return fmt.Errorf("%w: firmware has locked the limit; unlock it in the machine's setup", err)
	}
	return fmt.Errorf("%w: run as root or with CAP_DAC_OVERRIDE, and mount sysfs writable", err)
}
