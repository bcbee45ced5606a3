package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/wattloop/wattloop/actuate"
	"github.com/wattloop/wattloop/api"
	"github.com/wattloop/wattloop/ingest"
)

// wardenFD is where the warden leaves its end of the socket pair.
const wardenFD = 3

// stopDeadline bounds the engine's own shutdown; the warden waits no longer.
const stopDeadline = 5 * time.Second

// engineCmd is the process that serve starts. It is not for people.
func engineCmd() *cobra.Command {
	c := defaultConfig()
	c.engineOnly = true
	var start int64
	var speed int
	var output string
	var strict bool
	cmd := &cobra.Command{
		Use:    "engine",
		Short:  "The unprivileged half of serve, started by it",
		Hidden: true,
		Example: `  wattloop serve
  wattloop demo`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// The warden orders the end; a Ctrl-C that reaches the whole group is its business.
			signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			if err := c.load(cmd.Flags(), os.LookupEnv); err != nil {
				return withCode(exitFound, err)
			}
			if output != "" {
				got, err := c.checkEngine()
				if err != nil {
					return withCode(exitFound, err)
				}
				return got.print(cmd.OutOrStdout(), strict, output)
			}
			clk := wallClock()
			if speed > 1 {
				clk = clock{start: time.Unix(0, start), speed: speed}
			}
			again := func() (*config, error) { return reread(cmd.Flags(), os.LookupEnv) }
			return runEngine(context.Background(), c, again, clk, cmd.ErrOrStderr())
		},
	}
	c.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&output, "check.output", "", "say what would keep it from starting, as table or json, and end")
	cmd.Flags().BoolVar(&strict, "check.strict", false, "a warning counts as an error")
	cmd.Flags().Int64Var(&start, "clock.start", 0, "start of a scaled clock, Unix nanoseconds")
	cmd.Flags().IntVar(&speed, "clock.speed", 1, "how many times faster than the wall the clock runs")
	return cmd
}

// runEngine loads the rules, connects to the warden, opens the doors, builds
// everything, serves until the warden says stop or is gone, and closes in the
// order that loses nothing. What fails first fails before anything is open.
func runEngine(ctx context.Context, c *config, again func() (*config, error), clk clock, stderr io.Writer) error {
	log := newLogger(c.LogLevel, os.Stderr)
	quietGRPC(log)
	defer profile(c.StatePath)()
	c.memoryLimit = limitMemory()
	set, msgs, err := c.loadRules()
	if err != nil {
		return withCode(exitFound, err)
	}
	var alive aliveness
	link, err := actuate.Connect(os.NewFile(wardenFD, "warden"), alive.ok)
	if err != nil {
		return withCode(exitCannot, fmt.Errorf("engine: %w; it is started by wattloop serve", err))
	}
	defer link.Close()
	entry, err := c.entry(clk, log)
	if err := errors.Join(err, c.checkRemote(), c.checkWriter(), c.checkFetched()); err != nil {
		return withCode(exitFound, err)
	}
	doors, err := c.listen()
	if err != nil {
		return err
	}
	defer doors.close()
	step := standAt(doors, entry, log)
	p, err := unlessEnded(link, func() (*parts, error) { return build(c, clk, log, set, link, link.Meters(), entry) })
	step.leave()
	if p == nil {
		return err
	}
	p.reread = again
	alive.watch(p.eng.Alive)
	warn(log, msgs)
	p.tellInputs(set, c.Attributes)
	p.doubts.readFrom(set)
	err = p.serve(ctx, link, doors, stderr)
	return withCode(exitCannot, errors.Join(err, step.wait(), p.close()))
}

// errWardenGone ends the engine's process.
var errWardenGone = errors.New("engine: the warden is gone; without it no cap is held, so this process ends")

// unlessEnded is what build returns, or neither parts nor an error where the warden
// orders the end first: to read a store can take minutes. What build has opened then
// ends with the process, as in a crash; nothing was acknowledged yet.
func unlessEnded(link *actuate.Client, build func() (*parts, error)) (*parts, error) {
	type result struct {
		p   *parts
		err error
	}
	built := make(chan result, 1)
	go func() {
		p, err := build()
		built <- result{p, err}
	}()
	select {
	case r := <-built:
		return r.p, r.err
	case <-link.Stop():
		return nil, nil
	case <-link.Gone():
		return nil, withCode(exitCannot, errWardenGone)
	}
}

