package warden

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wattloop/wattloop/actuate"
)

// The test binary plays the engine and, where the warden must die, the warden.
const roleEnv = "WATTLOOP_WARDEN_TEST_ROLE"

// part is what the environment tells a process that plays a role.
type part struct {
	Role  string  // engine, warden
	Dir   string  // sys, state, run and the switches of the engine lie in it
	Mode  string  // of the engine
	Fault string  // where the warden kills itself
	TTLMS int64   // of the leases that the engine asks for
	Value float64 // that it sets
	Guard bool    // under protection
}

func TestMain(m *testing.M) {
	role := os.Getenv(roleEnv)
	if role == "" {
		os.Exit(m.Run())
	}
	var p part
	if err := json.Unmarshal([]byte(role), &p); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(99)
	}
	if p.Role == "warden" {
		os.Exit(playWarden(p))
	}
	os.Exit(playEngine(p))
}

// as is an environment that makes the test binary play p.
func as(p part) []string {
	b, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	return []string{roleEnv + "=" + string(b)}
}

// playWarden runs a warden over dir/sys until SIGTERM, and kills itself at the
// fault point that it was given.
func playWarden(p part) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	o := options(p)
	o.Devices = nil
	dirs, err := os.ReadDir(filepath.Join(p.Dir, "sys"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 98
	}
	for _, d := range dirs {
		o.Devices = append(o.Devices, &plug{dir: filepath.Join(p.Dir, "sys", d.Name()), desc: plugDescription(d.Name())})
	}
	o.Fault = func(point string) {
		if point == p.Fault {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	o.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := Run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// playEngine sets every device of the warden again and again while the file
// dir/input is there.
func playEngine(p part) int {
	signal.Ignore(syscall.SIGINT)
	c, err := actuate.Connect(os.NewFile(3, "warden"), nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 97
	}
	defer c.Close()
	switch p.Mode {
	case "fails":
		return 3
	case "confess":
		if err := confess(p, c); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 96
		}
	}
	if err := c.Ready(); err != nil {
		return 95
	}
	beat := time.NewTicker(20 * time.Millisecond)
	defer beat.Stop()
	for {
		if _, err := os.Stat(filepath.Join(p.Dir, "input")); err == nil {
			var cmds []actuate.Command
			for _, d := range c.Devices() {
				cmd := set(d.ID, p.Value)
				if p.Guard {
					cmd = guard(d.ID, p.Value)
				}
				cmd.TTLMillis = p.TTLMS
				if _, err := os.Stat(filepath.Join(p.Dir, "release")); err == nil {
					cmd.Op = actuate.OpRelease
				}
				cmds = append(cmds, cmd)
			}
			if _, err := c.Do(context.Background(), cmds); err != nil {
				return 0
			}
		}
		select {
		case <-c.Stop():
			return 0
		case <-c.Gone():
			return 0
		case <-c.Reload():
			os.WriteFile(filepath.Join(p.Dir, "shared", "reloaded"), nil, 0o644)
		case <-beat.C:
		}
	}
}

// confess writes down what the engine's process may do.
func confess(p part, c *actuate.Client) error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	out := map[string]string{"uid": strconv.Itoa(os.Getuid()), "groups": ""}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		switch name {
		case "CapEff", "CapPrm", "NoNewPrivs", "Groups":
			out[name] = strings.TrimSpace(value)
		}
	}
	for _, m := range c.Meters() {
		b, err := io.ReadAll(io.NewSectionReader(m.File, 0, 100))
		if err != nil {
			return err
		}
		out["meter "+m.Name] = string(b) + string(m.Meta)
	}
	for name, path := range map[string]string{"originals": "state/warden/originals.json", "tree": "sys/a/limit"} {
		f, err := os.OpenFile(filepath.Join(p.Dir, path), os.O_RDWR, 0)
		out[name] = "open"
		if err != nil {
			out[name] = errors.Unwrap(err).Error()
		} else {
			f.Close()
		}
	}
	if err := os.Rename(filepath.Join(p.Dir, "run", "warden"), filepath.Join(p.Dir, "run", "x")); err != nil {
		out["rename"] = err.(*os.LinkError).Err.Error()
	}
	b, err := json.Marshal(out)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(p.Dir, "shared", "confession"), b, 0o644)
}

// options are those of a warden over dir, with the engine of p.
func options(p part) Options {
	p.Role = "engine"
	return Options{
		StatePath: filepath.Join(p.Dir, "state"), RunPath: filepath.Join(p.Dir, "run"),
		Dirs:    []string{filepath.Join(p.Dir, "shared")},
		Enabled: true, Tick: 50 * time.Millisecond,
		Engine: Spawn{Args: []string{"wattloop", "engine"}, Env: as(p), Stderr: os.Stderr},
	}
}

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
	left := h.list().Devices[0].LeaseMillis
	h.until("time to pass", func() bool { return h.list().Devices[0].LeaseMillis < left })
	left = h.list().Devices[0].LeaseMillis
	h.input(true)
	h.until("the lease to be renewed", func() bool { return h.list().Devices[0].LeaseMillis > left })
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
