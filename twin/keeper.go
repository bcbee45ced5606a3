package twin

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/wattloop/wattloop/internal/disk"
)

// Keeper holds the target of this machine's node: from a watched file, or as it
// was put, which outlives the process. Without either there is no target, which is
// not a target of 0. Its methods may be called from any goroutine.
type Keeper struct {
	Node string
	Dir  string // where a target that was put is kept, in Dir/NODE/spec.json
	Log  *slog.Logger

	mu      sync.Mutex
	file    string // that is watched, "" for none
	taken   stamp  // of the file, as it was looked at last
	pending stamp  // of the file, as the last Poll saw it
	spec    *Spec
	why     string // why what came last is not taken
}

// stamp tells whether a file may have changed.
type stamp struct {
	mod   time.Time
	size  int64
	inode uint64
	err   string // why there is none; gone for a file that is not there
}

const gone = "gone"

// ErrWatched is why nothing can be put: a file says what the target is.
var ErrWatched = errors.New("the target comes from a file")

// Open takes up what was put before, and begins to watch file if that is not
// empty.
func (k *Keeper) Open(file string) error {
	if file != "" || !ValidNode(k.Node) {
		return k.Watch(file)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	text, err := read(k.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		k.spec, err = ParseSpec(text, k.Node)
	}
	if err != nil {
		k.refuse(place(k.path(), err))
		return nil // the process goes on without a target, and says so
	}
	k.Log.Info("target taken up", "from", k.path())
	return nil
}

func (k *Keeper) path() string { return filepath.Join(k.Dir, k.Node, "spec.json") }

// Watch has the target come from a file from now on, or with "" from Put. Another
// file than before withdraws the target, and what was put is forgotten.
func (k *Keeper) Watch(file string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if file == k.file {
		return nil
	}
	k.file, k.spec, k.why, k.taken, k.pending = file, nil, "", stamp{}, stamp{}
	if file == "" || !ValidNode(k.Node) {
		return nil
	}
	return k.forget()
}

// Poll looks at the file. A change is taken once two looks in a row have seen the
// same, so that a file is not read while it is written. A file that is in error
// changes nothing but what Now says of it.
func (k *Keeper) Poll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.file == "" {
		return
	}
	now := look(k.file)
	before := k.pending
	k.pending = now
	if now == k.taken || now != before {
		return
	}
	k.taken = now
	switch {
	case now.err == gone:
		if k.spec != nil {
			k.Log.Info("target withdrawn", "file", k.file, "why", "the file is gone")
		}
		k.spec, k.why = nil, ""
		return
	case now.err != "":
		k.refuse(k.file + ": error: " + now.err)
		return
	}
	text, err := read(k.file)
	if err == nil {
		var spec *Spec
		if spec, err = ParseSpec(text, k.Node); err == nil {
			k.spec, k.why = spec, ""
			k.Log.Info("target taken", "file", k.file)
			return
		}
	}
	k.refuse(place(k.file, err))
}

// CheckFile says why Watch would not take what stands in file as the target of
// node. No file is no error: there is no target then.
func CheckFile(file, node string) error {
	if file == "" {
		return nil
	}
	switch st := look(file); st.err {
	case "":
	case gone:
		return nil
	default:
		return fmt.Errorf("%s: %s", file, st.err)
	}
	text, err := read(file)
	if err == nil {
		_, err = ParseSpec(text, node)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, bare(err))
	}
	return nil
}

func (k *Keeper) refuse(why string) {
	k.why = why
	goesOn := "there is no target"
	if k.spec != nil {
		goesOn = "the target before it goes on"
	}
	k.Log.Error("target refused", "why", why, "then", goesOn)
}

func place(path string, err error) string {
	var e *SpecError
	if errors.As(err, &e) {
		return e.In(path)
	}
	return path + ": error: " + bare(err).Error()
}

// bare is the operating system's own word, for a message that names the file.
func bare(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// Put takes a document as the target, durably. The error is a *SpecError, or wraps
// ErrWatched.
func (k *Keeper) Put(text []byte) (*Spec, error) {
	spec, err := ParseSpec(text, k.Node)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.free(); err != nil {
		return nil, err
	}
	if err := replace(k.path(), text, false); err != nil {
		return nil, err
	}
	k.spec, k.why = spec, ""
	k.Log.Info("target taken", "from", "the API")
	return spec, nil
}

// Withdraw ends a target that was put. Without one it does nothing.
func (k *Keeper) Withdraw() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.free(); err != nil {
		return err
	}
	if err := k.forget(); err != nil {
		return err
	}
	if k.spec != nil {
		k.Log.Info("target withdrawn", "why", "the API was asked to")
	}
	k.spec, k.why = nil, ""
	return nil
}

// free says whether the target is the API's to set.
func (k *Keeper) free() error {
	switch {
	case k.file != "":
		return fmt.Errorf("%w, %s (twin.spec): write that, or take the key away", ErrWatched, k.file)
	case !ValidNode(k.Node):
		return &SpecError{Text: fmt.Sprintf("the node's name %q can be no file's name: name the node with --node", k.Node)}
	}
	return nil
}

func (k *Keeper) forget() error {
	if err := disk.Remove(k.path()); err != nil {
		return fmt.Errorf("twin: %w", err)
	}
	return nil
}

// Now is the target, nil without one, and why what came last is not taken. The
// Spec is not changed any more.
func (k *Keeper) Now() (*Spec, string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.spec, k.why
}

// Unused is why there is no target though nothing is wrong; "" where there is one,
// or where something is.
func (k *Keeper) Unused() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.spec != nil || k.why != "":
		return ""
	case k.file == "":
		return "no target is set: neither twin.spec nor the API names one"
	case k.taken.err == gone:
		return "no target is set: " + k.file + " is not there"
	}
	return "" // it was not looked at yet
}

// look says how a file stands. Only a plain file that not everybody may write is
// read: what stands in it moves hardware.
func look(path string) stamp {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return stamp{err: gone}
	case err != nil:
		return stamp{err: fmt.Sprintf("%s; user %d must be able to read it", bare(err), os.Geteuid())}
	case !st.Mode().IsRegular():
		return stamp{err: "is no plain file"}
	case st.Mode().Perm()&0o002 != 0:
		return stamp{err: fmt.Sprintf("everybody may write it (mode %#o): chmod o-w %s", st.Mode().Perm(), path)}
	}
	s := stamp{mod: st.ModTime(), size: st.Size()}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		s.inode = sys.Ino
	}
	return s
}

// read is no more of a file than a document may have, and one byte.
func read(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, MaxSpec+1))
}
