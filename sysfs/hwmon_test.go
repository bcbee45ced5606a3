package sysfs_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wattloop/wattloop/sysfs"
	"github.com/wattloop/wattloop/sysfs/sysfstest"
)

func chips(t *testing.T, f sysfs.FS) []string {
	t.Helper()
	all, err := sysfs.Chips(f)
	if err != nil {
		t.Error(err)
	}
	var out []string
	for _, c := range all {
		line := c.Name + " on " + c.Device
		for _, s := range c.Sensors {
			line += fmt.Sprintf(", %s%d %s %q", s.Kind, s.Number, filepath.Base(s.File), s.Label)
		}
		out = append(out, line)
	}
	return out
}

// C63: of amdgpu the average comes first, the input where there is no average;
// a chip is what its name says.
func TestChipsC63(t *testing.T) {
	tree := sysfstest.Load(t, cases+"C63-amd-hwmon-units-and-input/tree.json")
	want := []string{
		`amdgpu on , power1 power1_input ""`,
		`amdgpu on , power1 power1_average ""`,
		`amdgpu on , temp1 temp1_input ""`,
	}
	if diff := cmp.Diff(want, chips(t, tree.FS)); diff != "" {
		t.Errorf("chips (-want +got):\n%s", diff)
	}
}

func TestChips(t *testing.T) {
	if got := chips(t, sysfs.New(t.TempDir())); got != nil {
		t.Errorf("a machine without hwmon has %q", got)
	}
	f := sysfstest.Of(t, map[string]string{
		"devices/platform/coretemp.0/hwmon/hwmon9/name":        "coretemp",
		"devices/platform/coretemp.0/hwmon/hwmon9/temp1_input": "50000",
		"devices/platform/coretemp.0/hwmon/hwmon9/temp1_label": "Package id 0",
		"devices/pci0000:00/0000:00:18.3/hwmon2/name":          "k10temp",
		"devices/pci0000:00/0000:00:18.3/hwmon2/temp1_input":   "50000",
		"class/hwmon/hwmon3/name":                              "power_meter",
		"class/hwmon/hwmon3/power1_average":                    "240000000",
		"class/hwmon/hwmon3/power1_average_interval":           "1000",
		"class/hwmon/hwmon4/device/name":                       "old",
		"class/hwmon/hwmon4/device/fan1_input":                 "900",
		"class/hwmon/hwmon4/device/fan1_fault":                 "0",
		"class/hwmon/hwmon5/name":                              "no sensors",
		"class/hwmon/hwmon5/in0_input":                         "12000",
	})
	for link, target := range map[string]string{
		"hwmon9": "../../devices/platform/coretemp.0/hwmon/hwmon9",
		"hwmon2": "../../devices/pci0000:00/0000:00:18.3/hwmon2",
		"hwmon7": "../../devices/gone/hwmon7",
	} {
		sysfstest.Link(t, f, "class/hwmon/"+link, target)
	}
	want := []string{
		`coretemp on coretemp.0, temp1 temp1_input "Package id 0"`,
		`k10temp on 0000:00:18.3, temp1 temp1_input ""`,
		`old on , fan1 fan1_input ""`,
		`power_meter on , power1 power1_average ""`,
	}
	if diff := cmp.Diff(want, chips(t, f)); diff != "" {
		t.Errorf("chips (-want +got):\n%s", diff)
	}
	sysfstest.Write(t, f, "class/hwmon/hwmon6/temp1_input", "1")
	if _, err := sysfs.Chips(f); err == nil || err.Error() != "sysfs: class/hwmon/hwmon6: has sensors but neither name nor device" {
		t.Errorf("a chip without a name = %v", err)
	}
}

// A container lists the zones but has hidden what they link to.
func TestMasked(t *testing.T) {
	f := sysfs.New(t.TempDir())
	if sysfs.Masked(f) {
		t.Error("a machine without RAPL is masked")
	}
	for _, name := range []string{"intel-rapl", "intel-rapl:0"} {
		sysfstest.Link(t, f, "class/powercap/"+name, "../../devices/virtual/powercap/intel-rapl/"+name)
	}
	if zones, err := sysfs.Zones(f); len(zones) != 0 || err != nil || !sysfs.Masked(f) {
		t.Errorf("hidden zones = %v, %v, masked %v", zones, err, sysfs.Masked(f))
	}
	sysfstest.Write(t, f, "devices/virtual/powercap/intel-rapl/intel-rapl:0/name", "package-0")
	if zones, err := sysfs.Zones(f); len(zones) != 1 || err != nil || sysfs.Masked(f) {
		t.Errorf("zones = %v, %v, masked %v", zones, err, sysfs.Masked(f))
	}
}
