package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// capFile is the limit that the control moves, below the tree's root.
const capFile = "class/powercap/intel-rapl:0/constraint_0_power_limit_uw"

const benchRules = `version: 1
readings:
  bench_power:
    unit: W
    key: [k8s_node_name]
    expr: max by (k8s_node_name) (hw_power_watts{hw_id="gpu0"})
controls:
  bench_cap:
    mode: enforce
    purpose: efficiency
    key: [k8s_node_name]
    engage: {when: bench_power > 0, for: 0s}
    release: {when: bench_power < -1, for: 1h}
    value: bench_power
    action: rapl.set_power_cap_watts
    target: {hw_type: cpu}
    limits: {min: 50, max: 250}
    ttl: 30s
    observe_after: false
`

// reaction measures the first byte of a request to the value read back on the
// tree, through both processes. It needs a binary whose pace is off.
func reaction(r run) error {
	trials := 1000
	if r.short {
		trials = 100
	}
	dir := filepath.Join(r.dir, "reaction")
	if err := writeTree(filepath.Join(dir, "sys")); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(benchRules), 0o644); err != nil {
		return err
	}
	bin, err := r.tagged("wattloop_bench")
	if err != nil {
		return err
	}
	s, err := startServer(r.ctx, bin, dir, "--rules", filepath.Join(dir, "rules.yaml"), "--actuation.enabled", "--actuation.observe-first=0s")
	if err != nil {
		return err
	}
	defer s.stop()
	return s.trials(r.ctx, trials)
}

// tagged builds the binary with a tag that the one that ships has not.
func (r run) tagged(tag string) (bin string, err error) {
	bin = filepath.Join(r.dir, tag)
	build := exec.CommandContext(r.ctx, "go", "build", "-tags", tag, "-o", bin, "./cmd/wattloop")
	build.Dir, build.Stderr = "..", os.Stderr
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("build with -tags %s: %w", tag, err)
	}
	return bin, nil
}

// server is one running `wattloop serve`.
type server struct {
	cmd  *exec.Cmd
	addr string // of OTLP/HTTP
	web  string // of the API
	dir  string
	hc   http.Client
}

// startServer starts the binary on files below dir, where the tree sys must lie,
// and waits until it listens.
func startServer(ctx context.Context, bin, dir string, args ...string) (*server, error) {
	at := func(name string) string { return filepath.Join(dir, name) }
	cmd := exec.CommandContext(ctx, bin, append([]string{"serve", "--config.file", at("none.yaml"), "--warden.file", at("none.yaml"),
		"--storage.path", at("data"), "--state.path", at("state"), "--run.path", at("run"), "--sysfs", at("sys"),
		"--host.enabled=false", "--log.level=warn",
		"--web.listen-address=127.0.0.1:0", "--otlp.grpc.listen-address=127.0.0.1:0", "--otlp.http.listen-address=127.0.0.1:0"}, args...)...)
	if err := os.WriteFile(at("none.yaml"), nil, 0o644); err != nil {
		return nil, err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &server{cmd: cmd, dir: dir}
	lines := bufio.NewScanner(stderr)
	var said []string
	for lines.Scan() {
		said = append(said, lines.Text())
		if a, ok := strings.CutPrefix(lines.Text(), "listening on web="); ok {
			s.web = a
		}
		if a, ok := strings.CutPrefix(lines.Text(), "listening on otlp-http="); ok {
			s.addr = a
			go io.Copy(os.Stderr, stderr)
			return s, nil
		}
	}
	cmd.Wait()
	return nil, fmt.Errorf("serve ended before it listened:\n%s", strings.Join(said, "\n"))
}

func (s *server) stop() {
	s.cmd.Process.Signal(syscall.SIGTERM)
	s.cmd.Wait()
}

func (s *server) send(ctx context.Context, wire []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.addr+"/v1/metrics", bytes.NewReader(wire))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	resp, err := s.hc.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || len(b) != 0 {
		return fmt.Errorf("answer %d %q: %w", resp.StatusCode, b, err)
	}
	return nil
}

// trials changes the cap again and again while another client sends 1,000
// points/s of other series beside it.
func (s *server) trials(ctx context.Context, n int) error {
	ctx, cancel := context.WithCancel(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel()
	beside.Go(func() { s.load(ctx) })

	one := newNode("worker-01", 1, 6)
	path := filepath.Join(s.dir, "sys", capFile)
	if err := s.engage(ctx, one, path); err != nil {
		return err
	}
	var took []time.Duration
	for i := range n {
		watts := 100 + float64(i%100)
		want := fmt.Sprintf("%d", int64(watts)*1_000_000)
		wire := one.request(time.Now(), time.Second, func(string) float64 { return watts })
		start := time.Now()
		done := make(chan error, 1)
		go func() { done <- s.send(ctx, wire) }()
		d, err := await(path, want, start)
		if err != nil {
			return fmt.Errorf("trial %d: %w", i, err)
		}
		if err := <-done; err != nil {
			return fmt.Errorf("trial %d: %w", i, err)
		}
		took = append(took, d)
		time.Sleep(10 * time.Millisecond)
	}
	note := fmt.Sprintf("n=%d, first byte sent to value read on the tree; min interval 0, slew off, dead band 0, observe-first 0, durability fsync, 1000 points/s beside", n)
	figure("reaction_ms_p50", ms(percentile(took, 50)), "ms", note)
	figure("reaction_ms_p99", ms(percentile(took, 99)), "ms", note)
	return nil
}

// engage sends until the control has taken the cap: an engine decides on no
// input that is older than itself, so that one request may be too early.
func (s *server) engage(ctx context.Context, one *node, path string) error {
	for range 300 {
		if err := s.send(ctx, one.request(time.Now(), time.Second, func(string) float64 { return 210 })); err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if strings.TrimSpace(string(b)) == "210000000" {
			return nil
		}
	}
	return errors.New("the control did not take the cap within 30 s")
}

// await reads the file until it holds want.
func await(path, want string, start time.Time) (time.Duration, error) {
	for time.Since(start) < 30*time.Second {
		b, err := os.ReadFile(path)
		if err != nil {
			return 0, err
		}
		if strings.TrimSpace(string(b)) == want {
			return time.Since(start), nil
		}
		time.Sleep(50 * time.Microsecond)
	}
	return 0, errors.New("the tree did not hold " + want + " within 30 s")
}

func (s *server) load(ctx context.Context) {
	other := newNode("other", 0, 100)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case t := <-tick.C:
			wire := other.request(t, 100*time.Millisecond, func(string) float64 { return 50 })
			if err := s.send(ctx, wire); err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "bench: load beside:", err)
			}
		}
	}
}

// writeTree makes one CPU package.
func writeTree(root string) error {
	zone := filepath.Join(root, filepath.Dir(capFile))
	if err := os.MkdirAll(zone, 0o755); err != nil {
		return err
	}
	for name, v := range map[string]string{
		"name": "package-0", "energy_uj": "1000000", "max_energy_range_uj": "262143328850", "enabled": "1",
		"constraint_0_name": "long_term", "constraint_0_power_limit_uw": "250000000",
		"constraint_0_max_power_uw": "250000000", "constraint_0_time_window_us": "999424",
	} {
		if err := os.WriteFile(filepath.Join(zone, name), []byte(v+"\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}
