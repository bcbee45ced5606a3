package queue

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// cutOffEnv makes the test binary a process whose files may not grow beyond 50 KiB.
const cutOffEnv = "WATTLOOP_TEST_CUT_OFF"

// A disk that takes half a record refuses the request and nothing else: what was
// there comes out, and it goes on once there is room again.
func TestDiskRefuses(t *testing.T) {
	if os.Getenv(cutOffEnv) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestDiskRefuses$", "-test.v")
		cmd.Env = append(os.Environ(), cutOffEnv+"=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestDiskRefuses") {
			t.Fatalf("%v:\n%s", err, out)
		}
		return
	}
	signal.Ignore(syscall.SIGXFSZ)
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	for _, fsync := range []bool{false, true} {
		var told tales
		q, err := Open(told.options(t.TempDir(), 1<<20, fsync))
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 50 << 10, Max: was.Max}); err != nil {
			t.Fatal(err)
		}
		put := func(i int) error {
			return q.Append(t.Context(), 1, []byte(fmt.Sprintf("%02d", i)+strings.Repeat("x", 12<<10)))
		}
		var want []string
		for i := range 8 {
			switch err := put(i); {
			case i < 4 && err != nil:
				t.Fatal(err)
			case i >= 4 && err == nil:
				t.Fatalf("request %d fits beyond the limit", i)
			}
		}
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
			t.Fatal(err)
		}
		for i := 8; i < 16; i++ {
			if err := put(i); err != nil {
				t.Fatal(err)
			}
		}
		for _, i := range []int{0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15} {
			want = append(want, fmt.Sprintf("%02d", i))
		}
		got := take(q)
		for i := range got {
			got[i] = got[i][:2]
		}
		if !slices.Equal(got, want) || told.lost != nil {
			t.Errorf("fsync %v: %q come out, told of %v; want %q", fsync, got, told.lost, want)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
}

// After an fsync that failed nobody is told that a request is safe: not who waited
// for it, nor who wrote to the same file meanwhile. A new file is safe again.
func TestFsyncFails(t *testing.T) {
	var told tales
	q, err := Open(told.options(t.TempDir(), 1<<20, true))
	if err != nil {
		t.Fatal(err)
	}
	put := func(wire string) error { return q.Append(t.Context(), 1, []byte(wire)) }
	if err := put("safe"); err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe() // which takes bytes, and no fsync
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	q.w.Close()
	q.w = w
	if err := q.write(1, func(uint64) []byte { return []byte("meanwhile") }); err != nil {
		t.Fatal(err)
	}
	if err := q.sync(); err == nil {
		t.Error("an fsync that failed is no error")
	}
	if err := put("the next"); err == nil {
		t.Error("who may have written to the file is told that all is safe")
	}
	if err := put("after that"); err != nil {
		t.Errorf("a new file: %v", err)
	}
	if got, want := take(q), []string{"safe", "the next", "after that"}; !slices.Equal(got, want) || len(told.lost) != 1 {
		t.Errorf("%q come out, told of %v; want %q and one loss", got, told.lost, want)
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}
