package warden

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrLocked is returned when another process is the warden of this state.path
// or run.path, or of the tree that the devices lie in.
var ErrLocked = errors.New("another warden is at work")

// TreeLockedError says that another process holds the tree of the devices,
// whatever its paths are. It is an ErrLocked.
type TreeLockedError struct {
	Tree string
	PID  int // of the process that holds it; 0 is unknown
}

func (e *TreeLockedError) Error() string {
	who := ""
	if e.PID > 0 {
		who = fmt.Sprintf(" (process %d)", e.PID)
	}
	return fmt.Sprintf("warden: %s: %v%s on the devices of this tree", e.Tree, ErrLocked, who)
}

func (e *TreeLockedError) Unwrap() error { return ErrLocked }

// takeTree locks the folder that the devices lie in, so that two wardens with
// folders of their own cannot both take the cap of the other for an original.
// flock(2) locks a folder that is only read, and in sysfs as everywhere. The
// lock is the file system's: a container with a sysfs mount of its own, in a
// network namespace of its own, has another.
func takeTree(path string) (*os.File, error) {
	d, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("warden: %w", err)
	}
	err = unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return d, nil
	}
	defer d.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, &TreeLockedError{Tree: path, PID: holder(d)}
	}
	return nil, fmt.Errorf("warden: lock: %s: %w", path, err)
}

// holder is the process that holds the flock of a file, by /proc/locks
// (proc_locks(5)), or 0.
func holder(f *os.File) int {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0
	}
	b, err := os.ReadFile("/proc/locks")
	if err != nil {
		return 0
	}
	id := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 6 || f[1] != "FLOCK" || f[5] != id {
			continue
		}
		if pid, err := strconv.Atoi(f[4]); err == nil && pid > 0 {
			return pid
		}
	}
	return 0
}

// lock is held by the one process that may write to the hardware.
type lock struct {
	path string
	file *os.File
}

// takeLock locks dir/lock. The lock belongs to the open file (F_OFD_SETLK), so
// that it ends with the process and no other close of the same file drops it.
func takeLock(dir string) (*lock, error) {
	l := &lock{path: filepath.Join(dir, "lock")}
	f, err := l.take()
	if err != nil {
		return nil, err
	}
	l.file = f
	return l, nil
}

func (l *lock) take() (*os.File, error) {
	f, err := os.OpenFile(l.path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("warden: %w", err)
	}
	whole := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &whole)
	if err != nil {
		f.Close()
	}
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return nil, fmt.Errorf("warden: %s: %w", l.path, ErrLocked)
	}
	if err != nil {
		return nil, fmt.Errorf("warden: lock: %s: %w", l.path, err)
	}
	// For the people that look for the holder; the lock is as good without.
	if f.Truncate(0) == nil {
		fmt.Fprintln(f, os.Getpid())
	}
	return f, nil
}

// keeper is the process that has written itself into the lock of dir, or 0.
func keeper(dir string) int {
	b, err := os.ReadFile(filepath.Join(dir, "lock"))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return pid
}

// check sees to it that the name still stands for the file that is locked. A
// lock file that somebody removed is made anew, unless another process was
// quicker: then this one is no longer the warden and the error is ErrLocked.
func (l *lock) check() error {
	var held, named unix.Stat_t
	if err := unix.Fstat(int(l.file.Fd()), &held); err != nil {
		return fmt.Errorf("warden: lock: %s: %w", l.path, err)
	}
	if err := unix.Lstat(l.path, &named); err == nil && named.Ino == held.Ino && named.Dev == held.Dev {
		return nil
	}
	f, err := l.take()
	if err != nil {
		return err
	}
	l.file.Close()
	l.file = f
	return nil
}

// drop unlocks. The file stays: removing it would let two processes lock two
// files of one name.
func (l *lock) drop() { l.file.Close() }
