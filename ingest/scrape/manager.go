package scrape

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/storage"

	"github.com/wattloop/wattloop/ingest"
)

// Options are what a Manager writes to and tells.
type Options struct {
	Store storage.Appendable
	// Sync returns once all that was committed before the call is durable as
	// configured; nil means that there is nothing to wait for.
	Sync func(context.Context) error
	// Watch is told which rules select what was stored, right after each commit.
	Watch ingest.Watch
	// Took hears of each page that was stored: how many samples, the time then and
	// the newest of the samples' times, in Unix milliseconds. Nil means nobody.
	Took func(samples int, now, newest int64)
	// OutOfOrder is how far behind the clock a time on a page may lie; 0 means
	// 30 minutes.
	OutOfOrder time.Duration
	Clock      func() time.Time
	Agent      string // what we call ourselves to the exporters
	Log        *slog.Logger
	Registerer prometheus.Registerer

	dial func(ctx context.Context, network, address string) (net.Conn, error) // of tests
}

const defaultOutOfOrder = 30 * time.Minute

// Manager scrapes a list of targets, each in a goroutine of its own. Its methods
// may be called at any time from any goroutine; Run once.
type Manager struct {
	o       Options
	metrics *metrics
	wake    chan struct{}

	mu     sync.Mutex
	wanted []Target
	loops  map[string]*loop // by the target's own labels; also those that linger
	active []*loop
}

// NewManager returns a Manager that scrapes nothing until Apply and Run are
// called.
func NewManager(o Options) *Manager {
	o.OutOfOrder = cmp.Or(o.OutOfOrder, defaultOutOfOrder)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Manager{o: o, metrics: newMetrics(o.Registerer), wake: make(chan struct{}, 1), loops: map[string]*loop{}}
}

// Apply replaces the list. A target that stays is not disturbed; one of which more
// than its labels has changed goes on with the series that it has; the series of
// one that is gone end two of its intervals later. The targets must pass Check and
// differ in Own.
func (m *Manager) Apply(targets []Target) {
	m.mu.Lock()
	m.wanted = slices.Clone(targets)
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Run scrapes until ctx ends, and then waits for all that is under way. No series
// is ended then: the process will be back.
func (m *Manager) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		m.arrange(ctx, &running)
		select {
		case <-ctx.Done():
			return nil
		case <-m.wake:
		}
	}
}

// arrange makes the loops be those of the list.
func (m *Manager) arrange(ctx context.Context, running *sync.WaitGroup) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var active []*loop
	for _, t := range m.wanted {
		t = t.withDefaults()
		own := t.Own()
		key := own.String()
		was := m.loops[key]
		if was != nil && slices.Contains(m.active, was) && was.target.equal(&t) {
			active = append(active, was)
			continue
		}
		l := m.newLoop(t, was)
		scraping, quit := context.WithCancel(ctx)
		l.quit = quit
		m.loops[key] = l
		active = append(active, l)
		running.Go(func() {
			defer quit()
			l.run(ctx, scraping)
			m.forget(key, l)
		})
	}
	for _, l := range m.active {
		if !slices.Contains(active, l) {
			l.quit()
			m.metrics.remove(l.target.URL)
		}
	}
	m.active = active
}

// newLoop makes the loop of a target, which takes over from the one before it.
func (m *Manager) newLoop(t Target, was *loop) *loop {
	own := t.Own()
	l := &loop{
		target: t, o: &m.o, page: newPage(&t, &m.o),
		w:     writer{store: m.o.Store, sync: m.o.Sync, growth: ingest.Growth{Watch: m.o.Watch}},
		m:     m.metrics.target(t.URL),
		log:   m.o.Log.With("target", t.URL),
		phase: own.Hash() % uint64(t.Interval),
		taken: make(chan struct{}), done: make(chan struct{}),
	}
	st := l.newStatus()
	if was == nil {
		l.book = newBook(own)
	} else {
		close(was.taken)
		was.quit()
		<-was.done
		l.book = was.book
	}
	l.status.Store(&st)
	return l
}

// forget drops a loop that has ended.
func (m *Manager) forget(key string, l *loop) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.loops[key] == l {
		delete(m.loops, key)
	}
}

// Status is how a target is.
type Status struct {
	URL, Job, Instance string
	Interval           time.Duration
	LastScrape         time.Time // when it began; the zero time before the first
	Took               time.Duration
	Up                 bool
	// Samples are on the last page; Stored of them were taken, and NotStored were
	// refused or blank.
	Samples, Stored, NotStored int
	Err                        string // why it is not up, or why nothing was stored
}

func (l *loop) newStatus() Status {
	own := l.target.Own()
	return Status{URL: l.target.URL, Job: own.Get(jobLabel), Instance: own.Get(instanceLabel), Interval: l.target.Interval}
}

// Status lists the targets in the order of the configuration.
func (m *Manager) Status() []Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]Status, 0, len(m.active))
	for _, l := range m.active {
		out = append(out, *l.status.Load())
	}
	return out
}
