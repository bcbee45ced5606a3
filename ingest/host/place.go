package host

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/wattloop/wattloop/sysfs"
)

// place is one chip: what it is a part of and what is read from it.
type place struct {
	title  string // name and device, for messages: amdgpu 0000:03:00.0
	path   string
	probes []probe
	energy *Meter // of a card that counts its energy
}

// noPower is what amdgpu shows in microwatts while it cannot measure.
const noPower = 4294967295000

// placesOf says where each chip belongs. Cards are numbered in the order of
// their bus addresses, behind the NVIDIA ones, which have their own library.
func placesOf(f sysfs.FS, chips []sysfs.Chip, of func(string) *attribute) []place {
	cards := nvidiaCards(f)
	var out []place
	titles, seen := map[string]int{}, map[string]bool{}
	var order []sysfs.Chip
	for _, c := range chips {
		if isCard(c.Name) {
			order = append(order, c)
		}
	}
	slices.SortStableFunc(order, func(a, b sysfs.Chip) int { return strings.Compare(a.Device, b.Device) })
	for _, c := range chips {
		t := strings.TrimSpace(c.Name + " " + c.Device)
		if titles[t]++; titles[t] > 1 {
			t += " " + strconv.Itoa(titles[t])
		}
		l := layout{fs: f, chip: c, of: of, out: place{title: t, path: c.Path}, seen: seen}
		switch {
		case isCard(c.Name):
			n := slices.IndexFunc(order, func(o sysfs.Chip) bool { return o.Path == c.Path })
			l.card("gpu" + strconv.Itoa(cards+n))
		case c.Name == "coretemp":
			l.part("cpu", l.socket())
		case c.Name == "k10temp" || c.Name == "zenpower":
			l.part("cpu", amdSocket(f, chips, c))
		case c.Name == "nvme" || c.Name == "drivetemp":
			l.part("physical_disk", c.Device)
		case c.Name == "power_meter" && single(chips, c.Name):
			l.host()
		default:
			l.part("", "")
		}
		if len(l.out.probes) > 0 || l.out.energy != nil {
			out = append(out, l.out)
		}
	}
	return out
}

func isCard(name string) bool {
	return slices.Contains([]string{sysfs.AMDGPU, "radeon", "xe", "i915"}, name)
}

func single(chips []sysfs.Chip, name string) bool {
	n := 0
	for _, c := range chips {
		if c.Name == name {
			n++
		}
	}
	return n == 1
}

// nvidiaCards counts the devices that NVIDIA's driver holds.
func nvidiaCards(f sysfs.FS) int {
	names, err := f.ReadDir("bus/pci/drivers/nvidia")
	if err != nil {
		return 0
	}
	n := 0
	for _, name := range names {
		if strings.Count(name, ":") == 2 { // 0000:17:00.0
			n++
		}
	}
	return n
}

// amdSocket is the package of a chip that sits on an AMD processor's own PCI
// device: known where the machine has one package, or one such chip for each.
func amdSocket(f sysfs.FS, chips []sysfs.Chip, c sysfs.Chip) string {
	sockets := map[int]bool{}
	policies, _ := sysfs.Policies(f) // what cannot be listed tells no socket
	for _, p := range policies {
		sockets[p.Socket] = true
	}
	delete(sockets, -1)
	var same []string
	for _, o := range chips {
		if o.Name == c.Name {
			same = append(same, o.Path)
		}
	}
	switch {
	case len(sockets) <= 1 && len(same) == 1:
		return "cpu0"
	case len(sockets) == len(same):
		return "cpu" + strconv.Itoa(slices.Index(same, c.Path))
	}
	return ""
}

// layout puts the sensors of one chip where they belong.
type layout struct {
	fs   sysfs.FS
	chip sysfs.Chip
	of   func(string) *attribute
	out  place
	seen map[string]bool // places of sensors that are taken, of all chips
}

// socket is the package that a coretemp chip says it is of.
func (l *layout) socket() string {
	for _, s := range l.chip.Sensors {
		for _, prefix := range []string{"Package id ", "Physical id "} {
			if n, ok := strings.CutPrefix(s.Label, prefix); ok && n != "" && strings.Trim(n, "0123456789") == "" {
				return "cpu" + n
			}
		}
	}
	return ""
}

// part takes temperatures, powers and fans of a component, or of none that is
// known, where id is empty and every sensor stands for itself.
func (l *layout) part(typ, id string) {
	for _, s := range l.chip.Sensors {
		switch s.Kind {
		case sysfs.TemperatureSensor:
			l.add(s, "hw.temperature", 1e-3, l.attrs(s, typ, id, "temperature"))
		case sysfs.PowerSensor:
			// A rail of a package is not its power, so it never is the package's.
			l.add(s, "hw.power", 1e-6, l.attrs(s, "", "", "sensor"))
		case sysfs.FanSensor:
			l.fan(s, id)
		}
	}
}

