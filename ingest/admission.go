package ingest

import (
	"errors"
	"sync"
)

// The bytes of the requests that are being worked on at once.
const (
	maxInFlight = 64 << 20
	// Workload channels together may hold this much of it, so that node channels
	// always find room.
	workloadInFlight = 48 << 20
	// One workload channel may hold this much with more than one request.
	channelInFlight = 16 << 20
)

// errBusy says that the bytes in flight of all channels are at their limit.
var errBusy = errors.New("otlp: 64 MiB of requests are being worked on, or 48 MiB of workload channels': send again later")

// admission bounds the bytes of the requests that are being worked on at once,
// over all transports of all Servers of a Receiver. Beyond its limit a request is
// turned away with an answer that asks for a repeat, so that a burst costs senders
// time and never costs the process its memory. Safe for concurrent use.
type admission struct {
	mu             sync.Mutex
	held, workload int64 // by all, and by workload channels
}

// take reserves n bytes for a channel, or reserves nothing and says why: errBusy,
// or a *limitError where it is the channel's own doing.
func (a *admission) take(c *Channel, n int64) error {
	own := c.o.Class == Workload && !c.alone()
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case own && c.held+n > channelInFlight:
		return c.over(refusedShare, "%d MiB in more than one request", channelInFlight>>20)
	case a.held+n > maxInFlight, c.o.Class == Workload && a.workload+n > workloadInFlight:
		return errBusy
	}
	a.add(c, n)
	return nil
}

// give returns n bytes that take reserved.
func (a *admission) give(c *Channel, n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.add(c, -n)
}

func (a *admission) add(c *Channel, n int64) {
	a.held += n
	c.held += n
	if c.o.Class == Workload {
		a.workload += n
	}
}
