package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/wattloop/wattloop/access"
	"github.com/wattloop/wattloop/api"
	"github.com/wattloop/wattloop/ingest"
)

// doorstep answers at the doors until the engine's process is built: senders are
// told to send again, and whoever asks that it is starting. It has its own servers
// and lends the listeners, whose queues of connections outlive it.
type doorstep struct {
	s     *servers
	at    *listeners
	g     errgroup.Group
	conns sync.WaitGroup // over HTTP
	once  sync.Once
	over  sync.WaitGroup
}

// standAt opens it.
func standAt(doors *listeners, in entry, log *slog.Logger) *doorstep {
	otlp := ingest.NewServer(in.before.Channel(defaultChannel).Live())
	d := &doorstep{at: doors.with(func(l net.Listener) net.Listener { return &lent{Listener: l} })}
	d.s = in.servers(api.Starting(api.Options{
		Door: access.Door{Guard: in.guard, Open: access.Read}, Metrics: promhttp.HandlerFor(in.reg, promhttp.HandlerOpts{}),
		Ingest: otlp.Handler(), RefuseIngest: otlp.Refuse,
	}), otlp, log)
	for _, h := range []*http.Server{d.s.web, d.s.otlp} {
		h.SetKeepAlivesEnabled(false) // what is sent next is for whoever serves then
		h.ConnState = func(_ net.Conn, now http.ConnState) {
			switch now {
			case http.StateNew:
				d.conns.Add(1)
			case http.StateClosed:
				d.conns.Done()
			}
		}
	}
	d.s.serve(&d.g, d.at.with(ingest.LimitListener))
	return d
}

// leave gives the listeners to whoever serves on them next, while what is in flight
// is still answered. It may be called twice.
func (d *doorstep) leave() {
	d.once.Do(func() {
		for _, l := range []net.Listener{d.at.web, d.at.grpc, d.at.http, d.at.socket} {
			if l != nil {
				l.Close() // which ends Serve, see lent
			}
		}
		d.over.Go(d.drain)
	})
}

// drain ends the servers. Each connection over HTTP has its answer first: Shutdown
// would close one whose request has just come.
func (d *doorstep) drain() {
	ctx, done := context.WithTimeout(context.Background(), stopDeadline)
	defer done()
	answered := make(chan struct{})
	go func() {
		d.conns.Wait()
		close(answered)
	}()
	select {
	case <-answered:
	case <-ctx.Done(): // one that has never sent a request
	}
	d.s.shut(ctx)
}

// wait returns once all is answered.
func (d *doorstep) wait() error {
	d.over.Wait()
	return d.g.Wait()
}

// lent is a listener of somebody else's: Close ends Accept, and leaves it open. That
// is no failure of the server that accepts.
type lent struct {
	net.Listener
	accepting sync.Mutex
	closing   atomic.Bool
	once      sync.Once
	err       error
}

func (l *lent) Accept() (net.Conn, error) {
	l.accepting.Lock()
	defer l.accepting.Unlock()
	if l.closing.Load() {
		return nil, http.ErrServerClosed
	}
	c, err := l.Listener.Accept()
	if err != nil && l.closing.Load() {
		return nil, http.ErrServerClosed
	}
	return c, err
}

func (l *lent) Close() error {
	l.once.Do(func() {
		l.closing.Store(true)
		d := l.Listener.(interface{ SetDeadline(time.Time) error }) // TCP or unix
		l.err = d.SetDeadline(time.Unix(1, 0))
		l.accepting.Lock()
		defer l.accepting.Unlock()
		l.err = errors.Join(l.err, d.SetDeadline(time.Time{}))
	})
	return l.err
}