// host takes the firmware's meter of the whole machine (S0-111, S0-112).
func (l *layout) host() {
	for _, s := range l.chip.Sensors {
		if s.Kind == sysfs.PowerSensor && s.Number == 1 {
			l.add(s, "hw.host.power", 1e-6, nil)
		}
	}
}

// card takes a GPU's. On a chip that holds the CPU too, the power is that of
// all of it: the package's, which a RAPL counter of the package stands before.
func (l *layout) card(id string) {
	for _, s := range l.chip.Sensors {
		switch s.Kind {
		case sysfs.TemperatureSensor:
			l.add(s, "hw.temperature", 1e-3, l.attrs(s, "gpu", id, ""))
		case sysfs.PowerSensor:
			switch {
			case s.Number != 1:
			case l.isAPU():
				l.add(s, "hw.power", 1e-6, []string{"hw.type", "cpu", "hw.id", "cpu0"})
			default:
				l.add(s, "hw.power", 1e-6, []string{"hw.type", "gpu", "hw.id", id})
			}
		case sysfs.FanSensor:
			l.fan(s, id)
		case sysfs.FrequencySensor:
			if clock := map[string]string{"sclk": "graphics", "mclk": "memory"}[s.Label]; clock != "" {
				l.add(s, "hw.gpu.speed", 1, []string{"hw.type", "gpu", "hw.id", id, "hw.gpu.clock", clock})
			}
		case sysfs.EnergySensor:
			if l.out.energy == nil || s.Label == "card" {
				l.out.energy = &Meter{Name: l.out.title, Type: "gpu", ID: id, Path: s.File, File: l.of(s.File)}
			}
		}
	}
	l.cardFiles(id)
}

// cardFiles are what amdgpu shows beside its chip.
func (l *layout) cardFiles(id string) {
	if l.chip.Name != sysfs.AMDGPU {
		return
	}
	dir := path.Join(l.chip.Path, "device")
	names, err := l.fs.ReadDir(dir)
	if err != nil {
		return
	}
	gpu := []string{"hw.type", "gpu", "hw.id", id}
	for _, f := range []struct {
		file, metric string
		scale        float64
		count        bool
		attrs        []string
	}{
		{"gpu_busy_percent", "hw.gpu.utilization", 0.01, false, []string{"hw.gpu.task", "general"}},
		{"mem_busy_percent", "hw.gpu.memory.busy", 0.01, false, nil},
		{"mem_info_vram_used", "hw.gpu.memory.usage", 1, false, nil},
		{"mem_info_vram_total", "hw.gpu.memory.limit", 1, false, nil},
		{"pcie_replay_count", "hw.errors", 1, true, []string{"error.type", "pcie_replay"}},
	} {
		if slices.Contains(names, f.file) {
			l.out.probes = append(l.out.probes, probe{metric: f.metric, attrs: slices.Concat(gpu, f.attrs), scale: f.scale,
				file: l.of(path.Join(dir, f.file)), least: never, count: f.count})
		}
	}
}

// isAPU tells by the voltage of the northbridge, which amdgpu shows of nothing
// else.
func (l *layout) isAPU() bool {
	text, err := l.fs.ReadString(path.Join(l.chip.Path, "in1_label"))
	return err == nil && strings.TrimSpace(text) == "vddnb"
}

func (l *layout) fan(s sysfs.Sensor, parent string) {
	l.add(s, "hw.fan.speed", 1, []string{"hw.type", "fan", "hw.id", l.own(s), "hw.parent", parent, "hw.sensor_location", s.Label})
}

// own is an id for a sensor that is no part of a component with an id of ours.
func (l *layout) own(s sysfs.Sensor) string {
	return fmt.Sprintf("%s/%s%d", strings.ReplaceAll(l.out.title, " ", "-"), s.Kind, s.Number)
}

// attrs name a sensor of a component by its place in it, of which no two are
// the same, and one of nothing by itself.
func (l *layout) attrs(s sysfs.Sensor, typ, id, alone string) []string {
	if id == "" {
		return []string{"hw.type", alone, "hw.id", l.own(s), "hw.sensor_location", s.Label}
	}
	at := s.Label
	if at == "" || l.seen[id+"/"+at] {
		at = strings.TrimSpace(fmt.Sprintf("%s %s%d", at, s.Kind, s.Number))
	}
	if l.seen[id+"/"+at] {
		at += " of " + l.out.title
	}
	l.seen[id+"/"+at] = true
	return []string{"hw.type", typ, "hw.id", id, "hw.sensor_location", at}
}

func (l *layout) add(s sysfs.Sensor, metric string, scale float64, attrs []string) {
	p := probe{metric: metric, attrs: attrs, scale: scale, file: l.of(s.File), least: never}
	if s.Enable != "" && !isCard(l.chip.Name) { // amdgpu means by fan1_enable who steers the fan
		p.enable = l.of(s.Enable)
	}
	if s.Fault != "" {
		p.fault = l.of(s.Fault)
	}
	switch s.Kind {
	case sysfs.TemperatureSensor:
		p.least = coldest
	case sysfs.PowerSensor:
		p.absent = noPower
	}
	l.out.probes = append(l.out.probes, p)
}
