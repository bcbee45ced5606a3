package rapl

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/wattloop/wattloop/actuate"
	"github.com/wattloop/wattloop/actuate/actuatetest"
	"github.com/wattloop/wattloop/sysfs"
	"github.com/wattloop/wattloop/sysfs/sysfstest"
)

const (
	cases = "../../testdata/cases/"
	zone0 = "class/powercap/intel-rapl:0/"
	zone1 = "class/powercap/intel-rapl:1/"
)

func open(t testing.TB, f sysfs.FS, n int) []actuate.Device {
	t.Helper()
	devices, err := Open(f)
	if err != nil {
		t.Fatal(err)
	}
	if len(devices) != n {
		t.Fatalf("Open found %d devices; want %d", len(devices), n)
	}
	return devices
}

// server is a machine of two packages, 250 W long and 300 W short, with dram and
// psys that must stay as they are.
func server(t testing.TB) sysfs.FS {
	t.Helper()
	f := sysfs.New(t.TempDir())
	zone := func(path, name string, limits ...string) {
		for file, v := range map[string]string{"name": name, "energy_uj": "1", "max_energy_range_uj": "262143328850", "enabled": "1"} {
			sysfstest.Write(t, f, path+file, v)
		}
		for i, constraint := range []string{"long_term", "short_term"}[:len(limits)] {
			prefix := fmt.Sprintf("%sconstraint_%d_", path, i)
			sysfstest.Write(t, f, prefix+"name", constraint)
			sysfstest.Write(t, f, prefix+"power_limit_uw", limits[i])
			sysfstest.Write(t, f, prefix+"time_window_us", "999424")
			sysfstest.Write(t, f, prefix+"max_power_uw", "250000000")
		}
	}
	zone(zone0, "package-0", "250000000", "300000000")
	zone("class/powercap/intel-rapl:0:0/", "dram", "40000000")
	zone(zone1, "package-1", "250000000", "300000000")
	zone("class/powercap/intel-rapl:2/", "psys", "800000000", "900000000")
	var err error
	if f.Faulty, err = sysfs.NewFaulty(nil, nil); err != nil {
		t.Fatal(err)
	}
	return f
}

// dies is a machine whose one package has two dies, limited apart.
func dies(t testing.TB) sysfs.FS {
	t.Helper()
	f := server(t)
	sysfstest.Write(t, f, zone0+"name", "package-0-die-0")
	sysfstest.Write(t, f, zone1+"name", "package-0-die-1")
	return f
}

func TestContract(t *testing.T) {
	for name, make := range map[string]func(testing.TB) sysfs.FS{"packages": server, "dies": dies} {
		t.Run(name, func(t *testing.T) {
			actuatetest.Run(t, func(t *testing.T) actuatetest.Machine {
				f := make(t)
				devices, err := Open(f)
				if err != nil {
					t.Fatal(err)
				}
				return actuatetest.Machine{
					Device: devices[0],
					Files:  func() map[string]string { return sysfstest.Dump(t, f) },
					Fail: func(file string, broken bool) {
						fault := ""
						if broken {
							fault = "EIO"
						}
						if err := f.Faulty.SetWrite(file, fault); err != nil {
							t.Fatal(err)
						}
					},
				}
			})
		})
	}
}

func TestDescribe(t *testing.T) {
	want := actuate.Description{
		ID: "rapl:package-1", Name: "cpu1", Action: "rapl.set_power_cap_watts", Unit: "W",
		Labels: map[string]string{"hw_type": "cpu", "hw_id": "cpu1"},
		Max:    250, Default: 250, Tolerance: 1, Writable: true,
		Files: []string{zone1 + "constraint_0_power_limit_uw", zone1 + "constraint_1_power_limit_uw"},
	}
	if diff := cmp.Diff(want, open(t, server(t), 2)[1].Describe()); diff != "" {
		t.Errorf("Describe (-want +got):\n%s", diff)
	}
}

