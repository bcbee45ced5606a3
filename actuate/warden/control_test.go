package warden

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wattloop/wattloop/actuate"
)

// A clean stop: everything given back and verified, then the engine ended.
func TestStop(t *testing.T) {
	h := build(t, "a", "b")
	h.part.TTLMS = 60_000
	h.run(nil)
	h.untilOurs()
	engine := h.list().EnginePID
	if err := h.end(); err != nil {
		t.Errorf("Run = %v", err)
	}
	for _, p := range h.plugs {
		wantHolds(t, p, "200/250")
	}
	if alive(engine) {
		t.Error("the engine is still there")
	}
	h.clean()
	if _, err := List(context.Background(), h.file("run")); !errors.Is(err, ErrNotRunning) {
		t.Errorf("List = %v; want %v", err, ErrNotRunning)
	}
}

// A stop that cannot give everything back says so, and leaves the original for
// whoever comes next.
func TestStopFails(t *testing.T) {
	h := build(t, "a", "b")
	h.part.TTLMS = 60_000
	h.run(nil)
	h.untilOurs()
	h.plugs[0].break_(always(syscall.EIO))
	err := h.end()
	if err == nil || !strings.Contains(err.Error(), "plug:a") || strings.Contains(err.Error(), "plug:b") {
		t.Errorf("Run = %v; want an error that names plug:a", err)
	}
	wantHolds(t, h.plugs[1], "200/250")
	h.plugs[0].break_(nil)
	if _, err := RestoreAll(context.Background(), h.successor(), true); err != nil {
		t.Error(err)
	}
	wantHolds(t, h.plugs[0], "200/250")
}

// A restore that fails until the deadline says what the device holds, never 0,
// and what the last attempt met; one of which nothing was read says that.
func TestRestoreFailsInWords(t *testing.T) {
	p := plugIn(t, t.TempDir(), "a", 200)
	var said bytes.Buffer
	r := bench(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&said, nil)) }, p)
	r.says(set("plug:a", 150), "applied 150")
	p.break_(always(syscall.EROFS))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	results := r.restoreEach(ctx, false)
	r.report("stop", results)
	got := results[0]
	if got.Result != actuate.Error || got.Value != 150 || got.Unknown || !strings.Contains(got.Message, "read-only file system") {
		t.Errorf("restore = %+v; want 150 and the read-only file system", got)
	}
	if line := said.String(); !regexp.MustCompile(`level=ERROR msg="device settled" .*value=150 result=error reason=restore_failed message=".*read-only file system"`).MatchString(line) {
		t.Errorf("logged:\n%s", line)
	}
	p.blind(func() error { return syscall.EIO })
	left := r.start(inheritance{alone: true})
	if got := left[0]; got.Result != actuate.Error || !got.Unknown || !strings.Contains(got.Message, "input/output error") {
		t.Errorf("leftover = %+v; want an unknown value and the input/output error", got)
	}
}

// I7: a second process on the same run.path or state.path is refused.
func TestSecondWarden(t *testing.T) {
	h := build(t, "a")
	h.run(nil)
	h.untilOurs()
	for _, change := range []func(*Options){
		func(*Options) {},
		func(o *Options) { o.RunPath = t.TempDir() },
		func(o *Options) { o.StatePath = t.TempDir() },
	} {
		o := h.successor()
		change(&o)
		if err := Run(context.Background(), o); !errors.Is(err, ErrLocked) {
			t.Errorf("second Run = %v; want %v", err, ErrLocked)
		}
	}
	wantHolds(t, h.plugs[0], "150/250")
}

