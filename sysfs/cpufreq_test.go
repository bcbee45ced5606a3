package sysfs_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wattloop/wattloop/sysfs"
	"github.com/wattloop/wattloop/sysfs/sysfstest"
)

func policies(t *testing.T, f sysfs.FS) []string {
	t.Helper()
	all, err := sysfs.Policies(f)
	if err != nil {
		t.Error(err)
	}
	var out []string
	for _, p := range all {
		out = append(out, fmt.Sprintf("%s cpu%d of %v socket %d %s", p.ID, p.CPU, p.CPUs, p.Socket, p.Driver))
	}
	return out
}

// C58, S0-179: what is listed below the CPU too is one policy.
func TestPoliciesC58(t *testing.T) {
	tree := sysfstest.Load(t, cases+"C58-cpufreq-listed-twice/tree.json")
	if got := policies(t, tree.FS); len(got) != 3 {
		t.Errorf("policies %q; want 3", got)
	}
}

func TestPolicies(t *testing.T) {
	if got := policies(t, sysfs.New(t.TempDir())); got != nil {
		t.Errorf("a machine without cpufreq has %q", got)
	}
	f := sysfstest.Of(t, map[string]string{
		"devices/system/cpu/cpufreq/policy0/related_cpus":      "0 1",
		"devices/system/cpu/cpufreq/policy0/scaling_driver":    "intel_pstate",
		"devices/system/cpu/cpu0/cpufreq/scaling_cur_freq":     "1", // a copy of policy0, not a link
		"devices/system/cpu/cpu1/cpufreq/scaling_cur_freq":     "1",
		"devices/system/cpu/cpu2/cpufreq/related_cpus":         "2,4-5",
		"devices/system/cpu/cpu3/topology/physical_package_id": "1",
		"devices/system/cpu/cpu2/topology/physical_package_id": "1\x00",
		"devices/system/cpu/cpu6/cpufreq/related_cpus":         "", // a file that could not be copied
		"devices/system/cpu/cpu6/topology/physical_package_id": "-1",
		"devices/system/cpu/cpuidle/current_driver":            "intel_idle",
	})
	want := []string{
		"policy0 cpu0 of [0 1] socket -1 intel_pstate",
		"cpu2 cpu2 of [2 4 5] socket 1 ",
		"cpu6 cpu6 of [6] socket -1 ",
	}
	if diff := cmp.Diff(want, policies(t, f)); diff != "" {
		t.Errorf("policies (-want +got):\n%s", diff)
	}
}
