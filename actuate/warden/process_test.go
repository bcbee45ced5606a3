package warden

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wattloop/wattloop/actuate"
)

// house is a folder with devices at 200 W and a warden over them in this
// process, to be run.
type house struct {
	t     *testing.T
	part  part
	opt   Options
	plugs []*plug
	stop  context.CancelFunc
	done  chan error
}

func build(t *testing.T, devices ...string) *house {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} { // an engine of another user must get through
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h := &house{t: t, part: part{Dir: dir, TTLMS: 1000, Value: 150}}
	for _, name := range devices {
		h.plugs = append(h.plugs, plugIn(t, filepath.Join(dir, "sys"), name, 200))
	}
	h.input(true)
	return h
}

func (h *house) file(name string) string { return filepath.Join(h.part.Dir, name) }

// input has the engine set the devices, or not.
func (h *house) input(on bool) {
	h.t.Helper()
	var err error
	if on {
		err = os.WriteFile(h.file("input"), nil, 0o644)
	} else {
		err = os.Remove(h.file("input"))
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// run starts the warden in this process.
func (h *house) run(change func(*Options)) {
	h.t.Helper()
	h.opt = options(h.part)
	for _, p := range h.plugs {
		h.opt.Devices = append(h.opt.Devices, p)
	}
	if change != nil {
		change(&h.opt)
	}
	ctx, stop := context.WithCancel(context.Background())
	h.stop, h.done = stop, make(chan error, 1)
	done := h.done
	go func() { done <- Run(ctx, h.opt) }()
	h.t.Cleanup(func() { stop(); <-done })
}

// end stops the warden and returns what Run returned.
func (h *house) end() error {
	h.stop()
	err := <-h.done
	h.done <- err // for the cleanup
	return err
}

// until polls for something that must come about, with a limit that only a
// failure reaches.
func (h *house) until(what string, ok func() bool) {
	h.t.Helper()
	waitFor(h.t, what, ok)
}

func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("waited a minute in vain for: %s", what)
}

func (h *house) untilAll(holds string) {
	h.t.Helper()
	h.until("every device holds "+holds, func() bool {
		return !slices.ContainsFunc(h.plugs, func(p *plug) bool { return p.holds() != holds })
	})
}

// untilOurs waits until a value of ours is on every device, read back.
func (h *house) untilOurs() {
	h.t.Helper()
	h.until("caps applied", func() bool {
		s := h.list()
		return len(s.Devices) > 0 && !slices.ContainsFunc(s.Devices, func(d actuate.DeviceState) bool { return d.State != actuate.StateApplied })
	})
}

// untilRenewed waits until the lease that nobody renews runs on from the start
// again after begin.
func (h *house) untilRenewed(begin func()) {
	h.t.Helper()
	left := h.list().Devices[0].LeaseMillis
	h.until("time to pass", func() bool { return h.list().Devices[0].LeaseMillis < left })
	left = h.list().Devices[0].LeaseMillis
	begin()
	h.until("the lease to be renewed", func() bool { return h.list().Devices[0].LeaseMillis > left })
}

// list asks the warden; a zero Status when it does not answer yet.
func (h *house) list() Status {
	s, err := List(context.Background(), h.file("run"))
	if err != nil && !errors.Is(err, ErrNotRunning) {
		h.t.Log(err)
	}
	return s
}

// alive says whether a process runs; one that has ended and was not waited for
// does not.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// S0-15, P8: an engine that is killed leaves its caps to their leases.
func TestEngineKilled(t *testing.T) {
	h := build(t, "a", "b")
	h.run(nil)
	h.untilOurs()
	h.untilAll("150/250")
	first := h.list().EnginePID
	h.input(false)
	syscall.Kill(first, syscall.SIGKILL)
	h.untilAll("200/250")
	h.until("another engine", func() bool { p := h.list().EnginePID; return p != 0 && p != first })
	h.input(true)
	h.untilAll("150/250")
	if err := h.end(); err != nil {
		t.Error(err)
	}
	h.untilAll("200/250")
}

// An engine that comes back before the lease ends renews it without a write.
func TestEngineRestartedInTime(t *testing.T) {
	h := build(t, "a")
	h.part.TTLMS = 60_000
	h.run(nil)
	h.untilOurs()
	first := h.list().EnginePID
	h.input(false)
	syscall.Kill(first, syscall.SIGKILL)
	h.until("another engine", func() bool { p := h.list().EnginePID; return p != 0 && p != first })
	h.untilRenewed(func() { h.input(true) })
	if got := h.plugs[0].written(); len(got) != 1 {
		t.Errorf("writes %v; want the first alone", got)
	}
	wantHolds(t, h.plugs[0], "150/250")
}

// An engine that hangs is killed and started again; its leases end meanwhile.
func TestEngineHangs(t *testing.T) {
	h := build(t, "a")
	h.run(func(o *Options) { o.Engine.Watchdog = 5 * time.Second })
	h.untilOurs()
	first := h.list().EnginePID
	h.input(false)
	if err := syscall.Kill(first, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	h.untilAll("200/250")
	h.until("another engine", func() bool { p := h.list().EnginePID; return p != 0 && p != first })
	if alive(first) {
		t.Errorf("the engine that hung is still there")
	}
}

func TestEngineCannotStart(t *testing.T) {
	h := build(t, "a")
	h.part.Mode = "fails"
	h.run(nil)
	var exit *ExitError
	if err := <-h.done; !errors.As(err, &exit) || exit.Code != 3 {
		t.Errorf("Run = %v; want the engine's exit status 3", err)
	}
	h.done <- nil

	h = build(t, "a")
	h.run(func(o *Options) { o.Engine.Path = "/nowhere/wattloop" })
	if err := <-h.done; !errors.As(err, &exit) || exit.Code != 1 {
		t.Errorf("Run = %v; want that the engine could not start", err)
	}
	h.done <- nil
}

// Re-executed by /proc/self/exe as another user, the engine has its meters and
// the connection, and nothing else of the warden's.
func TestEngineUnprivileged(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("changing the user of a process needs root")
	}
	h := build(t, "a")
	h.part.Mode = "confess"
	meter, err := os.Open(h.plugs[0].file("limit"))
	if err != nil {
		t.Fatal(err)
	}
	defer meter.Close()
	h.run(func(o *Options) {
		o.Engine.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
		o.Meters = []actuate.Meter{{MeterInfo: actuate.MeterInfo{Name: "package-0", Meta: json.RawMessage(`{"zone":1}`)}, File: meter}}
	})
	h.untilOurs()
	b, err := os.ReadFile(h.file("shared/confession"))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"uid": "65534", "Groups": "", "CapEff": "0000000000000000", "CapPrm": "0000000000000000", "NoNewPrivs": "1",
		"meter package-0": "200\n{\"zone\":1}", "originals": "permission denied", "tree": "permission denied",
		"rename": "operation not permitted",
	} {
		if got[name] != want {
			t.Errorf("%s: %q; want %q", name, got[name], want)
		}
	}
	if err := h.end(); err != nil {
		t.Error(err)
	}
	h.untilAll("200/250")
}