// C56: the limit is found by its name, and what the hardware does not state is
// unknown.
func TestConstraintByNameC56(t *testing.T) {
	tree := sysfstest.Load(t, cases+"C56-rapl-constraint-by-name/tree.json")
	before := sysfstest.Dump(t, tree.FS)
	d := open(t, tree.FS, 1)[0] // psys is no target, nor is dram
	if got := d.Describe(); got.Max != 205 || got.Min != 0 || !got.Writable {
		t.Errorf("Describe = %+v; want a Max of 205", got)
	}
	check := func(s actuate.Setting, wantLong, wantShort string, wantValue float64) {
		t.Helper()
		if err := d.Write(s); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{}
		for file, contents := range before {
			want[file] = contents
		}
		want[zone0+"constraint_1_power_limit_uw"] = wantLong + "\n"
		want[zone0+"constraint_2_power_limit_uw"] = wantShort + "\n"
		if diff := cmp.Diff(want, sysfstest.Dump(t, tree.FS)); diff != "" {
			t.Errorf("files after Write(%+v) (-want +got):\n%s", s, diff)
		}
		if state, err := d.Read(); err != nil || state.Value != wantValue {
			t.Errorf("after Write(%+v), Read = %g, %v; want %g", s, state.Value, err, wantValue)
		}
	}
	check(actuate.Setting{Value: 120}, "120000000", "246000000", 120)
	check(actuate.Setting{Value: 300}, "205000000", "246000000", 205)
	check(actuate.Setting{Value: 120, Strict: true}, "120000000", "120000000", 120)
	check(actuate.Setting{Value: 99.9999996, Strict: true}, "100000000", "100000000", 100)
	check(actuate.Setting{Value: 300, Strict: true}, "205000000", "205000000", 205)
	check(actuate.Setting{Value: 110}, "110000000", "246000000", 110)
}

// C55: a locked limit opens, and then refuses or ignores the write.
func TestLockedC55(t *testing.T) {
	limit := func(zone string) string { return zone + "constraint_0_power_limit_uw" }
	tree := sysfstest.Load(t, cases+"C55-rapl-cap-locked/a-eacces.tree.json")
	for i, d := range open(t, tree.FS, 2) {
		err := d.Write(actuate.Setting{Value: 120})
		if want := fmt.Sprintf("rapl: package-%d: write class/powercap/intel-rapl:%d/constraint_0_power_limit_uw: permission denied: firmware has locked the limit", i, i); err == nil || !strings.HasPrefix(err.Error(), want) || !errors.Is(err, fs.ErrPermission) {
			t.Errorf("a: Write = %v; want %s", err, want)
		}
	}
	tree = sysfstest.Load(t, cases+"C55-rapl-cap-locked/b-ignored.tree.json")
	for _, d := range open(t, tree.FS, 2) {
		if err := d.Write(actuate.Setting{Value: 120}); err != nil {
			t.Errorf("b: Write = %v; an ignored write shows in the read-back alone", err)
		}
		if state, err := d.Read(); err != nil || state.Value != 165 {
			t.Errorf("b: Read = %g, %v; want the 165 that stand", state.Value, err)
		}
	}
	tree = sysfstest.Load(t, cases+"C55-rapl-cap-locked/c-eio-one.tree.json")
	devices := open(t, tree.FS, 2)
	if err := devices[0].Write(actuate.Setting{Value: 120}); err != nil {
		t.Errorf("c: package-0: Write = %v", err)
	}
	if err := devices[1].Write(actuate.Setting{Value: 120}); !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "package-1") {
		t.Errorf("c: package-1: Write = %v; want EIO that names the package", err)
	}
	if a, b := sysfstest.Read(t, tree.FS, limit(zone0)), sysfstest.Read(t, tree.FS, limit(zone1)); a != "120000000" || b != "165000000" {
		t.Errorf("c: the limits are %s and %s; want 120000000 and 165000000", a, b)
	}
}

// A device that could not be written when it was found is writable once it can
// be, and the other way round.
func TestWritableLater(t *testing.T) {
	f := server(t)
	limit := zone0 + "constraint_0_power_limit_uw"
	fault := func(word string) {
		if err := f.Faulty.SetWrite(limit, word); err != nil {
			t.Fatal(err)
		}
	}
	sysfstest.Write(t, f, zone0+"enabled", "0")
	d := open(t, f, 2)[0]
	check := func(want string) {
		t.Helper()
		got := d.Describe()
		if got.Writable != (want == "") || !strings.Contains(got.Reason, want) || want == "" && got.Reason != "" {
			t.Errorf("Describe: Writable %v, Reason %q; want %q", got.Writable, got.Reason, want)
		}
	}
	check("enforces no limit")
	sysfstest.Write(t, f, zone0+"enabled", "1")
	check("")
	fault("open:EACCES")
	check("run as root")
	fault("")
	check("")
}

