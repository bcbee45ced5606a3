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

// Control types of the powercap class that are RAPL. Zones of the MSR and TPMI
// drivers are intel-rapl:..., also on AMD; a second driver lists package 0 of
// some machines again over memory-mapped registers.
const (
	typeMSR  = "intel-rapl"
	typeMMIO = "intel-rapl-mmio"
)

// Zones finds the RAPL zones of a machine, each once, sorted by socket, die and
// id. The class directory may list them flat or below one another, as links or
// as directories, and /sys/devices/virtual/powercap lists them again: the
// kernel's id tells them apart. A package that the memory-mapped driver lists
// too is the Twin of the first one; where only that driver lists it, it stands
// for itself. Core, uncore, psys and unknown zones are in the answer with their
// Kind, so that callers choose.
//
// A machine without RAPL has no zones and no error. A tree or a zone's name that
// cannot be read is an error that names the file. What a zone does not state is
// unknown, never zero.
//
// prometheus/procfs lists zones too, but it does not look below the class
// directory, gives up on all zones when one has no max_energy_range_uj, and
// knows neither twins, dies, parents nor constraints; the test of this package
// holds both against each other.
func Zones(f FS) ([]Zone, error) {
	if _, err := f.ReadDir("."); err != nil {
		return nil, fmt.Errorf("sysfs: %s: %w", f.root(), cause(err))
	}
	d := discovery{fs: f, zones: map[string]*Zone{}}
	for _, top := range []string{"class/powercap", "devices/virtual/powercap"} {
		if err := d.walk(top, 0); err != nil {
			return nil, fmt.Errorf("sysfs: %w", err)
		}
	}
	return d.list(), nil
}

type discovery struct {
	fs    FS
	zones map[string]*Zone // by id
}

// walk takes the zones in dir, then those below them and below the control
// types. The depth is that of a subzone under its package under its type.
func (d *discovery) walk(dir string, depth int) error {
	names, err := d.fs.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) && depth == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	var below []string
	for _, name := range names {
		ctype, _, isZone := strings.Cut(name, ":")
		if ctype != typeMSR && ctype != typeMMIO {
			continue
		}
		sub := path.Join(dir, name)
		if d.gone(sub) {
			continue
		}
		below = append(below, sub)
		if isZone && d.zones[name] == nil {
			zone, err := d.read(sub, name)
			if err != nil {
				return err
			}
			d.zones[name] = zone
		}
	}
	if depth == 3 {
		return nil
	}
	for _, sub := range below {
		if err := d.walk(sub, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// gone reports whether a zone is listed whose directory is not there: it went
// while we looked, or a container has /sys/devices/virtual/powercap hidden (see
// Masked).
func (d *discovery) gone(dir string) bool {
	_, err := d.fs.ReadDir(dir)
	return errors.Is(err, fs.ErrNotExist)
}

// Masked reports whether the class directory lists RAPL zones of which none is
// there. Container runtimes hide /sys/devices/virtual/powercap so, since a
// counter tells what the neighbours compute (CVE-2020-8694).
func Masked(f FS) bool {
	names, err := f.ReadDir("class/powercap")
	if err != nil {
		return false
	}
	d, listed := discovery{fs: f}, false
	for _, name := range names {
		if ctype, _, _ := strings.Cut(name, ":"); ctype != typeMSR && ctype != typeMMIO {
			continue
		}
		if !d.gone(path.Join("class/powercap", name)) {
			return false
		}
		listed = true
	}
	return listed
}

func (d *discovery) read(dir, id string) (*Zone, error) {
	name, err := d.fs.ReadString(path.Join(dir, "name"))
	if err != nil {
		return nil, err
	}
	z := &Zone{ID: id, Path: dir, Name: strings.TrimSpace(name), MMIO: strings.HasPrefix(id, typeMMIO+":")}
	z.Kind, z.Socket, z.Die = classify(z.Name)
	z.MaxRangeMicrojoules = d.number(z.File("max_energy_range_uj"))
	if enabled, err := d.fs.ReadString(z.File("enabled")); err == nil {
		z.Enabled = strings.TrimSpace(enabled)
	}
	names, err := d.fs.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, file := range names {
		number, isConstraint := strings.CutPrefix(file, "constraint_")
		number, isName := strings.CutSuffix(number, "_name")
		index, err := strconv.Atoi(number)
		if !isConstraint || !isName || err != nil {
			continue
		}
		prefix := z.File("constraint_" + number)
		cname, err := d.fs.ReadString(prefix + "_name")
		if err != nil {
			return nil, err
		}
		z.Constraints = append(z.Constraints, Constraint{
			Index:         index,
			Name:          strings.TrimSpace(cname),
			MaxMicrowatts: d.number(prefix + "_max_power_uw"),
			MinMicrowatts: d.number(prefix + "_min_power_uw"),
			LimitFile:     prefix + "_power_limit_uw",
		})
	}
	slices.SortFunc(z.Constraints, func(a, b Constraint) int { return a.Index - b.Index })
	return z, nil
}

// number reads an unsigned number; 0 is what cannot be known. Limits pass 2^31
// microwatts, and energy 2^53 microjoules, so that nothing narrower than 64
// bits and no float holds them.
func (d *discovery) number(file string) uint64 {
	text, err := d.fs.ReadString(file)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// list gives subzones their parents, pairs twins and sorts.
func (d *discovery) list() []Zone {
	first := map[string]*Zone{} // packages by name, the MSR driver's first
	var all []*Zone
	for _, z := range d.zones {
		all = append(all, z)
	}
	slices.SortFunc(all, func(a, b *Zone) int {
		return cmp.Or(compareBool(a.MMIO, b.MMIO), strings.Compare(a.ID, b.ID))
	})
	var zones []Zone
	for _, z := range all {
		if i := strings.LastIndex(z.ID, ":"); strings.Count(z.ID, ":") > 1 {
			if up := d.zones[z.ID[:i]]; up != nil {
				z.Parent = up.Name
				z.Socket, z.Die = up.Socket, up.Die
			}
		}
		if z.Kind != Package {
			continue
		}
		if same := first[z.Name]; same == nil {
			first[z.Name] = z
		} else if same.Twin == nil && z.MMIO {
			same.Twin = z
		}
	}
	for _, z := range all {
		if d.counted(z, first) {
			zones = append(zones, *z)
		}
	}
	slices.SortFunc(zones, func(a, b Zone) int {
		return cmp.Or(cmp.Compare(uint(a.Socket), uint(b.Socket)), a.Die-b.Die, strings.Compare(a.ID, b.ID))
	})
	return zones
}

// counted leaves out a package that stands in the list already and what is
// below it: the twin's dram is the same memory again.
func (d *discovery) counted(z *Zone, first map[string]*Zone) bool {
	for up := z; up != nil; {
		if up.Kind == Package && first[up.Name] != up {
			return false
		}
		i := strings.LastIndex(up.ID, ":")
		if i < 0 {
			break
		}
		up = d.zones[up.ID[:i]]
	}
	return true
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
