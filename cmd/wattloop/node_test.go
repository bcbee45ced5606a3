package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
)

// testNode is one `wattloop serve` on a tree of its own.
type testNode struct {
	dir  string
	cmd  *exec.Cmd
	said lockedBuffer
	addr string // OTLP/HTTP
	web  string
}

// startNode makes a tree with one package and starts serve on it, with
// actuation on and nothing observed first.
func startNode(t *testing.T, rules string, flags ...string) *testNode {
	t.Helper()
	n := &testNode{dir: t.TempDir()}
	for p := n.dir; p != "/"; p = filepath.Dir(p) { // the engine is another user, under root
		if st, err := os.Stat(p); err == nil && st.Mode()&0o005 != 0o005 {
			if err := os.Chmod(p, st.Mode()|0o005); err != nil {
				break
			}
		}
	}
	n.write(t, "none.yaml", "")
	n.write(t, "rules.yaml", rules)
	for name, v := range map[string]string{
		"name": "package-0", "energy_uj": "1000000", "max_energy_range_uj": "262143328850", "enabled": "1",
		"constraint_0_name": "long_term", "constraint_0_power_limit_uw": "250000000",
		"constraint_0_max_power_uw": "250000000", "constraint_0_time_window_us": "999424",
	} {
		n.write(t, "sys/class/powercap/intel-rapl:0/"+name, v+"\n")
	}
	exe, err := exec.LookPath("wattloop")
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(n.dir, name) }
	args := append([]string{"serve", "--config.file", at("none.yaml"), "--warden.file", at("none.yaml"), "--rules", at("rules.yaml"),
		"--storage.path", at("data"), "--state.path", at("state"), "--run.path", at("run"), "--sysfs", at("sys"),
		"--actuation.enabled", "--actuation.observe-first=0s", "--host.enabled=false",
		"--web.listen-address=127.0.0.1:0", "--otlp.grpc.listen-address=127.0.0.1:0", "--otlp.http.listen-address=127.0.0.1:0"}, flags...)
	n.cmd = exec.Command(exe, args...)
	n.cmd.Stderr = &n.said
	if err := n.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if n.cmd.ProcessState == nil {
			n.cmd.Process.Kill()
			n.cmd.Wait()
		}
	})
	n.await(t, "line that tells the address", func() bool { return n.door("otlp-http") != "" })
	n.addr, n.web = n.door("otlp-http"), n.door("web")
	return n
}

// door is the address that serve printed last; an engine that starts again may
// have another.
func (n *testNode) door(name string) string {
	said := n.said.String()
	i := strings.LastIndex(said, "listening on "+name+"=")
	if i < 0 {
		return ""
	}
	addr, _, whole := strings.Cut(said[i+len("listening on "+name+"="):], "\n")
	if !whole {
		return ""
	}
	return addr
}

func (n *testNode) write(t *testing.T, name, text string) {
	t.Helper()
	p := filepath.Join(n.dir, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// stop asks for a clean end and wants exit code 0.
func (n *testNode) stop(t *testing.T) {
	t.Helper()
	if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := n.cmd.Wait(); err != nil {
		t.Errorf("serve ended with %v:\n%s", err, n.said.String())
	}
}

// feeding sends the same power every 200 ms until stop.
type feeding struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func (f *feeding) stop() { f.cancel(); f.done.Wait() }

func (n *testNode) feed(t *testing.T, watts float64) *feeding {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &feeding{cancel: cancel}
	f.done.Go(func() {
		for ctx.Err() == nil {
			n.send(ctx, power(time.Now(), "worker-01", "gpu0", watts))
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	})
	return f
}

// send posts one request; while the engine is away there is nobody to take it.
func (n *testNode) send(ctx context.Context, wire []byte) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+n.door("otlp-http")+"/v1/metrics", bytes.NewReader(wire))
	if err != nil {
		return
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	resp, err := http.DefaultClient.Do(req)
	if err == nil {
		resp.Body.Close()
	}
}

// power is an export of one hw.power gauge.
func power(at time.Time, node, id string, watts float64) []byte {
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	rm.Resource().Attributes().PutStr("k8s.node.name", node)
	m := rm.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName("hw.power")
	m.SetUnit("W")
	p := m.SetEmptyGauge().DataPoints().AppendEmpty()
	p.SetTimestamp(pcommon.NewTimestampFromTime(at))
	p.Attributes().PutStr("hw.id", id)
	p.Attributes().PutStr("hw.type", "gpu")
	p.SetDoubleValue(watts)
	b, err := pmetricotlp.NewExportRequestFromMetrics(md).MarshalProto()
	if err != nil {
		panic(fmt.Sprint("BUG: ", err))
	}
	return b
}

// lockedBuffer is what a process said so far.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