func TestWhyNotWritable(t *testing.T) {
	check := func(name string, spoil func(f sysfs.FS), want string) {
		t.Helper()
		f := server(t)
		spoil(f)
		devices := open(t, f, 2)
		d := devices[0].Describe()
		if d.Writable || !strings.Contains(d.Reason, want) || !strings.HasPrefix(d.Reason, "rapl: package-0: ") {
			t.Errorf("%s: Writable %v, Reason %q; want %q in it", name, d.Writable, d.Reason, want)
		}
		if other := devices[1].Describe(); !other.Writable {
			t.Errorf("%s: the other package is not writable either: %s", name, other.Reason)
		}
	}
	fault := func(f sysfs.FS, fault string) {
		if err := f.Faulty.SetWrite(zone0+"constraint_0_power_limit_uw", fault); err != nil {
			t.Fatal(err)
		}
	}
	check("no permission", func(f sysfs.FS) { fault(f, "open:EACCES") }, zone0+"constraint_0_power_limit_uw: permission denied: run as root")
	check("read-only mount", func(f sysfs.FS) { fault(f, "open:EROFS") }, zone0+"constraint_0_power_limit_uw: read-only file system")
	check("not enforced", func(f sysfs.FS) { sysfstest.Write(t, f, zone0+"enabled", "0") }, zone0+"enabled reads 0")
	check("no number", func(f sysfs.FS) { sysfstest.Write(t, f, zone0+"constraint_0_power_limit_uw", "") }, zone0+"constraint_0_power_limit_uw: holds \"\"")
	check("no file", func(f sysfs.FS) {
		if err := os.Remove(filepath.Join(f.Root, zone0, "constraint_0_power_limit_uw")); err != nil {
			t.Fatal(err)
		}
	}, zone0+"constraint_0_power_limit_uw: no such file")
}

func TestAbsentAndUnreadable(t *testing.T) {
	open(t, sysfs.New(t.TempDir()), 0)
	open(t, sysfstest.Load(t, cases+"C49-rapl-only-package-zones/tree.json").FS, 0) // no constraints
	f := server(t)
	if err := f.Faulty.SetRead(zone1+"constraint_1_name", "EIO"); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(f); err == nil || !strings.Contains(err.Error(), zone1+"constraint_1_name: input/output error") {
		t.Errorf("Open of an unreadable tree = %v; want an error that names the file", err)
	}
}

// Real trees: a limit of 4,090 W does not fit 31 bits, AMD dies have no limits.
func TestRealTrees(t *testing.T) {
	devices := open(t, sysfstest.Corpus(t, "prometheus-procfs/procfs-fixtures-power.tar.gz", "fixtures/sys"), 2)
	for i, want := range []string{"rapl:package-0", "rapl:package-10"} {
		state, err := devices[i].Read()
		if err != nil || state.Value != 4090 {
			t.Errorf("%s: Read = %g, %v; want 4090", want, state.Value, err)
		}
		if d := devices[i].Describe(); d.ID != want || d.Max != 95 {
			t.Errorf("Describe = %s, Max %g; want %s, 95", d.ID, d.Max, want)
		}
	}
	open(t, sysfstest.Corpus(t, "mlco2-codecarbon/rapl_multidie_threadripper1950x.tar.gz", "threadripper1950x/sys"), 0)
	open(t, sysfstest.Corpus(t, "performancecopilot-pcp/denki_bigsystem.tgz", "bigsystem/sys"), 0)
}

