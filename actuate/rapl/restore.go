package rapl

import (
	"errors"
	"fmt"

	"github.com/wattloop/wattloop/actuate"
)

// Restore implements actuate.Device. It writes the contents that the state holds
// back to each limit that differs, so that it may be called again at no cost. A
// limit that fails does not keep the others from being restored. A state with a
// file that is not this device's, or without a number in it, is refused whole:
// it comes from a journal that may be damaged.
func (d *device) Restore(state actuate.State) error {
	wanted := map[string]uint64{}
	for file, text := range state.Files {
		if !d.owns(file) {
			return fmt.Errorf("rapl: %s: %s is no limit of this package: nothing restored", d.name, file)
		}
		n, err := parse(file, text)
		if err != nil {
			return fmt.Errorf("rapl: %s: to restore: %w: nothing restored", d.name, err)
		}
		wanted[file] = n
	}
	if len(wanted) == 0 {
		return fmt.Errorf("rapl: %s: a state without files: nothing to restore", d.name)
	}
	var failed []error
	for _, p := range d.parts {
		for _, file := range d.order(p, wanted) {
			if err := d.putBack(file, wanted[file], state.Files[file]); err != nil {
				failed = append(failed, d.error(p, writeHint(err)))
			}
		}
	}
	return errors.Join(failed...)
}

func (d *device) owns(file string) bool {
	for _, p := range d.parts {
		if file == p.long.LimitFile || file == p.shortFile && file != "" {
			return true
		}
	}
	return false
}

// order is the one in which the short-term limit does not fall below the
// long-term one on the way: first of all when it rises.
func (d *device) order(p part, wanted map[string]uint64) []string {
	var files []string
	if _, ok := wanted[p.long.LimitFile]; ok {
		files = append(files, p.long.LimitFile)
	}
	target, ok := wanted[p.shortFile]
	if !ok {
		return files
	}
	if now, err := d.limit(p.shortFile); err == nil && target < now {
		return append(files, p.shortFile)
	}
	return append([]string{p.shortFile}, files...)
}

func (d *device) putBack(file string, want uint64, text string) error {
	if now, err := d.limit(file); err == nil && now == want {
		delete(d.lowered, file)
		return nil
	}
	if err := d.fs.WriteString(file, text); err != nil {
		return err
	}
	delete(d.lowered, file)
	return nil
}
