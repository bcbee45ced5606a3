package twin

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/wattloop/wattloop/sysfs"
)

// Hardware is a NodeHardware: what was discovered on a machine. Nothing in it
// comes from the configuration (S0-2, S0-3). A field that is absent is unknown.
type Hardware struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   Metadata       `json:"metadata"`
	Spec       HardwareSpec   `json:"spec"`
	Status     HardwareStatus `json:"status"`
}

// HardwareSpec names the node.
type HardwareSpec struct {
	NodeName string `json:"nodeName"`
}

// HardwareStatus is what was found.
type HardwareStatus struct {
	CPU     CPUHardware     `json:"cpu"`
	GPU     GPUHardware     `json:"gpu"`
	Memory  *MemoryHardware `json:"memory,omitempty"`
	Quality HardwareQuality `json:"quality"`
}

// CPUHardware is the processors. ControlAvailable says that the machine shows a
// power limit for each package, TelemetryAvailable that it counts their energy;
// whether this process may write or read them is another question.
type CPUHardware struct {
	Vendor             string     `json:"vendor,omitempty"`
	RawModel           string     `json:"rawModel,omitempty"`
	Family             int        `json:"family,omitempty"`
	ModelNumber        *int       `json:"modelNumber,omitempty"`
	Sockets            int        `json:"sockets,omitempty"`
	TotalCores         int        `json:"totalCores,omitempty"`
	CoresPerSocket     int        `json:"coresPerSocket,omitempty"`
	Threads            int        `json:"threads,omitempty"`
	DriverFamily       string     `json:"driverFamily,omitempty"` // of cpufreq
	Landmarks          *Landmarks `json:"landmarks,omitempty"`
	CapRange           *CapRange  `json:"capRange,omitempty"`
	Policies           []Policy   `json:"cpufreqPolicies"`
	Zones              []RAPLZone `json:"raplZones"`
	ControlAvailable   bool       `json:"controlAvailable"`
	TelemetryAvailable bool       `json:"telemetryAvailable"`
}

// Landmarks are the lowest and the highest frequency of all cpufreq policies.
type Landmarks struct {
	MinFreqMHz  float64 `json:"minFreqMHz"`
	MaxBoostMHz float64 `json:"maxBoostMHz"`
}

// Policy is one cpufreq policy.
type Policy struct {
	ID     string   `json:"id"`
	CPUs   []int    `json:"cpus"`
	Socket *int     `json:"socket,omitempty"`
	Driver string   `json:"driver,omitempty"`
	MinMHz *float64 `json:"minFreqMHz,omitempty"`
	MaxMHz *float64 `json:"maxFreqMHz,omitempty"`
}

// CapRange is the range of a cap that every package takes.
type CapRange struct {
	Type              string   `json:"type"` // package
	MinWattsPerSocket *float64 `json:"minWattsPerSocket,omitempty"`
	MaxWattsPerSocket *float64 `json:"maxWattsPerSocket,omitempty"`
}

// RAPLZone is one zone of the kernel's powercap class.
type RAPLZone struct {
	ID          string           `json:"id"`
	Name        string           `json:"name"`
	Kind        string           `json:"kind"`
	Socket      *int             `json:"socket,omitempty"`
	Die         *int             `json:"die,omitempty"`
	Parent      string           `json:"parent,omitempty"`
	MaxEnergyUJ uint64           `json:"maxEnergyRangeMicrojoules,omitempty"`
	Constraints []RAPLConstraint `json:"constraints,omitempty"`
}

// RAPLConstraint is one power limit of a zone.
type RAPLConstraint struct {
	Name     string   `json:"name"`
	MinWatts *float64 `json:"minWatts,omitempty"`
	MaxWatts *float64 `json:"maxWatts,omitempty"`
}

// GPUHardware is the graphics processors. Vendor and Count are those of one
// maker, nvidia before amd before intel, since a processor may have an intel one
// inside; Devices has them all.
type GPUHardware struct {
	Present bool        `json:"present"`
	Vendor  string      `json:"vendor,omitempty"`
	Count   int         `json:"count,omitempty"`
	Devices []GPUDevice `json:"devices"`
}

