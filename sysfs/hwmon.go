package sysfs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

const hwmon = "class/hwmon"

// Chip is one device of the hwmon class (Documentation/hwmon/sysfs-interface.rst).
// What it is says its name; the number of its directory changes from boot to
// boot.
type Chip struct {
	Path   string // of the directory that holds the sensors, relative to the root
	Name   string // contents of the file name: coretemp, k10temp, amdgpu, power_meter
	Device string // what it sits on, as its bus calls it: 0000:03:00.0, coretemp.0; "" is unknown
	// Sensors are those whose value can be asked for, sorted by kind and number.
	Sensors []Sensor
}

// Sensor is one quantity of a chip.
type Sensor struct {
	Kind   SensorKind
	Number int
	File   string // of the value, relative to the root
	Label  string // contents of the label, "" where it has none
	Enable string // file that reads 0 while the sensor is off, "" where there is none
	Fault  string // file that reads 1 while the sensor is broken, "" where there is none
}

// AMDGPU is the name of the chip of an AMD GPU. Intel's cards have files of the
// same names; the name alone tells.
const AMDGPU = "amdgpu"

// SensorKind is what a sensor measures; the unit is the file's.
type SensorKind string

// Kinds of sensors. Files of temperatures hold thousandths of a degree Celsius,
// those of power microwatts, of fans revolutions per minute, of energy
// microjoules, of frequencies hertz.
const (
	TemperatureSensor SensorKind = "temp"
	PowerSensor       SensorKind = "power"
	FanSensor         SensorKind = "fan"
	EnergySensor      SensorKind = "energy"
	FrequencySensor   SensorKind = "freq"
)

// Chips finds the hwmon chips of a machine, sorted by name and device. A
// machine without hwmon has none and no error. A chip that cannot be listed, or
// that has no name, is in the error, beside the others.
func Chips(f FS) ([]Chip, error) {
	names, err := f.ReadDir(hwmon)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("sysfs: %w", err)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) })
	var chips []Chip
	var failed []error
	for _, name := range names {
		c, err := chip(f, path.Join(hwmon, name))
		switch {
		case errors.Is(err, errNoChip):
		case err != nil:
			failed = append(failed, fmt.Errorf("sysfs: %w", err))
		default:
			chips = append(chips, c)
		}
	}
	slices.SortStableFunc(chips, func(a, b Chip) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Device, b.Device))
	})
	return chips, errors.Join(failed...)
}

// errNoChip is a directory of the class that is gone or holds no sensor.
var errNoChip = errors.New("no chip")

func chip(f FS, dir string) (Chip, error) {
	c := Chip{Path: dir, Device: deviceOf(f, dir)}
	entries, err := f.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return c, errNoChip
	}
	if err != nil {
		return c, err
	}
	if !slices.Contains(entries, "name") { // drivers of the old interface keep all below device
		if below, err := f.ReadDir(path.Join(dir, "device")); err == nil && slices.Contains(below, "name") {
			c.Path, entries = path.Join(dir, "device"), below
		}
	}
	name, err := f.ReadString(path.Join(c.Path, "name"))
	switch {
	case err == nil:
		c.Name = strings.TrimSpace(name)
	case slices.Contains(entries, "name"):
		return c, err
	default: // some fixtures and early drivers have none
		c.Name = c.Device
	}
	c.Sensors = sensors(f, c, entries)
	switch {
	case len(c.Sensors) == 0:
		return c, errNoChip
	case c.Name == "":
		return c, fmt.Errorf("%s: has sensors but neither name nor device", dir)
	}
	return c, nil
}

// deviceOf is the bus name of what the chip sits on: the link device, or the
// directory above hwmon where the class lists a link.
func deviceOf(f FS, dir string) string {
	if target, err := f.Readlink(path.Join(dir, "device")); err == nil {
		if name := path.Base(path.Clean(target)); name != "." && name != ".." {
			return name
		}
	}
	target, err := f.Readlink(dir)
	if err != nil {
		return ""
	}
	up := path.Dir(path.Clean(target)) // .../hwmon, or the device itself
	if path.Base(up) == "hwmon" {
		up = path.Dir(up)
	}
	if name := path.Base(up); name != "." && name != ".." && name != "/" {
		return name
	}
	return ""
}

// sensors are those of the four kinds. A sensor is read from its input, or from
// its average where it has no input; of amdgpu the average comes first, which
// older cards alone have and newer ones beside an input that jumps.
func sensors(f FS, c Chip, entries []string) []Sensor {
	first, second := "_input", "_average"
	if c.Name == AMDGPU {
		first, second = second, first
	}
	var out []Sensor
	for _, name := range entries {
		stem, ok := strings.CutSuffix(name, first)
		if !ok {
			if stem, ok = strings.CutSuffix(name, second); !ok || slices.Contains(entries, stem+first) {
				continue
			}
		}
		digits := strings.TrimLeft(stem, "abcdefghijklmnopqrstuvwxyz")
		kind := SensorKind(strings.TrimSuffix(stem, digits))
		n, err := strconv.Atoi(digits)
		if err != nil || !slices.Contains([]SensorKind{TemperatureSensor, PowerSensor, FanSensor, EnergySensor, FrequencySensor}, kind) {
			continue
		}
		s := Sensor{Kind: kind, Number: n, File: path.Join(c.Path, name)}
		if text, err := f.ReadString(path.Join(c.Path, stem+"_label")); err == nil {
			s.Label = strings.TrimSpace(text)
		}
		if slices.Contains(entries, stem+"_enable") {
			s.Enable = path.Join(c.Path, stem+"_enable")
		}
		if slices.Contains(entries, stem+"_fault") {
			s.Fault = path.Join(c.Path, stem+"_fault")
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b Sensor) int {
		return cmp.Or(strings.Compare(string(a.Kind), string(b.Kind)), a.Number-b.Number)
	})
	return out
}
