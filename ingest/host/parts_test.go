package host

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wattloop/wattloop/sysfs"
	"github.com/wattloop/wattloop/sysfs/sysfstest"
)

// all are the points of every request so far, as "metric{attributes} value".
func (c *capture) all(t testing.TB) []string {
	t.Helper()
	var out []string
	for _, md := range c.requests {
		ms := md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics()
		for i := range ms.Len() {
			m := ms.At(i)
			var ps pmetric.NumberDataPointSlice
			if m.Type() == pmetric.MetricTypeGauge {
				ps = m.Gauge().DataPoints()
			} else {
				ps = m.Sum().DataPoints()
			}
			for k := range ps.Len() {
				var attrs []string
				for key, v := range ps.At(k).Attributes().All() {
					attrs = append(attrs, key+"="+v.AsString())
				}
				slices.Sort(attrs)
				out = append(out, fmt.Sprintf("%s{%s} %.6g", m.Name(), strings.Join(attrs, ","), ps.At(k).DoubleValue()))
			}
		}
	}
	slices.Sort(out)
	for i := 1; i < len(out); i++ {
		if a, _, _ := strings.Cut(out[i], "}"); strings.HasPrefix(out[i-1], a+"}") {
			t.Errorf("one series twice: %s and %s", out[i-1], out[i])
		}
	}
	return out
}

// tree is a source of a tree of files, and of the proc tree below proc.
func tree(t testing.TB, files, links map[string]string) (*capture, *Source, sysfs.FS) {
	t.Helper()
	sys, proc := sysfs.New(t.TempDir()), sysfs.New(t.TempDir())
	for path, text := range files {
		if rest, ok := strings.CutPrefix(path, "proc/"); ok {
			sysfstest.Write(t, proc, rest, text)
		} else {
			sysfstest.Write(t, sys, path, text)
		}
	}
	for path, target := range links {
		sysfstest.Link(t, sys, path, target)
	}
	c := &capture{now: t0}
	s := c.source(nil)
	s.Sysfs, s.Proc = &sys, &proc
	return c, s, sys
}

// bad are the findings that are there and cannot be read.
func (s *Source) bad() []string {
	var out []string
	for _, f := range s.Findings() {
		if f.Found && !f.Readable {
			out = append(out, f.title()+": "+f.Reason)
		}
	}
	return out
}

