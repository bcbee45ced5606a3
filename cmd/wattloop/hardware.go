package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wattloop/wattloop/actuate"
	"github.com/wattloop/wattloop/ingest"
	"github.com/wattloop/wattloop/ingest/host"
	"github.com/wattloop/wattloop/sysfs"
)

// devices finds what can be capped in the sysfs tree. A tree that cannot be
// read is exit code 3; one without a device is a machine that can only be
// watched.
func (c *config) devices() ([]actuate.Device, error) {
	if _, err := os.ReadDir(c.Sysfs); err != nil {
		return nil, withCode(exitCannot, fmt.Errorf("sysfs: %s: %w; name the tree with --sysfs", c.Sysfs, bare(err)))
	}
	devs, err := devices(sysfs.New(c.Sysfs))
	return devs, withCode(exitCannot, err)
}

// openMeters opens this machine's energy counters while there is still the
// privilege to. Those that cannot be opened are left out; the engine finds them
// too, and says of each why it cannot be read and what to do.
func openMeters(fs sysfs.FS, log *slog.Logger) ([]actuate.Meter, error) {
	found, err := host.Find(fs)
	if err != nil {
		return nil, err
	}
	var out []actuate.Meter
	for _, m := range found {
		f, err := fs.Open(m.Path)
		if err != nil {
			log.Debug("meter cannot be opened", "meter", m.Name, "err", err)
			continue
		}
		meta, err := json.Marshal(m)
		if err != nil {
			panic("BUG: " + err.Error()) // plain fields alone
		}
		out = append(out, actuate.Meter{MeterInfo: actuate.MeterInfo{Name: m.Name, Meta: meta}, File: f})
	}
	return out, nil
}

func closeMeters(meters []actuate.Meter) {
	for _, m := range meters {
		m.File.Close() // only read from
	}
}

// hostSource reads this machine: the meters that the warden handed over, and
// what everybody may read.
func hostSource(c *config, clk clock, recv *ingest.Receiver, meters []actuate.Meter, log *slog.Logger) (*host.Source, error) {
	channel := recv.Channel(hostChannel)
	s := c.machine(clk.Now)
	s.Interval, s.State, s.Boot, s.Log = c.HostInterval, c.hostPath(), sinceBoot, log.With("part", "host")
	s.Export = func(ctx context.Context, wire []byte) error {
		res, err := channel.Export(ctx, wire)
		if err == nil && res.Rejected > 0 {
			err = errors.New(res.Message)
		}
		return err
	}
	for _, m := range meters {
		h := host.Meter{File: m.File}
		if err := json.Unmarshal(m.Meta, &h); err != nil {
			return nil, fmt.Errorf("host: meter %s: %w", m.Name, err)
		}
		s.Meters = append(s.Meters, h)
	}
	return s, s.Open()
}

// machine is a source of all that this process may read itself. NVIDIA's library
// knows this machine alone, so beside another tree it is left alone.
func (c *config) machine(now func() time.Time) *host.Source {
	sys, proc := sysfs.New(c.Sysfs), sysfs.New(c.proc())
	return &host.Source{Node: c.Node, Sysfs: &sys, Proc: &proc, NVML: c.ownTree(), Clock: now}
}

// ownTree says that the sysfs is this machine's, by its place.
func (c *config) ownTree() bool { return slices.Contains(mounts, filepath.Clean(c.Sysfs)) }

// hostPath is where the counters of the host source outlive the process.
func (c *config) hostPath() string { return filepath.Join(c.StatePath, "host") }

// mounts are where the machine's own sysfs is looked for: a container has the
// host's at the first (S0-185).
var mounts = []string{"/host-sys", sysfs.DefaultRoot}

// findSysfs is the first of the places that holds a sysfs. A folder that
// nothing is mounted at is none.
func findSysfs(places []string) string {
	for _, p := range places[:len(places)-1] {
		if st, err := os.Stat(filepath.Join(p, "devices")); err == nil && st.IsDir() {
			return p
		}
	}
	return places[len(places)-1]
}

// proc is the proc tree that belongs to the sysfs: this machine's, or beside a
// copied or simulated tree its own.
func (c *config) proc() string {
	if c.ownTree() {
		return "/proc"
	}
	return filepath.Join(filepath.Dir(filepath.Clean(c.Sysfs)), "proc")
}

// sinceBoot reads the clocks that nobody sets. Without an id, which a kernel
// without /proc does not tell, no counter goes on over a restart.
func sinceBoot() host.Boot {
	var b host.Boot
	if id, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		b.ID = strings.TrimSpace(string(id))
	}
	var up, awake unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) == nil && unix.ClockGettime(unix.CLOCK_MONOTONIC, &awake) == nil {
		b.Up = time.Duration(up.Nano())
		b.Suspended = b.Up - time.Duration(awake.Nano())
	}
	return b
}