// GPUDevice is one of them.
type GPUDevice struct {
	PCI      string `json:"pciAddress"`
	Vendor   string `json:"vendor"`
	DeviceID string `json:"deviceId,omitempty"`
	Driver   string `json:"driver,omitempty"`
}

// MemoryHardware is the memory of all NUMA nodes.
type MemoryHardware struct {
	TotalBytes int64 `json:"totalBytes"`
}

// HardwareQuality says how much of it was found: full, partial or unknown.
type HardwareQuality struct {
	Overall  string   `json:"overall"`
	Warnings []string `json:"warnings"`
}

// Discover looks at the machine whose sysfs tree f is. cpuinfo is its
// /proc/cpuinfo, "" where that is not known to be the same machine's. What cannot
// be read is a warning in the document.
func Discover(node string, f sysfs.FS, cpuinfo string) Hardware {
	h := Hardware{APIVersion: apiVersion, Kind: kindHardware, Metadata: Metadata{node}, Spec: HardwareSpec{node}}
	s := &h.Status
	top, err := sysfs.ReadTopology(f)
	s.warn(err)
	zones, err := sysfs.Zones(f)
	s.warn(err)
	policies, err := sysfs.Policies(f)
	s.warn(err)
	gpus, err := sysfs.GPUs(f)
	s.warn(err)
	s.CPU = cpuHardware(top, zones, cpuinfo)
	s.CPU.clocks(f, policies)
	s.GPU = gpuHardware(gpus)
	if top.MemoryBytes > 0 {
		s.Memory = &MemoryHardware{top.MemoryBytes}
	}
	s.judge()
	return h
}

func (s *HardwareStatus) warn(err error) {
	if err != nil {
		s.Quality.Warnings = append(s.Quality.Warnings, strings.Split(err.Error(), "\n")...)
	}
}

// judge says what is missing.
func (s *HardwareStatus) judge() {
	lacks := func(is bool, format string, args ...any) {
		if is {
			s.warn(fmt.Errorf(format, args...))
		}
	}
	lacks(s.CPU.RawModel == "" && s.CPU.Family == 0, "cpu: the model is not known")
	lacks(s.CPU.Sockets == 0, "cpu: the number of sockets is not known")
	lacks(len(s.CPU.Policies) == 0, "cpu: no cpufreq policies")
	lacks(len(s.CPU.Zones) == 0, "cpu: no RAPL zones: no power limit and no energy of the packages")
	lacks(len(s.CPU.Zones) > 0 && s.CPU.MaxWatts() == 0, "cpu: the highest power limit of a package is not known")
	switch {
	case len(s.Quality.Warnings) == 0:
		s.Quality.Overall, s.Quality.Warnings = "full", []string{}
	case s.CPU.Threads == 0 && len(s.CPU.Zones) == 0 && !s.GPU.Present:
		s.Quality.Overall = "unknown"
	default:
		s.Quality.Overall = "partial"
	}
}

// MaxWatts is the most that every package can be capped at, 0 where it is not
// known.
func (c CPUHardware) MaxWatts() float64 {
	if c.CapRange == nil || c.CapRange.MaxWattsPerSocket == nil {
		return 0
	}
	return *c.CapRange.MaxWattsPerSocket
}

var modelName = regexp.MustCompile(`(?m)^model name\s*:\s*(.+)$`)

func cpuHardware(top sysfs.Topology, zones []sysfs.Zone, cpuinfo string) CPUHardware {
	c := CPUHardware{Vendor: top.CPUVendor, Sockets: top.Sockets, TotalCores: top.Cores, Threads: top.Threads, Zones: []RAPLZone{}}
	if m := modelName.FindStringSubmatch(cpuinfo); m != nil {
		c.RawModel = strings.TrimSpace(m[1])
	}
	if top.CPUFamily > 0 {
		c.Family, c.ModelNumber = top.CPUFamily, &top.CPUModel
	}
	if top.Sockets > 0 && top.Cores%top.Sockets == 0 {
		c.CoresPerSocket = top.Cores / top.Sockets
	}
	packages, limited := 0, 0
	for _, z := range zones {
		c.Zones = append(c.Zones, zone(z))
		if z.Kind != sysfs.Package {
			continue
		}
		packages++
		if limit, ok := z.Constraint(sysfs.LongTerm); ok {
			limited++
			c.widen(limit, packages == 1)
		}
	}
	c.TelemetryAvailable = packages > 0
	if c.ControlAvailable = packages > 0 && limited == packages; !c.ControlAvailable {
		c.CapRange = nil
	}
	return c
}

