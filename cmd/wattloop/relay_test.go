package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	grpcstatus "google.golang.org/grpc/status"
)

// wireCodec takes and gives messages as they are.
type wireCodec struct{}

func (wireCodec) Name() string { return "proto" }
func (wireCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}
func (wireCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// collector is an OTLP/gRPC endpoint on a unix socket. It keeps what it is sent,
// by method, and counts connections.
type collector struct {
	path   string
	answer func(wire []byte) ([]byte, error)

	mu    sync.Mutex
	got   map[string][][]byte
	conns int
}

func startCollector(t *testing.T, path string) *collector {
	t.Helper()
	c := &collector{path: path, got: map[string][][]byte{}}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil { // the engine is another user, under root
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.ForceServerCodecV2(wireCodec{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		var wire, response []byte
		if err := stream.RecvMsg(&wire); err != nil {
			return err
		}
		c.mu.Lock()
		c.got[method] = append(c.got[method], wire)
		c.mu.Unlock()
		if c.answer != nil {
			var err error
			if response, err = c.answer(wire); err != nil {
				return err
			}
		}
		return stream.SendMsg(&response)
	}))
	go s.Serve(&countingListener{l, c})
	t.Cleanup(s.Stop)
	return c
}

type countingListener struct {
	net.Listener
	c *collector
}

func (l *countingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.c.mu.Lock()
		l.c.conns++
		l.c.mu.Unlock()
	}
	return conn, err
}

func (c *collector) last(method string) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if all := c.got[method]; len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

// passing is one `wattloop relay`.
type passing struct {
	cmd  *exec.Cmd
	said lockedBuffer
}

func startRelay(t *testing.T, ready string, attr *syscall.SysProcAttr, args ...string) *passing {
	t.Helper()
	exe, err := exec.LookPath("wattloop")
	if err != nil {
		t.Fatal(err)
	}
	p := &passing{cmd: exec.Command(exe, append([]string{"relay"}, args...)...)}
	p.cmd.Stderr, p.cmd.SysProcAttr = &p.said, attr
	if err := p.cmd.Start(); err != nil {
		if attr != nil {
			t.Skipf("this machine gives no namespace: %v", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			p.cmd.Process.Kill()
			p.cmd.Wait()
		}
	})
	if !poll(func() bool { return strings.Contains(p.said.String(), ready) }) {
		t.Fatalf("relay does not say %q:\n%s", ready, p.said.String())
	}
	return p
}

func (p *passing) end(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("relay ended with %v:\n%s", err, p.said.String())
	}
}

func dialSocket(t *testing.T, path string) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wireCodec{})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	return cc
}

func socketClient(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
}

const (
	metricsMethod = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
	tracesMethod  = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
	logsMethod    = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
)

// What is sent to the node's socket goes on byte for byte, whatever it says, and
// the upstream's answer is the sender's (S2-65); each socket has a connection of
// its own (S2-69), permissions as asked for, and is gone after SIGTERM.
func TestRelayPassesOn(t *testing.T) {
	dir := t.TempDir()
	up := startCollector(t, filepath.Join(dir, "up.sock"))
	up.answer = func(wire []byte) ([]byte, error) {
		if bytes.HasPrefix(wire, []byte("no")) {
			return nil, grpcstatus.Error(codes.InvalidArgument, "the upstream's word")
		}
		return []byte{0x0a, 0x02, 0x08, 0x05}, nil // five of them are rejected
	}
	workload, platform := filepath.Join(dir, "d", "workload.sock"), filepath.Join(dir, "d", "platform.sock")
	p := startRelay(t, "started", nil, "--upstream", "unix:"+up.path, "--listen", workload, "--platform-listen", "unix:"+platform,
		"--mode", "0620", "--run.path", dir, "--web.listen-address", "127.0.0.1:0")
	for _, path := range []string{workload, platform} {
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o620 {
			t.Errorf("%s: %v, %v; want mode 0620", path, st.Mode(), err)
		}
		cc, client := dialSocket(t, path), socketClient(path)
		for i, s := range []struct{ method, path string }{{metricsMethod, "/v1/metrics"}, {tracesMethod, "/v1/traces"}, {logsMethod, "/v1/logs"}} {
			wire := append(power(time.Now(), "forged", "gpu0", float64(i)), bytes.Repeat([]byte{0xf8, 0xff, 0x7f, byte(i)}, 50_000)...)
			var back []byte
			if err := cc.Invoke(t.Context(), s.method, &wire, &back); err != nil || string(back) != "\x0a\x02\x08\x05" {
				t.Errorf("gRPC %s: %q, %v; want the upstream's answer", s.path, back, err)
			}
			if got := up.last(s.method); !bytes.Equal(got, wire) {
				t.Errorf("gRPC %s: %d bytes arrive, not the %d that were sent", s.path, len(got), len(wire))
			}
			wire = append(wire, 0xf8, 0xff, 0x7f, 0x00)
			resp, err := client.Post("http://localhost"+s.path, "application/x-protobuf", bytes.NewReader(wire))
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != 200 || string(body) != "\x0a\x02\x08\x05" || !bytes.Equal(up.last(s.method), wire) {
				t.Errorf("HTTP %s: %d %q; want the upstream's answer, and the same bytes there", s.path, resp.StatusCode, body)
			}
		}
		no := []byte("no")
		if err := cc.Invoke(t.Context(), tracesMethod, &no, &[]byte{}); grpcstatus.Code(err) != codes.InvalidArgument || grpcstatus.Convert(err).Message() != "the upstream's word" {
			t.Errorf("a refusal comes back as %v", err)
		}
		client.CloseIdleConnections()
	}
	up.mu.Lock()
	if up.conns != 2 {
		t.Errorf("the upstream has %d connections; want one for each socket", up.conns)
	}
	up.mu.Unlock()
	_, web, _ := strings.Cut(p.said.String(), "listening on web=")
	web, _, _ = strings.Cut(web, "\n")
	resp, err := http.Get("http://" + web + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	for _, want := range []string{
		`wattloop_ingest_requests_total{answer="partial",channel="platform",plane="platform",transport="grpc"} 3`,
		`wattloop_ingest_requests_total{answer="invalid_argument",channel="workload",plane="workload",transport="grpc"} 1`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("/metrics has no %s", want)
		}
	}
	p.end(t)
	for _, path := range []string{workload, platform} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s is left behind", path)
		}
	}
}

