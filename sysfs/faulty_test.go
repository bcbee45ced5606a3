package sysfs_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wattloop/wattloop/sysfs"
	"github.com/wattloop/wattloop/sysfs/sysfstest"
)

func TestFaultyWrites(t *testing.T) {
	check := func(fault, write string, wantErr error, want string) {
		t.Helper()
		f := sysfs.New(t.TempDir())
		sysfstest.Write(t, f, "a/limit", "250")
		var err error
		if f.Faulty, err = sysfs.NewFaulty(nil, map[string]string{"a/limit": fault}); err != nil {
			t.Fatal(err)
		}
		if err := f.WriteString("a/./limit", write); !errors.Is(err, wantErr) {
			t.Errorf("%s: WriteString(%s) = %v; want %v", fault, write, err, wantErr)
		}
		if got := sysfstest.Read(t, f, "a/limit"); got != want {
			t.Errorf("%s: after WriteString(%s) the file holds %s; want %s", fault, write, got, want)
		}
	}
	check("", "120", nil, "120")
	check("EACCES", "120", syscall.EACCES, "250")
	check("EIO", "120", syscall.EIO, "250")
	check("ENOENT", "120", syscall.ENOENT, "250")
	check("open:EROFS", "120", syscall.EROFS, "250")
	check("ignored", "120", nil, "250")
	check("range:100:200:EINVAL", "120", nil, "120")
	check("range:100:200:EINVAL", "99", syscall.EINVAL, "250")
	check("range:100:200:EINVAL", "201", syscall.EINVAL, "250")
	check("range:100:200:EINVAL", "x", syscall.EINVAL, "250")
	check("clamp:100:200", "120", nil, "120")
	check("clamp:100:200", "99", nil, "100")
	check("clamp:100:200", "201", nil, "200")
	check("first:1:EBUSY", "120", syscall.EBUSY, "250")
}

func TestFaultyHealsAndTraces(t *testing.T) {
	f := sysfs.New(t.TempDir())
	sysfstest.Write(t, f, "limit", "250")
	faulty, err := sysfs.NewFaulty(map[string]string{"limit": "ENODATA"}, map[string]string{"limit": "first:2:EBUSY"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	faulty.Trace = func(op, path, value string) { got = append(got, op+" "+path+" "+value) }
	f.Faulty = faulty

	if _, err := f.ReadString("limit"); !errors.Is(err, syscall.ENODATA) {
		t.Errorf("ReadString = %v; want ENODATA", err)
	}
	if _, err := f.Open("limit"); !errors.Is(err, syscall.ENODATA) {
		t.Errorf("Open = %v; want ENODATA", err)
	}
	if err := f.Probe("limit"); err != nil {
		t.Errorf("Probe = %v; a busy device can be opened", err)
	}
	for i, want := range []error{syscall.EBUSY, syscall.EBUSY, nil} {
		if err := f.WriteString("limit", "1"); !errors.Is(err, want) {
			t.Errorf("write %d = %v; want %v", i+1, err, want)
		}
	}
	if err := faulty.SetRead("limit", ""); err != nil {
		t.Fatal(err)
	}
	if v, err := f.ReadString("limit"); v != "1" || err != nil {
		t.Errorf("healed ReadString = %q, %v", v, err)
	}
	if err := faulty.SetWrite("limit", "open:EACCES"); err != nil {
		t.Fatal(err)
	}
	if err := f.Probe("limit"); !errors.Is(err, syscall.EACCES) {
		t.Errorf("Probe = %v; want EACCES", err)
	}
	want := []string{"read limit ", "read limit ", "write limit 1", "write limit 1", "write limit 1", "read limit "}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("trace (-want +got):\n%s", diff)
	}
}

func TestFaultyRefusesWords(t *testing.T) {
	for _, fault := range []string{"EWHAT", "open", "range:1:2", "range:a:2:EIO", "clamp:1:2:EIO", "first:0:EIO", "first:1:first:1:EIO", "first:1:x", "range:1:2:x"} {
		if _, err := sysfs.NewFaulty(nil, map[string]string{"x": fault}); err == nil {
			t.Errorf("fault %q was taken", fault)
		}
	}
	if _, err := sysfs.NewFaulty(map[string]string{"x": "ignored"}, nil); err == nil {
		t.Error("a read cannot be ignored")
	}
}
