package warden

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wattloop/wattloop/actuate"
)

// ErrNotRunning is returned where only a living warden can answer.
var ErrNotRunning = errors.New("no warden is running")

// ErrHangs is returned where a warden is at work that does not answer in time.
var ErrHangs = errors.New("the warden does not answer")

// Report says what became of every device when a person asked for the
// originals.
type Report struct {
	Devices []Restored `json:"devices"`
	Latched bool       `json:"latched"` // every control is held back until Resume
	Living  bool       `json:"living"`  // a running warden did it
}

// err names the devices that could not be given back.
func (r Report) err() error {
	var errs []error
	for _, d := range r.Devices {
		if d.Result == actuate.Error {
			errs = append(errs, fmt.Errorf("warden: %s: %s", d.Device, d.Message))
		}
	}
	return errors.Join(errs...)
}

// RestoreAll gives every device its original back and holds every control back
// until Resume, unless noLatch says otherwise. Where a warden lives it is asked
// to; where none does, this process takes its place for the moment. It tries
// until ctx ends, within five seconds where ctx has no end of its own.
//
// With noLatch, which is for the end of the service, caps that a clean stop
// left standing (on_stop: hold) or that a warden has just handed over stay.
//
// The error names the devices that were not given back; the report is good
// with it. Only the paths, Devices, Clock, BootID and Log of o are used, and
// Fault by tests.
func RestoreAll(ctx context.Context, o Options, noLatch bool) (Report, error) {
	ctx, cancel := withLimit(ctx, stopLimit)
	defer cancel()
	w, err := open(o)
	if errors.Is(err, ErrLocked) {
		return askRestore(ctx, o.RunPath, noLatch, err)
	}
	if err != nil {
		return Report{}, err
	}
	defer w.close()
	var latchErr error
	if !noLatch {
		latchErr = w.latch.close()
	}
	results := w.takeOverAll(inheritance{
		handover: noLatch && w.intents.tokenFresh(w.boot, w.opt.Clock()), kept: noLatch, alone: true,
	})
	for i, k := range w.knobs {
		if r := results[i]; r.Result == actuate.Error && r.Reason == actuate.ReasonRestoreFailed {
			results[i] = k.giveBackUntil(ctx, false)
		}
	}
	w.report("caps restore", results)
	report := Report{Devices: results, Latched: w.latch.closed()}
	return report, errors.Join(latchErr, report.err())
}

func askRestore(ctx context.Context, runPath string, noLatch bool, locked error) (Report, error) {
	req := request{Op: opRestore, NoLatch: noLatch}
	if end, ok := ctx.Deadline(); ok {
		req.DeadlineMS = max(time.Until(end).Milliseconds()-200, 1) // the answer needs its time too
	}
	a, err := ask(ctx, runPath, req)
	if errors.Is(err, ErrNotRunning) {
		var tree *TreeLockedError
		if errors.As(locked, &tree) { // by a warden with another run.path
			return Report{}, locked
		}
		return Report{}, errors.Join(locked, err) // it starts or ends just now
	}
	if err != nil {
		return Report{}, err
	}
	if a.Report == nil {
		return Report{}, a.err()
	}
	return *a.Report, a.err()
}

// Resume ends the latch of RestoreAll, and the standstill of devices whose
// originals were lost. It says whether there was anything to end; where no
// warden has ever been it makes no folder.
func Resume(ctx context.Context, o Options) (was bool, err error) {
	ctx, cancel := withLimit(ctx, stopLimit)
	defer cancel()
	if missing(o.StatePath) {
		if missing(o.RunPath) {
			return false, nil
		}
		a, err := ask(ctx, o.RunPath, request{Op: opResume}) // one with another state.path, if any
		if errors.Is(err, ErrNotRunning) {
			return false, nil
		}
		return a.Resumed, errors.Join(err, a.err())
	}
	w, err := open(o)
	if errors.Is(err, ErrLocked) {
		locked := err
		a, err := ask(ctx, o.RunPath, request{Op: opResume})
		if errors.Is(err, ErrNotRunning) {
			err = locked
		}
		return a.Resumed, errors.Join(err, a.err())
	}
	if err != nil {
		return false, err
	}
	defer w.close()
	return w.resume()
}

