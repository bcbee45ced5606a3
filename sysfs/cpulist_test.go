package sysfs

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCPUList(t *testing.T) {
	f := func(text string, want []int) {
		t.Helper()
		if diff := cmp.Diff(want, cpuList(text)); diff != "" {
			t.Errorf("cpuList(%q) (-want +got):\n%s", text, diff)
		}
	}
	f("0", []int{0})
	f("0 1 2\n", []int{0, 1, 2})
	f("4-6,2", []int{2, 4, 5, 6})
	f("3,3", []int{3})
	f("", nil)
	f("6-4", nil)
	f("0-99999999999", nil)
	f("0-4294967295", nil)
	f("-1", nil)
	f("cpu0", nil)
	f("0-40000 0-40000", nil)
}

// Whatever the file holds, a list of CPUs is sorted, has each once and is short.
func FuzzCPUList(f *testing.F) {
	f.Add("0-3,8 9")
	f.Add("0-65535")
	f.Fuzz(func(t *testing.T, text string) {
		got := cpuList(text)
		if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) || len(got) > 0 && got[0] < 0 {
			t.Errorf("cpuList(%q) = %v", text, got)
		}
	})
}
