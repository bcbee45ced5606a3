package warden

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// prepare makes the folders that the engine needs and gives them to its user.
// In state.path and run.path that user may make files of its own; they stay
// root's and sticky, so that it cannot move the warden's folders away.
func (w *warden) prepare() error {
	cred := w.opt.Engine.Credential
	if cred != nil {
		for _, dir := range []string{w.opt.StatePath, w.opt.RunPath} {
			if err := w.give(dir, os.Geteuid(), int(cred.Gid), 0o1770, "warden"); err != nil {
				return err
			}
		}
	}
	for _, dir := range w.opt.Dirs {
		if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
			return fmt.Errorf("warden: %w", err)
		}
		if err := os.Mkdir(dir, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("warden: %w", err)
		}
		if cred == nil {
			continue
		}
		if err := w.give(dir, int(cred.Uid), int(cred.Gid), 0o750); err != nil {
			return err
		}
	}
	return nil
}

// give changes the owner and mode of a folder in which nothing lies but what
// own names. One that is in use already is left as its owner made it: a path
// mistyped as / or /var must not change hands.
func (w *warden) give(dir string, uid, gid int, mode uint32, own ...string) error {
	d, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("warden: %w", err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("warden: %w", err)
	}
	if slices.ContainsFunc(names, func(n string) bool { return !slices.Contains(own, n) }) {
		return nil
	}
	if err := d.Chown(uid, gid); err != nil {
		return fmt.Errorf("warden: %w", err)
	}
	// Not d.Chmod: os.FileMode spells the sticky bit differently.
	if err := unix.Fchmod(int(d.Fd()), mode); err != nil {
		return fmt.Errorf("warden: %s: %w", dir, err)
	}
	return nil
}
