package sysfs_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wattloop/wattloop/sysfs"
	"github.com/wattloop/wattloop/sysfs/sysfstest"
)

func TestReadString(t *testing.T) {
	f := sysfs.New(t.TempDir())
	check := func(contents, want string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(f.Root, "x"), []byte(contents), 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := f.ReadString("x")
		if got != want || err != nil {
			t.Errorf("ReadString of %q = %q, %v; want %q", contents, got, err, want)
		}
	}
	check("", "")
	check("1", "1")
	check("1\n", "1")
	check("1\n\n", "1")
	check("0\n\x00\x00", "0") // pcp's physical_package_id
	check(" a b \nc\n", " a b \nc")
	check(strings.Repeat("7", 5000)+"\n", strings.Repeat("7", 5000))

	if err := os.WriteFile(filepath.Join(f.Root, "x"), make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := f.ReadString("x"); err == nil || !strings.Contains(err.Error(), "x: longer than any sysfs attribute") {
		t.Errorf("ReadString of 1 MiB: %v", err)
	}
}

func TestWriteStringReplacesWhole(t *testing.T) {
	f := sysfs.New(t.TempDir())
	sysfstest.Write(t, f, "limit", "250000000")
	for _, v := range []string{"99000000", "1", "4090000000", "250000000", "250000000\n"} {
		if err := f.WriteString("limit", v); err != nil {
			t.Fatal(err)
		}
		if got, want := sysfstest.Read(t, f, "limit"), strings.TrimSuffix(v, "\n"); got != want {
			t.Errorf("after WriteString(%q) the file holds %q; want %q", v, got, want)
		}
	}
	if err := f.WriteString("absent", "1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("WriteString to no file = %v; want it not to exist", err)
	}
	if _, err := os.Stat(filepath.Join(f.Root, "absent")); !os.IsNotExist(err) {
		t.Error("WriteString made a file")
	}
}

// A reader beside a writer never sees an empty file or half of both values: the
// simulator reads the cap while the warden writes it.
func TestWriteBesideRead(t *testing.T) {
	f := sysfs.New(t.TempDir())
	sysfstest.Write(t, f, "limit", "250000000")
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 200 {
			for _, v := range []string{"99000000", "250000000"} {
				if err := f.WriteString("limit", v); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for range 1000 {
		if got, err := f.ReadString("limit"); err != nil || got != "99000000" && got != "250000000" {
			t.Errorf("ReadString beside a writer = %q, %v", got, err)
		}
	}
	wg.Wait()
}

func TestNoWayOut(t *testing.T) {
	outer := t.TempDir()
	f := sysfs.New(filepath.Join(outer, "sys"))
	sysfstest.Write(t, f, "devices/x/name", "inside")
	sysfstest.Write(t, sysfs.New(outer), "secret", "outside")
	for link, target := range map[string]string{
		"link":     "devices/x",
		"up":       "../secret",
		"absolute": filepath.Join(outer, "secret"),
		"itself":   "itself",
	} {
		if err := os.Symlink(target, filepath.Join(f.Root, link)); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := f.ReadString("link/name"); got != "inside" || err != nil {
		t.Errorf("through a link inside = %q, %v", got, err)
	}
	if got, err := f.ReadString("devices/../link/./name"); got != "inside" || err != nil {
		t.Errorf("through .. inside = %q, %v", got, err)
	}
	for _, path := range []string{"../secret", "devices/../../secret", "up", "absolute", "itself", filepath.Join(outer, "secret"), "", "link/name/.."} {
		if got, err := f.ReadString(path); err == nil {
			t.Errorf("ReadString(%q) = %q; want an error", path, got)
		}
		if err := f.WriteString(path, "x"); err == nil {
			t.Errorf("WriteString(%q) succeeded", path)
		}
		if file, err := f.Open(path); err == nil && path != "" {
			file.Close()
			t.Errorf("Open(%q) succeeded", path)
		}
	}
	if got := sysfstest.Read(t, sysfs.New(outer), "secret"); got != "outside" {
		t.Errorf("the file outside now holds %q", got)
	}
}

func TestErrorsNameTheFile(t *testing.T) {
	f := sysfs.New(t.TempDir())
	_, err := f.ReadString("class/powercap/intel-rapl:0/name")
	if want := "open class/powercap/intel-rapl:0/name: no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("got %v; want %s", err, want)
	}
	_, err = sysfs.New("/nowhere/sys").ReadString("name")
	if err == nil || !strings.Contains(err.Error(), "/nowhere/sys") {
		t.Errorf("got %v; want the root named", err)
	}
}

func TestReadDir(t *testing.T) {
	f := sysfs.New(t.TempDir())
	sysfstest.Write(t, f, "b", "1")
	sysfstest.Write(t, f, "a/c", "1")
	if err := os.Mkdir(filepath.Join(f.Root, "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := f.ReadDir("."); !cmp.Equal(got, []string{"a", "b", "empty"}) || err != nil {
		t.Errorf("ReadDir = %q, %v", got, err)
	}
	if got, err := f.ReadDir("empty"); len(got) != 0 || err != nil {
		t.Errorf("ReadDir of an empty one = %q, %v", got, err)
	}
	if _, err := f.ReadDir("b"); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("ReadDir of a file: %v", err)
	}
}

func TestIsReal(t *testing.T) {
	dir := t.TempDir()
	if sysfs.IsReal(dir) || sysfs.IsReal(filepath.Join(dir, "absent")) {
		t.Error("a temporary folder is no sysfs")
	}
	if f, err := sysfs.NewDry(dir); err != nil || f.Root != dir {
		t.Errorf("NewDry of a folder = %v, %v", f, err)
	}
	if !sysfs.IsReal("/sys") {
		t.Skip("no sysfs is mounted at /sys here")
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("/sys", link); err != nil {
		t.Fatal(err)
	}
	for _, root := range []string{"", "/sys", "/sys/", "/sys/class/..", link} {
		if _, err := sysfs.NewDry(root); err == nil || !strings.Contains(err.Error(), "must not touch") {
			t.Errorf("NewDry(%q) = %v; want a refusal", root, err)
		}
	}
}
