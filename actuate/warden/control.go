package warden

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wattloop/wattloop/actuate"
)

// Operations that a person may ask of a living warden.
const (
	opList     = "list"
	opRestore  = "restore"
	opResume   = "resume"
	opHandover = "handover"
)

const (
	socketName  = "warden.sock"
	maxRequest  = 4 << 10
	maxAnswer   = 4 << 20
	maxCallers  = 16
	callerLimit = 2 * time.Second // for a request to arrive, and for an answer to be taken
)

// request is one line of JSON, after which the connection carries one answer.
type request struct {
	Op         string `json:"op"`
	NoLatch    bool   `json:"no_latch,omitempty"`
	DeadlineMS int64  `json:"deadline_ms,omitempty"`
}

type answer struct {
	Error  string  `json:"error,omitempty"`
	Report *Report `json:"report,omitempty"`
	Status *Status `json:"status,omitempty"`
	// Resumed says that something was held back until then.
	Resumed bool `json:"resumed,omitempty"`
}

// Status is what a living warden says of itself.
type Status struct {
	PID          int                   `json:"pid"`
	EnginePID    int                   `json:"engine_pid"`    // 0 while none runs
	EngineStarts int                   `json:"engine_starts"` // since the warden started
	BadMessages  uint64                `json:"bad_messages"`  // of engines, ignored
	Enabled      bool                  `json:"enabled"`
	Latched      bool                  `json:"latched"`
	Devices      []actuate.DeviceState `json:"devices"`
}

// control serves the socket of the command line. Its folder is open to the
// warden's user alone.
type control struct {
	*warden
	listener *net.UnixListener
	closed   sync.Once
}

func (w *warden) listen() (*control, error) {
	path := filepath.Join(w.dir, socketName)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("warden: %w", err) // left by an earlier run: this one holds the lock
	}
	var l *net.UnixListener
	err := shortPath(w.dir, func(short string) (err error) {
		l, err = net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("warden: %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false) // by the short path it could not
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("warden: %w", err)
	}
	return &control{warden: w, listener: l}, nil
}

// shortPath names the socket in dir by a path that fits the 108 bytes of a
// socket address, however deep dir lies.
func shortPath(dir string, f func(path string) error) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return f(fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), socketName))
}

func (c *control) close() {
	c.closed.Do(func() {
		c.listener.Close()
		os.Remove(filepath.Join(c.dir, socketName)) // best effort: the next warden removes it too
	})
}

// serve answers callers, a few at a time, until the control is closed.
func (c *control) serve() {
	var callers sync.WaitGroup
	defer callers.Wait()
	seats := make(chan struct{}, maxCallers)
	for {
		conn, err := c.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		c.note(c.opt.Log, slog.LevelWarn, "control socket takes no callers", err)
		if err != nil {
			time.Sleep(100 * time.Millisecond) // out of descriptors: do not spin
			continue
		}
		seats <- struct{}{}
		callers.Go(func() {
			defer func() { conn.Close(); <-seats }()
			c.answerOne(conn)
		})
	}
}

func (c *control) answerOne(conn *net.UnixConn) {
	if err := allowed(conn); err != nil {
		c.opt.Log.Warn("control socket", "err", err)
		return
	}
	var req request
	conn.SetReadDeadline(time.Now().Add(callerLimit))
	var a answer
	if err := json.NewDecoder(io.LimitReader(conn, maxRequest)).Decode(&req); err != nil {
		a.Error = "request: " + err.Error()
	} else {
		a = c.handle(req)
	}
	conn.SetWriteDeadline(time.Now().Add(callerLimit))
	if err := json.NewEncoder(conn).Encode(a); err != nil {
		c.opt.Log.Warn("control socket: caller did not take the answer", "op", req.Op, "err", err)
	}
}

// allowed says that the caller is root or the warden's own user.
func allowed(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var cerr error
	if err := raw.Control(func(fd uintptr) { cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return err
	}
	if cerr != nil {
		return cerr
	}
	if cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
		return fmt.Errorf("user %d is not allowed", cred.Uid)
	}
	return nil
}

func (c *control) handle(req request) answer {
	switch req.Op {
	case opList:
		return answer{Status: c.status()}
	case opRestore:
		deadline := stopLimit
		if req.DeadlineMS > 0 {
			deadline = min(time.Duration(req.DeadlineMS)*time.Millisecond, time.Minute)
		}
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		defer cancel()
		report, err := c.restoreAll(ctx, req.NoLatch)
		return answer{Report: &report, Error: text(err)}
	case opResume:
		was, err := c.resume()
		return answer{Resumed: was, Error: text(err)}
	case opHandover:
		c.mu.Lock()
		c.handed = true
		c.mu.Unlock()
		c.opt.Log.Warn("handing over to a successor: the caps stay")
		c.end(nil)
		return answer{}
	}
	return answer{Error: fmt.Sprintf("request: unknown operation %.20q", req.Op)}
}

func (w *warden) status() *Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &Status{
		PID: os.Getpid(), EngineStarts: w.starts, BadMessages: w.bad.n.Load(),
		Enabled: w.opt.Enabled, Latched: w.latch.closed(), Devices: w.snapshots(),
	}
	if w.engine != nil {
		s.EnginePID = w.engine.pid
	}
	return s
}

// restoreAll gives everything back while the warden lives. The latch is closed
// first, so that no rule sets a cap again in between.
func (w *warden) restoreAll(ctx context.Context, noLatch bool) (Report, error) {
	var latchErr error
	if !noLatch {
		latchErr = w.latch.close()
	}
	results := w.restoreEach(ctx, false)
	w.report("caps restore", results)
	r := Report{Devices: results, Latched: w.latch.closed(), Living: true}
	return r, errors.Join(latchErr, r.err())
}

// resume ends the latch and clears the suspects; was says that there was one
// or the other.
func (w *warden) resume() (was bool, err error) {
	was = w.latch.closed() || w.journal.anySuspect()
	if err := w.cleared(); err != nil {
		return was, err
	}
	if err := w.latch.open(); err != nil {
		return was, err
	}
	if was {
		w.opt.Log.Info("latch opened")
	}
	return was, nil
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
