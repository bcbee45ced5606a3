package sim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/wattloop/wattloop/sysfs"
)

const (
	devices = "devices/virtual/powercap/intel-rapl"
	class   = "class/powercap"
	// Ranges at which the counters wrap, microjoules.
	packageRange = 262143328850
	memoryRange  = 65712999613
	longTerm     = 250 // watts
	shortTerm    = 300
)

// tree is the node's sysfs as the kernel lays it out: the zones nest below
// devices, and class has a link to each.
type tree struct{ fs sysfs.FS }

// file is one attribute to lay.
type file struct {
	path, contents string
	mode           os.FileMode
}

// lay makes the tree, or brings one that is there back to its beginning.
func (t tree) lay(packages, memories []*unit) error {
	var files []file
	links := map[string]string{}
	add := func(dir, name, contents string, mode os.FileMode) {
		files = append(files, file{path.Join(dir, name), contents, mode})
	}
	link := func(dir string) { links[path.Join(class, path.Base(dir))] = path.Join("../..", dir) }

	add(devices, "enabled", "1", 0o644)
	link(devices)
	for i := range packages {
		dir := zone(i)
		link(dir)
		add(dir, "name", fmt.Sprintf("package-%d", i), 0o444)
		add(dir, "enabled", "1", 0o644)
		add(dir, "max_energy_range_uj", strconv.Itoa(packageRange), 0o444)
		add(dir, "energy_uj", packages[i].counter(packageRange), 0o600) // its owner writes it; the kernel's is 0400
		for j, c := range []struct {
			name       string
			limit, max int
			window     string
		}{{sysfs.LongTerm, longTerm, longTerm, "999424"}, {sysfs.ShortTerm, shortTerm, 0, "7808"}} {
			prefix := fmt.Sprintf("constraint_%d_", j)
			add(dir, prefix+"name", c.name, 0o444)
			add(dir, prefix+"power_limit_uw", strconv.Itoa(c.limit*1e6), 0o644)
			add(dir, prefix+"time_window_us", c.window, 0o644)
			add(dir, prefix+"max_power_uw", strconv.Itoa(c.max*1e6), 0o444)
		}
	}
	for i := range memories {
		dir := memoryZone(i)
		link(dir)
		add(dir, "name", "dram", 0o444)
		add(dir, "enabled", "0", 0o644)
		add(dir, "max_energy_range_uj", strconv.Itoa(memoryRange), 0o444)
		add(dir, "energy_uj", memories[i].counter(memoryRange), 0o600)
	}
	return t.make(files, links)
}

func (t tree) make(files []file, links map[string]string) error {
	for _, f := range files {
		name := filepath.Join(t.fs.Root, f.path)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		// A read-only attribute of an earlier run cannot be opened, but replaced.
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.WriteFile(name, []byte(f.contents+"\n"), f.mode); err != nil {
			return err
		}
	}
	for name, target := range links {
		name = filepath.Join(t.fs.Root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(target, name); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

func zone(i int) string       { return fmt.Sprintf("%s/intel-rapl:%d", devices, i) }
func memoryZone(i int) string { return fmt.Sprintf("%s/intel-rapl:%d:0", zone(i), i) }

// limit reads what caps package i, in watts: the lower of its two limits, or
// nothing where the zone is switched off. The kernel refuses what is no number;
// here it leaves the limit as it was, since a person's `echo >` empties the file
// first.
func (t tree) limit(i int, was float64) (float64, error) {
	dir := path.Join(class, path.Base(zone(i)))
	enabled, err := t.fs.ReadString(path.Join(dir, "enabled"))
	if err != nil {
		return 0, err
	}
	if strings.TrimSpace(enabled) == "0" {
		return 0, nil
	}
	lowest := 0.0
	for j := range 2 {
		text, err := t.fs.ReadString(path.Join(dir, fmt.Sprintf("constraint_%d_power_limit_uw", j)))
		if err != nil {
			return 0, err
		}
		uw, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
		if err != nil || uw == 0 {
			return was, nil
		}
		if w := float64(uw) / 1e6; lowest == 0 || w < lowest {
			lowest = w
		}
	}
	return lowest, nil
}

// energy writes every counter.
func (t tree) energy(packages, memories []*unit) error {
	for i, u := range packages {
		if err := t.fs.WriteString(path.Join(zone(i), "energy_uj"), u.counter(packageRange)); err != nil {
			return err
		}
	}
	for i, u := range memories {
		if err := t.fs.WriteString(path.Join(memoryZone(i), "energy_uj"), u.counter(memoryRange)); err != nil {
			return err
		}
	}
	return nil
}

// counter is the unit's energy in microjoules as its file shows it. It began
// somewhere in its range, by the seed, and wraps at its end.
func (u *unit) counter(wraps uint64) string {
	return strconv.FormatUint((u.seed%wraps+uint64(u.joules*1e6))%wraps, 10)
}