// S0-179: the clock that runs and both pairs of bounds, in hertz; a socket's
// speed is the mean over its CPUs.
func TestClocks(t *testing.T) {
	const cpu = "devices/system/cpu/"
	c, s, sys := tree(t, map[string]string{
		cpu + "cpufreq/policy0/related_cpus":       "0 1 2",
		cpu + "cpufreq/policy0/scaling_cur_freq":   "2000000",
		cpu + "cpufreq/policy0/cpuinfo_min_freq":   "800000",
		cpu + "cpufreq/policy0/cpuinfo_max_freq":   "3800000",
		cpu + "cpufreq/policy0/scaling_min_freq":   "800000",
		cpu + "cpufreq/policy0/scaling_max_freq":   "2600000",
		cpu + "cpufreq/policy3/related_cpus":       "3",
		cpu + "cpufreq/policy3/cpuinfo_avg_freq":   "1000000", // no scaling_cur_freq
		cpu + "cpufreq/policy3/cpuinfo_max_freq":   "2151",    // megahertz, by a kernel's mistake
		cpu + "cpufreq/policy4/scaling_cur_freq":   "",        // a file that says nothing
		cpu + "cpu0/topology/physical_package_id":  "0",
		cpu + "cpu3/topology/physical_package_id":  "0",
		cpu + "cpufreq/policy4/scaling_setspeed":   "<unsupported>",
		cpu + "cpufreq/policy4/scaling_min_freq":   "800000",
		cpu + "cpu4/topology/core_id":              "1",
		cpu + "cpufreq/policy4/scaling_driver":     "acpi-cpufreq",
		cpu + "cpufreq/policy0/scaling_driver":     "intel_pstate",
		cpu + "cpufreq/policy0/cpuinfo_cur_freq":   "1",
		cpu + "cpufreq/policy0/scaling_governor":   "performance",
		cpu + "cpufreq/policy0/base_frequency":     "2100000",
		cpu + "cpufreq/policy0/energy_perf_bias":   "6",
		cpu + "cpufreq/policy0/affected_cpus":      "0 1 2",
		cpu + "cpufreq/policy0/stats/total_trans":  "3",
		cpu + "cpufreq/policy0/scaling_available":  "x",
		cpu + "cpufreq/policy0/bios_limit":         "3000000",
		cpu + "cpufreq/policy0/cpuinfo_transition": "0",
	}, nil)
	s.Poll(t.Context())
	want := []string{
		"hw.cpu.speed.limit{cpu.logical_number=0,hw.id=cpu0,hw.limit_type=enforced_max,hw.type=cpu} 2.6e+09",
		"hw.cpu.speed.limit{cpu.logical_number=0,hw.id=cpu0,hw.limit_type=enforced_min,hw.type=cpu} 8e+08",
		"hw.cpu.speed.limit{cpu.logical_number=0,hw.id=cpu0,hw.limit_type=max,hw.type=cpu} 3.8e+09",
		"hw.cpu.speed.limit{cpu.logical_number=0,hw.id=cpu0,hw.limit_type=min,hw.type=cpu} 8e+08",
		"hw.cpu.speed.limit{cpu.logical_number=4,hw.limit_type=enforced_min,hw.type=cpu} 8e+08",
		"hw.cpu.speed{hw.id=cpu0,hw.type=cpu} 1.75e+09",
		"system.cpu.frequency{cpu.logical_number=0} 2e+09",
		"system.cpu.frequency{cpu.logical_number=3} 1e+09",
	}
	if diff := cmp.Diff(want, c.all(t)); diff != "" {
		t.Errorf("points (-want +got):\n%s", diff)
	}
	bad := []string{
		"cpufreq policy3: devices/system/cpu/cpufreq/policy3/cpuinfo_max_freq holds 2151: no clock in kilohertz",
		`cpufreq policy4: devices/system/cpu/cpufreq/policy4/scaling_cur_freq holds "": not a number`,
	}
	if diff := cmp.Diff(bad, s.bad()); diff != "" {
		t.Errorf("unreadable (-want +got):\n%s", diff)
	}
	// A cap of the clock shows at the next poll, through the files that are open.
	sysfstest.Write(t, sys, cpu+"cpufreq/policy0/scaling_max_freq", "1500000")
	c.requests, c.now = nil, t0.Add(time.Second)
	s.Poll(t.Context())
	if got := c.all(t); got != nil {
		t.Errorf("clocks are read again after a second: %q", got)
	}
	c.requests, c.now = nil, t0.Add(5*time.Second)
	s.Poll(t.Context())
	if got := strings.Join(c.all(t), "\n"); !strings.Contains(got, "hw.limit_type=enforced_max,hw.type=cpu} 1.5e+09") {
		t.Errorf("after the bound was lowered:\n%s", got)
	}
}

// C63: watts of AMD cards, the average first, and none where there is no file.
func TestCardsC63(t *testing.T) {
	tree := sysfstest.Load(t, cases+"C63-amd-hwmon-units-and-input/tree.json")
	c := &capture{now: t0}
	s := c.source(nil)
	s.Sysfs = &tree.FS
	if err := s.Poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"hw.power{hw.id=gpu0,hw.type=gpu} 181.25",
		"hw.power{hw.id=gpu1,hw.type=gpu} 93",
		"hw.temperature{hw.id=gpu2,hw.sensor_location=temp1,hw.type=gpu} 45",
	}
	if diff := cmp.Diff(want, c.all(t)); diff != "" {
		t.Errorf("points (-want +got):\n%s", diff)
	}
}

