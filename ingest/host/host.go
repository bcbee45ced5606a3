// Package host reads the machine that it runs on, its energy and power, clocks,
// temperatures, fans, GPUs, network interfaces and pressure, and hands all of it
// in as OTLP, through the same door as everybody else's metrics. It opens
// nothing that only root may read: it is given those counters open. It never
// writes to hardware.
package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"

	"github.com/wattloop/wattloop/internal/numberless"
	"github.com/wattloop/wattloop/sysfs"
)

const (
	// findEvery is how often what was plugged in or loaded is looked for.
	findEvery = time.Minute
	// saveEvery is how often the counters are written down.
	saveEvery = 10 * time.Second
)

// Source publishes the machine's meters (docs/host.md). Its counters are
// cumulative and never fall while the machine is up: they go on over a restart
// of the process where it is certain what was used meanwhile, and start anew at
// 0 with a new start time where it is not.
type Source struct {
	Meters []Meter   // energy counters that the warden handed over, open
	Sysfs  *sysfs.FS // what everybody may read of it; nil reads Meters alone
	Proc   *sysfs.FS // the proc tree, for its folder pressure; nil: none
	NVML   bool      // look for NVIDIA's library
	Node   string    // k8s.node.name
	Host   string    // host.name; empty: Node
	State  string    // folder of the ledger of counters; empty keeps none
	// Interval is the time between polls of Run; 0 means 1 s.
	Interval time.Duration
	Clock    func() time.Time                             // wall clock, stamped on the points
	Boot     func() Boot                                  // nil: nothing goes on over a restart
	Export   func(ctx context.Context, wire []byte) error // takes one ExportMetricsServiceRequest
	Log      *slog.Logger                                 // nil: silent

	library opener // instead of NVIDIA's own
	ledger  *ledger
	parts   [][]part // each group is one request
	last    time.Time
	looked  time.Time
	saved   time.Time
	told    map[string]string // reasons by meter, as they were logged

	mu     sync.Mutex
	state  []Finding
	unread []Meter
}

// part is one kind of meters.
type part interface {
	// find looks for what there is to read.
	find() error
	// poll adds what it reads to b. The notes are for the log; what is in the
	// error is missing from b, the rest is there.
	poll(b *batch, boot Boot) (notes []string, err error)
	findings() []Finding
}

// metered is a part that has energy series.
type metered interface{ components() []*component }

// Findings are the meters as the newest poll found them. It may be called by
// any goroutine.
func (s *Source) Findings() []Finding {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Finding{}, s.state...)
}

// Unread are the energy counters that are there and that the newest poll could not
// read. It may be called by any goroutine.
func (s *Source) Unread() []Meter {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.unread)
}

// Open reads what an earlier process wrote down. An error is one that a person
// must decide about.
func (s *Source) Open() error {
	l, err := openLedger(s.State, s.Clock(), s.booted())
	if l == nil {
		return err
	}
	if err != nil {
		s.log().Warn("counters start anew", "err", err)
	}
	s.ledger = l
	energy := []part{&energies{fs: s.Sysfs, handed: s.Meters, ledger: l}}
	var rest []part
	if s.Sysfs != nil {
		files := attributes{fs: *s.Sysfs} // each part keeps its own open
		rest = append(rest, &clocks{files: files}, &sensors{files: files, ledger: l}, &network{files: files, ledger: l}, &fabric{files: files, ledger: l})
	}
	if s.Proc != nil {
		rest = append(rest, &pressure{files: attributes{fs: *s.Proc}, ledger: l})
	}
	s.parts = [][]part{energy, rest}
	if s.NVML || s.library != nil {
		open := s.library
		if open == nil {
			open = openNVML
		}
		s.parts = append(s.parts, []part{&gpus{open: open, fs: s.Sysfs, ledger: l}})
	}
	return nil
}

func (s *Source) booted() Boot {
	if s.Boot == nil {
		return Boot{}
	}
	return s.Boot()
}

func (s *Source) log() *slog.Logger {
	if s.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return s.Log
}

// Run polls at once and then every Interval, until ctx ends, writes the counters
// down and returns nil. Of each meter it says when it cannot be read and when it
// can again, not at every poll.
func (s *Source) Run(ctx context.Context) error {
	interval := s.Interval
	if interval <= 0 {
		interval = time.Second
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		s.Poll(ctx) // logged there
		select {
		case <-ctx.Done():
			s.save()
			return nil
		case <-ticker.C:
		}
	}
}

