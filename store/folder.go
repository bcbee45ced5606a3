package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// lockName is the TSDB's own name for it, so that Prometheus's tools stay out
// of a store in use as well.
const lockName = "lock"

// prepareFolder makes the folder, readable by its owner alone. A folder that
// was there is closed to others too, but only one that is empty or holds a
// store: a wrong path must not take /tmp away from everyone.
func prepareFolder(path string, logger *slog.Logger) error {
	if path == "" {
		return errors.New("store: no folder given: set storage.path")
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		if ours, err := emptyOrStore(path); err != nil {
			return fmt.Errorf("store: %w", err)
		} else if !ours {
			logger.Warn("data folder is open to other users and holds more than a store, its mode is left alone", "path", path, "mode", info.Mode().Perm())
		} else if err := os.Chmod(path, 0o700); err != nil {
			return fmt.Errorf("store: %w", err)
		}
	}
	// What a Reopen was writing when the process died.
	for _, log := range logNames {
		leftover, _ := fs.Glob(os.DirFS(path), log+"/*"+rewriteSuffix)
		for _, f := range leftover {
			if err := os.Remove(filepath.Join(path, f)); err != nil {
				return fmt.Errorf("store: %w", err)
			}
		}
	}
	return nil
}

func emptyOrStore(path string) (bool, error) {
	names, err := os.ReadDir(path)
	if err != nil {
		return false, err
	}
	for _, n := range names {
		if n.Name() == logNames[0] {
			return true, nil
		}
	}
	return len(names) == 0, nil
}

// lockFolder holds the folder until the file is closed or the process ends, by
// whatever death. The file stays: to remove it would let two processes each
// lock a file of that name.
func lockFolder(path string) (*os.File, error) {
	name := filepath.Join(path, lockName)
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("store: lock %s: %w", name, err)
		}
		holder := "another process"
		if pid, err := io.ReadAll(io.LimitReader(f, 20)); err == nil && len(pid) > 0 {
			holder = "process " + strings.TrimSpace(string(pid))
		}
		return nil, fmt.Errorf("store: %s: %w by %s: stop it, or choose another folder", path, ErrLocked, holder)
	}
	// The pid is for the message above; the lock holds without it.
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt(fmt.Appendln(nil, os.Getpid()), 0)
	}
	return f, nil
}

// syncFolders makes the names of the store's folders durable, its own included.
func syncFolders(path string) error {
	for _, dir := range []string{path, filepath.Dir(path)} {
		f, err := os.Open(dir)
		if errors.Is(err, fs.ErrPermission) && dir != path {
			continue // not ours to read, so not ours to have made a folder in
		}
		if err != nil {
			return err
		}
		err = f.Sync()
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("fsync %s: %w", dir, err)
		}
	}
	return nil
}

// freeBytes is what an ordinary user may still write on the disk of path.
func freeBytes(path string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, fmt.Errorf("statfs %s: %w", path, err)
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}

// checkSpace answers ErrDiskFull below the watermark. The TSDB kills its
// process when it cannot write, so it is never let come that far.
func (db *DB) checkSpace() error {
	if db.o.MinFree < 0 {
		return nil
	}
	free, err := db.freeBytes(db.o.Path)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if free < db.o.MinFree {
		return fmt.Errorf("store: %s: %w: %d MiB free, %d MiB wanted: free some, samples are taken again by themselves", db.o.Path, ErrDiskFull, free>>20, db.o.MinFree>>20)
	}
	return nil
}