// The engine dies with a warden that is killed, and what was on the hardware is
// given back by whoever comes next.
func TestWardenKilled(t *testing.T) {
	h := build(t, "a", "b")
	h.part.TTLMS = 60_000
	cmd := h.outside("")
	h.untilOurs()
	s := h.list()
	cmd.Process.Kill()
	cmd.Wait()
	h.until("the engine to die with its warden", func() bool { return !alive(s.EnginePID) })
	h.untilAll("150/250")
	report, err := RestoreAll(context.Background(), h.successor(), true)
	if err != nil || len(report.Devices) != 2 || report.Living || report.Latched {
		t.Errorf("RestoreAll = %+v, %v", report, err)
	}
	h.untilAll("200/250")
	h.clean()
}

// outside starts a warden in a process of its own.
func (h *house) outside(fault string) *exec.Cmd {
	h.t.Helper()
	p := h.part
	p.Role, p.Fault = "warden", fault
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = as(p)
	if testing.Verbose() {
		cmd.Stderr = os.Stderr
	}
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd
}

// successor are the options of a warden over devices opened anew.
func (h *house) successor() Options {
	o := options(h.part)
	for _, p := range h.plugs {
		o.Devices = append(o.Devices, &plug{dir: p.dir, desc: p.desc})
	}
	return o
}

// clean checks that nothing is left that would have anything restored again.
func (h *house) clean() {
	h.t.Helper()
	j, err := openJournal(h.file("state/warden"), func(string) {})
	if err != nil {
		h.t.Fatal(err)
	}
	if ids := j.ids(); len(ids) != 0 {
		h.t.Errorf("originals of %v are still open", ids)
	}
	if ids, err := (intents{h.file("run/warden")}).ids(); err != nil || len(ids) != 0 {
		h.t.Errorf("records left: %v, %v", ids, err)
	}
}
