package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/wattloop/wattloop/actuate"
	"github.com/wattloop/wattloop/actuate/warden"
	"github.com/wattloop/wattloop/api"
)

// selfExe is this very program, whatever became of the file it was started from.
const selfExe = "/proc/self/exe"

// exitOf gives the warden's errors their exit codes. What a failed engine had
// to say is on stderr already.
func exitOf(err error) error {
	var e *warden.ExitError
	if errors.As(err, &e) {
		return withCode(e.Code, errSaid)
	}
	return withCode(exitCannot, err)
}

// doorReader passes the engine's stderr on, but for the lines that tell where it
// listens, and those before them: those it keeps.
type doorReader struct {
	to    io.Writer
	mu    sync.Mutex
	part  []byte
	early strings.Builder
	addr  map[string]string
	got   chan struct{}
}

// told says whether the engine has told where it listens.
func (d *doorReader) told() bool {
	select {
	case <-d.got:
		return true
	default:
		return false
	}
}

func newDoorReader(to io.Writer) *doorReader {
	return &doorReader{to: to, addr: map[string]string{}, got: make(chan struct{})}
}

func (d *doorReader) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.part = append(d.part, p...)
	for {
		line, rest, ok := bytes.Cut(d.part, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		d.part = rest
		d.line(string(line))
	}
}

func (d *doorReader) line(s string) {
	door, ok := strings.CutPrefix(s, "listening on ")
	if !ok && d.told() {
		io.WriteString(d.to, s+"\n")
		return
	}
	if !ok {
		d.early.WriteString(s + "\n")
		return
	}
	name, addr, _ := strings.Cut(door, "=")
	d.addr[name] = addr
	if name == "otlp-http" && !d.told() { // the last one
		close(d.got)
		io.WriteString(d.to, d.early.String())
	}
}

// wait gives the addresses once the engine listens.
func (d *doorReader) wait(ctx context.Context) (map[string]string, bool) {
	select {
	case <-d.got:
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.addr, true
	case <-ctx.Done():
		return nil, false
	}
}

// freeOr is addr when nobody listens there, else one with a free port.
func freeOr(addr string) string {
	l, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return "127.0.0.1:0"
	}
	if err == nil {
		l.Close()
	}
	return addr
}

// containsArg says whether a /proc/PID/cmdline has that argument.
func containsArg(cmdline []byte, arg string) bool {
	s := bufio.NewScanner(bytes.NewReader(bytes.ReplaceAll(cmdline, []byte{0}, []byte{'\n'})))
	for s.Scan() {
		if s.Text() == arg {
			return true
		}
	}
	return false
}

// watch looks at the run from outside: the tree's files, and the status page.
type watch struct {
	d    *demo
	cl   client
	devs []actuate.Device
	held []float64 // microwatts of each device at the last look
	last map[string]string
}

func newWatch(d *demo, web string) *watch {
	return &watch{d: d, cl: client{url: "http://" + web}, last: map[string]string{}}
}

// tree tells every change of a limit, as the file has it. What the control
// decided is told first.
func (w *watch) tree(ctx context.Context) error {
	if w.devs == nil {
		devs, err := devices(w.d.node.FS())
		if err != nil {
			return err
		}
		w.devs, w.held = devs, make([]float64, len(devs))
	}
	for i, dev := range w.devs {
		st, err := dev.Read()
		if err != nil {
			continue // a write in progress; the next look sees its end
		}
		desc, was := dev.Describe(), w.held[i]
		w.held[i] = st.Value
		if was == 0 || was == st.Value {
			continue
		}
		w.phases(ctx)
		if st.Value != desc.Default {
			w.d.written = append(w.d.written, microwatts(st.Value))
			if was == desc.Default {
				w.d.engaged++
			}
		}
		w.d.show.cap(desc, was, st)
	}
	return nil
}

func microwatts(watts float64) int64 { return int64(math.Round(watts * 1e6)) }

// phases tells when a control changes its phase. A status that cannot be had is
// an engine on its way down, or up.
func (w *watch) phases(ctx context.Context) (s api.Status, ok bool) {
	if err := w.cl.getJSON(ctx, "/api/v1/status/wattloop", &s); err != nil {
		return s, false
	}
	for _, c := range s.Controls {
		if w.last[c.Name] != c.Phase && (w.last[c.Name] != "" || c.Phase != "idle") {
			w.d.show.phase(c, w.d.node.Power())
		}
		w.last[c.Name] = c.Phase
	}
	return s, true
}

// status keeps the line of numbers up to date.
func (w *watch) status(ctx context.Context, at time.Time) {
	if s, ok := w.phases(ctx); ok {
		w.d.show.line(at, s, w.d.node.Power())
	}
}
