package ingest

import (
	"net"
	"sync"
)

// maxConns is how many connections a listener, or a channel, has unless its
// limits say otherwise.
const maxConns = 256

// LimitListener returns l with at most 256 connections open at a time. One more
// is accepted and waits unread until another ends, the rest in the kernel's queue.
func LimitListener(l net.Listener) net.Listener { return newSlots(maxConns).limit(l) }

// Listen returns l with the channel's limit of connections, which all its
// listeners share, as LimitListener does.
func (c *Channel) Listen(l net.Listener) net.Listener { return c.conns.limit(l) }

// slots hold one element for each open connection.
type slots chan struct{}

func newSlots(n int) slots { return make(slots, n) }

func (s slots) limit(l net.Listener) net.Listener {
	return &limitListener{Listener: l, slots: s, closed: make(chan struct{})}
}

type limitListener struct {
	net.Listener
	slots  slots
	closed chan struct{}
	once   sync.Once
}

func (l *limitListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	// Only now: a listener that nobody connects to must hold no slot of another.
	select {
	case l.slots <- struct{}{}: // first of all: of two that are ready select takes any
	default:
		select {
		case l.slots <- struct{}{}:
		case <-l.closed:
			_ = c.Close() // it was never read from
			return nil, net.ErrClosed
		}
	}
	return &limitedConn{Conn: c, slots: l.slots}, nil
}

func (l *limitListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	slots slots
	once  sync.Once
}

func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { <-c.slots })
	return err
}
