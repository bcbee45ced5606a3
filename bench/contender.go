package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// contender is a server that takes OTLP over HTTP.
type contender struct {
	name   string
	limits string // what bounds it, for the comment of a figure
	start  func(ctx context.Context, dir string) (*target, error)
	tsdb   bool // its folder is one of Prometheus's TSDB
}

// target is a contender that runs.
type target struct {
	cmd  *exec.Cmd
	url  string // of the OTLP receiver
	data string // folder of its samples; empty: none

	stopped func() error // called once it has ended, while its folder is there; nil: nothing to do
}

func (t *target) stop() error {
	t.cmd.Process.Signal(syscall.SIGTERM)
	t.cmd.Wait()
	if t.stopped != nil {
		return t.stopped()
	}
	return nil
}

// command ends with ctx, gently at first; its words go to a file, since a pipe
// that nobody reads would hold it up.
func command(ctx context.Context, dir, bin string, args ...string) (*exec.Cmd, error) {
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = log, log
	return cmd, nil
}

// wattloop is the server as it ships, both processes of it, with an ack that
// waits for fsync and nothing to act on.
func wattloop(bin string) contender {
	return contender{
		name:   "wattloop",
		limits: "durability fsync, out of order 30m, 20 MiB a body, 64 MiB in flight, 200000 series",
		tsdb:   true,
		start: func(ctx context.Context, dir string) (*target, error) {
			if err := os.Mkdir(filepath.Join(dir, "sys"), 0o755); err != nil {
				return nil, err
			}
			s, err := startServer(ctx, bin, dir)
			if err != nil {
				return nil, err
			}
			return &target{cmd: s.cmd, url: "http://" + s.addr + "/v1/metrics", data: filepath.Join(dir, "data")}, nil
		},
	}
}

const prometheusConfig = `otlp:
  promote_resource_attributes: [k8s.node.name, host.name]
storage:
  tsdb:
    out_of_order_time_window: 30m
`

func prometheusPeer(bin string) contender {
	return contender{
		name:   "prometheus",
		limits: "defaults, OTLP receiver, out of order 30m",
		tsdb:   true,
		start: func(ctx context.Context, dir string) (*target, error) {
			conf, data := filepath.Join(dir, "prometheus.yml"), filepath.Join(dir, "data")
			if err := os.WriteFile(conf, []byte(prometheusConfig), 0o644); err != nil {
				return nil, err
			}
			return startPeer(ctx, dir, data, "/api/v1/otlp/v1/metrics", "/-/ready", bin, "--config.file="+conf,
				"--storage.tsdb.path="+data, "--web.enable-otlp-receiver", "--log.level=warn", "--web.listen-address=")
		},
	}
}

func victoriaMetrics(bin string) contender {
	return contender{
		name:   "victoriametrics",
		limits: "defaults",
		start: func(ctx context.Context, dir string) (*target, error) {
			data := filepath.Join(dir, "data")
			return startPeer(ctx, dir, data, "/opentelemetry/v1/metrics", "/health", bin, "-storageDataPath="+data,
				"-loggerLevel=WARN", "-httpListenAddr=")
		},
	}
}

// startPeer starts a server whose last argument takes the address, and waits
// until it is ready.
func startPeer(ctx context.Context, dir, data, otlp, ready, bin string, args ...string) (*target, error) {
	addr, err := freePort()
	if err != nil {
		return nil, err
	}
	args[len(args)-1] += addr
	cmd, err := command(ctx, dir, bin, args...)
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	t := &target{cmd: cmd, url: "http://" + addr + otlp, data: data}
	for range 600 {
		if resp, err := http.Get("http://" + addr + ready); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return t, nil
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	_ = t.stop()
	said, _ := os.ReadFile(filepath.Join(dir, "log"))
	return nil, fmt.Errorf("%s was not ready within a minute:\n%s", bin, said)
}

// freePort is an address on the loopback that nobody listens on: the peers do
// not say which one they got.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// bareSink is this program once more, as an HTTP server that reads a body, drops
// it and answers 200: no server over net/http costs less.
func bareSink() contender {
	return contender{
		name:   "sink",
		limits: "none",
		start: func(ctx context.Context, dir string) (*target, error) {
			cmd := exec.CommandContext(ctx, self, "child", "sink")
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				return nil, err
			}
			if err := cmd.Start(); err != nil {
				return nil, err
			}
			addr, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				return nil, fmt.Errorf("sink: %w", err)
			}
			return &target{cmd: cmd, url: "http://" + strings.TrimSpace(addr) + "/v1/metrics"}, nil
		},
	}
}

// sink serves until it is killed.
func sink() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
		w.WriteHeader(http.StatusOK)
	}))
}
