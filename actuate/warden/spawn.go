package warden

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wattloop/wattloop/actuate"
)

// Spawn says how the engine is started. It finds its end of the connection to
// the warden at descriptor 3 (actuate.Connect).
type Spawn struct {
	Path           string   // "" is /proc/self/exe: this very binary, wherever its file is by now
	Args           []string // the first is its name
	Env            []string // nil: the warden's own
	Dir            string
	Credential     *syscall.Credential // nil: the warden's own user
	Stdout, Stderr *os.File            // nil is /dev/null
	// Watchdog is how long the engine may be silent before it is killed and
	// started again; 0 is 10 s. It is wall time.
	Watchdog time.Duration
}

const defaultWatchdog = 10 * time.Second

// ExitError is returned by Run when the engine ended before it had ever said
// that it serves: it could not start, and has said why.
type ExitError struct{ Code int }

func (e *ExitError) Error() string {
	return fmt.Sprintf("warden: the engine could not start: exit status %d", e.Code)
}

// engine is one process of the engine.
type engine struct {
	pid    int
	proc   *os.Process
	conn   *actuate.Conn
	born   time.Time
	heard  atomic.Int64 // of the last message, nanoseconds since born
	ready  atomic.Bool
	exited chan struct{}
	state  *os.ProcessState // once exited is closed
}

// start starts an engine. The child dies with the warden: PDEATHSIG counts the
// death of the thread that made the child, so that thread is locked to a
// goroutine which stays until the child is gone.
func (s *Spawn) start() (*engine, error) {
	ours, theirs, err := pair()
	if err != nil {
		return nil, fmt.Errorf("warden: engine: %w", err)
	}
	defer theirs.Close()
	conn, err := actuate.NewConn(ours)
	if err != nil {
		return nil, fmt.Errorf("warden: engine: %w", err)
	}
	cmd := &exec.Cmd{
		Path: s.Path, Args: s.Args, Env: s.Env, Dir: s.Dir,
		ExtraFiles:  []*os.File{theirs}, // the first of them is descriptor 3
		SysProcAttr: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: s.Credential},
	}
	if cmd.Path == "" {
		cmd.Path = "/proc/self/exe"
	}
	if s.Stdout != nil {
		cmd.Stdout = s.Stdout
	}
	if s.Stderr != nil {
		cmd.Stderr = s.Stderr
	}
	e := &engine{conn: conn, born: time.Now(), exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The thread is never unlocked: it ends with this goroutine, and with it
		// the no_new_privs that it was given for the child to inherit.
		runtime.LockOSThread()
		err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			started <- err
			return
		}
		e.pid, e.proc = cmd.Process.Pid, cmd.Process
		started <- nil
		// The error repeats what the state says: how the engine ended.
		_ = cmd.Wait()
		e.state = cmd.ProcessState
		close(e.exited)
	}()
	if err := <-started; err != nil {
		conn.Close()
		return nil, fmt.Errorf("warden: engine: %w", err)
	}
	return e, nil
}

// pair is a socket pair that keeps messages whole and tells the end of a peer.
func pair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "engine"), os.NewFile(uintptr(fds[1]), "warden"), nil
}

// hear notes a sign of life.
func (e *engine) hear() { e.heard.Store(int64(time.Since(e.born))) }

// silent is how long nothing has been heard.
func (e *engine) silent() time.Duration { return time.Since(e.born) - time.Duration(e.heard.Load()) }

// kill ends the process at once, stopped or not. It fails only when it has
// ended already.
func (e *engine) kill() { _ = e.proc.Kill() }

// Pauses between the death of an engine and the start of the next: the first
// at once, for a lease is running out, then longer.
const (
	firstPause = 100 * time.Millisecond
	longPause  = 5 * time.Second
	longLife   = 30 * time.Second // after which the pauses begin anew
)

// supervise keeps an engine running until ctx ends.
func (w *warden) supervise(ctx context.Context) {
	wait := firstPause
	served := false // some engine has ever been ready
	for ctx.Err() == nil {
		e, err := w.opt.Engine.start()
		w.note(w.opt.Log, slog.LevelError, "engine not started", err)
		if err != nil {
			if !served {
				w.end(errors.Join(&ExitError{Code: 1}, err))
				return
			}
		} else {
			w.attend(e)
			served = served || e.ready.Load()
			if ctx.Err() != nil {
				return
			}
			if code := e.state.ExitCode(); code >= 0 && !served {
				w.end(&ExitError{Code: code})
				return
			}
			const again = "engine has ended: starting it again"
			if time.Since(e.born) > longLife {
				wait = firstPause
				w.forgetTrouble(again)
			}
			w.note(w.opt.Log, slog.LevelError, again, errors.New(e.state.String()), "pid", e.pid, "after", wait)
		}
		pause(ctx, wait)
		wait = min(2*wait, longPause)
	}
}

// attend serves one engine until its process has ended.
func (w *warden) attend(e *engine) {
	w.mu.Lock()
	w.engine, w.starts = e, w.starts+1
	stopping := w.stopping
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.engine = nil
		w.mu.Unlock()
	}()
	if stopping {
		e.kill()
	} else if w.opt.Started != nil {
		w.opt.Started(e.pid)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := w.serve(e); err != nil {
			w.opt.Log.Error("connection to the engine broke", "err", err)
		}
		// An engine without its connection can do nothing but end.
		select {
		case <-e.exited:
		case <-time.After(engineLimit):
			e.kill()
		}
	}()
	<-e.exited
	e.conn.Close()
	<-served
}

// judgeEngine kills an engine that has been silent for too long.
func (w *warden) judgeEngine() {
	w.mu.Lock()
	e := w.engine
	w.mu.Unlock()
	limit := orDefault(w.opt.Engine.Watchdog, defaultWatchdog)
	if e == nil || e.silent() <= limit {
		return
	}
	w.opt.Log.Error("engine hangs: killing it", "pid", e.pid, "silent", e.silent().Round(time.Millisecond))
	e.kill()
}

// stopEngine orders the engine to end, and ends it when it does not.
func (w *warden) stopEngine() {
	w.mu.Lock()
	w.stopping = true
	e := w.engine
	w.mu.Unlock()
	if e == nil {
		return
	}
	if err := e.conn.Send(actuate.Message{Type: actuate.TypeStop}); err != nil {
		w.opt.Log.Warn("engine could not be told to end", "err", err)
		e.kill()
	}
	limit := time.NewTimer(engineLimit)
	defer limit.Stop()
	select {
	case <-e.exited:
	case <-limit.C:
		w.opt.Log.Error("engine does not end: killing it", "pid", e.pid)
		e.kill()
	}
}
