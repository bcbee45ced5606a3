package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/wattloop/wattloop/actuate"
	"github.com/wattloop/wattloop/engine"
	"github.com/wattloop/wattloop/ingest"
	"github.com/wattloop/wattloop/rules"
	"github.com/wattloop/wattloop/store"
)

func replayCmd() *cobra.Command {
	c := defaultConfig()
	var packages int
	cmd := &cobra.Command{
		Use:   "replay FILE...",
		Short: "Run recorded OTLP through the rules and print what they would have done",
		Long: `replay reads recordings (OTLP JSON documents one after another, as the Collector's file exporter
writes them, or length-delimited protobuf), orders their points by time and runs the rules on a
virtual clock, the newest point's time. It prints the transcript: one fact a line, when it
changes. It never touches this machine: caps go to devices that exist in memory alone.
A FILE - is standard input. A recording that ends inside a request is played up to there, with
exit code 4.`,
		Example: `  wattloop replay night.otlp.jsonl
  gzip -dc old.jsonl.gz | wattloop replay - --rules ./rules.d`,
		Args: wantArgs(1, 0, "at least one FILE, or - for standard input"),
	}
	c.addFlags(cmd.Flags(), append([]string{"storage.out_of_order", "promote"}, ruleKeys...)...)
	cmd.Flags().IntVar(&packages, "packages", 2, "CPU packages of the machine in memory that caps are tried on")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if packages < 0 || packages > 64 {
			return fmt.Errorf("--packages %d: want 0 to 64", packages)
		}
		if i := slices.Index(args, "-"); i >= 0 && slices.Contains(args[i+1:], "-") {
			return errors.New("replay: standard input can be read once; name - once")
		}
		set, err := loadForVerb(cmd, c)
		if err != nil {
			return err
		}
		r, err := newReplay(c, set, packages, cmd.OutOrStdout())
		if err != nil {
			return withCode(exitCannot, err)
		}
		defer r.close()
		return r.run(cmd.Context(), args, cmd.InOrStdin(), cmd.ErrOrStderr())
	}
	return cmd
}

// replay is one run on a virtual clock, over a store in a folder of its own.
type replay struct {
	dir        string
	db         *store.DB
	recv       *ingest.Receiver
	eng        *engine.Engine
	transcript *engine.Transcript
	now        int64 // the virtual clock: the newest point's time
	first      int64
	rejected   int64
	reasons    map[string]int64
}

func newReplay(c *config, set *rules.Set, packages int, out io.Writer) (*replay, error) {
	dir, err := os.MkdirTemp("", "wattloop-replay-")
	if err != nil {
		return nil, err
	}
	r := &replay{dir: dir, reasons: map[string]int64{}}
	clock := func() time.Time { return time.UnixMilli(r.now) }
	r.db, err = store.Open(store.Options{Path: dir, Durability: "os", OutOfOrder: c.OutOfOrder, RetentionTime: 100 * 365 * 24 * time.Hour, Clock: clock})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	r.eng = engine.New(engine.Options{
		Rules: set, Query: queryFunc(r.db.Instant), Interval: r.db.Interval, Store: r.db,
		Governor: &actuate.Governor{Link: dryPackages(packages)}, Clock: clock,
	})
	r.recv = ingest.NewReceiver(ingest.Options{
		Appendable: r.db, Clock: clock, NoTimeGate: true, OutOfOrder: c.OutOfOrder,
		Naming: ingest.Naming(c.Naming), Promote: c.Promote,
		Watch: ingest.Watch{Gen: r.eng.Generation, Rules: r.eng.Touched, Grew: r.eng.Grew},
	})
	r.transcript = &engine.Transcript{W: out}
	return r, nil
}

// dryPackages is the machine in memory: packages of 250 W.
func dryPackages(n int) *actuate.Dry {
	const watts = 250
	var ds []actuate.Description
	originals := map[string]float64{}
	for i := range n {
		d := actuate.Description{
			ID: fmt.Sprintf("rapl:package-%d", i), Name: fmt.Sprintf("cpu%d", i), Action: actuate.ActionRAPLCap, Unit: "W",
			Labels: map[string]string{"hw_type": "cpu", "hw_id": fmt.Sprintf("cpu%d", i)},
			Max:    watts, Default: watts, Tolerance: 1, Writable: true,
		}
		ds, originals[d.ID] = append(ds, d), watts
	}
	return actuate.NewDry(ds, originals)
}

func (r *replay) close() {
	r.db.Close()
	os.RemoveAll(r.dir)
}

func (r *replay) run(ctx context.Context, files []string, stdin io.Reader, stderr io.Writer) error {
	var line ingest.Timeline
	var cut error
	for _, f := range files {
		err := readRecording(ctx, f, stdin, &line)
		var t *ingest.TruncatedError
		if errors.As(err, &t) {
			cut = withCode(exitPartial, err)
		} else if err != nil {
			return err
		}
	}
	instants := line.Instants()
	if len(instants) == 0 && cut == nil {
		return withCode(exitFound, errors.New("replay: no request in the recording"))
	}
	start := time.Now()
	if err := r.play(ctx, instants, progress(stderr)); err != nil {
		return err
	}
	if r.now == 0 && cut == nil {
		return withCode(exitFound, errors.New("replay: no point in the recording"))
	}
	r.summary(stderr, len(instants), time.Since(start))
	return cut
}

