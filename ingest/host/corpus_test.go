package host

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wattloop/wattloop/presets/names"
	"github.com/wattloop/wattloop/sysfs"
	"github.com/wattloop/wattloop/sysfs/sysfstest"
)

// everyTree is each packed tree of the corpus: its root, how many meters of each
// kind are read, how many points, and how many meters cannot be read because of
// what is in the tree.
var everyTree = []struct{ archive, root, meters, faults string }{
	{"containers-nri-plugins/cpufreq_2-socket-4-node-40-core.tar.gz", "sys", "cpufreq 1, points 402", ""},
	{"containers-nri-plugins/cpufreq_sample1.tar.gz", "sys", "cpufreq 1, points 81", ""},
	{"containers-nri-plugins/cpufreq_sample2.tar.gz", "sys", "cpufreq 1, points 562", ""},
	{"ilya-zlobintsev-LACT/amd_phoenix.tar.gz", "amd/phoenix", "hwmon 1, points 6", ""},
	{"ilya-zlobintsev-LACT/amd_r7-240.tar.gz", "amd/r7-240", "hwmon 1, points 6", ""},
	{"ilya-zlobintsev-LACT/amd_rx6600.tar.gz", "amd/rx6600", "hwmon 1, points 8", ""},
	{"ilya-zlobintsev-LACT/amd_rx6900xt.tar.gz", "amd/rx6900xt", "hwmon 1, points 12", ""},
	{"ilya-zlobintsev-LACT/amd_rx7600s.tar.gz", "amd/rx7600s", "hwmon 1, points 8", ""},
	{"ilya-zlobintsev-LACT/amd_rx7900xtx.tar.gz", "amd/rx7900xtx", "hwmon 1, points 8", ""},
	{"ilya-zlobintsev-LACT/amd_rx9070xt.tar.gz", "amd/rx9070xt", "hwmon 1, points 8", ""},
	{"ilya-zlobintsev-LACT/amd_strixpoint.tar.gz", "amd/strixpoint", "hwmon 1, points 6", ""},
	{"ilya-zlobintsev-LACT/amd_vangogh.tar.gz", "amd/vangogh", "hwmon 1, points 4", ""},
	{"ilya-zlobintsev-LACT/amd_vega56.tar.gz", "amd/vega56", "hwmon 1, points 11", ""},
	{"ilya-zlobintsev-LACT/intel_b580.tar.gz", "intel/b580", "hwmon 1, points 20", ""},
	{"leptonai-gpud/sys-class-infiniband-h100.tar.gz", ".", "infiniband 9, points 90", ""},
	{"linux-kernel-mailing-lists/amd_pstate_5950x_epp_prefcore.tar.gz", "5950x_epp_prefcore/sys", "cpufreq 1, points 5", ""},
	{"linux-kernel-mailing-lists/amd_pstate_passive_schedutil.tar.gz", "passive_schedutil/sys", "cpufreq 1, points 5", ""},
	{"linux-kernel-mailing-lists/amd_pstate_zen3_epp_capped_3000MHz.tar.gz", "zen3_epp_capped_3000MHz/sys", "cpufreq 1, points 5", ""},
	{"mlco2-codecarbon/rapl_multidie_threadripper1950x.tar.gz", "threadripper1950x/sys", "rapl 2, points 1", ""},
	{"open-mpi-hwloc/cpufreq_20em64t-hybrid-1p6c2t_2ca4co1t.tar.gz", "20em64t-hybrid-1p6c2t+2ca4co1t/sys", "cpufreq 1, points 101", ""},
	{"open-mpi-hwloc/cpufreq_32em64t-2n8c_dax_nvme_mic_dimms.tar.gz", "32em64t-2n8c+1mic/sys", "cpufreq 1, points 82", ""},
	{"open-mpi-hwloc/cpufreq_64amd64-4p2n4ca2co.tar.gz", "64amd64-4p2n4ca2co/fsroot/sys", "cpufreq 1, points 324", ""},
	{"open-mpi-hwloc/cpufreq_nvidia-dgx-gb10.tar.gz", "nvidia-dgx-gb10/sys", "cpufreq 1, points 101", ""},
	{"performancecopilot-pcp/denki_Thinkpad_L480_bat_busy.tgz", "Thinkpad_L480_bat_busy/sys", "rapl 3, points 3", ""},
	{"performancecopilot-pcp/denki_Thinkpad_T460s_2_batteries.tgz", "Thinkpad_T460s_2_batteries/sys", "rapl 3, points 3", ""},
	{"performancecopilot-pcp/denki_apple_silicon_macbook.tgz", "apple_silicon_macbook/sys", "points 0", ""},
	{"performancecopilot-pcp/denki_bigsystem.tgz", "bigsystem/sys", "rapl 2, points 2", ""},
	{"performancecopilot-pcp/sysfs-cpufreq-scaling-001.tgz", "sys", "cpufreq 1, points 8", ""},
	{"prometheus-node_exporter/node_exporter-sys-power.tar.gz", "sys", "rapl 1, cpufreq 1, hwmon 6, infiniband 3, points 34",
		"cpufreq cpu2: devices/system/cpu/cpu2/cpufreq/scaling_cur_freq holds 8000: no clock in kilohertz\n" +
			"cpufreq cpu3: devices/system/cpu/cpu3/cpufreq/scaling_cur_freq holds 8000: no clock in kilohertz\n" +
			"hwmon some chips: sysfs: class/hwmon/hwmon4: has sensors but neither name nor device"},
	{"prometheus-procfs/procfs-fixtures-power.tar.gz", "fixtures/sys", "rapl 2, cpufreq 1, pressure 3, points 17", ""},
	{"sustainable-computing-io-kepler/kepler-hwmon-testdata.tar.gz", "sys", "rapl 2, hwmon 5, points 10",
		"hwmon some chips: sysfs: class/hwmon/hwmon_device_path: has sensors but neither name nor device; " +
			"sysfs: class/hwmon/hwmon_dir_fallback: has sensors but neither name nor device"},
}

