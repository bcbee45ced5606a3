package disk

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// roleEnv makes the test binary a process that replaces the file of pathEnv and
// comes to an end.
const (
	roleEnv = "WATTLOOP_TEST_ROLE"
	pathEnv = "WATTLOOP_TEST_PATH"
)

func newContent() []byte { return bytes.Repeat([]byte("new\n"), 20_000) }

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(act(role, os.Getenv(pathEnv)))
	}
	os.Exit(m.Run())
}

// act is killed at a point of Replace, or finds the disk full in the middle. It
// returns what a process exits with.
func act(role, path string) int {
	die := func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) }
	f := File{Path: path}
	switch role {
	case "killed before the sync":
		f.Sync = func(*os.File) error { die(); return nil }
	case "killed before the rename":
		f.Sync = func(file *os.File) error { err := file.Sync(); die(); return err }
	case "killed after the rename":
		f.Sync = func(file *os.File) error {
			if file.Name() == filepath.Dir(path) {
				die()
			}
			return file.Sync()
		}
	case "full disk":
		signal.Ignore(syscall.SIGXFSZ)
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 10_000, Max: 10_000}); err != nil {
			return 3
		}
		err := f.Replace(newContent())
		if !errors.Is(err, syscall.EFBIG) || !strings.Contains(err.Error(), path+":") {
			return 4
		}
		return 0
	}
	_ = f.Replace(newContent())
	return 5 // nobody was killed
}

// A process that dies at any point of a replacement, or that the disk refuses
// half of it, leaves the old file or the new one; the next replacement removes
// what was left beside it.
func TestCrash(t *testing.T) {
	for _, c := range []struct {
		role       string
		killed     bool
		want       string
		unfinished bool
	}{
		{"killed before the sync", true, "old", true},
		{"killed before the rename", true, "old", true},
		{"killed after the rename", true, string(newContent()), false},
		{"full disk", false, "old", false},
	} {
		t.Run(c.role, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.json")
			write(t, path, "old")
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), roleEnv+"="+c.role, pathEnv+"="+path)
			out, err := cmd.CombinedOutput()
			status := cmd.ProcessState.Sys().(syscall.WaitStatus)
			if killed := status.Signaled() && status.Signal() == syscall.SIGKILL; killed != c.killed || !killed && err != nil {
				t.Fatalf("ended with %v: %s", err, out)
			}
			if got := read(t, path); got != c.want {
				t.Errorf("holds %d bytes, %.10q; want %d, %.10q", len(got), got, len(c.want), c.want)
			}
			if _, err := os.Lstat(path + Unfinished); errors.Is(err, fs.ErrNotExist) == c.unfinished {
				t.Errorf("beside it: %v; want an unfinished file: %v", err, c.unfinished)
			}
			if err := (File{Path: path}).Replace([]byte("next")); err != nil {
				t.Fatal(err)
			}
			alone(t, path, "next")
		})
	}
}

// The mode is the one asked for, of a file that is new and of one that had
// another, whatever the umask.
func TestMode(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	for mode, want := range map[fs.FileMode]fs.FileMode{0: 0o600, 0o644: 0o644, 0o640: 0o640} {
		path := filepath.Join(t.TempDir(), "x")
		for _, before := range []fs.FileMode{0, 0o666} {
			if before != 0 {
				if err := os.Chmod(path, before); err != nil {
					t.Fatal(err)
				}
			}
			if err := (File{Path: path, Mode: mode}).Replace([]byte("x")); err != nil {
				t.Fatal(err)
			}
			st, err := os.Stat(path)
			if err != nil || st.Mode() != want {
				t.Errorf("mode %#o over %#o: %v, %v; want %#o", mode, before, st.Mode(), err, want)
			}
		}
	}
}