// serve runs the parts until the warden orders the end.
func (p *parts) serve(ctx context.Context, link *actuate.Client, doors *listeners, stderr io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	started := p.clk.Now()
	p.own = doors.otlp()
	s := p.servers(p.apiHandler(func() api.Facts { return p.factsAt(started) }, p.reload), p.otlp, p.log)
	at := doors.with(ingest.LimitListener)
	if doors.grpc != nil {
		at.grpc = p.recv.Channel(defaultChannel).Listen(doors.grpc)
	}

	g, ctx := errgroup.WithContext(ctx)
	s.serve(g, at)
	g.Go(func() error { return p.eng.Run(ctx) })
	g.Go(func() error { return p.heal(ctx) })
	if p.host != nil {
		g.Go(func() error { return p.host.Run(ctx) })
	}
	g.Go(func() error { return p.scraper.Run(ctx) })
	g.Go(func() error { return p.puller.Run(ctx) })
	g.Go(func() error { return p.orders(ctx, link, cancel) })
	g.Go(func() error { // close the doors when anything ends
		<-ctx.Done()
		dctx, done := context.WithTimeout(context.WithoutCancel(ctx), stopDeadline)
		defer done()
		var ending sync.WaitGroup
		ending.Go(func() { s.shut(dctx) })
		ending.Go(p.doors.Close)
		ending.Wait()
		return nil
	})
	if err := p.openChannels(ctx, stderr); err != nil {
		cancel()
		return errors.Join(err, g.Wait())
	}
	doors.announce(stderr) // whoever waits for these lines finds the channels open
	again := time.NewTicker(reopenEvery)
	defer again.Stop()
	g.Go(func() error { return p.reopenChannels(ctx, again.C, stderr) })
	doubting := time.NewTicker(doubtEvery)
	defer doubting.Stop()
	g.Go(func() error { return p.doubt(ctx, doubting.C) })
	look := time.NewTicker(twinTick)
	defer look.Stop()
	g.Go(func() error { return p.twins.run(ctx, look.C) })
	p.log.Info("engine started", "pid", os.Getpid(), "durability", p.c.Durability, "memory_limit", p.c.memoryLimit)
	if err := link.Ready(); err != nil {
		cancel()
	}
	err := g.Wait()
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return err
}

// orders waits for the warden's.
func (p *parts) orders(ctx context.Context, link *actuate.Client, end context.CancelFunc) error {
	defer end()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-link.Stop():
			p.log.Debug("the warden ordered the end")
			return nil
		case <-link.Gone():
			return errWardenGone
		case <-link.Reload():
			p.reload(false) // logged there
		}
	}
}

// factsAt is what the process knows of itself.
func (p *parts) factsAt(started time.Time) api.Facts {
	st := p.db.Stats()
	f := api.Facts{
		Version: version, Node: p.c.Node, WardenPID: os.Getppid(), EnginePID: os.Getpid(), Started: started,
		Durability: p.c.Durability, Series: st.Series,
	}
	if err := refuses(st); err != nil {
		f.StoreError = err.Error()
	}
	if err := p.recv.StateError(); err != nil {
		f.SumsError = err.Error()
	}
	f.Channels = p.channels()
	f.Relay = p.relayFacts()
	f.Meters = p.meters()
	f.Targets, f.Pulls = p.targets(), p.polls()
	f.Unused = p.twins.unused()
	_, f.TargetError = p.twins.keeper.Now()
	f.Doubts = p.doubtFacts()
	f.Remote = p.remoteFacts()
	f.RemoteWrite = p.writerFacts()
	p.lossMu.Lock()
	f.Integrity = append([]api.Loss{}, p.losses...)
	p.lossMu.Unlock()
	if s := p.rulesError.Load(); s != nil {
		f.RulesError = *s
	}
	return f
}

// aliveness answers the warden's heartbeat: true while starting, then whatever
// the engine's loop says.
type aliveness struct{ check atomic.Pointer[func() bool] }

func (a *aliveness) ok() bool {
	if f := a.check.Load(); f != nil {
		return (*f)()
	}
	return true
}

func (a *aliveness) watch(f func() bool) { a.check.Store(&f) }
