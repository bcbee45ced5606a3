package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wattloop/wattloop/actuate"
	"github.com/wattloop/wattloop/actuate/warden"
	"github.com/wattloop/wattloop/sysfs"
)

func serveCmd() *cobra.Command {
	c := defaultConfig()
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run: receive OTLP, evaluate the rules, act within the owner's limits",
		Long: `serve is two processes. The one you start is the warden: it owns the hardware, saves what was
there before the first write, and gives it back when it ends, when a lease runs out, or when the
engine dies. It starts the engine, which receives, stores, evaluates and decides, as an
unprivileged user when this runs as root.

Nothing is written until --actuation.enabled (the machine's owner) and mode: enforce on a control
(the rule's author). SIGHUP reads the rule files again, all of them or none; SIGTERM and Ctrl-C
give everything back.

Each address that is listened on is printed on standard error, one a line:
listening on web=HOST:PORT, otlp-grpc=HOST:PORT, otlp-http=HOST:PORT.`,
		Example: `  wattloop serve
  wattloop serve --rules ./rules.d --state.path ./state --run.path ./run --actuation.enabled`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.load(cmd.Flags(), os.LookupEnv); err != nil {
				return withCode(exitFound, err)
			}
			if _, err := c.checkDoors(); err != nil {
				return withCode(exitFound, err)
			}
			return runWarden(cmd.Context(), c, c.engineArgs(cmd.Flags()))
		},
	}
	c.addFlags(cmd.Flags())
	return cmd
}

// engineArgs are the flags that were given, for the engine to be given too, but
// for the warden's own. Paths that hang on the user are said in full: the
// engine is another one.
func (c *config) engineArgs(fl *pflag.FlagSet) []string {
	args := []string{"engine"}
	if fl.Changed("config.file") {
		args = append(args, "--config.file="+c.File)
	}
	for _, s := range c.settings() {
		f := fl.Lookup(s.flagName())
		if f == nil { // it has none
			continue
		}
		pinned := s.key == "storage.path" || s.key == "state.path" || s.key == "run.path" || s.key == "api.socket"
		if s.change == changeWarden || !pinned && !f.Changed {
			continue
		}
		for _, v := range items(s.value) {
			args = append(args, "--"+s.flagName()+"="+v)
		}
	}
	return args
}

// runWarden is the life of serve.
func runWarden(ctx context.Context, c *config, args []string) error {
	log := newLogger(c.LogLevel, os.Stderr).With("part", "warden")
	o, err := c.wardenOptions(log)
	if err != nil {
		return err
	}
	defer closeMeters(o.Meters)
	cred, err := c.credential()
	if err != nil {
		return err
	}
	var hup sync.WaitGroup
	defer hup.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	reload := make(chan struct{}, 1)
	o.Reload = reload
	hup.Go(func() { onHangup(ctx, reload) })
	o.Engine = warden.Spawn{
		Path: selfExe, Args: append([]string{os.Args[0]}, args...), Env: os.Environ(), Credential: cred,
		Stdout: os.Stdout, Stderr: os.Stderr,
	}
	var pid atomic.Int64
	o.Started = func(p int) { pid.Store(int64(p)) }
	o.Ready = func() {
		log.Info("started", "warden_pid", os.Getpid(), "engine_pid", pid.Load(), "sysfs", c.Sysfs,
			"devices", len(o.Devices), "meters", len(o.Meters), "actuation_enabled", c.Enabled)
	}
	var standing []warden.Restored
	o.Standing = func(left []warden.Restored) { standing = left }
	err = warden.Run(ctx, o)
	var tree *warden.TreeLockedError
	switch {
	case err == nil:
		log.Info(farewell(standing))
		return nil
	case errors.As(err, &tree):
		return withCode(exitCannot, fmt.Errorf("%w; end that one first, or name another tree with --sysfs", err))
	case errors.Is(err, warden.ErrLocked):
		return withCode(exitCannot, fmt.Errorf("%w; give this one its own --run.path and --state.path", err))
	}
	return exitOf(err)
}

// farewell says what was left on the devices at a clean end.
func farewell(standing []warden.Restored) string {
	if len(standing) == 0 {
		return "ended, everything given back"
	}
	why := "kept by on_stop"
	if standing[0].Reason == actuate.ReasonHandedOver {
		why = "handed over"
	}
	caps := make([]string, len(standing))
	for i, d := range standing {
		caps[i] = fmt.Sprintf("%s %g %s", d.Name, d.Value, d.Unit)
	}
	return "ended; " + why + ": " + strings.Join(caps, ", ")
}

// onHangup turns SIGHUP into the warden's orders until ctx ends.
func onHangup(ctx context.Context, reload chan<- struct{}) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
		}
		select {
		case reload <- struct{}{}:
		default: // one is waiting already
		}
	}
}

// wardenOptions finds the hardware and takes over the owner's limits.
func (c *config) wardenOptions(log *slog.Logger) (warden.Options, error) {
	devs, err := c.devices()
	if err != nil {
		return warden.Options{}, err
	}
	for _, d := range devs {
		if desc := d.Describe(); !desc.Writable {
			log.Warn("device cannot be written", "device", desc.ID, "reason", desc.Reason)
		}
	}
	devs = c.wired(devs, log)
	var meters []actuate.Meter
	if c.HostEnabled {
		if meters, err = openMeters(sysfs.New(c.Sysfs), log); err != nil {
			return warden.Options{}, withCode(exitCannot, err)
		}
	}
	cl := map[string]warden.Clamp{}
	for dev, k := range c.Clamps {
		cl[dev] = warden.Clamp{Min: k.Min, Max: k.Max, Floor: k.Floor}
	}
	return warden.Options{
		Devices: devs, Tree: c.Sysfs, Meters: meters, StatePath: c.StatePath, RunPath: c.RunPath, Dirs: c.engineDirs(),
		Enabled: c.Enabled, ObserveFirst: c.ObserveFirst, Clamps: cl,
		AllowRaise: c.AllowRaise, RejectOutOfRange: c.RejectOut, MaxHold: c.MaxHold, TTLMax: c.TTLMax, Log: log,
	}, nil
}

// credential is whom the engine becomes: nobody else when this is not root.
func (c *config) credential() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	names := []string{"wattloop", "nobody"}
	if c.EngineUser != "" {
		names = []string{c.EngineUser}
	}
	for _, n := range names {
		u, err := user.Lookup(n)
		if err != nil {
			continue
		}
		uid, uerr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gerr := strconv.ParseUint(u.Gid, 10, 32)
		if uerr != nil || gerr != nil || uid == 0 && c.EngineUser == "" {
			continue
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, withCode(exitFound, fmt.Errorf("engine.user (%s): no user %s on this machine; name one with --engine.user",
		c.origin["engine.user"], strings.Join(names, " or ")))
}