// I7: a second process with folders of its own on the same tree is refused, and
// named, by whichever way the tree is spelled; the cap of the first is not its
// original. `caps restore` over the socket goes on, and so does one after the end.
func TestSecondWardenOnOneTree(t *testing.T) {
	h := build(t, "a")
	tree := h.file("sys")
	h.part.TTLMS = 60_000
	h.run(func(o *Options) { o.Tree = tree })
	h.untilOurs()
	other := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(tree, other); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{tree, other} {
		o := h.successor()
		o.Tree, o.RunPath, o.StatePath = path, t.TempDir(), t.TempDir()
		err := Run(context.Background(), o)
		var locked *TreeLockedError
		if !errors.Is(err, ErrLocked) || !errors.As(err, &locked) || locked.Tree != path || locked.PID != os.Getpid() {
			t.Errorf("second Run = %v; want %v by process %d", err, ErrLocked, os.Getpid())
		}
		if _, err := RestoreAll(context.Background(), o, true); !errors.As(err, &locked) || errors.Is(err, ErrNotRunning) {
			t.Errorf("RestoreAll on other paths = %v; want %v", err, ErrLocked)
		}
	}
	wantHolds(t, h.plugs[0], "150/250")
	o := h.successor()
	o.Tree = tree
	if report, err := RestoreAll(context.Background(), o, true); err != nil || !report.Living {
		t.Errorf("RestoreAll = %+v, %v", report, err)
	}
	h.untilOurs()
	if err := h.end(); err != nil {
		t.Error(err)
	}
	wantHolds(t, h.plugs[0], "200/250")
	if report, err := RestoreAll(context.Background(), o, true); err != nil || report.Living {
		t.Errorf("RestoreAll after the end = %+v, %v", report, err)
	}
}

// The kernel's own sysfs takes the lock too.
func TestTreeLockOfSysfs(t *testing.T) {
	d, err := takeTree("/sys")
	if errors.Is(err, ErrLocked) || errors.Is(err, os.ErrNotExist) {
		t.Skip(err) // a warden is at work on this machine, or there is none to work on
	}
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := takeTree("/sys"); !errors.Is(err, ErrLocked) {
		t.Errorf("second lock of /sys = %v; want %v", err, ErrLocked)
	}
}

// A warden that is stopped or hangs is named with the way out, also when so many
// callers wait that its socket takes no more; killed, it does not stand in the way.
func TestWardenHangs(t *testing.T) {
	h := build(t, "a")
	h.part.TTLMS = 60_000
	w := h.outside("")
	h.untilAll("150/250")
	h.until("an answer", func() bool { return h.list().PID != 0 })
	if err := w.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	pid := strconv.Itoa(w.Process.Pid)
	check := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := RestoreAll(ctx, h.successor(), true)
		if !errors.Is(err, ErrHangs) {
			t.Fatalf("RestoreAll = %v; want %v", err, ErrHangs)
		}
		for _, want := range []string{h.file("run/warden/warden.sock"), "process " + pid + " ", "kill -9 " + pid + ", and run this again"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("RestoreAll = %v; want %q in it", err, want)
			}
		}
	}
	check()
	for full := false; !full; {
		err := shortPath(h.file("run/warden"), func(short string) error {
			conn, err := net.DialTimeout("unix", short, 100*time.Millisecond)
			if err == nil {
				t.Cleanup(func() { conn.Close() })
			}
			return err
		})
		full = err != nil
	}
	check()
	w.Process.Kill()
	w.Wait()
	if _, err := RestoreAll(t.Context(), h.successor(), true); err != nil {
		t.Error(err)
	}
	wantHolds(t, h.plugs[0], "200/250")
}

// A lock file that an operator removed is made and locked again.
func TestLockRemoved(t *testing.T) {
	h := build(t, "a")
	h.run(nil)
	h.untilOurs()
	h.until("the folder to be gone", func() bool { return os.RemoveAll(h.file("run/warden")) == nil }) // records are written meanwhile
	h.until("the lock to be back", func() bool { _, err := os.Stat(h.file("run/warden/lock")); return err == nil })
	h.until("a second warden to be refused again", func() bool {
		o := h.successor()
		o.StatePath = h.file("other")
		w, err := open(o)
		if err == nil {
			w.close()
		}
		return errors.Is(err, ErrLocked)
	})
	if err := h.end(); err != nil {
		t.Error(err)
	}
	wantHolds(t, h.plugs[0], "200/250")
}

