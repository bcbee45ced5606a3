package twin

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/wattloop/wattloop/sysfs"
	"github.com/wattloop/wattloop/sysfs/sysfstest"
)

// S0-186: the whole document of a machine with two packages and a GPU.
func TestDiscover(t *testing.T) {
	files := map[string]string{
		"devices/system/cpu/cpufreq/policy0/scaling_driver":     "intel_pstate",
		"devices/system/cpu/cpufreq/policy0/cpuinfo_min_freq":   "800000",
		"devices/system/cpu/cpufreq/policy0/cpuinfo_max_freq":   "3500500",
		"devices/system/cpu/cpufreq/policy1/cpuinfo_min_freq":   "900000",
		"devices/system/cpu/cpufreq/policy1/cpuinfo_max_freq":   "3000000",
		"devices/system/cpu/modalias":                           "cpu:type:x86,ven0000fam0006mod008F:feature:,0000",
		"devices/system/cpu/cpu0/topology/physical_package_id":  "0",
		"devices/system/cpu/cpu0/topology/core_cpus_list":       "0",
		"devices/system/cpu/cpu1/topology/physical_package_id":  "1",
		"devices/system/cpu/cpu1/topology/core_cpus_list":       "1",
		"devices/system/node/node0/meminfo":                     "Node 0 MemTotal:       1024 kB",
		"bus/pci/devices/0000:65:00.0/class":                    "0x030200",
		"bus/pci/devices/0000:65:00.0/vendor":                   "0x10de",
		"bus/pci/devices/0000:65:00.0/device":                   "0x2330",
		"bus/pci/devices/0000:00:02.0/class":                    "0x030000",
		"bus/pci/devices/0000:00:02.0/vendor":                   "0x8086",
		"class/powercap/intel-rapl:0/name":                      "package-0",
		"class/powercap/intel-rapl:0/max_energy_range_uj":       "262143328850",
		"class/powercap/intel-rapl:0/constraint_0_name":         "long_term",
		"class/powercap/intel-rapl:0/constraint_0_max_power_uw": "350000000",
		"class/powercap/intel-rapl:0/intel-rapl:0:0/name":       "dram",
		"class/powercap/intel-rapl:1/name":                      "package-1",
		"class/powercap/intel-rapl:1/constraint_0_name":         "long_term",
		"class/powercap/intel-rapl:1/constraint_0_max_power_uw": "300000000",
		"class/powercap/intel-rapl:1/constraint_1_name":         "short_term",
	}
	got := Discover("w1", sysfstest.Of(t, files), "processor\t: 0\nmodel name\t: Example CPU 9000 @ 2.00GHz\n")
	b, err := json.Marshal(got)
	want := `{"apiVersion":"joulie.io/v1alpha1","kind":"NodeHardware","metadata":{"name":"w1"},"spec":{"nodeName":"w1"},"status":{` +
		`"cpu":{"vendor":"intel","rawModel":"Example CPU 9000 @ 2.00GHz","family":6,"modelNumber":143,"sockets":2,"totalCores":2,"coresPerSocket":1,"threads":2,` +
		`"driverFamily":"intel_pstate","landmarks":{"minFreqMHz":800,"maxBoostMHz":3500.5},"capRange":{"type":"package","maxWattsPerSocket":300},"cpufreqPolicies":[` +
		`{"id":"policy0","cpus":[0],"socket":0,"driver":"intel_pstate","minFreqMHz":800,"maxFreqMHz":3500.5},` +
		`{"id":"policy1","cpus":[1],"socket":1,"minFreqMHz":900,"maxFreqMHz":3000}],"raplZones":[` +
		`{"id":"intel-rapl:0","name":"package-0","kind":"package","socket":0,"maxEnergyRangeMicrojoules":262143328850,"constraints":[{"name":"long_term","maxWatts":350}]},` +
		`{"id":"intel-rapl:0:0","name":"dram","kind":"dram","socket":0,"parent":"package-0"},` +
		`{"id":"intel-rapl:1","name":"package-1","kind":"package","socket":1,"constraints":[{"name":"long_term","maxWatts":300},{"name":"short_term"}]}],` +
		`"controlAvailable":true,"telemetryAvailable":true},` +
		`"gpu":{"present":true,"vendor":"nvidia","count":1,"devices":[{"pciAddress":"0000:00:02.0","vendor":"intel"},{"pciAddress":"0000:65:00.0","vendor":"nvidia","deviceId":"0x2330"}]},` +
		`"memory":{"totalBytes":1048576},"quality":{"overall":"full","warnings":[]}}}`
	if err != nil || string(b) != want {
		t.Errorf("%s, %v\nwant %s", b, err, want)
	}
	if got.Status.CPU.MaxWatts() != 300 {
		t.Errorf("%g W for every package; want 300", got.Status.CPU.MaxWatts())
	}

	// A policy that does not say its own: no landmark is guessed.
	delete(files, "devices/system/cpu/cpufreq/policy1/cpuinfo_max_freq")
	if c := Discover("w1", sysfstest.Of(t, files), "").Status.CPU; c.Landmarks != nil || c.Policies[1].MaxMHz != nil || *c.Policies[1].MinMHz != 900 {
		t.Errorf("%+v", c)
	}

	// A package without a limit of its own: no cap can be put on every package.
	delete(files, "class/powercap/intel-rapl:1/constraint_0_name")
	if c := Discover("w1", sysfstest.Of(t, files), "").Status.CPU; c.ControlAvailable || c.CapRange != nil || c.MaxWatts() != 0 || !c.TelemetryAvailable {
		t.Errorf("%+v", c)
	}
	// One that does not say its highest limit: unknown, not the other's.
	files["class/powercap/intel-rapl:1/constraint_0_name"] = "long_term"
	delete(files, "class/powercap/intel-rapl:1/constraint_0_max_power_uw")
	if c := Discover("w1", sysfstest.Of(t, files), "").Status.CPU; !c.ControlAvailable || c.MaxWatts() != 0 {
		t.Errorf("%+v", c)
	}

	got = Discover("w1", sysfstest.Of(t, map[string]string{"class/x": ""}), "")
	if q := got.Status.Quality; q.Overall != "unknown" || !slices.Contains(q.Warnings, "cpu: no RAPL zones: no power limit and no energy of the packages") {
		t.Errorf("an empty tree: %+v", q)
	}
	got = Discover("w1", sysfs.New(filepath.Join(t.TempDir(), "none")), "")
	if q := got.Status.Quality; q.Overall != "unknown" || !strings.Contains(strings.Join(q.Warnings, "\n"), "no such file") {
		t.Errorf("no tree: %+v", q)
	}
}

