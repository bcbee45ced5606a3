package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/wattloop/wattloop/access"
	"github.com/wattloop/wattloop/access/webfile"
	"github.com/wattloop/wattloop/ingest"
)

// entry is who comes in, and how it is made sure.
type entry struct {
	guard  *access.Guard
	web    *webfile.File    // nil: no TLS and no users
	before *ingest.Receiver // takes nothing, until there is a store
	reg    *prometheus.Registry
}

// entry reads the credentials and the web file.
func (c *config) entry(clk clock, log *slog.Logger) (entry, error) {
	web, guard, err := c.admit()
	if err != nil {
		return entry{}, err
	}
	if web != nil {
		web.Failed = func(err error) { log.Error("web.config_file", "err", err) }
	}
	c.warnReadable(log)
	reg := prometheus.NewRegistry()
	before := ingest.Starting(ingest.Options{Guard: guard, Clock: clk.Now, Registerer: reg, Logger: log.With("part", "ingest")})
	return entry{guard, web, before, reg}, nil
}

// accessAgain is who may do what after a reload. The addresses and the web file
// stay as they were; what needs a restart is told elsewhere.
func (p *parts) accessAgain(c *config) (access.Config, error) {
	now := *p.c
	now.Access, now.WebHosts, now.origin = c.Access, c.WebHosts, c.origin
	if _, err := now.checkDoors(); err != nil {
		return access.Config{}, err
	}
	who, err := now.accessConfig(p.web)
	if err != nil {
		return who, err
	}
	_, err = access.NewGuard(who)
	return who, now.inAccess(err)
}

// letIn has the guard and the socket go by a configuration that was found good.
func (p *parts) letIn(c *config, who access.Config) error {
	err := p.guard.Replace(who)
	if p.c.APISocket != "" {
		err = errors.Join(err, os.Chmod(p.c.APISocket, socketMode(c.Access.hasPeer())))
	}
	return err
}

// warnReadable tells of a configuration file that others may read with a token in
// it. One that came from a variable is not.
func (c *config) warnReadable(log *slog.Logger) {
	fi, err := os.Stat(c.File)
	if err != nil || fi.Mode().Perm()&0o007 == 0 {
		return
	}
	data, err := os.ReadFile(c.File)
	if err == nil && slices.ContainsFunc(c.Access, func(e accessEntry) bool { return e.token != "" && bytes.Contains(data, []byte(e.token)) }) {
		log.Warn("everybody on this machine may read the tokens in the configuration file: use token_file, or chmod it", "file", c.File)
	}
}

// servers are the ones that answer at the doors.
type servers struct {
	web, otlp *http.Server
	grpc      *grpc.Server
	secure    bool // over TCP they speak TLS
}

// servers makes them, under the web file's TLS if it has any.
func (e entry) servers(api http.Handler, ingest *ingest.Server, log *slog.Logger) *servers {
	const h1, h2 = "http/1.1", "h2"
	s := &servers{
		web:  &http.Server{Handler: api, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: 60 * time.Second, MaxHeaderBytes: 16 << 10},
		otlp: ingest.HTTP(),
	}
	var options []grpc.ServerOption
	if e.web.TLS() != nil {
		s.secure = true
		protocols := []string{h2, h1}
		if !e.web.HTTP2() {
			protocols = protocols[1:]
		}
		quiet := slog.NewLogLogger(log.Handler(), slog.LevelDebug) // whoever knocks and goes
		for _, h := range []*http.Server{s.web, s.otlp} {
			h.Protocols = new(http.Protocols)
			h.Protocols.SetHTTP1(true)
			h.Protocols.SetHTTP2(e.web.HTTP2())
			h.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 16}
			h.TLSConfig, h.ErrorLog = e.web.TLS(protocols...), quiet
			h.Handler = withWebHeader(e.web, h.Handler)
		}
		options = append(options, grpc.Creds(credentials.NewTLS(e.web.TLS(h2))))
	}
	s.grpc = ingest.GRPC(options...)
	return s
}

// withWebHeader puts the headers of the web file on each answer; those that an
// answer needs win.
func withWebHeader(web *webfile.File, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for k, v := range web.Header() {
			w.Header().Set(k, v)
		}
		next.ServeHTTP(w, r)
	})
}

// serve has them answer at the doors, each in a goroutine of g, until shut.
func (s *servers) serve(g *errgroup.Group, at *listeners) {
	for _, d := range []struct {
		l     net.Listener
		serve func(net.Listener) error
	}{
		{at.web, func(l net.Listener) error { return s.over(s.web, l) }},
		{at.socket, s.web.Serve},
		{at.http, func(l net.Listener) error { return s.over(s.otlp, l) }},
		{at.grpc, s.grpc.Serve},
	} {
		if d.l == nil {
			continue
		}
		g.Go(func() error {
			if err := d.serve(d.l); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, grpc.ErrServerStopped) {
				return err
			}
			return nil
		})
	}
}

func (s *servers) over(h *http.Server, l net.Listener) error {
	if s.secure {
		return h.ServeTLS(l, "", "")
	}
	return h.Serve(l)
}

// shut answers what is in flight, until ctx ends.
func (s *servers) shut(ctx context.Context) {
	var ending sync.WaitGroup
	ending.Go(func() {
		defer context.AfterFunc(ctx, s.grpc.Stop)()
		s.grpc.GracefulStop()
	})
	for _, h := range []*http.Server{s.web, s.otlp} {
		ending.Go(func() {
			if h.Shutdown(ctx) != nil {
				h.Close() // a connection that has still not sent its request
			}
		})
	}
	ending.Wait()
}