// Poll reads every meter once and exports what was read. A meter that cannot be
// read has no point in this poll, a gap and not a zero, and is in the error; the
// others are exported all the same. It is called by one goroutine at a time.
func (s *Source) Poll(ctx context.Context) error {
	if s.parts == nil {
		if err := s.Open(); err != nil {
			return err
		}
	}
	now, boot := s.Clock(), s.booted()
	if back := s.last.Sub(now); back > time.Minute {
		s.startAnew(now, boot) // the clock was set: the series begin on the new one
	} else if back >= 0 && !s.last.IsZero() {
		err := errors.New("host: the clock did not advance since the last poll")
		s.tell(nil, err)
		return err
	}
	s.last = now
	var failed, exports []error
	look := s.looked.IsZero() || now.Sub(s.looked) >= findEvery || now.Before(s.looked)
	if look {
		s.looked = now
	}
	for _, group := range s.parts {
		b := newBatch(s.Node, s.Host, now)
		for _, p := range group {
			if look {
				failed = append(failed, p.find())
			}
			notes, err := p.poll(b, boot)
			failed = append(failed, err)
			for _, n := range notes {
				s.log().Info("a series starts anew", "why", n)
			}
		}
		if err := s.export(ctx, b); err != nil && ctx.Err() == nil {
			exports = append(exports, err)
		}
	}
	if now.Sub(s.saved).Abs() >= saveEvery {
		s.saved = now
		exports = append(exports, s.save())
	}
	var findings []Finding
	var unread []Meter
	for _, group := range s.parts {
		for _, p := range group {
			findings = append(findings, p.findings()...)
			if e, ok := p.(*energies); ok {
				unread = append(unread, e.unread()...)
			}
		}
	}
	s.mu.Lock()
	s.state, s.unread = findings, unread
	s.mu.Unlock()
	if ctx.Err() == nil {
		s.tell(findings, errors.Join(exports...))
	}
	return errors.Join(append(failed, exports...)...)
}

func (s *Source) startAnew(now time.Time, boot Boot) {
	for _, c := range s.components() {
		c.start, c.before = time.Time{}, nil
	}
	s.ledger.reckon(now, boot)
}

func (s *Source) components() []*component {
	var out []*component
	for _, group := range s.parts {
		for _, p := range group {
			if m, ok := p.(metered); ok {
				out = append(out, m.components()...)
			}
		}
	}
	return out
}

func (s *Source) export(ctx context.Context, b *batch) error {
	if b.empty() {
		return nil
	}
	wire, err := pmetricotlp.NewExportRequestFromMetrics(b.md).MarshalProto()
	if err == nil {
		err = s.Export(ctx, wire)
	}
	if err != nil {
		return fmt.Errorf("host: export: %w", err)
	}
	return nil
}

func (s *Source) save() error { return s.ledger.save(s.booted(), s.components()) }

// tell logs what has changed since the last poll: each meter that cannot be
// read and what to do, once, and that it can be read again.
func (s *Source) tell(findings []Finding, failure error) {
	first := s.told == nil
	if first {
		s.told = map[string]string{}
		s.introduce(findings)
	}
	now := map[string]string{}
	for _, f := range findings {
		if f.Found && f.Readable {
			continue
		}
		now[f.title()] = f.Reason
		switch was, said := s.told[f.title()]; {
		case said && numberless.Of(was) == numberless.Of(f.Reason):
		case f.Found:
			s.log().Warn("meter cannot be read", "meter", f.title(), "reason", f.Reason, "remedy", f.Remedy)
		default:
			s.log().Info("no such meters on this machine", "meter", f.title(), "reason", f.Reason, "remedy", f.Remedy)
		}
	}
	if failure != nil {
		now["export"] = failure.Error()
		if was, said := s.told["export"]; !said || numberless.Of(was) != numberless.Of(failure.Error()) {
			s.log().Warn("host meters failed", "err", failure)
		}
	}
	for name := range s.told {
		if _, still := now[name]; !still && findings != nil {
			s.log().Info("meter is read again", "meter", name)
		}
	}
	if findings == nil { // a poll that was left out says nothing of the meters
		for name, why := range s.told {
			if _, known := now[name]; !known {
				now[name] = why
			}
		}
	}
	s.told = now
}

// introduce says what is read, in one line.
func (s *Source) introduce(findings []Finding) {
	counts := map[string]int{}
	for _, f := range findings {
		if f.Found && f.Readable {
			counts[f.Kind]++
		}
	}
	var args []any
	for _, kind := range []string{KindRAPL, KindCPUFreq, KindHwmon, KindNVML, KindPressure, KindNetwork, KindInfiniBand} {
		args = append(args, kind, counts[kind])
	}
	s.log().Info("host meters", args...)
}