func readRecording(ctx context.Context, name string, stdin io.Reader, line *ingest.Timeline) error {
	in := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return withCode(exitCannot, fmt.Errorf("replay: %s: %w", name, bare(err)))
		}
		defer f.Close()
		in = f
	}
	err := ingest.ReadRecording(interruptible{ctx, in}, name, func(q ingest.Request) error { return line.Add(name, q) })
	if ctx.Err() != nil {
		return withCode(exitPartial, errors.New("replay: interrupted while reading; nothing ran"))
	}
	return withCode(exitFound, err)
}

// interruptible reads until ctx ends. Where a read may wait for ever, at a
// terminal or a pipe, it waits for input first, and looks at ctx between.
type interruptible struct {
	ctx context.Context
	in  io.Reader
}

func (r interruptible) Read(p []byte) (int, error) {
	const look = 200 // milliseconds
	for r.ctx.Err() == nil {
		f, ok := r.in.(*os.File)
		if !ok {
			return r.in.Read(p)
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}, look)
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return f.Read(p)
		}
	}
	return 0, context.Cause(r.ctx)
}

// play stores all that has one time before it steps at that time, and runs the
// rules' own timers in the gaps between.
func (r *replay) play(ctx context.Context, instants []ingest.Instant, progress func(from, at int64)) error {
	for i, q := range instants {
		if ctx.Err() != nil {
			return withCode(exitPartial, errors.New("replay: interrupted; what is printed is what ran"))
		}
		if r.first == 0 {
			r.first, r.transcript.Start = q.TS, q.TS
		}
		if err := r.timersUntil(ctx, q.TS); err != nil {
			return err
		}
		r.now = max(r.now, q.TS)
		res, err := r.recv.Export(ctx, q.Wire)
		if err != nil {
			return withCode(exitFound, fmt.Errorf("%s: %w", q.Place, err))
		}
		r.rejected += res.Rejected
		for why, n := range res.ByReason {
			r.reasons[why] += n
		}
		if r.now == 0 || i+1 < len(instants) && instants[i+1].TS == q.TS {
			continue // no point yet, or more of the same time
		}
		if err := r.step(ctx, r.now); err != nil {
			return err
		}
		progress(r.first, r.now)
	}
	return nil
}

// timersUntil steps at each instant before ts at which a rule's timer comes.
// Long silences are crossed at once: after quiet there is nothing left to expire.
func (r *replay) timersUntil(ctx context.Context, ts int64) error {
	const quiet = int64(2 * time.Hour / time.Millisecond)
	from := r.now
	for r.now != 0 {
		due := r.eng.NextDue()
		if due >= ts || due <= r.now || due-from > quiet {
			return nil
		}
		r.now = due
		if err := r.step(ctx, due); err != nil {
			return err
		}
	}
	return nil
}

func (r *replay) step(ctx context.Context, ts int64) error {
	rep, err := r.eng.Step(ctx, ts)
	if werr := r.transcript.Observe(rep); werr != nil {
		return withCode(exitCannot, werr)
	}
	if err != nil && ctx.Err() == nil {
		return withCode(exitFound, fmt.Errorf("replay: %w", err))
	}
	return nil
}

func (r *replay) summary(w io.Writer, instants int, took time.Duration) {
	span := time.Duration(r.now-r.first) * time.Millisecond
	fmt.Fprintf(w, "%s over %s", plural(instants, "instant"), span)
	if took > 0 && span > 0 {
		fmt.Fprintf(w, ", %.0f times real time", span.Seconds()/took.Seconds())
	}
	fmt.Fprintf(w, ", %s refused\n", plural(int(r.rejected), "point"))
	for _, why := range sortedKeys(r.reasons) {
		fmt.Fprintf(w, "  %d %s\n", r.reasons[why], why)
	}
}

// progress prints the time covered: in place on a terminal, else every 10 s.
func progress(w io.Writer) func(from, at int64) {
	tty := isTerminal(w)
	every := 10 * time.Second
	if tty {
		every = 200 * time.Millisecond
	}
	last, start := time.Now(), time.Now()
	return func(from, at int64) {
		if time.Since(last) < every {
			return
		}
		last = time.Now()
		span := time.Duration(at-from) * time.Millisecond
		line := fmt.Sprintf("replay  %s covered, %.0f times real time", span.Round(time.Second), span.Seconds()/time.Since(start).Seconds())
		if tty {
			fmt.Fprintf(w, "\r%s\033[K", line)
		} else {
			fmt.Fprintln(w, line)
		}
	}
}
