package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/wattloop/wattloop/actuate/warden"
	"github.com/wattloop/wattloop/sim"
)

// history is how much of the past the simulator sends before it goes on live.
const history = 20 * time.Minute

// demoOptions are the flags of demo.
type demoOptions struct {
	span   time.Duration
	speed  int
	seed   uint64
	gpus   int
	dir    string
	keep   bool
	output string
}

func demoCmd() *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "A simulated node under a power budget: no hardware, no root",
		Long: `demo runs the whole program on a simulated node: two CPU packages and a GPU with a sysfs tree of
their own, whose meters are sent as OTLP. Load rises, the budget engages, caps are written and
read back, power falls, the load ends, the caps are given back. Nothing on this machine is touched.`,
		Example: `  wattloop demo                                until Ctrl-C
  wattloop demo --for 90s --speed 4 -o json    six simulated minutes; the last line sums up`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(o.output, "text", "json"); err != nil {
				return err
			}
			if err := o.check(); err != nil {
				return err
			}
			// A closed terminal and a closed pipe end the demo as Ctrl-C does.
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGHUP, syscall.SIGPIPE)
			defer stop()
			return runDemo(ctx, o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fl := cmd.Flags()
	fl.DurationVar(&o.span, "for", 0, "end after this long on the wall clock; 0 runs until Ctrl-C")
	fl.IntVar(&o.speed, "speed", 1, "how many times faster than the wall everything runs")
	fl.Uint64Var(&o.seed, "seed", 1, "of the simulated load's noise")
	fl.IntVar(&o.gpus, "gpus", 1, "simulated GPUs")
	fl.StringVar(&o.dir, "dir", "demo", "folder of the simulated node; made anew")
	fl.BoolVar(&o.keep, "keep", false, "leave the folder when done")
	fl.StringVarP(&o.output, "output", "o", "text", "text or json (one event a line)")
	return cmd
}

const (
	mostSpeed = 100
	mostGPUs  = 16
)

func (o demoOptions) check() error {
	switch {
	case o.speed < 1 || o.speed > mostSpeed:
		return fmt.Errorf("--speed %d: want 1 to %d", o.speed, mostSpeed)
	case o.gpus < 0 || o.gpus > mostGPUs:
		return fmt.Errorf("--gpus %d: want 0 to %d", o.gpus, mostGPUs)
	case o.span < 0:
		return fmt.Errorf("--for %s: want a time to run, or 0 until Ctrl-C", o.span)
	}
	return nil
}

func runDemo(ctx context.Context, o demoOptions, stdout, stderr io.Writer) error {
	if err := freshDir(o.dir); err != nil {
		return withCode(exitCannot, err)
	}
	if o.span > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.span)
		defer cancel()
	}
	clk := clock{start: time.Now(), speed: o.speed}
	node, err := sim.New(sim.Config{Dir: filepath.Join(o.dir, "sys"), GPUs: o.gpus, Seed: o.seed, Start: clk.start})
	if err != nil {
		return withCode(exitCannot, err)
	}
	d := &demo{o: o, clk: clk, node: node, show: newScreen(o.output, stdout, stderr, clk)}
	if err := d.writeRules(); err != nil {
		return withCode(exitCannot, err)
	}
	d.show.intro(o)
	err = d.run(ctx, stderr, freeOr)
	if d.inUse(err) { // taken between the look and the start: let the kernel choose
		err = d.run(ctx, stderr, func(string) string { return "127.0.0.1:0" })
	}
	if !d.listened {
		io.WriteString(stderr, d.early)
	}
	if err == nil {
		err = d.finish()
	}
	if !o.keep && err == nil {
		err = os.RemoveAll(o.dir)
	} else {
		fmt.Fprintf(stderr, "folder %s is kept\n", o.dir)
	}
	var e *exitError
	if errors.As(err, &e) {
		return err
	}
	return withCode(exitFound, err)
}

// demoMark is in a folder that demo made and may make anew.
const demoMark = ".wattloop-demo"

func freshDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) > 0 {
		if _, err := os.Stat(filepath.Join(dir, demoMark)); err != nil {
			return fmt.Errorf("demo: folder %s is not one of the demo's; name another with --dir", dir)
		}
		if pid, running := demoRunning(dir); running {
			return fmt.Errorf("demo: process %d is running in %s; name another folder with --dir", pid, dir)
		}
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, demoMark), []byte(strconv.Itoa(os.Getpid())), 0o644)
}

// demoRunning says whether the demo that made dir is alive.
func demoRunning(dir string) (int, bool) {
	b, err := os.ReadFile(filepath.Join(dir, demoMark))
	if err != nil {
		return 0, false
	}
	pid, err := strconv.Atoi(string(b))
	if err != nil || pid == os.Getpid() {
		return 0, false
	}
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return pid, err == nil && containsArg(cmdline, "demo")
}

// demo is one run.
type demo struct {
	o        demoOptions
	clk      clock
	node     *sim.Node
	show     *screen
	listened bool    // the engine has told its addresses
	early    string  // what it said on stderr when it never did
	written  []int64 // microwatts of ours that the tree held, in order, each change once
	engaged  int     // how often a package went from its original limit to one of ours
}

