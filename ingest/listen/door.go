package listen

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/wattloop/wattloop/ingest"
)

// door is the listeners of one activation with all the connections that they have
// accepted. Another activation has another door: a connection never changes
// hands (S2-17).
type door struct {
	act       *ingest.Activation
	listeners []net.Listener
	http      *http.Server
	grpc      *grpc.Server
	hq, gq    *queue
	key       []byte // proves that an answer came from here
	log       *slog.Logger

	ready   chan struct{} // closed once the self-test has passed; requests wait for it
	closing chan struct{}
	servers sync.WaitGroup
	loops   sync.WaitGroup // who accepts, and who finds out the transport

	mu    sync.Mutex
	conns map[*conn]struct{}
	shut  bool
	err   error // why it does not accept
}

// newDoor takes over the listeners. Nothing is accepted before serve.
func newDoor(a *ingest.Activation, ls []net.Listener, log *slog.Logger) *door {
	s := ingest.NewServer(a)
	d := &door{
		act: a, http: s.HTTP(), grpc: s.GRPC(), log: log,
		hq: newQueue(ls[0].Addr()), gq: newQueue(ls[0].Addr()),
		key:   make([]byte, 32),
		ready: make(chan struct{}), closing: make(chan struct{}), conns: map[*conn]struct{}{},
	}
	for _, l := range ls {
		d.listeners = append(d.listeners, a.Channel().Listen(l))
	}
	rand.Read(d.key) // which never fails
	d.http.Handler = d.gate(d.http.Handler)
	return d
}

// serve accepts until stop.
func (d *door) serve() {
	d.servers.Go(func() {
		if err := d.http.Serve(d.hq); !errors.Is(err, http.ErrServerClosed) {
			d.failed(err)
		}
	})
	d.servers.Go(func() {
		if err := d.grpc.Serve(d.gq); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			d.failed(err)
		}
	})
	for _, l := range d.listeners {
		d.loops.Go(func() { d.accept(l) })
	}
}

// accept takes connections from l.
func (d *door) accept(l net.Listener) {
	const longest = time.Second
	wait := 5 * time.Millisecond
	for {
		nc, err := l.Accept()
		if err == nil {
			wait = 5 * time.Millisecond
			d.failed(nil)
			if c := d.admit(nc); c != nil {
				d.loops.Go(func() { d.route(c) })
			}
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		d.failed(err) // for one, no descriptor is left; it may pass
		select {
		case <-time.After(wait):
		case <-d.closing:
			return
		}
		wait = min(2*wait, longest)
	}
}

// failed notes why nothing is accepted, and nil that something was.
func (d *door) failed(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.shut && err != nil && d.err == nil {
		d.log.Warn("channel does not accept", "channel", d.act.Channel().Name(), "err", err)
	}
	d.err = err
}

// admit notes a connection, nil when the door has been shut meanwhile.
func (d *door) admit(nc net.Conn) *conn {
	c := &conn{Conn: nc, d: d}
	c.unknown.Store(true)
	d.mu.Lock()
	shut := d.shut
	if !shut {
		d.conns[c] = struct{}{}
	}
	d.mu.Unlock()
	if shut {
		c.Close()
		return nil
	}
	return c
}

func (d *door) forget(c *conn) {
	d.mu.Lock()
	delete(d.conns, c)
	d.mu.Unlock()
}

// route hands a connection to the server that speaks its transport.
func (d *door) route(c *conn) {
	isGRPC, ok := c.isGRPC()
	c.unknown.Store(false)
	switch {
	case !ok:
		c.Close()
	case !isGRPC:
		d.hq.put(c)
	default:
		select {
		case <-d.ready:
			d.gq.put(c)
		case <-d.closing:
			c.Close()
		}
	}
}

// gate lets no request in before the self-test has passed, but for the test's own.
func (d *door) gate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == provePath {
			d.prove(w, req)
			return
		}
		select {
		case <-d.ready:
		case <-d.closing: // and next refuses
		case <-req.Context().Done():
			return
		}
		next.ServeHTTP(w, req)
	})
}

// stop shuts the door: no connection is accepted any more, what is being worked
// on is completed under the old identity, what comes later is refused, and the
// answers have until grace before every connection is closed (S2-16, S2-86). end
// says to end the activation too. When stop returns, nothing of the door is left.
func (d *door) stop(grace time.Duration, end bool) {
	for _, l := range d.listeners {
		l.Close() // it may be closed already
	}
	if end {
		d.act.End()
	}
	d.mu.Lock()
	d.shut = true
	d.mu.Unlock()
	close(d.closing)
	ctx, done := context.WithTimeout(context.Background(), grace)
	defer done()
	var ending sync.WaitGroup
	ending.Go(func() {
		defer context.AfterFunc(ctx, d.grpc.Stop)()
		d.grpc.GracefulStop()
	})
	ending.Go(func() {
		if d.http.Shutdown(ctx) != nil {
			d.http.Close()
		}
	})
	// Who has not said which transport it speaks has no request either.
	d.closeConns(func(c *conn) bool { return c.unknown.Load() })
	all := func() { d.closeConns(func(*conn) bool { return true }) }
	late := context.AfterFunc(ctx, all) // gRPC's own Stop waits for who does not finish its handshake
	ending.Wait()
	late()
	all()
	d.loops.Wait()
	d.servers.Wait()
}

func (d *door) closeConns(which func(*conn) bool) {
	d.mu.Lock()
	var all []*conn
	for c := range d.conns {
		if which(c) {
			all = append(all, c)
		}
	}
	d.mu.Unlock()
	for _, c := range all {
		c.Close()
	}
}

// trouble is why it does not accept, nil while it does.
func (d *door) trouble() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}