// A package of two dies is one device, and its cap is the package's.
func TestDiesShareACap(t *testing.T) {
	f := dies(t)
	d := open(t, f, 1)[0]
	if got := d.Describe(); got.Max != 500 || got.ID != "rapl:package-0" {
		t.Errorf("Describe = %+v; want package-0 with 500 W", got)
	}
	if err := d.Write(actuate.Setting{Value: 240}); err != nil {
		t.Fatal(err)
	}
	for _, zone := range []string{zone0, zone1} {
		if got := sysfstest.Read(t, f, zone+"constraint_0_power_limit_uw"); got != "120000000" {
			t.Errorf("%s holds %s; want half of 240 W", zone, got)
		}
	}
	if state, err := d.Read(); err != nil || state.Value != 240 {
		t.Errorf("Read = %g, %v; want 240", state.Value, err)
	}
}

// The order of writes keeps the short-term limit at or above the long-term one.
func TestOrderOfWrites(t *testing.T) {
	f := server(t)
	d := open(t, f, 2)[0]
	original, err := d.Read()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	f.Faulty.Trace = func(op, path, value string) {
		if op == "write" {
			got = append(got, strings.TrimPrefix(path, zone0+"constraint_")[:1]+"="+value)
		}
	}
	for _, s := range []actuate.Setting{{Value: 100, Strict: true}, {Value: 200, Strict: true}} {
		if err := d.Write(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Restore(original); err != nil {
		t.Fatal(err)
	}
	want := []string{"0=100000000", "1=100000000", "1=200000000", "0=200000000", "1=300000000", "0=250000000"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

// Whoever sets the short-term limit after us is respected: it is not raised.
func TestShortTermSetByOthersIsNotRaised(t *testing.T) {
	f := server(t)
	d := open(t, f, 2)[0]
	if err := d.Write(actuate.Setting{Value: 150, Strict: true}); err != nil {
		t.Fatal(err)
	}
	sysfstest.Write(t, f, zone0+"constraint_1_power_limit_uw", "120000000")
	if err := d.Write(actuate.Setting{Value: 200, Strict: true}); err != nil {
		t.Fatal(err)
	}
	if got := sysfstest.Read(t, f, zone0+"constraint_1_power_limit_uw"); got != "120000000" {
		t.Errorf("short_term holds %s; want the 120 W that somebody else set", got)
	}
}

// A device that is opened while the short-term limit cannot be read still gives
// back what an earlier one saved of it.
func TestRestoreOfAnUnreadableShortTerm(t *testing.T) {
	f := server(t)
	before := sysfstest.Dump(t, f)
	d := open(t, f, 2)[0]
	original, err := d.Read()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Write(actuate.Setting{Value: 100, Strict: true}); err != nil {
		t.Fatal(err)
	}
	if err := f.Faulty.SetRead(zone0+"constraint_1_power_limit_uw", "ENODATA"); err != nil {
		t.Fatal(err)
	}
	d = open(t, f, 2)[0]
	if got := d.Describe(); !got.Writable || len(got.Files) != 1 {
		t.Errorf("Describe = %+v; want the long-term limit alone", got)
	}
	if err := d.Restore(original); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, sysfstest.Dump(t, f)); diff != "" {
		t.Errorf("after Restore (-want +got):\n%s", diff)
	}
}

// Whatever is asked in whatever order, no limit leaves 0..max, none that was not
// written moves, and the original comes back byte for byte (I2, I4).
func TestAnyOrderOfSettings(t *testing.T) {
	f := server(t)
	before := sysfstest.Dump(t, f)
	d := open(t, f, 2)[0]
	original, err := d.Read()
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		for range rapid.IntRange(1, 8).Draw(rt, "settings") {
			s := actuate.Setting{Value: rapid.Float64().Draw(rt, "value"), Strict: rapid.Bool().Draw(rt, "strict")}
			if rapid.Bool().Draw(rt, "sane") {
				s.Value = rapid.Float64Range(1, 400).Draw(rt, "watts")
			}
			err := d.Write(s)
			state, readErr := d.Read()
			if readErr != nil {
				rt.Fatal(readErr)
			}
			if err == nil && math.Abs(state.Value-math.Min(s.Value, 250)) > 1 {
				rt.Errorf("Write(%+v), then Read = %g", s, state.Value)
			}
			if state.Value > 250 || state.Value <= 0 {
				rt.Errorf("Write(%+v) left the limits: %g", s, state.Value)
			}
		}
		if err := d.Restore(original); err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(before, sysfstest.Dump(t, f)); diff != "" {
			rt.Errorf("after Restore (-want +got):\n%s", diff)
		}
	})
}
