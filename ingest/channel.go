package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"sync/atomic"
	"time"
)

// Class says how far the senders on a channel are trusted (decisions.md X1).
type Class string

const (
	// Node is a trusted producer: what it says of its resource stands.
	Node Class = "node"
	// Workload is untrusted: what it says of its identity is deleted, and the
	// identity of the channel's activation is set.
	Workload Class = "workload"
)

// Gauge says what is stored when several streams of a workload channel give one
// series of a gauge (S2-84).
type Gauge string

const (
	GaugeLast Gauge = "last" // the newest value, whoever sent it
	GaugeMin  Gauge = "min"  // over the newest value of each stream
	GaugeMax  Gauge = "max"
	GaugeAvg  Gauge = "avg"
)

// Limits bound what one channel may take. 0 is the default of the channel's class,
// and below 0 a rate is unbounded. A bucket holds one second of its rate, or for
// NewSeries one minute, and begins with Series. A request that begins while its
// buckets hold something is taken whole; what it costs beyond them is a debt, and
// while there is one the channel is told to send again later.
type Limits struct {
	Points    float64 // data points, spans and log records a second; unbounded, or 10,000 for a workload channel
	Bytes     float64 // decompressed bytes a second; unbounded, or 4 MiB
	NewSeries float64 // series a minute that were not there before; unbounded, or 1,000
	Streams   int     // requests at a time; 256, or 16
	Conns     int     // connections; 256
	// Series is how many series the channel may have: of a workload channel also
	// those that have fallen idle in the last 3 h. 200,000, or 20,000.
	Series int
}

// ChannelOptions is what a Channel is made of.
type ChannelOptions struct {
	Name  string // also the value of the label "channel" on the series of a workload channel
	Class Class  // empty means Node
	// Nodes are the values of k8s.node.name that a node channel takes; empty
	// means any.
	Nodes  []string
	Gauge  Gauge // empty means GaugeLast
	Limits Limits
}

// Channel is one named way into a Receiver: its series, its limits and its
// counts. What is sent on it goes through an Activation. It is safe for
// concurrent use.
type Channel struct {
	r *Receiver
	o ChannelOptions
	m *channelMetrics

	rates  rates
	conns  slots
	held   int64       // bytes in flight, guarded by the admission
	line   line        // of who waits for the receiver, guarded by it
	series seriesCount // guarded by the receiver's turn

	mu   sync.Mutex
	live *Activation // of a node channel for ever

	// Of the streams of increments that are remembered for it: how many there are,
	// their bucket counts, and when the idle ones were dropped last for want of
	// room, in Unix milliseconds. The Receiver's lock guards them.
	streams, counts int
	cramped         int64
}

var channelNames = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// ErrLive says that a channel has an activation already: one listener, one
// actor (S2-15).
var ErrLive = errors.New("another activation is live on the channel: end it first")

// errEnded answers what comes after the end of an activation. The sender may
// repeat it, on a new connection.
var errEnded = errors.New("otlp: the activation of this channel has ended: connect again")

// errIdle answers on a workload channel that nobody has activated.
var errIdle = errors.New("otlp: the channel has no activation")

// Check says what is wrong with the options of a channel.
func (o *ChannelOptions) Check() error {
	switch cmp.Or(o.Class, Node) {
	case Node, Workload:
	default:
		return InKey("class", "class %q: want node or workload", o.Class)
	}
	switch cmp.Or(o.Gauge, GaugeLast) {
	case GaugeLast, GaugeMin, GaugeMax, GaugeAvg:
	default:
		return InKey("gauge", "gauge %q: want last, min, max or avg", o.Gauge)
	}
	if !channelNames.MatchString(o.Name) {
		return InKey("name", "%q: a name is 1 to 63 letters, digits, '.', '_' and '-', and begins with a letter or a digit", o.Name)
	}
	return nil
}

// AddChannel makes a channel. The name must be new.
func (r *Receiver) AddChannel(o ChannelOptions) (*Channel, error) {
	o.Class, o.Gauge = cmp.Or(o.Class, Node), cmp.Or(o.Gauge, GaugeLast)
	if err := o.Check(); err != nil {
		return nil, fmt.Errorf("channel %s: %w", o.Name, err)
	}
	r.chanMu.Lock()
	defer r.chanMu.Unlock()
	if r.channels[o.Name] != nil {
		return nil, fmt.Errorf("channel %s: there is one of that name", o.Name)
	}
	o.Limits = o.Limits.withDefaults(o.Class)
	c := &Channel{r: r, o: o, m: r.metrics.channel(o.Name), conns: newSlots(o.Limits.Conns)}
	if o.Class == Workload {
		c.line.class = workloadRing
	}
	c.rates.init(o.Limits)
	for _, why := range refusals {
		r.refused.WithLabelValues(o.Name, why) // 0 is a figure too
	}
	c.series.init(o.Limits)
	r.channels[o.Name] = c
	if o.Class == Node {
		c.live = &Activation{c: c, src: origin{channel: c}}
	}
	return c, nil
}

