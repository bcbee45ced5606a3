package ingest

import (
	"net"
	"sync"
)

// LimitListener returns l with at most 256 connections open at a time; more
// wait in the kernel's queue until one ends.
func LimitListener(l net.Listener) net.Listener {
	return &limitListener{Listener: l, slots: make(chan struct{}, 256), closed: make(chan struct{})}
}

type limitListener struct {
	net.Listener
	slots  chan struct{} // holds one element for each open connection
	closed chan struct{}
	once   sync.Once
}

func (l *limitListener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &limitedConn{Conn: c, slots: l.slots}, nil
}

func (l *limitListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	slots chan struct{}
	once  sync.Once
}

func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { <-c.slots })
	return err
}