// writeRules sets the budget that this node breaks under load, and enforces.
func (d *demo) writeRules() error {
	text := fmt.Sprintf("version: 1\nparams:\n  budget: {value: %g}\ncontrols:\n  node_power_budget: {mode: enforce}\n", sim.Budget(d.o.gpus))
	return os.WriteFile(d.path("rules.yaml"), []byte(text), 0o644)
}

func (d *demo) path(name string) string { return filepath.Join(d.o.dir, name) }

// engineArgs start the engine on the demo's folder, ports of its own choice and
// the scaled clock.
func (d *demo) engineArgs(door func(string) string) []string {
	return []string{"engine", "--config.file", d.path("none.yaml"), "--warden.file", d.path("none.yaml"),
		"--rules", d.path("rules.yaml"), "--state.path", d.path("state"), "--storage.path", d.path("data"), "--run.path", d.path("run"),
		"--api.socket", d.path("wattloop.sock"), "--sysfs", d.path("sys"), "--host.enabled=false", "--log.level", "warn",
		"--web.listen-address", door("127.0.0.1:9464"), "--otlp.grpc.listen-address", door("127.0.0.1:4317"),
		"--otlp.http.listen-address", door("127.0.0.1:4318"),
		"--clock.start", strconv.FormatInt(d.clk.start.UnixNano(), 10), "--clock.speed", strconv.Itoa(d.o.speed)}
}

// run starts the warden and, once the engine listens, the simulator. Both end
// with ctx.
func (d *demo) run(ctx context.Context, stderr io.Writer, door func(string) string) error {
	if err := os.WriteFile(d.path("none.yaml"), nil, 0o644); err != nil {
		return err
	}
	devs, err := devices(d.node.FS())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	pr, pw, err := os.Pipe()
	if err != nil {
		return err
	}
	var outside sync.WaitGroup
	doors := newDoorReader(stderr)
	outside.Go(func() {
		defer pr.Close()
		io.Copy(doors, pr)
	})
	outside.Go(func() {
		if addr, ok := doors.wait(ctx); ok {
			cancel(d.live(ctx, addr))
		}
	})
	boot := time.Now()
	err = warden.Run(ctx, warden.Options{
		Devices: devs, Tree: d.path("sys"), StatePath: d.path("state"), RunPath: d.path("run"), Enabled: true,
		Clock: func() time.Duration { return time.Since(boot) * time.Duration(d.o.speed) }, Speed: float64(d.o.speed),
		Log:    newLogger("error", os.Stderr),
		Engine: warden.Spawn{Path: selfExe, Args: append([]string{os.Args[0]}, d.engineArgs(door)...), Env: os.Environ(), Stderr: pw},
	})
	cause := context.Cause(ctx)
	cancel(nil)
	pw.Close()
	outside.Wait()
	d.listened, d.early = doors.told(), doors.early.String()
	if err != nil {
		return exitOf(err)
	}
	if cause != nil && !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return nil
}

// live sends the history, then one export each second of the scaled clock, and
// shows what happens, until ctx ends.
func (d *demo) live(ctx context.Context, addr map[string]string) error {
	out, err := sim.DialHTTP(ctx, addr["otlp-http"])
	if err != nil {
		return err
	}
	defer out.Close(context.WithoutCancel(ctx))
	start := d.clk.start
	if err := d.node.Backfill(ctx, start.Add(-history), start, 5*time.Second, out.Send); err != nil {
		return quietEnd(ctx, err)
	}
	d.show.started(addr)
	watch := newWatch(d, addr["web"])
	const tick = 200 * time.Millisecond
	for at, n := start, 1; ; n++ {
		at = at.Add(tick)
		if wait := at.Sub(d.clk.Now()); wait > 0 {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(d.clk.Wall(wait)):
			}
		} else if ctx.Err() != nil {
			return nil
		}
		if err := d.node.Tick(at); err != nil {
			return err
		}
		if err := watch.tree(ctx); err != nil {
			return err
		}
		if n%5 == 0 {
			if err := out.Send(ctx, d.node.Metrics()); err != nil {
				return quietEnd(ctx, err)
			}
			watch.status(ctx, at)
		}
	}
}

// quietEnd is nil when the run was ending anyway.
func quietEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// inUse says that the engine could not start for want of a port.
func (d *demo) inUse(err error) bool {
	var e *exitError
	return errors.As(err, &e) && e.code == exitCannot && !d.listened
}

// finish reads the tree after the warden has ended and says what it holds.
func (d *demo) finish() error {
	restored := true
	held := map[string]float64{}
	devs, err := devices(d.node.FS())
	if err != nil {
		return err
	}
	for _, dev := range devs {
		st, err := dev.Read()
		if err != nil {
			return err
		}
		desc := dev.Describe()
		held[desc.Name] = st.Value
		restored = restored && st.Value == desc.Default
	}
	if err := d.show.end(held, restored, d.engaged, d.written); err != nil {
		return err
	}
	if !restored {
		return errors.New("demo: a cap is still on the simulated node")
	}
	return nil
}