// A process with no network at all still gets telemetry out (S2-64). With the
// upstream's socket missing it is told to come again (S2-66).
func TestRelayWithoutNetwork(t *testing.T) {
	dir := t.TempDir()
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if uid := os.Geteuid(); uid != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
	}
	sock, upSock := filepath.Join(dir, "d", "relay.sock"), filepath.Join(dir, "up.sock")
	p := startRelay(t, "started", attr, "--upstream", "unix:"+upSock, "--listen", sock, "--run.path", dir)
	cc := dialSocket(t, sock)
	send := func() error {
		wire := power(time.Now(), "worker-01", "gpu0", 1)
		return cc.Invoke(t.Context(), metricsMethod, &wire, &[]byte{})
	}
	if err := send(); grpcstatus.Code(err) != codes.Unavailable || len(grpcstatus.Convert(err).Details()) != 1 {
		t.Errorf("without an upstream: %v; want Unavailable with RetryInfo", err)
	}
	up := startCollector(t, upSock)
	if !poll(func() bool { return send() == nil }) || up.last(metricsMethod) == nil {
		t.Errorf("nothing arrives once the upstream is there:\n%s", p.said.String())
	}
	p.end(t)
}

// serve hands on what it has taken, through the node's socket to a collector, as
// it came; what comes while the way is closed arrives later, over a restart too.
func TestServeHandsOn(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	up := startCollector(t, filepath.Join(dir, "up.sock"))
	sock := filepath.Join(dir, "d", "relay.sock")
	pass := func() *passing {
		return startRelay(t, "started", nil, "--upstream", "unix:"+up.path, "--platform-listen", sock, "--listen", filepath.Join(dir, "d", "w.sock"), "--mode", "0666", "--run.path", dir)
	}
	p := pass()
	if err := os.Chmod(filepath.Join(dir, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	n := startNode(t, killRules, "--relay.upstream=unix:"+sock)
	arrives := func(wire []byte) func() bool {
		return func() bool { return bytes.Equal(up.last(metricsMethod), wire) }
	}
	wire := power(time.Now(), "worker-01", "gpu0", 1)
	n.send(t.Context(), wire)
	n.await(t, "request at the collector", arrives(wire))
	p.end(t)
	for i := range 5 {
		wire = power(time.Now(), "worker-01", "gpu0", float64(2+i))
		n.send(t.Context(), wire)
	}
	var out, errs bytes.Buffer
	n.await(t, "trouble in status", func() bool {
		out.Reset()
		if code := run(t.Context(), []string{"status", "--url", "http://" + n.web}, strings.NewReader(""), &out, &errs); code != exitFine {
			t.Fatalf("status: %d, %s", code, errs.String())
		}
		return strings.Contains(out.String(), "down, last error")
	})
	if !strings.Contains(out.String(), "RELAY") || !strings.Contains(out.String(), fmt.Sprintf("platform  unix:%s", sock)) {
		t.Errorf("status:\n%s", out.String())
	}
	pid := n.enginePID(t)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	n.await(t, "a new engine", func() bool { now := n.enginePID(t); return now != 0 && now != pid })
	p = pass()
	n.await(t, "last request at the collector", arrives(wire))
	n.stop(t)
	p.end(t)
}