// clocks takes the cpufreq policies. Landmarks are known where every policy says
// its own.
func (c *CPUHardware) clocks(f sysfs.FS, policies []sysfs.Policy) {
	c.Policies = []Policy{}
	var all []Policy
	for _, p := range policies {
		out := Policy{p.ID, p.CPUs, notNegative(p.Socket), p.Driver, megahertz(f, p.File("cpuinfo_min_freq")), megahertz(f, p.File("cpuinfo_max_freq"))}
		c.Policies = append(c.Policies, out)
		if out.MinMHz != nil && out.MaxMHz != nil {
			all = append(all, out)
		}
	}
	if len(policies) > 0 {
		c.DriverFamily = policies[0].Driver
	}
	if len(all) == 0 || len(all) < len(policies) {
		return
	}
	marks := Landmarks{*all[0].MinMHz, *all[0].MaxMHz}
	for _, p := range all {
		marks.MinFreqMHz, marks.MaxBoostMHz = min(marks.MinFreqMHz, *p.MinMHz), max(marks.MaxBoostMHz, *p.MaxMHz)
	}
	c.Landmarks = &marks
}

// megahertz reads a file of kilohertz, nil where there is none.
func megahertz(f sysfs.FS, file string) *float64 {
	text, err := f.ReadString(file)
	if err != nil {
		return nil
	}
	khz, err := strconv.ParseUint(strings.TrimSpace(text), 10, 53)
	if err != nil || khz == 0 {
		return nil
	}
	return number(float64(khz) / 1e3)
}

// widen takes the limit of one more package: the range is what all of them take,
// and unknown where one does not say.
func (c *CPUHardware) widen(limit sysfs.Constraint, first bool) {
	low, high := watts(limit.MinMicrowatts), watts(limit.MaxMicrowatts)
	if first {
		c.CapRange = &CapRange{"package", low, high}
		return
	}
	if c.CapRange == nil { // the first package has no limit
		return
	}
	r := c.CapRange
	if high == nil || r.MaxWattsPerSocket != nil && *high < *r.MaxWattsPerSocket {
		r.MaxWattsPerSocket = high
	}
	if low == nil || r.MinWattsPerSocket != nil && *low > *r.MinWattsPerSocket {
		r.MinWattsPerSocket = low
	}
}

func zone(z sysfs.Zone) RAPLZone {
	out := RAPLZone{ID: z.ID, Name: z.Name, Kind: string(z.Kind), Parent: z.Parent, MaxEnergyUJ: z.MaxRangeMicrojoules, Socket: notNegative(z.Socket), Die: notNegative(z.Die)}
	for _, c := range z.Constraints {
		out.Constraints = append(out.Constraints, RAPLConstraint{c.Name, watts(c.MinMicrowatts), watts(c.MaxMicrowatts)})
	}
	return out
}

// notNegative is nil for a number below 0, which means unknown.
func notNegative(n int) *int {
	if n < 0 {
		return nil
	}
	return &n
}

// watts is nil for 0 microwatts, which means unknown.
func watts(micro uint64) *float64 {
	if micro == 0 {
		return nil
	}
	return number(float64(micro) / 1e6)
}

func gpuHardware(gpus []sysfs.GPU) GPUHardware {
	h := GPUHardware{Present: len(gpus) > 0, Devices: []GPUDevice{}}
	for _, g := range gpus {
		h.Devices = append(h.Devices, GPUDevice{g.PCI, g.Vendor, g.Device, g.Driver})
	}
	for _, vendor := range []string{"nvidia", "amd", "intel"} {
		for _, g := range gpus {
			if g.Vendor == vendor {
				h.Vendor = vendor
				h.Count++
			}
		}
		if h.Count > 0 {
			break
		}
	}
	return h
}