// Chips by their names, whatever their folders are called; sensors that are off,
// broken or show a sentinel have no point, and 0 rpm is a fan that stands.
func TestSensors(t *testing.T) {
	const h = "class/hwmon/"
	c, s, _ := tree(t, map[string]string{
		h + "hwmon9/name":                            "coretemp",
		h + "hwmon9/temp1_label":                     "Package id 1",
		h + "hwmon9/temp1_input":                     "61000",
		h + "hwmon9/temp2_label":                     "Core 0",
		h + "hwmon9/temp2_input":                     "59500",
		h + "hwmon9/temp3_label":                     "Core 0",
		h + "hwmon9/temp3_input":                     "58000",
		h + "hwmon0/name":                            "power_meter",
		h + "hwmon0/power1_average":                  "412000000",
		h + "hwmon1/name":                            "nct6775",
		h + "hwmon1/temp1_input":                     "-128000",
		h + "hwmon1/temp2_input":                     "34000",
		h + "hwmon1/fan1_input":                      "0",
		h + "hwmon1/fan2_input":                      "1200",
		h + "hwmon1/fan2_fault":                      "1",
		h + "hwmon1/power1_input":                    "45000000",
		h + "hwmon1/power1_enable":                   "0",
		h + "hwmon1/power2_input":                    "15000000",
		h + "hwmon1/power2_label":                    "PSU_Rail_B",
		"devices/pci/0000:0a:00.0/hwmon/hwmon3/name": "amdgpu",
		"devices/pci/0000:0a:00.0/hwmon/hwmon3/device/gpu_busy_percent":    "97",
		"devices/pci/0000:0a:00.0/hwmon/hwmon3/device/mem_info_vram_used":  "1000000000",
		"devices/pci/0000:0a:00.0/hwmon/hwmon3/device/mem_info_vram_total": "16000000000",
		"devices/pci/0000:0a:00.0/hwmon/hwmon3/device/pcie_replay_count":   "4",
		"devices/pci/0000:0a:00.0/hwmon/hwmon3/power1_average":             "4294967295000",
		"devices/pci/0000:0a:00.0/hwmon/hwmon3/freq1_input":                "500000000",
		"devices/pci/0000:0a:00.0/hwmon/hwmon3/freq1_label":                "sclk",
		"devices/pci/0000:0a:00.0/hwmon/hwmon3/fan1_input":                 "1395",
		"devices/pci/0000:0a:00.0/hwmon/hwmon3/fan1_enable":                "0", // who steers it, not whether it turns
		"devices/pci/0000:03:00.0/hwmon/hwmon5/name":                       "xe",
		"devices/pci/0000:03:00.0/hwmon/hwmon5/energy1_input":              "1000000",
		"devices/pci/0000:03:00.0/hwmon/hwmon5/energy1_label":              "card",
		"devices/pci/0000:03:00.0/hwmon/hwmon5/energy2_input":              "7",
		"devices/pci/0000:03:00.0/hwmon/hwmon5/energy2_label":              "pkg",
		"devices/pci/0000:c1:00.0/hwmon/hwmon6/name":                       "amdgpu",
		"devices/pci/0000:c1:00.0/hwmon/hwmon6/in1_label":                  "vddnb",
		"devices/pci/0000:c1:00.0/hwmon/hwmon6/power1_average":             "28000000",
	}, map[string]string{
		h + "hwmon3": "../../devices/pci/0000:0a:00.0/hwmon/hwmon3", h + "hwmon5": "../../devices/pci/0000:03:00.0/hwmon/hwmon5",
		h + "hwmon6": "../../devices/pci/0000:c1:00.0/hwmon/hwmon6", "bus/pci/drivers/nvidia/0000:01:00.0": "../../../../devices/x",
		"bus/pci/drivers/nvidia/module": "../../../../module/nvidia",
	})
	s.Poll(t.Context())
	want := []string{
		"hw.energy{hw.id=gpu1,hw.type=gpu} 0", // an NVIDIA card is gpu0
		"hw.errors{error.type=pcie_replay,hw.id=gpu2,hw.type=gpu} 4",
		"hw.fan.speed{hw.id=amdgpu-0000:0a:00.0/fan1,hw.parent=gpu2,hw.type=fan} 1395",
		"hw.fan.speed{hw.id=nct6775/fan1,hw.type=fan} 0",
		"hw.gpu.memory.limit{hw.id=gpu2,hw.type=gpu} 1.6e+10",
		"hw.gpu.memory.usage{hw.id=gpu2,hw.type=gpu} 1e+09",
		"hw.gpu.speed{hw.gpu.clock=graphics,hw.id=gpu2,hw.type=gpu} 5e+08",
		"hw.gpu.utilization{hw.gpu.task=general,hw.id=gpu2,hw.type=gpu} 0.97",
		"hw.host.power{} 412",
		"hw.power{hw.id=cpu0,hw.type=cpu} 28", // the APU's is the package's
		"hw.power{hw.id=nct6775/power2,hw.sensor_location=PSU_Rail_B,hw.type=sensor} 15",
		"hw.temperature{hw.id=cpu1,hw.sensor_location=Core 0 temp3,hw.type=cpu} 58",
		"hw.temperature{hw.id=cpu1,hw.sensor_location=Core 0,hw.type=cpu} 59.5",
		"hw.temperature{hw.id=cpu1,hw.sensor_location=Package id 1,hw.type=cpu} 61",
		"hw.temperature{hw.id=nct6775/temp2,hw.type=temperature} 34",
	}
	if diff := cmp.Diff(want, c.all(t)); diff != "" {
		t.Errorf("points (-want +got):\n%s", diff)
	}
	bad := []string{"hwmon nct6775: class/hwmon/hwmon1/fan2_fault reads 1: the chip says that the sensor is broken or not connected"}
	if diff := cmp.Diff(bad, s.bad()); diff != "" {
		t.Errorf("unreadable (-want +got):\n%s", diff)
	}
}

