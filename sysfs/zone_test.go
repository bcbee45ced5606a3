package sysfs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	procfs "github.com/prometheus/procfs/sysfs"

	"github.com/wattloop/wattloop/sysfs"
	"github.com/wattloop/wattloop/sysfs/sysfstest"
)

const cases = "../testdata/cases/"

// lines says of each zone what callers decide by.
func lines(t *testing.T, f sysfs.FS) []string {
	t.Helper()
	zones, err := sysfs.Zones(f)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, z := range zones {
		line := z.Name + " " + string(z.Kind) + " " + z.Path
		if z.Parent != "" {
			line += " in " + z.Parent
		}
		if z.Twin != nil {
			line += " twin " + z.Twin.Path
		}
		out = append(out, line)
	}
	return out
}

// C49, S0-107, S0-109, S0-110: sockets by the name, not by the directory.
func TestZonesC49(t *testing.T) {
	tree := sysfstest.Load(t, cases+"C49-rapl-only-package-zones/tree.json")
	want := []string{
		"package-0 package class/powercap/intel-rapl:0",
		"core core class/powercap/intel-rapl:0:0 in package-0",
		"uncore uncore class/powercap/intel-rapl:0:1 in package-0",
		"dram dram class/powercap/intel-rapl:0:2 in package-0",
		"package-1 package class/powercap/intel-rapl:2",
		"psys psys class/powercap/intel-rapl:1",
	}
	if diff := cmp.Diff(want, lines(t, tree.FS)); diff != "" {
		t.Errorf("zones (-want +got):\n%s", diff)
	}
	zones, err := sysfs.Zones(tree.FS)
	if err != nil {
		t.Fatal(err)
	}
	if dram := zones[3]; dram.Socket != 0 || dram.MaxRangeMicrojoules != 65712999613 {
		t.Errorf("dram: socket %d, range %d; want 0 and its own 65712999613", dram.Socket, dram.MaxRangeMicrojoules)
	}
	if p := zones[4]; p.Socket != 1 {
		t.Errorf("package-1 in intel-rapl:2 is on socket %d; want 1", p.Socket)
	}
}

// C50: class link, devices path and memory-mapped driver list one package.
func TestZonesC50(t *testing.T) {
	tree := sysfstest.Load(t, cases+"C50-rapl-one-counter-three-paths/tree.json")
	want := []string{
		"package-0 package class/powercap/intel-rapl:0 twin class/powercap/intel-rapl-mmio:0",
		"package-1 package class/powercap/intel-rapl:1",
	}
	if diff := cmp.Diff(want, lines(t, tree.FS)); diff != "" {
		t.Errorf("zones (-want +got):\n%s", diff)
	}
	// A container may see the devices path alone.
	if err := os.RemoveAll(filepath.Join(tree.FS.Root, "class")); err != nil {
		t.Fatal(err)
	}
	want = []string{
		"package-0 package devices/virtual/powercap/intel-rapl/intel-rapl:0 twin devices/virtual/powercap/intel-rapl-mmio/intel-rapl-mmio:0",
		"package-1 package devices/virtual/powercap/intel-rapl/intel-rapl:1",
	}
	if diff := cmp.Diff(want, lines(t, tree.FS)); diff != "" {
		t.Errorf("zones without class (-want +got):\n%s", diff)
	}
	// Where only the memory-mapped driver lists a package, it counts.
	if err := os.RemoveAll(filepath.Join(tree.FS.Root, "devices/virtual/powercap/intel-rapl/intel-rapl:0")); err != nil {
		t.Fatal(err)
	}
	want = []string{
		"package-0 package devices/virtual/powercap/intel-rapl-mmio/intel-rapl-mmio:0",
		"package-1 package devices/virtual/powercap/intel-rapl/intel-rapl:1",
	}
	if diff := cmp.Diff(want, lines(t, tree.FS)); diff != "" {
		t.Errorf("zones with one package on MMIO alone (-want +got):\n%s", diff)
	}
}

