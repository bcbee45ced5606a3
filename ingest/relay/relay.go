package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/wattloop/wattloop/ingest"
	"github.com/wattloop/wattloop/queue"
)

// ErrClosed says that the relay takes no more requests.
var ErrClosed = errors.New("relay: closed")

// DefaultMaxBytes is Options.MaxBytes unless set.
const DefaultMaxBytes = 256 << 20

// defaultTimeout is Options.Timeout unless set.
const defaultTimeout = 30 * time.Second

// Options configure a Relay.
type Options struct {
	// Upstream takes both planes. Fallback, which may be nil, takes what is the
	// platform's while the upstream cannot be reached; nothing of a workload ever
	// goes there (S2-66, S2-68).
	Upstream Address
	Fallback *Address
	// Post, where it is set, is the way to the upstream over OTLP/HTTP, in place of
	// Upstream.
	Post *Post
	// Sent, where it is set, is called after each request that was taken. It must
	// not block.
	Sent func(ingest.Signal)

	// Name is what the relay is called in the names of its metrics and in what it
	// logs; empty means relay.
	Name string

	Dir string // of the queues; made when it is not there
	// MaxBytes bounds the queues on disk: a quarter is the platform's alone, the
	// rest the workloads'. 0 means DefaultMaxBytes.
	MaxBytes int64
	// Fsync makes Forward wait until the request would survive a loss of power.
	// It survives the death of the process in any case.
	Fsync bool

	Timeout time.Duration  // of one attempt; 0 means 30 s
	Dial    Dial           // nil means the operating system's
	Jitter  func() float64 // in [0,1), for the delays between attempts; nil means none

	Registerer prometheus.Registerer // may be nil
	Logger     *slog.Logger          // may be nil
	Clock      func() time.Time      // nil means time.Now
}

// Relay hands requests on to an upstream, at least once each, in the order in
// which a plane was given them. It implements ingest.Onward and is safe for
// concurrent use.
type Relay struct {
	planes  []*plane
	lock    *os.File
	cancel  context.CancelFunc
	senders sync.WaitGroup
	close   sync.Once
	err     error
}

var _ ingest.Onward = (*Relay)(nil)

// upstream is where requests go, in words.
func (o *Options) upstream() string {
	if o.Post != nil {
		return o.Post.URL.String()
	}
	return o.Upstream.String()
}

// Open takes over the queues of Options.Dir and begins to send.
func Open(o Options) (*Relay, error) {
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.Jitter == nil {
		o.Jitter = func() float64 { return 0 }
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Name == "" {
		o.Name = "relay"
	}
	log := quiet(o.Logger)
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	lock, err := lockDir(o.Dir)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &Relay{lock: lock, cancel: cancel}
	m := newMetrics(o.Registerer, o.Name)
	for _, name := range []ingest.Plane{ingest.PlanePlatform, ingest.PlaneWorkload} {
		p := &plane{name: name, o: &o, m: m, log: log.With("plane", name), closing: make(chan struct{}), said: map[string]time.Time{}}
		if err := p.open(); err != nil {
			cancel()
			return nil, errors.Join(fmt.Errorf("relay: %s: %w", name, err), r.free())
		}
		r.planes = append(r.planes, p)
	}
	for _, p := range r.planes {
		r.senders.Go(func() { p.run(ctx) })
	}
	return r, nil
}

// lockDir keeps two processes from one queue.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("relay: %s: another process has the queue open; give this one its own state.path", dir), f.Close())
	}
	return f, nil
}

// open makes the queue and the connections of a plane.
func (p *plane) open() error {
	share := p.o.MaxBytes / 4
	if p.name == ingest.PlaneWorkload {
		share = p.o.MaxBytes - share
	}
	var err error
	if p.q, err = queue.Open(p.queue(share)); err != nil {
		return err
	}
	if p.o.Post == nil {
		if p.up, err = connect(p.o.Upstream, p.o.Dial); err != nil {
			return errors.Join(err, p.q.Close())
		}
	}
	if p.o.Fallback != nil && p.name == ingest.PlanePlatform {
		if p.back, err = connect(*p.o.Fallback, p.o.Dial); err != nil {
			if p.up != nil {
				err = errors.Join(err, p.up.Close())
			}
			return errors.Join(err, p.q.Close())
		}
	}
	p.m.begin(p.name)
	p.measure()
	return nil
}

// Forward queues one request. It returns once that is as durable as
// Options.Fsync says; the bytes are then the caller's again. The error is
// ingest.ErrNoRoom, ErrClosed, that of ctx, or says what the disk refused.
func (r *Relay) Forward(ctx context.Context, f ingest.Forwarded) error {
	for _, p := range r.planes {
		if p.name == f.Plane {
			return p.forward(ctx, f.Signal, f.Wire)
		}
	}
	return fmt.Errorf("relay: BUG: no such plane: %q", f.Plane)
}

// Status is how each plane stands, the platform's first.
func (r *Relay) Status() []Status {
	out := make([]Status, len(r.planes))
	for i, p := range r.planes {
		out[i] = p.status()
	}
	return out
}

// Close takes no more requests, sends what the upstream takes at once, until ctx
// ends, and keeps the rest on disk for the next Open.
func (r *Relay) Close(ctx context.Context) error {
	r.close.Do(func() {
		stop := context.AfterFunc(ctx, r.cancel)
		defer stop()
		for _, p := range r.planes {
			p.q.Refuse()
			close(p.closing)
		}
		r.senders.Wait()
		r.cancel()
		r.err = r.free()
	})
	return r.err
}

func (r *Relay) free() error {
	var errs []error
	for _, p := range r.planes {
		errs = append(errs, p.q.Close())
		for _, cc := range []*grpc.ClientConn{p.up, p.back} {
			if cc != nil {
				errs = append(errs, cc.Close())
			}
		}
	}
	return errors.Join(append(errs, r.lock.Close())...)
}