// missing says that no warden has ever had its folder under path.
func missing(path string) bool {
	_, err := os.Lstat(filepath.Join(path, "warden"))
	return errors.Is(err, os.ErrNotExist)
}

// List asks the living warden for its state; ErrNotRunning when there is none.
func List(ctx context.Context, runPath string) (Status, error) {
	ctx, cancel := withLimit(ctx, stopLimit)
	defer cancel()
	a, err := ask(ctx, runPath, request{Op: opList})
	if err != nil {
		return Status{}, err
	}
	if a.Status == nil {
		return Status{}, errors.Join(errors.New("warden: an answer without a status"), a.err())
	}
	return *a.Status, a.err()
}

// Handover has the living warden end and leave its caps standing, for a
// successor that starts within 30 s. One that comes later gives them back.
func Handover(ctx context.Context, runPath string) error {
	ctx, cancel := withLimit(ctx, stopLimit)
	defer cancel()
	a, err := ask(ctx, runPath, request{Op: opHandover})
	return errors.Join(err, a.err())
}

func (a answer) err() error {
	if a.Error == "" {
		return nil
	}
	return errors.New(a.Error)
}

// ask sends one request to the living warden. A warden that has its lock but
// not yet its socket is waited for.
func ask(ctx context.Context, runPath string, req request) (answer, error) {
	dir := filepath.Join(runPath, "warden")
	began := time.Now()
	conn, err := dial(ctx, dir)
	if hangs(ctx, err) {
		return answer{}, hanging(dir, time.Since(began))
	}
	if err != nil {
		return answer{}, fmt.Errorf("warden: %s: %w", filepath.Join(dir, socketName), err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	var a answer
	err = json.NewEncoder(conn).Encode(req)
	if err == nil {
		err = json.NewDecoder(io.LimitReader(conn, maxAnswer)).Decode(&a)
	}
	switch {
	case err == nil:
		return a, nil
	case hangs(ctx, err):
		return a, hanging(dir, time.Since(began))
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	return a, fmt.Errorf("warden: %s: answer: %w", filepath.Join(dir, socketName), err)
}

// hangs says that err comes of a warden that does not answer: the time is over,
// or so many callers wait already that it takes no more.
func hangs(ctx context.Context, err error) bool {
	return err != nil && (errors.Is(ctx.Err(), context.DeadlineExceeded) && !errors.Is(err, ErrNotRunning) || errors.Is(err, unix.EAGAIN))
}

// hanging tells a person whom to end.
func hanging(dir string, waited time.Duration) error {
	who, way := "its process is stopped or hangs", "kill it"
	if pid := keeper(dir); pid > 0 {
		who, way = fmt.Sprintf("process %d is stopped or hangs", pid), fmt.Sprintf("kill -9 %d", pid)
	}
	return fmt.Errorf("warden: %s: %w within %s: %s: %s, and run this again",
		filepath.Join(dir, socketName), ErrHangs, waited.Round(100*time.Millisecond), who, way)
}

func dial(ctx context.Context, dir string) (net.Conn, error) {
	for tries := 0; ; tries++ {
		var conn net.Conn
		err := shortPath(dir, func(short string) (err error) {
			conn, err = (&net.Dialer{}).DialContext(ctx, "unix", short)
			return err
		})
		missing := errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED)
		switch {
		case err == nil:
			return conn, nil
		case missing && (tries == 5 || ctx.Err() != nil):
			return nil, ErrNotRunning
		case !missing:
			return nil, err
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// withLimit bounds a ctx that has no end of its own.
func withLimit(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if _, bounded := ctx.Deadline(); bounded {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, limit)
}
