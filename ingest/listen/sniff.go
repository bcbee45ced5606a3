package listen

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// patience is how long a connection may say nothing before it is closed: as long
// as a client may take for the headers of its request.
const patience = 5 * time.Second

// preface begins every HTTP/2 connection with prior knowledge, which is all that
// gRPC is spoken on here, and no HTTP/1 request (RFC 9113, 3.4).
const preface = "PRI "

// conn is one accepted connection, with the bytes that were read to tell its
// transport.
type conn struct {
	net.Conn
	d       *door
	unknown atomic.Bool // nothing tells its transport yet
	read    []byte      // not yet read by the server
	once    sync.Once
}

// Read implements net.Conn. One goroutine reads at a time, as all servers do.
func (c *conn) Read(p []byte) (int, error) {
	if len(c.read) > 0 {
		n := copy(p, c.read)
		c.read = c.read[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// Close closes the connection, and the door forgets it.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { c.d.forget(c) })
	return err
}

// NetConn is the connection as it was accepted.
func (c *conn) NetConn() net.Conn { return c.Conn }

// isGRPC reads as little as tells the transports apart. ok is false when the
// other side has said nothing, or too slowly.
func (c *conn) isGRPC() (grpc, ok bool) {
	late := time.AfterFunc(patience, func() { c.Close() })
	defer late.Stop()
	buf := make([]byte, len(preface))
	for n := 0; n < len(preface); {
		got, err := c.Conn.Read(buf[n:])
		if got > 0 {
			n += got
			c.read = buf[:n]
			if preface[:n] != string(c.read) {
				return false, true
			}
		}
		if err != nil {
			return false, false
		}
	}
	return true, true
}

// queue is a net.Listener of connections that were accepted elsewhere.
type queue struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newQueue(addr net.Addr) *queue {
	return &queue{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{})}
}

// put hands c to the server, or closes it when that has ended.
func (q *queue) put(c net.Conn) {
	select {
	case q.conns <- c:
	case <-q.closed:
		c.Close()
	}
}

func (q *queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.closed:
		return nil, net.ErrClosed
	}
}

func (q *queue) Close() error {
	q.once.Do(func() { close(q.closed) })
	return nil
}

func (q *queue) Addr() net.Addr { return q.addr }