// Physical interfaces alone, and pressure in seconds; a counter that fell has a
// new start.
func TestNetworkAndPressure(t *testing.T) {
	files := map[string]string{
		"proc/pressure/cpu":           "some avg10=0.10 avg60=2.00 avg300=3.85 total=1500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0",
		"proc/pressure/memory":        "some avg10=0.10",
		"class/net/bonding_masters":   "bond0",
		"devices/virtual/net/lo/type": "772",
	}
	for _, dir := range []string{"devices/pci/0000:01:00.0/net/eth0", "class/net/eth1", "devices/virtual/net/br0"} {
		for i, c := range netCounters() {
			files[dir+"/statistics/"+c.file] = fmt.Sprint(10 * (i + 1))
		}
		files[dir+"/device/vendor"] = "0x8086"
	}
	delete(files, "class/net/eth1/statistics/rx_bytes")
	c, s, sys := tree(t, files, map[string]string{
		"class/net/eth0": "../../devices/pci/0000:01:00.0/net/eth0", "class/net/br0": "../../devices/virtual/net/br0",
		"class/net/lo": "../../devices/virtual/net/lo",
	})
	s.Boot = func() Boot { return Boot{ID: "b", Up: time.Hour} }
	s.Poll(t.Context())
	want := []string{
		"system.network.errors{network.interface.name=eth0,network.io.direction=receive} 70",
		"system.network.errors{network.interface.name=eth0,network.io.direction=transmit} 80",
		"system.network.io{network.interface.name=eth0,network.io.direction=receive} 10",
		"system.network.io{network.interface.name=eth0,network.io.direction=transmit} 20",
		"system.network.packet.count{network.interface.name=eth0,network.io.direction=receive} 30",
		"system.network.packet.count{network.interface.name=eth0,network.io.direction=transmit} 40",
		"system.network.packet.dropped{network.interface.name=eth0,network.io.direction=receive} 50",
		"system.network.packet.dropped{network.interface.name=eth0,network.io.direction=transmit} 60",
		"system.pressure.time{system.pressure.kind=some,system.pressure.resource=cpu} 1.5",
	}
	if diff := cmp.Diff(want, c.all(t)); diff != "" {
		t.Errorf("points (-want +got):\n%s", diff)
	}
	bad := []string{
		"network eth1: open class/net/eth1/statistics/rx_bytes: no such file or directory",
		`pressure memory: pressure/memory: holds "some avg10=0.10": not a number`,
	}
	if diff := cmp.Diff(bad, s.bad()); diff != "" {
		t.Errorf("unreadable (-want +got):\n%s", diff)
	}
	if got := c.start("system.network.io"); !got.Equal(t0.Add(-time.Hour)) {
		t.Errorf("start %v; want the boot", got)
	}
	sysfstest.Write(t, sys, "class/net/eth0/statistics/rx_bytes", "3")
	c.requests, c.now = nil, t0.Add(time.Second)
	s.Poll(t.Context())
	if got := c.start("system.network.io"); !got.Equal(c.now) {
		t.Errorf("start after the counter fell %v; want %v", got, c.now)
	}
}

// Ports of adapters: words of four bytes, and what an adapter does not count is
// absent.
func TestFabric(t *testing.T) {
	const port = "class/infiniband/mlx5_0/ports/1/counters/"
	c, s, _ := tree(t, map[string]string{
		port + "port_rcv_data": "230539874932483004", port + "port_xmit_data": "250", port + "link_downed": "3",
		port + "symbol_error": "N/A (no PMA)", port + "VL15_dropped": "9", port + "port_rcv_errors": "",
		"class/infiniband/mlx5_1/ports/1/state": "4: ACTIVE", "class/infiniband/abi_version": "1",
	}, nil)
	s.Poll(t.Context())
	want := []string{
		"hw.errors{error.type=link_downed,hw.id=mlx5_0/1,hw.type=network} 3",
		"hw.network.io{hw.id=mlx5_0/1,hw.type=network,network.io.direction=receive} 9.22159e+17",
		"hw.network.io{hw.id=mlx5_0/1,hw.type=network,network.io.direction=transmit} 1000",
	}
	if diff := cmp.Diff(want, c.all(t)); diff != "" {
		t.Errorf("points (-want +got):\n%s", diff)
	}
	bad := []string{"infiniband mlx5_0/1: " + port + `port_rcv_errors holds "": not a number`}
	if diff := cmp.Diff(bad, s.bad()); diff != "" {
		t.Errorf("unreadable (-want +got):\n%s", diff)
	}
}

