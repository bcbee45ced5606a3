package main

import (
	"math"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
)

// bytesPerSeries is what a series of the head and all that the receiver remembers
// of it take, with room to spare: BenchmarkSeriesMemory of ingest measures it.
const bytesPerSeries = 2 << 10

// gcPercent is how much the heap grows between two collections, in percent of
// what is live. Samples of known series allocate little, so that a low value is
// cheap: at 10,000 series 30 takes 5 % more of ingest's time than Go's own 100 and
// 5 MiB less, at 100,000 series nothing that shows and 30 MiB less.
const gcPercent = 50

// limitMemory keeps the process small: it collects early, and below the limit of
// its control groups, at 80 % of it: the garbage collector then works harder
// instead of the kernel killing. A GOGC and a GOMEMLIMIT in the environment stand.
// It returns the limit in force, 0 for none.
func limitMemory() int64 {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		if n := cgroupLimit("/"); n > 0 {
			debug.SetMemoryLimit(n / 10 * 8)
		}
	}
	if n := debug.SetMemoryLimit(-1); n != math.MaxInt64 {
		return n
	}
	return 0
}

// mostSeries is how many series the receiver may have under a memory limit: as
// many as take a quarter of it, and 200,000 at most.
func mostSeries(limit int64) int {
	const most = 200_000
	if limit == 0 {
		return most
	}
	return int(min(most, max(1000, limit/4/bytesPerSeries)))
}

// cgroupLimit is the lowest memory limit of the control groups that this process
// is in, 0 for none: memory.max of version 2, memory.limit_in_bytes of version 1,
// on the way from its own group to the root (cgroups(7)). In a container the path
// may be the host's, which is not there; the root of what is mounted is then its
// own.
func cgroupLimit(root string) int64 {
	list, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return 0
	}
	lowest := int64(0)
	for line := range strings.Lines(string(list)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, ok := strings.Cut(rest, ":")
		if !ok {
			continue
		}
		dir, file := "sys/fs/cgroup", "memory.max"
		if controllers != "" {
			dir, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		}
		if controllers != "" && !strings.Contains(","+controllers+",", ",memory,") {
			continue
		}
		for group = path.Clean("/" + group); ; group = path.Dir(group) {
			if n := limitIn(filepath.Join(root, dir, group, file)); n > 0 && (lowest == 0 || n < lowest) {
				lowest = n
			}
			if group == "/" {
				break
			}
		}
	}
	return lowest
}

// limitIn reads one limit; "max", and the huge number that version 1 begins with,
// are none.
func limitIn(name string) int64 {
	text, err := os.ReadFile(name)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || n >= 1<<60 {
		return 0
	}
	return n
}
