package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// replayDay measures `wattloop replay` over a day of one 8-GPU node, 200
// series every 5 s, with the presets and the shipped control.
func replayDay(r run) error {
	const series, gpus, every = 200, 8, 5 * time.Second
	span := 24 * time.Hour
	if r.short {
		span = time.Hour
	}
	path := filepath.Join(r.dir, "day.otlp.pb")
	n, err := writeRecording(path, span, every, newNode("worker-01", gpus, series))
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(r.ctx, r.bin, "replay", path, "--rules", filepath.Join(r.dir, "none"))
	if err := os.Mkdir(filepath.Join(r.dir, "none"), 0o755); err != nil {
		return err
	}
	cmd.Stderr = os.Stderr
	out, err := os.Create(filepath.Join(r.dir, "transcript"))
	if err != nil {
		return err
	}
	defer out.Close()
	cmd.Stdout = out
	start := time.Now()
	if err := cmd.Run(); err != nil {
		return err
	}
	took := time.Since(start)
	figure("replay_x_realtime", span.Seconds()/took.Seconds(), "x",
		fmt.Sprintf("n=%d requests over %s, %d series at %s, %d GPUs, process start to exit %.1f s", n, span, series, every, gpus, took.Seconds()))
	return nil
}

// writeRecording writes length-delimited protobuf: load comes and goes every
// ten minutes, so that the control engages and releases.
func writeRecording(path string, span, every time.Duration, n *node) (int, error) {
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	start := time.Unix(1760000000, 0)
	count := 0
	for d := time.Duration(0); d < span; d += every {
		busy := (d/(10*time.Minute))%2 == 1
		wire := n.request(start.Add(d), every, func(c string) float64 {
			switch {
			case !busy:
				return 30
			case c[0] == 'c':
				return 180
			}
			return 100
		})
		if _, err := w.Write(binary.AppendUvarint(nil, uint64(len(wire)))); err != nil {
			return 0, err
		}
		if _, err := w.Write(wire); err != nil {
			return 0, err
		}
		count++
	}
	return count, w.Flush()
}
