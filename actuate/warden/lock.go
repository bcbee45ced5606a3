package warden

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrLocked is returned when another process is the warden of this state.path
// or run.path.
var ErrLocked = errors.New("another warden is at work")

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
	return f, nil
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
