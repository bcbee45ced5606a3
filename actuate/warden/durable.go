package warden

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/wattloop/wattloop/internal/disk"
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
	return disk.SyncFolder(filepath.Dir(path))
}

// replaceFile puts data in the place of dir/name, for what need not outlive the
// machine.
func replaceFile(dir, name string, data []byte) error {
	return disk.File{Path: filepath.Join(dir, name), Hasty: true}.Replace(data)
}

// replaceDurably is replaceFile and returns when the new content also survives
// the loss of power.
func replaceDurably(dir, name string, data []byte, fault func(string)) error {
	return disk.File{Path: filepath.Join(dir, name), Sync: func(f *os.File) error {
		if f.Name() == dir {
			fault(FaultRenamed)
			return f.Sync()
		}
		err := f.Sync()
		if err == nil {
			fault(FaultTmpWritten)
		}
		return err
	}}.Replace(data)
}
