package ingest

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/tap"
)

// What a gRPC call may cost before its message is here.
const (
	// The library reads a message whole before a handler is asked, and nobody
	// knows its size before. This much counts as in flight meanwhile, a quarter of
	// the largest.
	expectedMessage = maxMessage / 4
	// From the headers to the answer, as over HTTP: a stream that is opened and
	// never sends its message ends then.
	callTimeout = 15 * time.Second
)

// tap is asked once the headers of a call are here, before any of its message is.
// It must not block: it runs in the one reader of the connection, whose own
// calls alone wait while a password is checked. What it takes is given back when
// the call ends, however it does.
func (s *Server) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	if err := s.letIn(ctx, info); err != nil {
		return ctx, err
	}
	c := s.a.c
	if err := c.enter(0); err != nil {
		return ctx, s.failGRPC(err)
	}
	if err := s.r.inFlight.take(c, expectedMessage); err != nil {
		c.leave()
		return ctx, s.failGRPC(err)
	}
	call := &call{c: c}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, callKey{}, call), callTimeout)
	context.AfterFunc(ctx, func() {
		cancel()
		if call.state.CompareAndSwap(callWaits, callOver) {
			call.end()
		}
	})
	return ctx, nil
}

// call is a gRPC call that was let in. What it holds goes to its handler, and back
// when the stream ends before there is one. A client that resets streams as fast as
// it opens them has no more handlers at work than its channel may.
type call struct {
	c     *Channel
	state atomic.Int32
	here  bool // the message is: the handler's alone
}

const (
	callWaits = iota // for its handler
	callBegan
	callOver
)

type callKey struct{}

// begin is the handler's; end must follow. It is false when the stream has ended
// already.
func (c *call) begin() bool { return c.state.CompareAndSwap(callWaits, callBegan) }

func (c *call) end() {
	c.arrived()
	c.c.leave()
}

// arrived gives back what was held for the message.
func (c *call) arrived() {
	if !c.here {
		c.here = true
		c.c.r.inFlight.give(c.c, expectedMessage)
	}
}
