package pull

import (
	"context"
	"log/slog"
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
	// Sync returns once all that was committed is durable as configured; nil means
	// that there is nothing to wait for.
	Sync func(context.Context) error
	// Watch is told which rules select a reading, right after it was committed.
	Watch ingest.Watch
	// Export takes a document's metrics, one ExportMetricsServiceRequest. An error
	// says what was not stored.
	Export     func(ctx context.Context, wire []byte) error
	Clock      func() time.Time
	Agent      string      // what we call ourselves
	Legacy     func() bool // the legacy JSON is read
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Want is a reading that is asked for.
type Want struct {
	Role   Role
	Host   bool          // of a controller: the whole host's meter
	Window time.Duration // as Reader has it
}

// Source is an endpoint that is asked for one node, and what for.
type Source struct {
	Endpoint          string // CheckEndpoint
	Node              string
	Interval, Timeout time.Duration // both above 0
	Wants             []Want
	HTTP              string // a file with credentials, CA and headers (httpfile), "" for none
}

func (s Source) equal(o Source) bool {
	return s.Endpoint == o.Endpoint && s.Node == o.Node && s.Interval == o.Interval && s.Timeout == o.Timeout && s.HTTP == o.HTTP && slices.Equal(s.Wants, o.Wants)
}

// Status is how a reading is, as of the last poll.
type Status struct {
	Role      Role
	Node, URL string
	Interval  time.Duration
	LastPoll  time.Time // the zero time before the first
	Quality   Quality   // "" before the first, and after one that failed
	Watts     float64   // while Fresh
	Scope     string
	Why       string // not Fresh
	Err       string // the poll failed
}

// Manager polls a list of sources, each in a goroutine of its own. Its methods may
// be called at any time from any goroutine; Run once.
type Manager struct {
	o      Options
	polls  *prometheus.CounterVec
	wake   chan struct{}
	legacy sync.Once

	mu     sync.Mutex
	wanted []Source
	active []*poll
}

// NewManager returns a Manager that asks nobody until Apply and Run are called.
func NewManager(o Options) *Manager {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	m := &Manager{o: o, wake: make(chan struct{}, 1), polls: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "wattloop_pull_polls_total",
		Help: "Polls of HTTP endpoints by role, node and result: fresh, unchanged, warming, missing, or error (no answer, or one that cannot be read).",
	}, []string{"role", "node", "result"})}
	if o.Registerer != nil {
		o.Registerer.MustRegister(m.polls)
	}
	return m
}

// Apply replaces the list. The same list disturbs nothing; another warms up anew.
func (m *Manager) Apply(sources []Source) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if slices.EqualFunc(m.wanted, sources, Source.equal) {
		return
	}
	m.wanted = slices.Clone(sources)
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Run polls until ctx ends and waits for what is under way. No series is ended
// then: the process will be back.
func (m *Manager) Run(ctx context.Context) error {
	for {
		polling, stop := context.WithCancel(ctx)
		var running sync.WaitGroup
		polls := m.arrange()
		for _, p := range polls {
			running.Go(func() { p.run(polling) })
		}
		select {
		case <-ctx.Done():
		case <-m.wake:
		}
		stop()
		running.Wait()
		if ctx.Err() != nil {
			return nil
		}
		for _, p := range polls {
			p.end(ctx)
		}
	}
}

func (m *Manager) arrange() []*poll {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.active = nil
	for _, s := range m.wanted {
		m.active = append(m.active, newPoll(m, s))
	}
	return m.active
}

// Status lists the readings in the order of the list.
func (m *Manager) Status() []Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Status
	for _, p := range m.active {
		for _, o := range p.outputs {
			o.mu.Lock()
			out = append(out, o.status)
			o.mu.Unlock()
		}
	}
	return out
}