// A warden whose locks another process has taken over ends and leaves the
// devices to it.
func TestLockLost(t *testing.T) {
	h := build(t, "a")
	h.part.TTLMS = 60_000
	h.run(func(o *Options) { o.Tick = 300 * time.Millisecond })
	h.untilOurs()
	for _, dir := range []string{"run", "state"} {
		dir = h.file(dir + "/warden")
		if err := os.Remove(filepath.Join(dir, "lock")); err != nil {
			t.Fatal(err)
		}
		l, err := takeLock(dir)
		if errors.Is(err, ErrLocked) {
			t.Skip("the warden was quicker")
		}
		if err != nil {
			t.Fatal(err)
		}
		defer l.drop()
	}
	if err := <-h.done; !errors.Is(err, ErrLocked) {
		t.Errorf("Run = %v; want %v", err, ErrLocked)
	}
	h.done <- nil
	wantHolds(t, h.plugs[0], "150/250")
}

// `caps restore` asked of a living warden latches; `caps resume` ends it.
func TestRestoreLiving(t *testing.T) {
	h := build(t, "a", "b")
	h.part.TTLMS = 60_000
	h.run(nil)
	h.untilOurs()
	report, err := RestoreAll(context.Background(), h.successor(), false)
	if err != nil || !report.Living || !report.Latched {
		t.Errorf("RestoreAll = %+v, %v", report, err)
	}
	for _, r := range report.Devices {
		if r.Result != actuate.Applied || r.Reason != actuate.ReasonRestored || r.Value != 200 {
			t.Errorf("device %+v", r)
		}
	}
	for range 10 { // the engine goes on asking, in vain
		for _, p := range h.plugs {
			wantHolds(t, p, "200/250")
		}
		if s := h.list(); !s.Latched || s.Devices[0].Reason != actuate.ReasonLatched {
			t.Errorf("status %+v", s)
		}
	}
	if err := h.end(); err != nil {
		t.Error(err)
	}
	h.run(nil) // survives a restart
	h.until("an answer", func() bool { return h.list().PID != 0 })
	if s := h.list(); !s.Latched {
		t.Errorf("status %+v; want it latched", s)
	}
	if was, err := Resume(context.Background(), h.successor()); err != nil || !was {
		t.Errorf("Resume = %v, %v", was, err)
	}
	h.untilOurs()
	report, err = RestoreAll(context.Background(), h.successor(), true)
	if err != nil || report.Latched {
		t.Errorf("RestoreAll without latch = %+v, %v", report, err)
	}
}

// A warden that hands over leaves its caps to a successor that comes in time.
func TestHandover(t *testing.T) {
	h := build(t, "a")
	h.part.TTLMS = 60_000
	var left []Restored
	h.run(func(o *Options) { o.Standing = func(s []Restored) { left = s } })
	h.untilOurs()
	if err := Handover(context.Background(), h.file("run")); err != nil {
		t.Fatal(err)
	}
	if err := <-h.done; err != nil {
		t.Errorf("Run = %v", err)
	}
	h.done <- nil
	if len(left) != 1 || left[0].Reason != actuate.ReasonHandedOver || left[0].Value != 150 {
		t.Errorf("left standing: %+v; want the cap of 150 handed over", left)
	}
	wantHolds(t, h.plugs[0], "150/250")
	if report, err := RestoreAll(context.Background(), h.successor(), true); err != nil || report.Devices[0].Reason != actuate.ReasonHolding {
		t.Errorf("RestoreAll after a handover = %+v, %v", report, err)
	}
	h.input(false)
	h.run(nil)
	h.untilOurs()
	h.untilRenewed(func() { h.input(true) })
	if got := h.plugs[0].written(); len(got) != 1 {
		t.Errorf("writes %v; want the first alone", got)
	}
	if err := h.end(); err != nil {
		t.Error(err)
	}
	wantHolds(t, h.plugs[0], "200/250")
	h.clean()
}

// A reload reaches the engine.
func TestReload(t *testing.T) {
	h := build(t, "a")
	reload := make(chan struct{})
	h.run(func(o *Options) { o.Reload = reload })
	h.untilOurs()
	reload <- struct{}{}
	h.until("the engine to reload", func() bool { _, err := os.Stat(h.file("shared/reloaded")); return err == nil })
}

