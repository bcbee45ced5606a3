package sysfs

import (
	"path"
	"strconv"
	"strings"
)

// Kind is what a RAPL zone measures, by its name.
type Kind string

// Kinds of zones. Platform is psys: it holds the packages again and more, and
// Core and Uncore are parts of a package, so that only Package is CPU power and
// only DRAM is memory (S0-109, S0-110).
const (
	Package  Kind = "package"
	DRAM     Kind = "dram"
	Core     Kind = "core"
	Uncore   Kind = "uncore"
	Platform Kind = "psys"
	Other    Kind = "other"
)

// Zone is one RAPL zone as the kernel's powercap class lists it
// (Documentation/power/powercap/powercap.rst).
type Zone struct {
	ID     string `json:"id"`               // the kernel's name of the device: intel-rapl:0:2
	Path   string `json:"path"`             // of its directory, relative to the root
	Name   string `json:"name"`             // contents of the file name: package-0, dram
	Kind   Kind   `json:"kind"`             // by the name
	Socket int    `json:"socket"`           // of the package, or of the package it is part of; -1: none
	Die    int    `json:"die"`              // of package-N-die-M; -1: the package is one zone
	Parent string `json:"parent,omitempty"` // name of the zone above: package-0
	// MaxRangeMicrojoules is where energy_uj wraps, each zone's own; 0 is unknown.
	MaxRangeMicrojoules uint64       `json:"max_range_microjoules"`
	Enabled             string       `json:"enabled,omitempty"` // contents of the file enabled; "" is unknown
	Constraints         []Constraint `json:"constraints,omitempty"`
	MMIO                bool         `json:"mmio,omitempty"` // listed by the memory-mapped driver
	// Twin is the same package as the memory-mapped driver lists it beside this
	// one: a second limit on the same hardware, and the same energy again.
	Twin *Zone `json:"twin,omitempty"`
}

// Constraint is one power limit of a zone. Its name is what it means; its index
// is only how its files are spelt.
type Constraint struct {
	Index int    `json:"index"`
	Name  string `json:"name"` // long_term, short_term, peak_power
	// MaxMicrowatts is the highest limit that the hardware states; 0 is unknown:
	// the file is absent, empty, reads 0 or gives ENODATA.
	MaxMicrowatts uint64 `json:"max_microwatts"`
	MinMicrowatts uint64 `json:"min_microwatts"` // 0 is unknown
	LimitFile     string `json:"limit_file"`     // microwatts, relative to the root
}

// Names of constraints that the kernel's RAPL driver gives.
const (
	LongTerm  = "long_term"
	ShortTerm = "short_term"
	PeakPower = "peak_power"
)

// File returns the path of one of the zone's files, relative to the root.
func (z Zone) File(name string) string { return path.Join(z.Path, name) }

// Energy returns the path of the energy counter, in microjoules.
func (z Zone) Energy() string { return z.File("energy_uj") }

// Constraint returns the limit of that name.
func (z Zone) Constraint(name string) (Constraint, bool) {
	for _, c := range z.Constraints {
		if c.Name == name {
			return c, true
		}
	}
	return Constraint{}, false
}

// classify reads a zone's name. The socket is in the name alone: the number of
// the directory counts zones, psys among them, in the order of discovery.
func classify(name string) (kind Kind, socket, die int) {
	switch name {
	case "dram":
		return DRAM, -1, -1
	case "core":
		return Core, -1, -1
	case "uncore":
		return Uncore, -1, -1
	case "psys":
		return Platform, -1, -1
	}
	rest, ok := strings.CutPrefix(name, "package-")
	if !ok {
		return Other, -1, -1
	}
	number, dieText, hasDie := strings.Cut(rest, "-die-")
	socket, err := strconv.Atoi(number)
	if err != nil || socket < 0 {
		return Other, -1, -1
	}
	if !hasDie {
		return Package, socket, -1
	}
	die, err = strconv.Atoi(dieText)
	if err != nil || die < 0 {
		return Other, -1, -1
	}
	return Package, socket, die
}
