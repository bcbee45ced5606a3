package host

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/wattloop/wattloop/sysfs"
)

// Meter is one energy counter of the machine. Its fields but File travel as
// JSON beside the descriptor, from the process that may open it.
type Meter struct {
	Name   string `json:"name"`             // of the zone, for messages: package-0, dram of package-0
	Type   string `json:"type"`             // hw.type: cpu, memory, gpu; empty: the whole host
	ID     string `json:"id,omitempty"`     // hw.id: cpu0, dram0; empty for the whole host
	Parent string `json:"parent,omitempty"` // hw.parent of a memory: cpu0
	Path   string `json:"path"`             // of the counter, relative to the sysfs root
	Range  uint64 `json:"range"`            // microjoules; the counter wraps there, 0 is unknown
	// File reads the counter anew at offset 0, in microjoules.
	File io.ReaderAt `json:"-"`

	ask func() (uint64, error) // instead of File, where there is none
}

// most is the power in watts that the meter can never show: twice what the
// largest packages, memories, cards and hosts of this day draw. It tells a
// counter that wrapped from one that began anew, as after a suspend, and how long
// a counter may go unread before a wrap can have been missed.
func (m Meter) most() float64 {
	switch m.Type {
	case "memory":
		return 500
	case "":
		return 4000
	case "gpu":
		return 3000
	}
	return 1000
}

// Find lists the meters of a tree, not yet open: one for each CPU package, or
// for each die where a package is metered by die, one for the memory of each,
// and one for the platform (psys), which is the whole host and has no hw.type.
// A package that is listed on several paths is one meter; core and uncore are
// none, since the packages hold them (S0-107, S0-109 to S0-112).
func Find(f sysfs.FS) ([]Meter, error) {
	zones, err := sysfs.Zones(f)
	if err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	var meters []Meter
	for _, z := range zones {
		n := strconv.Itoa(z.Socket)
		m := Meter{Name: z.Name, Path: z.Energy(), Range: z.MaxRangeMicrojoules}
		switch {
		case z.Kind == sysfs.Package:
			m.Type, m.ID = "cpu", "cpu"+n
		case z.Kind == sysfs.DRAM && z.Socket >= 0:
			m.Type, m.ID, m.Parent = "memory", "dram"+n, "cpu"+n
			m.Name = z.Name + " of " + z.Parent
		case z.Kind == sysfs.Platform:
		default:
			continue
		}
		meters = append(meters, m)
	}
	return meters, nil
}

// read returns the counter in microjoules.
func (m Meter) read() (uint64, error) {
	if m.ask != nil {
		return m.ask()
	}
	if m.File == nil {
		return 0, fmt.Errorf("host: %s: not open", m.Name)
	}
	var buf [32]byte // 2^64 has 20 digits
	n, err := m.File.ReadAt(buf[:], 0)
	if err != nil && err != io.EOF {
		return 0, fmt.Errorf("host: %s: %w", m.Name, err)
	}
	text := strings.TrimRight(string(buf[:n]), "\n\x00 ")
	uj, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("host: %s: %s holds %q: not a number of microjoules", m.Name, m.Path, text)
	}
	return uj, nil
}
