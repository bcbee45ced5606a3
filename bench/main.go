// Command bench measures wattloop and prints one figure a line: name, value,
// unit, and what it was measured over in a comment. Read the ratios; the
// machine's speed is in the absolute figures.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"time"
)

// run is what every measurement needs.
type run struct {
	ctx    context.Context
	short  bool
	alone  bool   // without the peers
	dir    string // scratch, removed at the end
	bin    string // the wattloop binary as it ships
	rounds int    // alternating runs beside the peers
	series int    // 0: both sizes
}

func main() {
	if err := bench(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench() error {
	short := flag.Bool("short", false, "a tenth of the work, for CI")
	alone := flag.Bool("alone", false, "without the peers, which -short implies")
	bin := flag.String("wattloop", "../bin/wattloop", "the binary")
	only := flag.String("only", "", "peers, noisy, presets, reaction, replay or remote")
	rounds := flag.Int("rounds", 3, "how often each server runs in turn")
	series := flag.Int("series", 0, "measure the servers with 10000 or 100000 series alone")
	guide := flag.String("profile", "", "measure nothing: write the CPU profile that make build is guided by to this file")
	flag.Parse()
	if flag.Arg(0) == "child" {
		return child(flag.Args()[1:])
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	dir, err := os.MkdirTemp("", "wattloop-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // under root the engine is another user
		return err
	}
	r := run{ctx, *short, *short || *alone, dir, *bin, *rounds, *series}
	if *guide != "" {
		return profile(r, *guide)
	}
	fmt.Printf("# %s %s/%s, %d cores\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	for _, m := range []struct {
		name string
		f    func(run) error
	}{{"peers", against}, {"noisy", noisy}, {"presets", presetEval}, {"reaction", reaction}, {"replay", replayDay}, {"remote", remoteReadings}} {
		if *only != "" && *only != m.name {
			continue
		}
		if err := m.f(r); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil
}

// figure prints one line.
func figure(name string, value float64, unit, comment string) {
	fmt.Printf("%s %s %s # %s\n", name, strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.3f", value), "0"), "."), unit, comment)
}

// percentile is the p-th value of ds, 0 < p <= 100.
func percentile(ds []time.Duration, p float64) time.Duration {
	slices.Sort(ds)
	i := int(float64(len(ds))*p/100+0.5) - 1
	return ds[min(max(i, 0), len(ds)-1)]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