// C56: limits have names, and what is not stated is unknown.
func TestZonesC56(t *testing.T) {
	tree := sysfstest.Load(t, cases+"C56-rapl-constraint-by-name/tree.json")
	zones, err := sysfs.Zones(tree.FS)
	if err != nil {
		t.Fatal(err)
	}
	at := func(i int, name string) sysfs.Constraint {
		t.Helper()
		c, ok := zones[i].Constraint(name)
		if !ok {
			t.Fatalf("%s has no %s", zones[i].Name, name)
		}
		return c
	}
	if c := at(0, sysfs.LongTerm); c.Index != 1 || c.MaxMicrowatts != 205000000 || c.LimitFile != "class/powercap/intel-rapl:0/constraint_1_power_limit_uw" {
		t.Errorf("long_term of package-0 = %+v", c)
	}
	if c := at(0, sysfs.ShortTerm); c.MaxMicrowatts != 0 {
		t.Errorf("a max_power of 0 became %d", c.MaxMicrowatts)
	}
	if c := at(0, sysfs.PeakPower); c.MaxMicrowatts != 0 || c.Index != 0 {
		t.Errorf("peak_power = %+v", c)
	}
	if c := at(1, sysfs.LongTerm); c.MaxMicrowatts != 122000000 {
		t.Errorf("long_term of dram = %+v", c)
	}
	if c := at(2, sysfs.LongTerm); c.MaxMicrowatts != 0 {
		t.Errorf("a max_power of ENODATA became %d", c.MaxMicrowatts)
	}
	if _, ok := zones[1].Constraint(sysfs.ShortTerm); ok {
		t.Error("dram has no short_term")
	}
}

func TestZonesOfRealTrees(t *testing.T) {
	check := func(archive, dir string, want ...string) {
		t.Run(archive, func(t *testing.T) {
			if diff := cmp.Diff(want, lines(t, sysfstest.Corpus(t, archive, dir))); diff != "" {
				t.Errorf("zones (-want +got):\n%s", diff)
			}
		})
	}
	check("performancecopilot-pcp/denki_bigsystem.tgz", "bigsystem/sys",
		"package-0 package class/powercap/intel-rapl/intel-rapl:1",
		"core core class/powercap/intel-rapl/intel-rapl:1/intel-rapl:1:0 in package-0",
		"package-1 package class/powercap/intel-rapl/intel-rapl:0",
		"core core class/powercap/intel-rapl/intel-rapl:0/intel-rapl:0:0 in package-1")
	check("performancecopilot-pcp/denki_Thinkpad_L480_bat_busy.tgz", "Thinkpad_L480_bat_busy/sys",
		"package-0 package class/powercap/intel-rapl/intel-rapl:0",
		"core core class/powercap/intel-rapl/intel-rapl:0/intel-rapl:0:0 in package-0",
		"uncore uncore class/powercap/intel-rapl/intel-rapl:0/intel-rapl:0:1 in package-0",
		"dram dram class/powercap/intel-rapl/intel-rapl:0/intel-rapl:0:2 in package-0",
		"psys psys class/powercap/intel-rapl/intel-rapl:1")
	check("performancecopilot-pcp/denki_apple_silicon_macbook.tgz", "apple_silicon_macbook/sys")
	check("prometheus-procfs/procfs-fixtures-power.tar.gz", "fixtures/sys",
		"package-0 package class/powercap/intel-rapl:0",
		"core core class/powercap/intel-rapl:0:0 in package-0",
		"package-10 package class/powercap/intel-rapl:a")
	check("sustainable-computing-io-kepler/kepler-hwmon-testdata.tar.gz", "sys",
		"package-0 package class/powercap/intel-rapl:0 twin class/powercap/intel-rapl-mmio:0",
		"core core class/powercap/intel-rapl:0:0 in package-0",
		"package-10 package class/powercap/intel-rapl:a")
	check("mlco2-codecarbon/rapl_multidie_threadripper1950x.tar.gz", "threadripper1950x/sys",
		"package-0-die-0 package class/powercap/intel-rapl:0",
		"package-0-die-1 package class/powercap/intel-rapl:1")
}