// Every tree of other people's machines is discovered, and what cannot be read
// of it is a file of the tree that is empty, is missing or holds no number.
func TestEveryTreeOfTheCorpus(t *testing.T) {
	for _, tree := range everyTree {
		t.Run(tree.archive, func(t *testing.T) {
			f := sysfstest.Corpus(t, tree.archive, tree.root)
			asClass(t, f)
			proc := sysfs.New(filepath.Join(filepath.Dir(f.Root), "proc"))
			c := &capture{now: t0}
			s := c.source(nil)
			s.Sysfs, s.Proc = &f, &proc
			err := s.Poll(t.Context())
			counts := map[string]int{}
			for _, got := range s.Findings() {
				if got.Found && got.Readable {
					counts[got.Kind]++
				}
			}
			var words []string
			for _, kind := range []string{KindRAPL, KindCPUFreq, KindHwmon, KindPressure, KindNetwork, KindInfiniBand} {
				if counts[kind] > 0 {
					words = append(words, fmt.Sprintf("%s %d", kind, counts[kind]))
				}
			}
			got := strings.Join(append(words, fmt.Sprintf("points %d", len(c.all(t)))), ", ")
			if diff := cmp.Diff(tree.meters, got); diff != "" {
				t.Errorf("meters (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tree.faults, strings.Join(s.bad(), "\n")); diff != "" {
				t.Errorf("unreadable (-want +got):\n%s", diff)
			}
			if (err != nil) != (tree.faults != "") {
				t.Errorf("Poll = %v", err)
			}
		})
	}
	sysfstest.Corpus(t, everyTree[0].archive, ".") // skips where there is no corpus
	folder := os.Getenv("WATTLOOP_CORPUS")
	if folder == "" {
		folder = "../../../shared/corpus"
	}
	packed, err := filepath.Glob(filepath.Join(folder, "sysfs/*/*gz"))
	if err != nil || len(packed) == 0 {
		t.Fatalf("%d trees in %s: %v", len(packed), folder, err)
	}
	for _, p := range packed {
		name := filepath.Base(filepath.Dir(p)) + "/" + filepath.Base(p)
		if !slices.ContainsFunc(everyTree, func(e struct{ archive, root, meters, faults string }) bool { return e.archive == name }) {
			t.Errorf("%s is not in the table", name)
		}
	}
}

// asClass puts the hwmon chips of a tree that has cards alone, and adapters of
// one that has them alone, into the class, as the kernel does.
func asClass(t *testing.T, f sysfs.FS) {
	t.Helper()
	adapters, err := filepath.Glob(filepath.Join(f.Root, "*/mlx5_*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range adapters {
		to := filepath.Join(f.Root, "class/infiniband", filepath.Base(a))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(a, to); err != nil {
			t.Fatal(err)
		}
	}
	chips, err := filepath.Glob(filepath.Join(f.Root, "card*/device/hwmon/hwmon*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, chip := range chips {
		rel, err := filepath.Rel(f.Root, chip)
		if err != nil {
			t.Fatal(err)
		}
		for link, target := range map[string]string{
			filepath.Join("class/hwmon", filepath.Base(chip)): filepath.Join("../..", rel),
			filepath.Join(rel, "device"):                      "../..",
		} {
			sysfstest.Link(t, f, link, target)
		}
	}
}

// docs/host.md lists every metric of the table that this source has, with its
// unit, and none that the table has not.
func TestEveryMetricIsOnItsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/host.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "`") {
			continue
		}
		for _, name := range strings.Split(strings.ReplaceAll(cells[1], "`", ""), ",") {
			rows[strings.TrimSpace(name)] = strings.TrimSpace(cells[2])
		}
	}
	for _, m := range names.Metrics() {
		unit, listed := rows[m.Name]
		delete(rows, m.Name)
		elsewhere := strings.HasPrefix(m.Name, "joulie.") || m.Name == "hw.host.ambient_temperature"
		switch {
		case listed == elsewhere:
			t.Errorf("%s is on the page: %v", m.Name, listed)
		case listed && unit != m.Unit && unit != "":
			t.Errorf("%s has the unit %q on the page; want %q", m.Name, unit, m.Unit)
		}
	}
	for name := range rows {
		t.Errorf("%s is on the page and not in the table", name)
	}
}