// Trees of other people's machines give a document each, with what is known of
// them.
func TestDiscoverOtherMachines(t *testing.T) {
	f := func(archive, dir string, sockets, cores, zones, policies int) {
		t.Helper()
		h := Discover("w1", sysfstest.Corpus(t, archive, dir), "").Status
		if h.CPU.Sockets != sockets || h.CPU.TotalCores != cores || len(h.CPU.Zones) != zones || len(h.CPU.Policies) != policies {
			t.Errorf("%s: %d sockets, %d cores, %d zones, %d policies; want %d, %d, %d, %d; %q", archive,
				h.CPU.Sockets, h.CPU.TotalCores, len(h.CPU.Zones), len(h.CPU.Policies), sockets, cores, zones, policies, h.Quality.Warnings)
		}
		if len(h.Quality.Warnings) == 0 || h.Quality.Overall == "full" {
			t.Errorf("%s: %+v; none of these trees is whole", archive, h.Quality)
		}
	}
	f("containers-nri-plugins/cpufreq_2-socket-4-node-40-core.tar.gz", "sys", 2, 40, 0, 80)
	f("containers-nri-plugins/cpufreq_sample2.tar.gz", "sys", 2, 56, 0, 112)
	f("open-mpi-hwloc/cpufreq_20em64t-hybrid-1p6c2t_2ca4co1t.tar.gz", "20em64t-hybrid-1p6c2t+2ca4co1t/sys", 1, 14, 0, 20)
	f("open-mpi-hwloc/cpufreq_32em64t-2n8c_dax_nvme_mic_dimms.tar.gz", "32em64t-2n8c+1mic/sys", 2, 16, 0, 16)
	f("open-mpi-hwloc/cpufreq_64amd64-4p2n4ca2co.tar.gz", "64amd64-4p2n4ca2co/fsroot/sys", 4, 32, 0, 64)
	f("open-mpi-hwloc/cpufreq_nvidia-dgx-gb10.tar.gz", "nvidia-dgx-gb10/sys", 1, 20, 0, 20)
	f("mlco2-codecarbon/rapl_multidie_threadripper1950x.tar.gz", "threadripper1950x/sys", 0, 0, 2, 0)
	f("performancecopilot-pcp/denki_bigsystem.tgz", "bigsystem/sys", 2, 0, 4, 0)
	f("prometheus-procfs/procfs-fixtures-power.tar.gz", "fixtures/sys", 1, 2, 3, 2)
}