// Without a warden Resume and List say what there is to say.
func TestNobodyThere(t *testing.T) {
	h := build(t, "a")
	if _, err := List(context.Background(), h.file("run")); !errors.Is(err, ErrNotRunning) {
		t.Errorf("List = %v; want %v", err, ErrNotRunning)
	}
	if was, err := Resume(context.Background(), h.successor()); err != nil || was {
		t.Errorf("Resume = %v, %v; want nothing to resume", was, err)
	}
	for _, dir := range []string{"state", "run"} {
		if _, err := os.Stat(h.file(dir)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("Resume of nothing made %s: %v", dir, err)
		}
	}
	report, err := RestoreAll(context.Background(), h.successor(), false)
	if err != nil || len(report.Devices) != 1 || report.Devices[0].Result != actuate.None || !report.Latched {
		t.Errorf("RestoreAll = %+v, %v", report, err)
	}
}

// The folder of the socket is the warden's alone, and so is the socket; what
// comes over it is one line of JSON or an error.
func TestControlSocket(t *testing.T) {
	h := build(t, "a")
	h.run(nil)
	h.until("an answer", func() bool { return h.list().PID != 0 })
	for name, want := range map[string]os.FileMode{"run/warden": 0o700 | os.ModeDir, "state/warden": 0o700 | os.ModeDir, "run/warden/warden.sock": 0o600 | os.ModeSocket} {
		info, err := os.Stat(h.file(name))
		if err != nil || info.Mode() != want {
			t.Errorf("%s: mode %v, %v; want %v", name, info.Mode(), err, want)
		}
	}
	for _, line := range []string{"\n", "garbage\n", `{"op":"format"}` + "\n", `{"op":` + strings.Repeat("[", 10000), ""} {
		err := shortPath(h.file("run/warden"), func(short string) error {
			conn, err := net.Dial("unix", short)
			if err != nil {
				return err
			}
			defer conn.Close()
			if _, err := conn.Write([]byte(line)); err != nil {
				return err
			}
			conn.(*net.UnixConn).CloseWrite()
			var b [4096]byte
			n, _ := conn.Read(b[:])
			if !strings.HasPrefix(string(b[:n]), `{"error":"request: `) {
				t.Errorf("%.20q was answered by %q", line, b[:n])
			}
			return nil
		})
		if err != nil {
			t.Errorf("%.20q: %v", line, err)
		}
	}
	if s := h.list(); s.PID != os.Getpid() {
		t.Errorf("status after that: %+v", s)
	}
}

// A folder that others may write is made private; one of another user, or a
// link, is refused, for what lies in it is believed.
func TestPrivateFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "warden")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := makePrivate(dir); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	link := filepath.Join(t.TempDir(), "warden")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := makePrivate(link); err == nil {
		t.Error("a link was accepted")
	}
	if os.Geteuid() != 0 {
		t.Skip("giving a folder away needs root")
	}
	if err := os.Chown(dir, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if err := makePrivate(dir); err == nil {
		t.Error("a folder of another user was accepted")
	}
}

// What the owner gets wrong is said before anything is touched.
func TestOptionsChecked(t *testing.T) {
	f := func(want string, change func(*Options)) {
		t.Helper()
		o := Options{StatePath: "s", RunPath: "r", Devices: []actuate.Device{&plug{desc: plugDescription("a")}}}
		change(&o)
		if _, err := o.withDefaults(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v; want one with %q", err, want)
		}
	}
	f("state.path", func(o *Options) { o.StatePath = "" })
	f("ID of its own", func(o *Options) { o.Devices = slices.Repeat(o.Devices, 2) })
	f("actuation.clamps", func(o *Options) { o.Clamps = map[string]Clamp{"x": {Min: 3, Max: 2}} })
	f("actuation.clamps", func(o *Options) { o.Clamps = map[string]Clamp{"x": {Floor: 1.1}} })
	f("clock speed", func(o *Options) { o.Speed = -1 })
}
