package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/wattloop/wattloop/ingest"
	"github.com/wattloop/wattloop/ingest/listen"
	"github.com/wattloop/wattloop/ingest/relay"
)

// relayFlags are what wattloop relay is told.
type relayFlags struct {
	upstream, listen, platform, group, web string
	mode                                   fileMode
}

// fileMode is the permissions of a socket, in octal.
type fileMode fs.FileMode

func (m *fileMode) String() string { return fmt.Sprintf("%#o", uint32(*m)) }
func (m *fileMode) Type() string   { return "mode" }
func (m *fileMode) Set(s string) error {
	n, err := strconv.ParseUint(s, 8, 9)
	if err != nil {
		return fmt.Errorf("%q is no mode; write it like 0660", s)
	}
	*m = fileMode(n)
	return nil
}

func relayCmd() *cobra.Command {
	c := defaultConfig()
	c.engineOnly = true
	f := relayFlags{mode: 0o600}
	cmd := &cobra.Command{
		Use:   "relay",
		Short: "Serve a unix socket whose OTLP requests go on unchanged to an upstream",
		Long: `relay gives the processes of a node a way out that needs no network: a unix socket that takes OTLP
metrics, traces and logs, gRPC or HTTP with protobuf, and sends each request on to the upstream byte
for byte, over OTLP/gRPC. The sender waits for the upstream's answer and gets it as it is. While the
upstream cannot be reached the answer is UNAVAILABLE, and the sender keeps its data: nothing is
stored here, and nothing ever goes another way.

--listen is for what workloads say and --platform-listen for the platform's own. Each has a
connection to the upstream and bounds of its own: 4 MiB a message, 16 streams a connection,
256 connections, 64 MiB being worked on. So a noisy workload cannot delay the platform. That the
sockets are two tells the kinds apart; it proves nothing of a sender that may open both: put them
in folders that not both may enter, or run one relay for each.`,
		Example: `  wattloop relay --upstream otel-collector:4317
  wattloop relay --upstream unix:/run/otel/otlp.sock --platform-listen /run/wattloop/platform.sock --mode 0660 --group telemetry`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.upstream == "" {
				return errors.New("relay: --upstream is not set; name the OTLP/gRPC endpoint that requests go on to, HOST:PORT or unix:PATH")
			}
			if err := c.load(cmd.Flags(), os.LookupEnv); err != nil {
				return withCode(exitFound, err)
			}
			if f.listen == "" {
				f.listen = filepath.Join(c.RunPath, "relay.sock")
			}
			return f.run(cmd.Context(), newLogger(c.LogLevel, os.Stderr).With("part", "relay"), cmd.ErrOrStderr())
		},
	}
	c.addFlags(cmd.Flags(), "run.path", "log.level")
	fl := cmd.Flags()
	fl.Var(endpoint(&f.upstream), "upstream", "OTLP/gRPC endpoint that requests go on to, HOST:PORT or unix:PATH; not encrypted")
	fl.StringVar(&f.listen, "listen", "", "unix socket for what workloads say; run.path/relay.sock unless set")
	fl.StringVar(&f.platform, "platform-listen", "", "unix socket for the platform's own telemetry; none unless set")
	fl.Var(&f.mode, "mode", "permissions of the sockets")
	fl.StringVar(&f.group, "group", "", "group of the sockets, and of a folder that is made for them")
	fl.Var(address(&f.web), "web.listen-address", "HTTP address of /metrics, loopback only; port 0 picks one; none unless set")
	return cmd
}

// run serves until ctx ends.
func (f *relayFlags) run(ctx context.Context, log *slog.Logger, stderr io.Writer) (err error) {
	up, err := relay.ParseAddress(f.upstream)
	if err != nil {
		return fmt.Errorf("relay: --upstream: %w", err)
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	var planes []*passPlane
	defer func() {
		for _, p := range planes {
			err = errors.Join(err, p.close())
		}
	}()
	for _, s := range []struct {
		plane        ingest.Plane
		flag, listen string
	}{{ingest.PlaneWorkload, "listen", f.listen}, {ingest.PlanePlatform, "platform-listen", f.platform}} {
		if s.listen == "" {
			continue
		}
		at, err := socketPath(s.listen)
		if err != nil {
			return fmt.Errorf("relay: --%s: %w", s.flag, err)
		}
		p, err := openPass(ctx, s.plane, at, f, up, reg, log)
		if err != nil {
			return withCode(exitCannot, fmt.Errorf("relay: --%s: %w", s.flag, err))
		}
		planes = append(planes, p)
		fmt.Fprintf(stderr, "listening on %s=%s\n", s.plane, at)
	}
	web, err := f.serveMetrics(reg, stderr)
	if err != nil {
		return withCode(exitCannot, err)
	}
	log.Info("started", "pid", os.Getpid(), "upstream", f.upstream)
	<-ctx.Done()
	log.Info("ended")
	return web()
}

// socketPath reads unix:PATH or a path, which may be relative.
func socketPath(s string) (listen.Address, error) {
	path, isUnix := strings.CutPrefix(s, "unix:")
	if _, _, err := net.SplitHostPort(path); err == nil && !isUnix && !strings.Contains(path, "/") {
		return listen.Address{}, fmt.Errorf("%q: want a unix socket, which needs no network and has permissions; name a path", s)
	}
	path, err := filepath.Abs(strings.TrimPrefix(path, "//"))
	if err != nil {
		return listen.Address{}, err
	}
	return listen.ParseAddress("unix:" + path)
}

// passPlane is one socket and its connection to the upstream. Nothing of it is
// shared with the other plane.
type passPlane struct {
	doors *listen.Manager
	pass  *relay.Passer
}

func openPass(ctx context.Context, plane ingest.Plane, at listen.Address, f *relayFlags, up relay.Address, reg prometheus.Registerer, log *slog.Logger) (*passPlane, error) {
	log = log.With("plane", plane)
	pass, err := relay.NewPasser(up, nil, log)
	if err != nil {
		return nil, err
	}
	recv := ingest.NewReceiver(ingest.Options{
		Pass: pass.Pass, Logger: log, Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"plane": string(plane)}, reg),
	})
	doors := listen.NewManager(listen.Options{Receiver: recv, Clock: time.Now, Log: log})
	p := &passPlane{doors, pass}
	spec := listen.Spec{Name: string(plane), Class: ingest.Node, Listen: []listen.Address{at}, Mode: fs.FileMode(f.mode), Group: f.group}
	err = doors.Define(spec)
	if err == nil {
		_, _, err = doors.Activate(ctx, spec.Name, nil, listen.Activation{})
	}
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// close answers what is in flight, within the door's grace.
func (p *passPlane) close() error {
	p.doors.Close()
	return p.pass.Close()
}

// serveMetrics serves /metrics where it was asked for, until the returned
// function is called.
func (f *relayFlags) serveMetrics(reg *prometheus.Registry, stderr io.Writer) (end func() error, err error) {
	if f.web == "" {
		return func() error { return nil }, nil
	}
	l, err := net.Listen("tcp", f.web)
	if err != nil {
		return nil, fmt.Errorf("relay: --web.listen-address: %s: %w; choose another, port 0 picks one", f.web, bare(err))
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ingest.LimitListener(l)) }()
	fmt.Fprintf(stderr, "listening on web=%s\n", l.Addr())
	return func() error {
		err := s.Close()
		if served := <-done; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		return err
	}, nil
}