// procfs and we agree on every zone that it lists, and it cannot stand in: it
// misses nested zones, and one zone without a range loses it all others.
func TestZonesAgainstProcfs(t *testing.T) {
	agree := func(f sysfs.FS) {
		t.Helper()
		theirs := procfsZones(t, f)
		if len(theirs) == 0 {
			t.Fatalf("procfs lists nothing in %s", f.Root)
		}
		ours, err := sysfs.Zones(f)
		if err != nil {
			t.Fatal(err)
		}
		ranges := map[string]uint64{}
		for _, z := range ours {
			ranges[filepath.Base(z.Path)] = z.MaxRangeMicrojoules
			if z.Twin != nil {
				ranges[filepath.Base(z.Twin.Path)] = z.Twin.MaxRangeMicrojoules
			}
		}
		for _, z := range theirs {
			if got, ok := ranges[filepath.Base(z.Path)]; !ok || got != z.MaxMicrojoules {
				t.Errorf("%s: procfs says range %d, we say %d, %v", z.Path, z.MaxMicrojoules, got, ok)
			}
		}
	}
	c49 := sysfstest.Load(t, cases+"C49-rapl-only-package-zones/tree.json").FS
	agree(c49)
	c50 := sysfstest.Load(t, cases+"C50-rapl-one-counter-three-paths/tree.json").FS
	agree(c50)
	packages := 0
	for _, z := range procfsZones(t, c50) {
		if z.Name == "package" {
			packages++
		}
	}
	if packages != 3 {
		t.Errorf("procfs lists %d packages of C50; it was 3, the twin among them: look at Zones' comment again", packages)
	}
	if err := os.Remove(filepath.Join(c49.Root, "class/powercap/intel-rapl:1/max_energy_range_uj")); err != nil {
		t.Fatal(err)
	}
	sys, err := procfs.NewFS(c49.Root)
	if err != nil {
		t.Fatal(err)
	}
	if zones, err := procfs.GetRaplZones(sys); err == nil {
		t.Errorf("procfs lists %d zones although psys has no range: look at Zones' comment again", len(zones))
	}
	if got := lines(t, c49); len(got) != 6 {
		t.Errorf("a psys without a range leaves %d zones of 6", len(got))
	}
	agree(sysfstest.Corpus(t, "prometheus-procfs/procfs-fixtures-power.tar.gz", "fixtures/sys"))
	if got := procfsZones(t, sysfstest.Corpus(t, "performancecopilot-pcp/denki_bigsystem.tgz", "bigsystem/sys")); len(got) != 0 {
		t.Errorf("procfs lists %d nested zones: look at Zones' comment again", len(got))
	}
}

func procfsZones(t *testing.T, f sysfs.FS) []procfs.RaplZone {
	t.Helper()
	sys, err := procfs.NewFS(f.Root)
	if err != nil {
		t.Fatal(err)
	}
	zones, err := procfs.GetRaplZones(sys)
	if err != nil {
		t.Fatal(err)
	}
	return zones
}

func TestZonesAbsentAndUnreadable(t *testing.T) {
	if zones, err := sysfs.Zones(sysfs.New(t.TempDir())); len(zones) != 0 || err != nil {
		t.Errorf("a machine without RAPL = %v, %v; want none and no error", zones, err)
	}
	if _, err := sysfs.Zones(sysfs.New("/nowhere/sys")); err == nil || !strings.Contains(err.Error(), "/nowhere/sys: no such file") {
		t.Errorf("no tree at all = %v; want an error that names it", err)
	}
	tree := sysfstest.Load(t, cases+"C49-rapl-only-package-zones/tree.json")
	if err := tree.FS.Faulty.SetRead("class/powercap/intel-rapl:2/name", "EIO"); err != nil {
		t.Fatal(err)
	}
	_, err := sysfs.Zones(tree.FS)
	if want := "sysfs: read class/powercap/intel-rapl:2/name: input/output error"; err == nil || err.Error() != want {
		t.Errorf("unreadable name = %v; want %s", err, want)
	}
}
