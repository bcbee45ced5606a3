package warden

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// makePrivate makes a folder that is the warden's alone, and its parents. One
// that others own or may write is refused: what it holds is trusted.
func makePrivate(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("warden: %w", err)
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("warden: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return fmt.Errorf("warden: %s: %w", path, err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("warden: %s: not a folder", path)
	case int(st.Uid) != os.Geteuid():
		return fmt.Errorf("warden: %s: belongs to user %d, want %d: remove it or give it back", path, st.Uid, os.Geteuid())
	case st.Mode&0o077 != 0:
		return os.Chmod(path, 0o700)
	}
	return syncDir(filepath.Dir(path))
}

// replaceFile puts data in the place of dir/name so that a reader, or the next
// start after a kill at any instant, finds the old content or the new one,
// whole. It does not wait for the disk.
func replaceFile(dir, name string, data []byte) error {
	return replace(dir, name, data, false, func(string) {})
}

// replaceDurably is replaceFile and returns when the new content also survives
// the loss of power.
func replaceDurably(dir, name string, data []byte, fault func(string)) error {
	return replace(dir, name, data, true, fault)
}

func replace(dir, name string, data []byte, durable bool, fault func(string)) (err error) {
	tmp := filepath.Join(dir, name+".tmp")
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(tmp) // best effort: the next write truncates it
		}
	}()
	_, err = f.Write(data)
	if err == nil && durable {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	fault(FaultTmpWritten)
	if err := os.Rename(tmp, filepath.Join(dir, name)); err != nil {
		return err
	}
	fault(FaultRenamed)
	if !durable {
		return nil
	}
	return syncDir(dir)
}

// syncDir makes the names in a folder durable.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
