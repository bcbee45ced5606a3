package relay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/wattloop/wattloop/ingest"
)

// forwarderEnv makes the test binary a process that forwards: DIR|UPSTREAM|FIRST.
const forwarderEnv = "WATTLOOP_TEST_FORWARDER"

func TestMain(m *testing.M) {
	if s := os.Getenv(forwarderEnv); s != "" {
		forwarder(strings.Split(s, "|"))
		return
	}
	os.Exit(m.Run())
}

// forwarder queues numbered requests for ever, and says each number once Forward
// has taken it.
func forwarder(args []string) {
	up, err := ParseAddress(args[1])
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	fail(err)
	first, err := strconv.Atoi(args[2])
	fail(err)
	r, err := Open(Options{Upstream: up, Dir: args[0], MaxBytes: 1 << 20, Fsync: first%2 == 0})
	fail(err)
	for n := first; ; n++ {
		p := ingest.PlanePlatform
		if n%2 == 0 {
			p = ingest.PlaneWorkload
		}
		f := ingest.Forwarded{Signal: signals[1+n%3], Plane: p, Wire: numbered(n)}
		if err = r.Forward(context.Background(), f); errors.Is(err, ingest.ErrNoRoom) {
			fmt.Println("full")
		}
		for errors.Is(err, ingest.ErrNoRoom) {
			runtime.Gosched()
			err = r.Forward(context.Background(), f)
		}
		fail(err)
		fmt.Println(n)
	}
}

// numbered is request n: its number, and a length that gives segments of every
// fill.
func numbered(n int) []byte {
	return append(strconv.AppendInt(nil, int64(n), 10), strings.Repeat("x", n*911%9000)...)
}

// A process that forwards is killed at any instant, again and again, with the
// upstream there or away: what Forward had taken arrives at least once, whole.
func TestKilled(t *testing.T) {
	kills := 60
	if testing.Short() {
		kills = 6
	}
	u := newUpstream().serve(t, "unix")
	dir := t.TempDir()
	var taken []int
	next := 0
	for k := range kills {
		switch k % 3 {
		case 1:
			u.srv.Stop()
		case 2:
			u.serve(t, "unix")
		}
		got := killAfter(t, dir, u.addr, next, 1+k*37%60, k%3 == 1)
		taken = append(taken, got...)
		next += len(got) + 1 // the last may have been taken without being said
	}
	if kills%3 == 2 {
		u.serve(t, "unix")
	}
	r := openRelay(t, Options{Upstream: u.addr, Dir: dir, MaxBytes: 1 << 20})
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, s := range r.Status() {
		if s.QueueBytes > 0 || s.Dropped > 0 {
			t.Errorf("at the end: %+v", s)
		}
	}
	came, again := map[int]bool{}, 0
	for key, times := range u.got {
		_, wire, _ := strings.Cut(key, " ")
		n, err := strconv.Atoi(strings.TrimRight(wire, "x"))
		if err != nil || wire != string(numbered(n)) {
			t.Fatalf("%.50q came, which nobody queued", key)
		}
		came[n] = true
		again += times - 1
	}
	for _, n := range taken {
		if !came[n] {
			t.Errorf("request %d was taken and never came", n)
		}
	}
	t.Logf("%d kills: %d requests taken, %d came, %d of them more than once", kills, len(taken), len(came), again)
}

// killAfter runs a forwarder, kills it once it has said so many numbers, or with
// away once its queue is full, and gives the numbers that it said.
func killAfter(t *testing.T, dir string, up Address, first, after int, away bool) (said []int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s|%s|%d", forwarderEnv, dir, up, first))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		full := lines.Text() == "full"
		if n, err := strconv.Atoi(lines.Text()); err == nil {
			said = append(said, n)
		} else if !full {
			break // a line that the kill has cut
		}
		if !full && len(said) == after || full && away {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != -1 {
		t.Fatalf("the forwarder ended by itself: %v", err)
	}
	return said
}
