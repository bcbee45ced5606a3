package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

const (
	profileTicks = 300 // 25 min of data; what is older than 30 is refused
	profileLaps  = 4
)

// profile writes to a file what the processor is busy with under the loads of
// "peers": the way in alone, and with a fifth of the series read by the presets.
func profile(r run, out string) error {
	bin, err := r.tagged("wattloop_profile")
	if err != nil {
		return err
	}
	args := []string{"tool", "pprof", "-proto", "-output", out}
	for lap := range profileLaps {
		for _, domain := range []string{unread, read} {
			kept := filepath.Join(r.dir, fmt.Sprint(domain, lap, ".pprof"))
			ticks := profileTicks
			if domain == read { // a point costs more there
				ticks /= 4
			}
			if _, err := r.race(profiled(bin, kept), domain, 10_000, ticks); err != nil {
				return err
			}
			args = append(args, kept)
		}
	}
	merge := exec.CommandContext(r.ctx, "go", args...)
	merge.Stderr = os.Stderr
	if err := merge.Run(); err != nil {
		return fmt.Errorf("go tool pprof: %w", err)
	}
	return nil
}

// profiled is wattloop, and what it writes of itself is copied to a file: its own
// folder goes when it has ended.
func profiled(bin, kept string) contender {
	c := wattloop(bin)
	start := c.start
	c.start = func(ctx context.Context, dir string) (*target, error) {
		t, err := start(ctx, dir)
		if err == nil {
			t.stopped = func() error { return copyFile(filepath.Join(dir, "state", "cpu.pprof"), kept) }
		}
		return t, err
	}
	return c
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o644)
}
