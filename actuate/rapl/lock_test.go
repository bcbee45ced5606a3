package rapl_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/wattloop/wattloop/actuate/rapl"
	"github.com/wattloop/wattloop/sysfs"
	"github.com/wattloop/wattloop/sysfs/sysfstest"
)

// The lock is bit 63 of the package's register, on a CPU of that package.
func TestLocked(t *testing.T) {
	f, dev := sysfs.New(t.TempDir()), t.TempDir()
	register := func(cpu string, v uint64) {
		t.Helper()
		b := make([]byte, 0x610+8)
		binary.LittleEndian.PutUint64(b[0x610:], v)
		name := filepath.Join(dev, "cpu", cpu, "msr")
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	is := func(socket int, wantLocked, wantKnown bool) {
		t.Helper()
		if locked, known := rapl.Locked(f, dev, socket); locked != wantLocked || known != wantKnown {
			t.Errorf("Locked(%d) = %v, %v; want %v, %v", socket, locked, known, wantLocked, wantKnown)
		}
	}
	is(0, false, false)
	sysfstest.Write(t, f, "devices/system/cpu/cpu0/topology/physical_package_id", "1")
	sysfstest.Write(t, f, "devices/system/cpu/cpu1/topology/physical_package_id", "0")
	register("0", 0x8000_0000_00dd_8640)
	register("1", 0x0042_8640_00dd_8640)
	is(0, false, true)
	is(1, true, true)
	is(2, false, false)
	if err := os.Truncate(filepath.Join(dev, "cpu", "1", "msr"), 100); err != nil {
		t.Fatal(err)
	}
	is(0, false, false)
}