// start is the start time of the first point of a metric.
func (c *capture) start(metric string) time.Time {
	for _, md := range c.requests {
		ms := md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics()
		for i := range ms.Len() {
			if ms.At(i).Name() == metric {
				return ms.At(i).Sum().DataPoints().At(0).StartTimestamp().AsTime()
			}
		}
	}
	return time.Time{}
}

// What there is none of has its reason and what to do; an energy counter that
// only root may read says how it can be read.
func TestRemedies(t *testing.T) {
	f := func(c *capture, s *Source, kind, reason, remedy string) {
		t.Helper()
		s.Poll(t.Context())
		for _, got := range s.Findings() {
			if got.Kind == kind && strings.Contains(got.Reason, reason) && strings.Contains(got.Remedy, remedy) {
				return
			}
		}
		t.Errorf("no finding of %s says %q and %q: %+v", kind, reason, remedy, s.Findings())
	}
	c, s, _ := tree(t, nil, nil)
	f(c, s, KindRAPL, "no powercap class", "modprobe intel_rapl_msr")
	c, s, _ = tree(t, nil, nil)
	f(c, s, KindPressure, "no folder pressure", "psi=1")
	c, s, _ = tree(t, nil, map[string]string{"class/powercap/intel-rapl:0": "../../devices/virtual/powercap/intel-rapl:0"})
	f(c, s, KindRAPL, "this container has the zones hidden", "mount the host's /sys at /host-sys")
	c, s, _ = tree(t, map[string]string{"class/powercap/intel-rapl/enabled": "1"}, nil)
	f(c, s, KindRAPL, "lists no RAPL zone", "modprobe intel_rapl_msr")
	c, s, sys := tree(t, map[string]string{
		"class/powercap/intel-rapl:0/name": "package-0", "class/powercap/intel-rapl:0/energy_uj": "1",
		"class/powercap/intel-rapl:1/name": "package-1", "class/powercap/intel-rapl:1/energy_uj": "1", "class/powercap/intel-rapl:1/max_energy_range_uj": "262143328850",
	}, nil)
	var err error
	if sys.Faulty, err = sysfs.NewFaulty(map[string]string{"class/powercap/intel-rapl:0/energy_uj": "EACCES"}, nil); err != nil {
		t.Fatal(err)
	}
	s.Sysfs = &sys
	f(c, s, KindRAPL, "permission denied", "start wattloop serve as root")
	// A tree that breaks later is said too, and what was found is read on.
	if err := sys.Faulty.SetRead("class/powercap/intel-rapl:0/name", "EIO"); err != nil {
		t.Fatal(err)
	}
	c.requests, c.now = nil, t0.Add(2*time.Minute)
	f(c, s, KindRAPL, "class/powercap/intel-rapl:0/name: input/output error", "asked again at every poll")
	if diff := cmp.Diff([]string{"hw.energy{hw.id=cpu1,hw.type=cpu} 0"}, c.all(t)); diff != "" {
		t.Errorf("points (-want +got):\n%s", diff)
	}
}

// Whatever a pressure file holds, its lines are all taken or none.
func FuzzPressure(f *testing.F) {
	f.Add("some avg10=0.10 avg60=2.00 avg300=3.85 total=15\nfull avg10=0.20 avg60=3.00 avg300=4.95 total=25")
	f.Add("some total=18446744073709551616")
	f.Fuzz(func(t *testing.T, text string) {
		stalls, err := totalsOf(text)
		if (err == nil) != (len(stalls) > 0) {
			t.Errorf("totalsOf(%q) = %v, %v", text, stalls, err)
		}
		for _, s := range stalls {
			if !strings.Contains(text, s.kind) || !strings.Contains(text, fmt.Sprint(s.microseconds)) && !strings.Contains(text, "=0") {
				t.Errorf("totalsOf(%q) has %+v", text, s)
			}
		}
	})
}
