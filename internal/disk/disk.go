// Package disk replaces whole files, so that a crash at any instant leaves the
// old content or the new one and never a part. It knows no formats and makes no
// folders.
package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Unfinished ends the name of a file that is being written. One that a crash has
// left is removed by the next Replace of the same path.
const Unfinished = ".tmp"

// File is a file that is only ever replaced whole. One goroutine at a time may
// replace a path.
type File struct {
	Path string
	Mode fs.FileMode // whatever the umask; 0: 0600
	// Hasty does not wait for the disk: the content outlives the process, and a
	// loss of power may leave the file empty or old.
	Hasty bool
	// Sync is called with the file that is written beside Path, and after the
	// rename with Path's folder. Nil: (*os.File).Sync, which it is but for tests.
	Sync func(*os.File) error
}

// Replace puts data in the place of what the file holds. After an error it holds
// the old content still; the new one only where the folder alone could not be
// synced. The error names Path.
func (f File) Replace(data []byte) error {
	next, err := f.begin()
	if err != nil {
		return f.failed(err)
	}
	err = next.Chmod(f.mode())
	if err == nil {
		_, err = next.Write(data)
	}
	if err == nil && !f.Hasty {
		err = f.sync(next)
	}
	if err = errors.Join(err, next.Close()); err == nil {
		err = os.Rename(next.Name(), f.Path)
	}
	if err != nil {
		_ = os.Remove(next.Name()) // otherwise the next Replace does
		return f.failed(err)
	}
	if f.Hasty {
		return nil
	}
	return f.failed(syncFolder(filepath.Dir(f.Path), f.sync))
}

// begin makes the file that is written beside Path. It never opens one that is
// there: that may be a link, or somebody else's.
func (f File) begin() (*os.File, error) {
	name := f.Path + Unfinished
	next, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, f.mode())
	if !errors.Is(err, fs.ErrExist) {
		return next, err
	}
	if err := os.Remove(name); err != nil {
		return nil, err
	}
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, f.mode())
}

func (f File) mode() fs.FileMode {
	if f.Mode == 0 {
		return 0o600
	}
	return f.Mode
}

func (f File) sync(file *os.File) error {
	if f.Sync == nil {
		return file.Sync()
	}
	return f.Sync(file)
}

// failed names the path that the caller knows, once, in the place of the names
// in between.
func (f File) failed(err error) error {
	if err == nil {
		return nil
	}
	var at *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &at) && at.Op == "remove":
		return err // what is in the way has a name of its own
	case errors.As(err, &at):
		err = at.Err
	case errors.As(err, &link):
		err = link.Err
	}
	return &fs.PathError{Op: "replace", Path: f.Path, Err: err}
}

// Remove removes a file, durably. That there is none is no error.
func Remove(path string) error {
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return SyncFolder(filepath.Dir(path))
}

// SyncFolder makes the names in a folder outlive a loss of power.
func SyncFolder(path string) error { return syncFolder(path, (*os.File).Sync) }

func syncFolder(path string, sync func(*os.File) error) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(sync(dir), dir.Close())
}
