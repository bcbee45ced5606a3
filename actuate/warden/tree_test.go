package warden

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wattloop/wattloop/actuate"
)

// plug is the smallest device that can go wrong: two files of whole numbers,
// the limit and a short-term limit that a strict setting lowers too.
type plug struct {
	t    testing.TB
	dir  string
	desc actuate.Description

	mu     sync.Mutex
	writes []float64
	// What goes wrong; nil is nothing.
	onWrite func(v float64) (float64, error) // what is written instead, or why not
	onRead  func() error
	locked  string        // why it cannot be written
	hang    chan struct{} // while open, calls do not return
}

// plugIn makes dir/name with both limits at watts.
func plugIn(t testing.TB, dir, name string, watts float64) *plug {
	t.Helper()
	p := &plug{dir: filepath.Join(dir, name)}
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	p.desc = plugDescription(name)
	p.put(t, watts)
	if err := os.WriteFile(p.file("short"), []byte(strconv.FormatFloat(watts+50, 'f', -1, 64)+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return p
}

func plugDescription(name string) actuate.Description {
	return actuate.Description{
		ID: "plug:" + name, Name: name, Action: actuate.ActionRAPLCap, Unit: "W",
		Min: 10, Max: 300, Default: 200, Tolerance: 1,
		Files: []string{name + "/limit", name + "/short"}, Writable: true,
	}
}

func (p *plug) file(name string) string { return filepath.Join(p.dir, name) }

func (p *plug) Describe() actuate.Description {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.desc
	if p.locked != "" {
		d.Writable, d.Reason = false, p.locked
	}
	return d
}

// lock makes the device say that it cannot be written, and why; "" unlocks.
func (p *plug) lock(why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.locked = why
}

func (p *plug) Read() (actuate.State, error) {
	p.block()
	p.mu.Lock()
	onRead := p.onRead
	p.mu.Unlock()
	if onRead != nil {
		if err := onRead(); err != nil {
			return actuate.State{}, err
		}
	}
	st := actuate.State{Files: map[string]string{}}
	for _, name := range []string{"limit", "short"} {
		b, err := os.ReadFile(p.file(name))
		if err != nil {
			return st, err
		}
		st.Files[name] = string(b)
	}
	var err error
	st.Value, err = strconv.ParseFloat(strings.TrimSpace(st.Files["limit"]), 64)
	return st, err
}

func (p *plug) Write(s actuate.Setting) error {
	p.block()
	p.mu.Lock()
	p.writes = append(p.writes, s.Value)
	onWrite := p.onWrite
	p.mu.Unlock()
	v := s.Value
	if onWrite != nil {
		var err error
		if v, err = onWrite(v); err != nil {
			return err
		}
	}
	text := []byte(strconv.FormatFloat(v, 'f', -1, 64) + "\n")
	if err := os.WriteFile(p.file("limit"), text, 0o644); err != nil {
		return err
	}
	if s.Strict {
		return os.WriteFile(p.file("short"), text, 0o644)
	}
	return nil
}

func (p *plug) Restore(st actuate.State) error {
	p.block()
	p.mu.Lock()
	onWrite := p.onWrite
	p.mu.Unlock()
	if onWrite != nil {
		if _, err := onWrite(st.Value); err != nil {
			return err
		}
	}
	for name, content := range st.Files {
		if err := os.WriteFile(p.file(name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (p *plug) block() {
	p.mu.Lock()
	hang := p.hang
	p.mu.Unlock()
	if hang != nil {
		<-hang
	}
}

// put is what somebody else does to the device.
func (p *plug) put(t testing.TB, watts float64) {
	t.Helper()
	if err := os.WriteFile(p.file("limit"), []byte(strconv.FormatFloat(watts, 'f', -1, 64)+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// spoil flips a bit in the middle of a file.
func (p *plug) spoil(path string) {
	p.t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		p.t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// holds is the content of both files, without the wait for a slow read.
func (p *plug) holds() string {
	var out []string
	for _, name := range []string{"limit", "short"} {
		b, err := os.ReadFile(p.file(name))
		if err != nil {
			out = append(out, err.Error())
			continue
		}
		out = append(out, strings.TrimSpace(string(b)))
	}
	return strings.Join(out, "/")
}

func (p *plug) break_(f func(float64) (float64, error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onWrite = f
}

func (p *plug) blind(f func() error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onRead = f
}

func (p *plug) written() []float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]float64(nil), p.writes...)
}

// always makes every write fail.
func always(err error) func(float64) (float64, error) {
	return func(float64) (float64, error) { return 0, err }
}

// rig is a warden without an engine, on a clock that the test moves.
type rig struct {
	*warden
	t    testing.TB
	opt  Options
	now  time.Duration
	seq  uint64
	boot string
}

// bench opens a warden over the devices; change may alter the options.
func bench(t testing.TB, change func(*Options), devices ...actuate.Device) *rig {
	t.Helper()
	dir := t.TempDir()
	r := &rig{t: t, boot: "boot-1", now: time.Hour}
	r.opt = Options{
		Devices: devices, StatePath: filepath.Join(dir, "state"), RunPath: filepath.Join(dir, "run"),
		Enabled: true,
		Clock:   func() time.Duration { return r.now },
		BootID:  func() (string, error) { return r.boot, nil },
	}
	if change != nil {
		change(&r.opt)
	}
	r.start(inheritance{kept: true})
	return r
}

// start opens the warden anew, as a process would, and takes over what is left.
func (r *rig) start(in inheritance) []Restored {
	r.t.Helper()
	if r.warden != nil {
		r.warden.close()
	}
	w, err := open(r.opt)
	if err != nil {
		r.t.Fatal(err)
	}
	r.warden = w
	r.t.Cleanup(w.close)
	left := w.takeOverAll(in)
	r.look()
	return left
}

// look is one tick for every device.
func (r *rig) look() {
	for _, k := range r.knobs {
		k.check()
	}
}

// pass lets time go by, with a look at each device every second of it.
func (r *rig) pass(d time.Duration) {
	for end := r.now + d; r.now < end; {
		r.now += time.Second
		r.look()
	}
}

func (r *rig) ask(cmds ...actuate.Command) []actuate.Reply {
	r.t.Helper()
	for i := range cmds {
		r.seq++
		cmds[i].Seq = r.seq
	}
	replies := r.do(cmds)
	for i, reply := range replies {
		if reply.Seq != cmds[i].Seq {
			r.t.Errorf("reply %d has seq %d; want %d", i, reply.Seq, cmds[i].Seq)
		}
	}
	return replies
}

// says asks one command and compares what matters of the reply.
func (r *rig) says(cmd actuate.Command, want string) actuate.Reply {
	r.t.Helper()
	reply := r.ask(cmd)[0]
	if got := word(reply); got != want {
		r.t.Errorf("%s %g on %s = %q (%s); want %q", cmd.Op, cmd.Value, cmd.Device, got, reply.Message, want)
	}
	return reply
}

func word(r actuate.Reply) string {
	s := r.Result
	if r.Reason != "" {
		s += " " + r.Reason
	}
	if r.Clamped {
		s += " clamped"
	}
	return fmt.Sprintf("%s %g", s, r.Applied)
}

func (r *rig) state(id string) actuate.DeviceState { return r.byID[id].snapshot() }

func (r *rig) wantState(id, want string) {
	r.t.Helper()
	if got := r.state(id); got.State != want {
		r.t.Errorf("%s is %q (%s); want %q", id, got.State, got.Reason, want)
	}
}

func wantHolds(t testing.TB, p *plug, want string) {
	t.Helper()
	if got := p.holds(); got != want {
		t.Errorf("%s holds %s; want %s", p.desc.ID, got, want)
	}
}

// set, renew, release and hold of the control "budget" (efficiency).
func set(id string, v float64) actuate.Command {
	return actuate.Command{Op: actuate.OpSet, Device: id, Value: v, Control: "budget", Purpose: actuate.PurposeEfficient, TTLMillis: 30_000}
}

// guard is a set of the control "breaker" (protection, safe cap 120 W).
func guard(id string, v float64) actuate.Command {
	return actuate.Command{
		Op: actuate.OpSet, Device: id, Value: v, Control: "breaker", Purpose: actuate.PurposeProtect,
		TTLMillis: 30_000, SafeCap: 120, Strict: true,
	}
}

func with(cmd actuate.Command, op string) actuate.Command {
	cmd.Op = op
	return cmd
}