// What stands beside the path under the name of an unfinished file is never
// written into.
func TestInTheWay(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "x"), filepath.Join(t.TempDir(), "other")
	write(t, other, "not ours")
	if err := os.Symlink(other, path+Unfinished); err != nil {
		t.Fatal(err)
	}
	if err := (File{Path: path}).Replace([]byte("ours")); err != nil {
		t.Fatal(err)
	}
	alone(t, path, "ours")
	if got := read(t, other); got != "not ours" {
		t.Errorf("through the link: %q", got)
	}
	if err := os.MkdirAll(filepath.Join(path+Unfinished, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	err := (File{Path: path}).Replace([]byte("more"))
	if err == nil || !strings.Contains(err.Error(), path+Unfinished) {
		t.Errorf("%v; want the name of the folder in the way", err)
	}
	if got := read(t, path); got != "ours" {
		t.Errorf("holds %q", got)
	}
}

// An error names the path and keeps its cause; the file is as it was, unless the
// folder alone could not be synced.
func TestErrors(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	write(t, path, "old")
	fails := func(call int) func(*os.File) error {
		return func(*os.File) error {
			if call--; call == 0 {
				return &fs.PathError{Op: "sync", Path: "elsewhere", Err: syscall.EIO}
			}
			return nil
		}
	}
	folder := filepath.Join(dir, "folder")
	if err := os.MkdirAll(filepath.Join(folder, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	f := func(file File, cause error) {
		t.Helper()
		err := file.Replace([]byte("new"))
		want := "replace " + file.Path + ": " + cause.Error()
		if err == nil || err.Error() != want || !errors.Is(err, cause) {
			t.Errorf("%v; want %s", err, want)
		}
		if _, err := os.Lstat(file.Path + Unfinished); err == nil {
			t.Errorf("%s: an unfinished file is left", file.Path)
		}
	}
	f(File{Path: filepath.Join(dir, "none", "x")}, syscall.ENOENT)
	f(File{Path: filepath.Join(path, "x")}, syscall.ENOTDIR)
	f(File{Path: folder}, syscall.EEXIST) // rename(2) of a file over a folder: os.Rename asks first
	f(File{Path: path, Sync: fails(1)}, syscall.EIO)
	if got := read(t, path); got != "old" {
		t.Errorf("holds %q; want the old content", got)
	}
	f(File{Path: path, Sync: fails(2)}, syscall.EIO)
	if got := read(t, path); got != "new" {
		t.Errorf("holds %q; want the new content, of which only the name is in doubt", got)
	}
}

// Who is in haste is not made to wait for the disk; everybody else has the file
// synced before its name, and the name's folder after.
func TestSync(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	write(t, path, "old")
	var synced []string
	f := File{Path: path, Sync: func(file *os.File) error {
		synced = append(synced, file.Name()+" "+read(t, path))
		return nil
	}}
	f.Hasty = true
	if err := f.Replace([]byte("hasty")); err != nil || synced != nil || read(t, path) != "hasty" {
		t.Errorf("in haste: %v, synced %q", err, synced)
	}
	f.Hasty = false
	err := f.Replace([]byte("new"))
	want := path + Unfinished + " hasty, " + filepath.Dir(path) + " new"
	if got := strings.Join(synced, ", "); err != nil || got != want {
		t.Errorf("%v, synced %s; want %s", err, got, want)
	}
}

// A reader beside replacements sees one content or the other.
func TestReadWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	a, b := bytes.Repeat([]byte("a"), 40_000), bytes.Repeat([]byte("b"), 70_000)
	write(t, path, string(a))
	done := make(chan error)
	go func() {
		defer close(done)
		for i := range 200 {
			if err := (File{Path: path, Hasty: true}).Replace([][]byte{b, a}[i%2]); err != nil {
				done <- err
				return
			}
		}
	}()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			alone(t, path, string(a))
			return
		default:
			if got := []byte(read(t, path)); !bytes.Equal(got, a) && !bytes.Equal(got, b) {
				t.Fatalf("read %d bytes, neither content", len(got))
			}
		}
	}
}

func TestRemove(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	write(t, path, "x")
	for range 2 { // the second time there is none
		if err := Remove(path); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("still there: %v", err)
		}
	}
	write(t, path, "x")
	if err := Remove(filepath.Dir(path)); err == nil || !strings.Contains(err.Error(), filepath.Dir(path)) {
		t.Errorf("a folder that is not empty: %v", err)
	}
	if err := SyncFolder(path + "/none"); err == nil {
		t.Error("a folder that is none was synced")
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// alone says that the file holds text and that nothing else is in its folder.
func alone(t *testing.T, path, text string) {
	t.Helper()
	if got := read(t, path); got != text {
		t.Errorf("%s holds %.20q; want %.20q", path, got, text)
	}
	if all, err := os.ReadDir(filepath.Dir(path)); err != nil || len(all) != 1 {
		t.Errorf("in the folder: %v, %v; want the file alone", all, err)
	}
}
