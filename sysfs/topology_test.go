package sysfs_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wattloop/wattloop/sysfs"
	"github.com/wattloop/wattloop/sysfs/sysfstest"
)

// S0-186: what a tree says is found, and what it does not say is unknown.
func TestReadTopology(t *testing.T) {
	files := map[string]string{
		"devices/system/cpu/modalias":         "cpu:type:x86,ven0002fam0019mod0011:feature:,0000,0001",
		"devices/system/node/node0/meminfo":   "Node 0 MemTotal:       16 kB\nNode 0 MemFree: 1 kB",
		"devices/system/node/node1/meminfo":   "Node 1 MemTotal:       32 kB",
		"devices/system/cpu/cpufreq/boost":    "1",
		"devices/system/cpu/cpu4/online":      "0", // its topology is gone
		"devices/system/node/possible":        "0-1",
		"devices/system/node/nodes/meminfo":   "Node 9 MemTotal: 5 kB",
		"devices/system/cpu/cpuidle/x/latest": "",
	}
	for cpu, at := range map[string][2]string{"0": {"0", "0-1"}, "1": {"0", "0-1"}, "2": {"0", "2"}, "3": {"1", "3"}} {
		files["devices/system/cpu/cpu"+cpu+"/topology/physical_package_id"] = at[0]
		files["devices/system/cpu/cpu"+cpu+"/topology/"+map[bool]string{true: "core_cpus_list", false: "thread_siblings_list"}[cpu == "3"]] = at[1]
	}
	got, err := sysfs.ReadTopology(sysfstest.Of(t, files))
	want := sysfs.Topology{Sockets: 2, Cores: 3, Threads: 5, CPUVendor: "amd", CPUFamily: 0x19, CPUModel: 0x11, MemoryBytes: 48 << 10}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	got, err = sysfs.ReadTopology(sysfstest.Of(t, map[string]string{"class/x": ""}))
	if want := (sysfs.Topology{CPUFamily: -1, CPUModel: -1}); got != want || err != nil {
		t.Errorf("an empty tree: %+v, %v", got, err)
	}
}

func TestGPUs(t *testing.T) {
	files := map[string]string{}
	for pci, is := range map[string][3]string{
		"0000:65:00.0": {"0x030200", "0x10de", "DRIVER=nvidia\nPCI_CLASS=30200"},
		"0000:03:00.0": {"0x038000", "0x1002", "PCI_CLASS=38000"},
		"0000:04:00.0": {"0x030000", "0x1a03", "DRIVER=ast"},
		"0000:05:00.0": {"0x020000", "0x8086", "DRIVER=ice"},
		"0000:01:00.0": {"0x120000", "0x1002", "DRIVER=amdgpu"},
	} {
		for i, name := range []string{"class", "vendor", "uevent"} {
			files["bus/pci/devices/"+pci+"/"+name] = is[i]
		}
		files["bus/pci/devices/"+pci+"/device"] = "0x1234"
	}
	got, err := sysfs.GPUs(sysfstest.Of(t, files))
	want := []sysfs.GPU{{"0000:01:00.0", "amd", "0x1234", "amdgpu"}, {"0000:03:00.0", "amd", "0x1234", ""}, {"0000:65:00.0", "nvidia", "0x1234", "nvidia"}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	if got, err := sysfs.GPUs(sysfstest.Of(t, map[string]string{"class/x": ""})); got != nil || err != nil {
		t.Errorf("a machine without PCI: %v, %v", got, err)
	}
}
