package ingest

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/storage"

	"github.com/wattloop/wattloop/access"
)

// Options is what a Receiver is made of.
type Options struct {
	// Appendable is the store. The receiver is the only writer of OTLP series,
	// and holds one lock from the first append to the end of Commit. It keeps
	// series references for long: one from before the store was opened anew must
	// be void, not another series.
	Appendable storage.Appendable
	// Queryable reads the same store. A late point is compared with what its
	// series holds at that time, since a TSDB drops the second of two values in
	// silence there. Nil means Appendable, if that can be queried; if it cannot,
	// such a drop goes unseen.
	Queryable storage.Queryable
	// Sync returns once all that was committed before the call is durable as
	// configured. Nil means that a commit is enough.
	Sync func(context.Context) error
	// Clock is the wall clock of the time gate. Nil means time.Now.
	Clock func() time.Time
	// Onward takes what is received on to an upstream. Nil means that there is
	// none: traces and logs are then rejected.
	Onward Onward
	// Elsewhere, where it is set, is where metrics are kept in place of Appendable,
	// which is then nil. A request is acknowledged once it is queued there: from a
	// node channel as it came, from a workload channel stamped. All that decides on
	// a point decides as ever.
	Elsewhere Onward
	// Pass, where it is set, takes every request as it is, and its answer is the
	// sender's: nothing is read, stamped, stored or handed to Onward.
	Pass PassFunc
	// Guard knows who may push; see Server. Nil knows no credential.
	Guard *access.Guard
	// Watch tells the engine which rules' series grew.
	Watch Watch
	// OutOfOrder is how far behind the clock, and behind the newest sample of
	// its own series, a point may be. 0 means 30 min (S0-150).
	OutOfOrder time.Duration
	// Ahead is how far ahead of the clock a point may be. 0 means 60 s.
	Ahead time.Duration
	// NoTimeGate switches the comparison with the clock off, for replay.
	NoTimeGate bool
	// Lookback is the query lookback; target_info is written again once half of
	// it has passed. 0 means 5 min.
	Lookback time.Duration
	// Naming is the translation of names. Empty means
	// UnderscoreEscapingWithSuffixes (S0-152).
	Naming Naming
	// Promote lists the resource attributes that become labels of each series.
	// Nil means k8s.node.name and host.name (S0-151).
	Promote []string
	// AttributePrefix stands before the attributes that a workload channel sets.
	// Empty means "ate".
	AttributePrefix string
	// MaxSeries bounds the series that are remembered; a point of one more is
	// rejected until others fall idle. Workload channels may fill three quarters.
	// 0 means 200,000.
	MaxSeries int
	// RetryAfter says how long the sender of a request that failed with that error
	// should wait. Nil, and an answer of 0, mean 5 s.
	RetryAfter func(error) time.Duration
	// StateDir is the folder where Open keeps the running sums of delta streams
	// and what is needed to recognise a retry. Empty means in memory alone: after
	// a restart the sums then begin at zero, which reads as a counter's reset.
	StateDir string
	// StateSync makes an ack wait until the running sums are on the disk, as
	// Sync does for the samples.
	StateSync bool
	// After is the receiver that stood in until this one was there, see Starting.
	// What it counted goes on here, and Registerer has no part then.
	After *Receiver
	// Registerer takes the receiver's own metrics. Nil means none.
	Registerer prometheus.Registerer
	// Logger takes warnings. Nil means none.
	Logger *slog.Logger
}

// prefix is the word before the attributes that a workload channel sets.
func (o *Options) prefix() string { return cmp.Or(o.AttributePrefix, "ate") }

const (
	defaultOutOfOrder = 30 * time.Minute
	defaultAhead      = 60 * time.Second
	defaultLookback   = 5 * time.Minute
	defaultMaxSeries  = 200_000
)

