package ingest

import (
	"cmp"
	"fmt"
	"strconv"
	"sync"
)

// withDefaults fills what is 0.
func (l Limits) withDefaults(class Class) Limits {
	d := Limits{Points: -1, Bytes: -1, NewSeries: -1, Streams: 256, Conns: maxConns, Series: defaultMaxSeries}
	if class == Workload {
		d = Limits{Points: 10_000, Bytes: 4 << 20, NewSeries: 1000, Streams: 16, Conns: maxConns, Series: 20_000}
	}
	return Limits{
		cmp.Or(l.Points, d.Points), cmp.Or(l.Bytes, d.Bytes), cmp.Or(l.NewSeries, d.NewSeries),
		cmp.Or(l.Streams, d.Streams), cmp.Or(l.Conns, d.Conns), cmp.Or(l.Series, d.Series),
	}
}

// rates hold what a channel may do now. Safe for concurrent use.
type rates struct {
	mu            sync.Mutex
	points, bytes bucket
	streams       int // requests being read or worked on
	cost          int // points of the last one
}

func (r *rates) init(l Limits) {
	r.points, r.bytes = newBucket(l.Points, l.Points), newBucket(l.Bytes, l.Bytes)
}

// limitError says which of its own limits a channel is over. The sender may
// repeat the request.
type limitError struct{ refusal, text string }

func (e *limitError) Error() string { return e.text }

// enter begins a request of about size bytes, 0 when nobody knows how many. It is
// asked before anything of the request is read; leave ends what it began. The
// error is a *limitError, or of a receiver that takes nothing yet an
// *UnavailableError.
func (c *Channel) enter(size int64) error {
	if c.r.starting {
		return &UnavailableError{errStarting}
	}
	now := c.r.o.Clock()
	r := &c.rates
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	// Those that are under way have not paid yet: each will cost about what the
	// last one did.
	case !r.points.open(now, float64(r.streams*r.cost)):
		return c.over(refusedPoints, "%s points a second", plainNumber(c.o.Limits.Points))
	case !r.bytes.open(now, float64(size)):
		return c.over(refusedBytes, "%s bytes a second", plainNumber(c.o.Limits.Bytes))
	case r.streams >= c.o.Limits.Streams:
		return c.over(refusedStreams, "%d requests at a time", c.o.Limits.Streams)
	}
	r.streams++
	return nil
}

func (c *Channel) leave() {
	c.rates.mu.Lock()
	c.rates.streams--
	c.rates.mu.Unlock()
}

func (c *Channel) over(refusal, format string, args ...any) error {
	return &limitError{refusal, fmt.Sprintf("otlp: channel %s is over its limit of "+format+": send again later", append([]any{c.o.Name}, args...)...)}
}

// plainNumber is v without an exponent.
func plainNumber(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// alone reports whether the channel has one request at most.
func (c *Channel) alone() bool {
	c.rates.mu.Lock()
	defer c.rates.mu.Unlock()
	return c.rates.streams <= 1
}

// spendBytes and spendPoints charge for what has come.
func (c *Channel) spendBytes(n int64) { c.spend(&c.rates.bytes, float64(n)) }
func (c *Channel) spendPoints(n int) {
	c.rates.mu.Lock()
	c.rates.cost = n
	c.rates.mu.Unlock()
	c.spend(&c.rates.points, float64(n))
}

func (c *Channel) spend(b *bucket, n float64) {
	if b.rate <= 0 || n == 0 { // the rate never changes
		return
	}
	now := c.r.o.Clock()
	c.rates.mu.Lock()
	b.spend(now, n)
	c.rates.mu.Unlock()
}

// Why a request was refused as a whole, where the limits of this side are why; as
// the label reason of wattloop_ingest_refused_requests_total.
const (
	refusedPoints  = "points_rate"
	refusedBytes   = "bytes_rate"
	refusedStreams = "streams"
	refusedShare   = "bytes_in_flight" // of the channel
	refusedMemory  = "memory"          // of all channels
	refusedStart   = "starting"        // there is no store yet
)

var refusals = []string{refusedPoints, refusedBytes, refusedStreams, refusedShare, refusedMemory, refusedStart}