// Named returns the channel of that name, nil when there is none.
func (r *Receiver) Named(name string) *Channel {
	r.chanMu.Lock()
	defer r.chanMu.Unlock()
	return r.channels[name]
}

// Remove forgets a channel that has not taken a request yet: its name may be
// given again, and its counts are gone. What is sent on it later is refused.
func (c *Channel) Remove() {
	if a := c.Live(); a != nil {
		a.End()
	}
	c.r.chanMu.Lock()
	defer c.r.chanMu.Unlock()
	if c.r.channels[c.o.Name] == c {
		delete(c.r.channels, c.o.Name)
		c.r.metrics.remove(c.o.Name)
		c.r.transports.remove(c.o.Name)
	}
}

// Channel returns the channel of that name, made as a node channel without
// limits of its own when there is none. It panics where AddChannel would fail.
func (r *Receiver) Channel(name string) *Channel {
	if c := r.Named(name); c != nil {
		return c
	}
	c, err := r.AddChannel(ChannelOptions{Name: name})
	if err != nil {
		r.chanMu.Lock()
		defer r.chanMu.Unlock()
		if c = r.channels[name]; c == nil { // else another made it meanwhile
			panic("BUG: ingest: " + err.Error())
		}
	}
	return c
}

// Name is the channel's name.
func (c *Channel) Name() string { return c.o.Name }

// Class is how far its senders are trusted.
func (c *Channel) Class() Class { return c.o.Class }

// Lag is the age of the newest accepted point of the last request when it was
// stored; ok is false before the first.
func (c *Channel) Lag() (lag time.Duration, ok bool) {
	ms := c.m.last.Load()
	return time.Duration(ms-1) * time.Millisecond, ms > 0
}

// Took counts samples under the channel's name that came in by another way than
// its activation, with the newest of their times; both times in Unix milliseconds.
func (c *Channel) Took(samples int, now, newest int64) {
	if samples > 0 {
		c.m.accepted.Add(float64(samples))
		c.m.late(now, newest)
	}
}

// Live is the activation that requests are taken under: for a node channel the
// one that it has had from the start, for a workload channel the one that
// Activate made last, nil when that has ended.
func (c *Channel) Live() *Activation {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.live
}

// Activate begins to take requests on a workload channel under an identity. at
// is the begin of the activation; since, which may be earlier, is the time from
// which the actor's work is to be counted here: what was counted before it
// belongs to whatever the actor was restored from, or was counted elsewhere
// (S2-74, S2-76, S2-77). For an actor that was suspended and is resumed on this
// node, without having run on another one between, it is the since of the
// activation before. The error is ErrLive while another activation is live
// (S2-15), or says what the identity lacks.
func (c *Channel) Activate(id Identity, at, since time.Time) (*Activation, error) {
	return c.activate(id, at, since, since)
}

// Resume is Activate for an actor that was here before, where nobody says
// whether it ran on another node between. Its delta windows are its own since
// first, its earliest activation here: each stands for itself. Of a cumulative
// counter only what grows after at can be told to be counted nowhere else
// (S2-74).
func (c *Channel) Resume(id Identity, at, first time.Time) (*Activation, error) {
	return c.activate(id, at, first, at)
}