// Receiver turns OTLP metrics requests into samples. It is safe for concurrent
// use.
type Receiver struct {
	o       Options
	metrics *metrics
	*transports
	starting bool      // and takes nothing
	stampers sync.Pool // *stamper
	acks     acks

	chanMu   sync.Mutex
	channels map[string]*Channel

	// mu is held from the first byte of a request to the end of Commit: the
	// cache, the running sums and the appender have one owner.
	mu     turns
	w      walk
	damage string // of the state that an earlier process left
}

// NewReceiver returns a receiver that writes to o.Appendable.
func NewReceiver(o Options) *Receiver {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.OutOfOrder == 0 {
		o.OutOfOrder = defaultOutOfOrder
	}
	if o.Ahead == 0 {
		o.Ahead = defaultAhead
	}
	if o.Lookback == 0 {
		o.Lookback = defaultLookback
	}
	if o.MaxSeries == 0 {
		o.MaxSeries = defaultMaxSeries
	}
	if o.Naming == "" {
		o.Naming = Namings()[0]
	}
	if o.Promote == nil {
		o.Promote = DefaultPromote()
	}
	if o.Elsewhere != nil {
		o.Appendable = nowhere{}
	}
	if o.Queryable == nil {
		o.Queryable, _ = o.Appendable.(storage.Queryable)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Receiver{o: o, channels: map[string]*Channel{}}
	if o.After != nil {
		r.metrics, r.transports = o.After.metrics, &transports{requests: o.After.requests, refused: o.After.refused}
	} else {
		r.metrics, r.transports = newMetrics(o.Registerer), newTransports(o.Registerer)
	}
	r.acks.sync, r.acks.clock = r.o.Sync, r.o.Clock
	r.w = newWalk(&r.o, r.metrics)
	return r
}

// Export stores one ExportMetricsServiceRequest in protobuf wire bytes, under
// the channel name "default". The error is a *DecodeError or an
// *UnavailableError. The bytes may be reused once it returns.
func (r *Receiver) Export(ctx context.Context, wire []byte) (Result, error) {
	return r.Channel("default").Export(ctx, wire)
}

// ExportJSON is Export for a body in OTLP's JSON mapping.
func (r *Receiver) ExportJSON(ctx context.Context, body []byte) (Result, error) {
	return r.Channel("default").ExportJSON(ctx, body)
}

// store takes one request to the end of Commit and tells the watcher. Unless it
// is nil, decisions takes what becomes of each point. The debt is to be settled
// before the request is answered. Unless it is nil, elsewhere is called once all is
// decided: after its error nothing of the request was taken.
func (r *Receiver) store(ctx context.Context, src *origin, wire []byte, decisions *[]decision, elsewhere func() error) (Result, debt, error) {
	if r.starting {
		return Result{}, debt{}, &UnavailableError{errStarting}
	}
	if err := ctx.Err(); err != nil {
		return Result{}, debt{}, &UnavailableError{err}
	}
	cm := src.channel.m
	r.mu.lock(&src.channel.line)
	defer r.mu.Unlock()
	if err := ctx.Err(); err != nil { // while it waited
		return Result{}, debt{}, &UnavailableError{err}
	}
	w := &r.w
	w.begin(src)
	w.decisions, w.elsewhere = decisions, elsewhere
	err := w.request(wire)
	src.channel.spendPoints(w.points)
	if err != nil {
		w.undo()
		return Result{}, debt{}, err
	}
	if err := w.commit(ctx); err != nil {
		cm.rejected[unavailable].Add(float64(len(w.pending)))
		w.refused()
		w.undo()
		return Result{}, debt{}, &UnavailableError{err}
	}
	w.tellGrown()
	cm.count(&w.tally, w.now, w.newestAccepted)
	r.judgeLag(src.channel)
	if w.exemplars.point > 0 {
		cm.countExemplars(&w.exemplars)
	}
	return w.tally.result(), w.debt(), nil
}

// forget drops what is known of the store's series: their references, and their
// newest samples.
func (r *Receiver) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.w.cache.epoch++
}

// drop forgets the streams of an activation that has ended; their series stay.
func (r *Receiver) drop(src *origin) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.w.cache.dropSource(src)
}
