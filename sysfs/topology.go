package sysfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Topology is what the tree says of the machine's processors and memory. A count
// of 0 is unknown.
type Topology struct {
	Sockets, Cores, Threads int
	CPUVendor               string // intel, amd, hygon, arm; "" is unknown
	CPUFamily, CPUModel     int    // of x86, -1 is unknown
	MemoryBytes             int64
}

// modalias names an x86 processor (arch/x86/kernel/cpu/match.c); the vendor is a
// number of arch/x86/include/asm/processor.h.
var modalias = regexp.MustCompile(`^cpu:type:x86,ven([0-9A-F]{4})fam([0-9A-F]{4})mod([0-9A-F]{4})`)

var memTotal = regexp.MustCompile(`(?m)^Node \d+ MemTotal:\s+(\d+) kB`)

// ReadTopology counts sockets, cores and threads, and adds up the memory of all
// nodes. What the tree does not have is unknown and no error; a folder that cannot
// be listed is one, beside what could be read.
func ReadTopology(f FS) (Topology, error) {
	t := Topology{CPUFamily: -1, CPUModel: -1}
	const nodes = "devices/system/node"
	threads, err := numbered(f, cpus, "cpu")
	sockets, cores := map[int]bool{}, map[string]bool{}
	for _, n := range threads {
		t.Threads++
		socket := Socket(f, n)
		if socket < 0 { // it is offline, or the kernel does not know
			continue
		}
		sockets[socket] = true
		if core := coreOf(f, fmt.Sprintf("%s/cpu%d/topology", cpus, n)); core != "" {
			cores[core] = true
		}
	}
	t.Sockets, t.Cores = len(sockets), len(cores)
	if alias, aerr := f.ReadString(path.Join(cpus, "modalias")); aerr == nil {
		t.identify(alias)
	}
	numa, nerr := numbered(f, nodes, "node")
	for _, n := range numa {
		text, rerr := f.ReadString(fmt.Sprintf("%s/node%d/meminfo", nodes, n))
		if m := memTotal.FindStringSubmatch(text); rerr == nil && m != nil {
			kib, _ := strconv.ParseInt(m[1], 10, 53) // out of range is its bound
			t.MemoryBytes += kib << 10
		}
	}
	if err = errors.Join(err, nerr); err != nil {
		err = fmt.Errorf("sysfs: %w", err)
	}
	return t, err
}

// coreOf names the core of a thread by the threads that it has, as core_id is
// numbered anew in each die and, on some machines, in each half of a package. The
// older name of the file stands second.
func coreOf(f FS, topology string) string {
	for _, file := range []string{"core_cpus_list", "thread_siblings_list"} {
		if text, err := f.ReadString(path.Join(topology, file)); err == nil && text != "" {
			return text
		}
	}
	return ""
}

func (t *Topology) identify(alias string) {
	if strings.HasPrefix(alias, "cpu:type:aarch64") {
		t.CPUVendor = "arm"
		return
	}
	m := modalias.FindStringSubmatch(alias)
	if m == nil {
		return
	}
	t.CPUVendor = map[string]string{"0000": "intel", "0002": "amd", "0009": "hygon"}[m[1]]
	family, _ := strconv.ParseInt(m[2], 16, 32)
	model, _ := strconv.ParseInt(m[3], 16, 32)
	t.CPUFamily, t.CPUModel = int(family), int(model)
}

// GPU is a graphics processor on the PCI bus, whether it has a driver or not.
type GPU struct {
	PCI    string // 0000:65:00.0
	Vendor string // nvidia, amd or intel
	Device string // the maker's number of the model, 0x2330
	Driver string // "" is none
}

// GPUs finds the display controllers and accelerators of the makers of GPUs, sorted
// by address. The adapter of a management controller is none.
func GPUs(f FS) ([]GPU, error) {
	const bus = "bus/pci/devices"
	names, err := f.ReadDir(bus)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("sysfs: %w", err)
	}
	var out []GPU
	for _, n := range names {
		read := func(file string) string {
			text, err := f.ReadString(path.Join(bus, n, file))
			if err != nil { // the device is gone, or the tree has no such file
				return ""
			}
			return strings.TrimSpace(text)
		}
		class := read("class")
		vendor := map[string]string{"0x10de": "nvidia", "0x1002": "amd", "0x8086": "intel"}[read("vendor")]
		if vendor == "" || !strings.HasPrefix(class, "0x03") && !strings.HasPrefix(class, "0x12") {
			continue
		}
		g := GPU{PCI: n, Vendor: vendor, Device: read("device")}
		for _, line := range strings.Split(read("uevent"), "\n") {
			if d, ok := strings.CutPrefix(line, "DRIVER="); ok {
				g.Driver = d
			}
		}
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b GPU) int { return strings.Compare(a.PCI, b.PCI) })
	return out, nil
}