func (c *Channel) activate(id Identity, at, since, alone time.Time) (*Activation, error) {
	if c.o.Class != Workload {
		return nil, fmt.Errorf("channel %s: a channel of class node has no identity to set: its producers are trusted", c.o.Name)
	}
	if err := id.Check(); err != nil {
		return nil, fmt.Errorf("channel %s: %w", c.o.Name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live != nil {
		return nil, fmt.Errorf("channel %s: %w", c.o.Name, ErrLive)
	}
	st, err := newStamp(&c.r.w.naming, c.r.o.AttributePrefix, c.o.Name, id)
	if err != nil {
		return nil, fmt.Errorf("channel %s: %w", c.o.Name, err)
	}
	// No later than at, which is also what the zero time stands for.
	nanos := func(t time.Time) uint64 {
		if t.IsZero() || t.After(at) {
			t = at
		}
		return uint64(t.UnixNano())
	}
	c.live = &Activation{c: c, id: id, at: at, src: origin{channel: c, stamp: st, actor: id.ActorUID, since: nanos(since), alone: nanos(alone)}}
	return c.live, nil
}

// Export is Activation.Export on the live activation.
func (c *Channel) Export(ctx context.Context, wire []byte) (Result, error) {
	a := c.Live()
	if a == nil {
		return Result{}, &UnavailableError{errIdle}
	}
	return a.Export(ctx, wire)
}

// ExportJSON is Export for a body in OTLP's JSON mapping.
func (c *Channel) ExportJSON(ctx context.Context, body []byte) (Result, error) {
	a := c.Live()
	if a == nil {
		return Result{}, &UnavailableError{errIdle}
	}
	return a.ExportJSON(ctx, body)
}

// Activation is the time during which a channel speaks for one identity.
// Nothing that arrives under one is ever stored under another: who serves a
// connection holds the activation that it was accepted under (S2-17). It is
// safe for concurrent use.
type Activation struct {
	c   *Channel
	id  Identity
	at  time.Time
	src origin

	// gate is held for reading by what is being worked on, and taken by End.
	gate  sync.RWMutex
	ended atomic.Bool
}

// Channel is the channel that the activation belongs to.
func (a *Activation) Channel() *Channel { return a.c }

// Identity is what is set on everything that arrives; zero on a node channel.
func (a *Activation) Identity() Identity { return a.id }

// Started is when it began; the zero time on a node channel.
func (a *Activation) Started() time.Time { return a.at }

// End ends the activation: what is being worked on is completed under its
// identity first, and whatever comes later is refused (S2-86). The channel may
// then be activated anew. To end a node channel's is to close it for good.
func (a *Activation) End() {
	a.gate.Lock()
	first := !a.ended.Swap(true)
	a.gate.Unlock()
	if !first {
		return
	}
	a.c.r.drop(&a.src)
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	if a.c.live == a {
		a.c.live = nil
	}
}

// enter holds the activation open until leave; false once it has ended.
func (a *Activation) enter() bool {
	a.gate.RLock()
	if a.ended.Load() {
		a.gate.RUnlock()
		return false
	}
	return true
}

func (a *Activation) leave() { a.gate.RUnlock() }

// Export stores one ExportMetricsServiceRequest in protobuf wire bytes. The
// error is a *DecodeError or an *UnavailableError. The bytes may be reused once
// it returns.
func (a *Activation) Export(ctx context.Context, wire []byte) (Result, error) {
	if !a.enter() {
		return Result{}, &UnavailableError{errEnded}
	}
	defer a.leave()
	r := a.c.r
	s := a.stamperOf(SignalMetrics)
	defer r.recycle(s)
	ack := r.acks.begin()
	defer ack.end()
	var elsewhere func() error
	if a.src.stamp != nil && r.o.Elsewhere != nil {
		elsewhere = func() error { return a.keepElsewhere(ctx, s, wire) }
	}
	res, owed, err := r.store(ctx, &a.src, wire, s.points(), elsewhere)
	if err != nil {
		return Result{}, err
	}
	// A workload's go onward before the sync. Should that fail, the retry is known
	// as one and goes nowhere.
	if a.src.stamp != nil {
		a.sendOnward(ctx, s, wire)
	}
	if err := r.settle(owed); err != nil {
		return Result{}, &UnavailableError{err}
	}
	// Everything that the answer calls stored must be durable first, also what an
	// earlier request had committed without being able to say so.
	if res.Accepted+res.Folded > 0 && r.o.Sync != nil {
		if err := ack.wait(ctx); err != nil {
			r.forget()
			return Result{}, &UnavailableError{err}
		}
	}
	if a.src.stamp == nil {
		if err := a.keepElsewhere(ctx, s, wire); err != nil {
			return Result{}, err
		}
		a.sendOnward(ctx, s, wire)
	}
	return res, nil
}

// ExportJSON is Export for a body in OTLP's JSON mapping.
func (a *Activation) ExportJSON(ctx context.Context, body []byte) (Result, error) {
	wire, free, err := a.c.wireOf(jsonRequest, body)
	defer free()
	if err != nil {
		return Result{}, err
	}
	return a.Export(ctx, wire)
}
