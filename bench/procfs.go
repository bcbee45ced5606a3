package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of the times in /proc/PID/stat: USER_HZ, 100 on every
// Linux that Go runs on.
const clockTick = 10 * time.Millisecond

// family is a process and all that it has started, itself first.
func family(pid int) ([]int, error) {
	all := []int{pid}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil, err
	}
	if len(threads) == 0 {
		return nil, fmt.Errorf("process %d is gone", pid)
	}
	for _, path := range threads {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // a thread that has ended
		}
		for _, word := range strings.Fields(string(b)) {
			child, err := strconv.Atoi(word)
			if err != nil {
				return nil, fmt.Errorf("%s: %q", path, word)
			}
			below, err := family(child)
			if err != nil {
				return nil, err
			}
			all = append(all, below...)
		}
	}
	return all, nil
}

// cpuOf is the user and system time of a family so far.
func cpuOf(pids []int) (time.Duration, error) {
	var sum time.Duration
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, err
		}
		// The second field is the command in parentheses, and may hold anything.
		f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		const utime, stime = 14 - 3, 15 - 3
		for _, i := range []int{utime, stime} {
			n, err := strconv.ParseInt(f[i], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
			}
			sum += time.Duration(n) * clockTick
		}
	}
	return sum, nil
}

// memory is what a family holds, in bytes. rss counts a page once for each
// process that has it mapped; pss counts a page of two processes half in each,
// so that the sum over the family is what the family takes from the machine.
// anon is the part that is not the page cache's, as the program's own file is.
type memory struct{ rss, pss, anon int64 }

func memoryOf(pids []int) (memory, error) {
	var m memory
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			return memory{}, err
		}
		of := map[string]*int64{"Rss:": &m.rss, "Pss:": &m.pss, "Anonymous:": &m.anon}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) != 3 || of[f[0]] == nil {
				continue
			}
			kib, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return memory{}, fmt.Errorf("/proc/%d/smaps_rollup: %w", pid, err)
			}
			*of[f[0]] += kib << 10
		}
	}
	return m, nil
}

// sizeOf is how many bytes the files below a folder hold.
func sizeOf(dir string) (int64, error) {
	var sum int64
	err := filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		sum += info.Size()
		return nil
	})
	return sum, err
}
