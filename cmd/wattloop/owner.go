package main

import (
	"fmt"
	"os"
	"syscall"
)

// ownersOnly refuses a warden's file that somebody else than root could write
// while this runs as root: whoever writes it decides what is done to the
// hardware. The folder that it lies in is the owner's to keep.
func ownersOnly(path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	fi, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, bare(err))
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || st.Uid != 0 || fi.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s: only root may write the warden's file, and this one can be written by others: chown root %s && chmod go-w %s", path, path, path)
	}
	return nil
}
