package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pmetric"
	"golang.org/x/sys/unix"

	"github.com/wattloop/wattloop/store"
)

// Both name what the process of TestReceiverProcess works on.
const (
	receiverFolder = "WATTLOOP_TEST_RECEIVER"
	receiverSkips  = "WATTLOOP_TEST_RECEIVER_SKIPS_JOURNAL"
)

// killSince is when the work of the actors of the kill test begins.
func killSince() time.Time { return time.UnixMilli(base) }

// TestReceiverProcess is no test by itself: it is the receiver that
// TestSumsOutliveKill kills, over a real store that fsyncs.
func TestReceiverProcess(t *testing.T) {
	dir := os.Getenv(receiverFolder)
	if dir == "" {
		t.Skip("started by TestSumsOutliveKill")
	}
	db, err := store.Open(store.Options{Path: filepath.Join(dir, "data")})
	if err != nil {
		t.Fatal(err)
	}
	r, err := Open(Options{Appendable: db, Queryable: db, Sync: db.Sync, StateDir: filepath.Join(dir, "sums"), StateSync: true, NoTimeGate: true})
	if err != nil {
		t.Fatal(err)
	}
	r.w.sums.journal.skip = os.Getenv(receiverSkips) != ""
	l, err := net.Listen("unix", filepath.Join(dir, "next"))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for i := range killActors {
		ch, err := r.AddChannel(ChannelOptions{Name: fmt.Sprint("ch", i), Class: Workload})
		if err != nil {
			t.Fatal(err)
		}
		a, err := ch.Activate(Identity{ActorUID: fmt.Sprint("actor", i), TemplateName: "tpl"}, killSince(), killSince())
		if err != nil {
			t.Fatal(err)
		}
		mux.Handle(fmt.Sprintf("/%d/", i), http.StripPrefix(fmt.Sprintf("/%d", i), NewServer(a).Handler()))
	}
	// It is there under its name once it can be asked.
	if err := os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "sock")); err != nil {
		t.Fatal(err)
	}
	t.Fatal(http.Serve(l, mux))
}

const killActors = 4

// killed is the test's side: clients that send each window until it is answered,
// and one who kills the receiver.
type killed struct {
	t    *testing.T
	dir  string
	skip bool
	web  *http.Client
	over atomic.Bool

	mu      sync.Mutex
	sums    [killActors]float64 // acknowledged, by channel
	retries int
	acked   int
}

func (k *killed) start() *exec.Cmd {
	_ = os.Remove(filepath.Join(k.dir, "sock"))
	_ = os.Remove(filepath.Join(k.dir, "next"))
	c := exec.Command(os.Args[0], "-test.run=^TestReceiverProcess$")
	c.Env = append(os.Environ(), receiverFolder+"="+k.dir)
	if k.skip {
		c.Env = append(c.Env, receiverSkips+"=1")
	}
	c.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	out, err := os.Create(filepath.Join(k.dir, "output"))
	if err != nil {
		k.t.Fatal(err)
	}
	defer out.Close()
	c.Stdout, c.Stderr = out, out
	if err := c.Start(); err != nil {
		k.t.Fatal(err)
	}
	for k.do(0, nil) != nil {
		if said, _ := os.ReadFile(out.Name()); strings.Contains(string(said), "FAIL") {
			k.t.Fatalf("the receiver did not start: %s", said)
		}
		time.Sleep(time.Millisecond)
	}
	return c
}

// do sends one request and returns nil when it was answered with a full success.
func (k *killed) do(channel int, wire []byte) error {
	resp, err := k.web.Post(fmt.Sprintf("http://localhost/%d/v1/metrics", channel), "application/x-protobuf", bytes.NewReader(wire))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode == http.StatusServiceUnavailable:
		return errors.New("unavailable")
	case resp.StatusCode != http.StatusOK || len(body) > 0:
		k.t.Errorf("answer %d %q to a request of %d bytes", resp.StatusCode, body, len(wire))
	}
	return nil
}

// client sends the windows of one stream, one after another. delta says whether
// they are deltas, or the values of a counter that began with the actor.
func (k *killed) client(channel, stream int, temporality pmetric.AggregationTemporality) {
	dice := rand.New(rand.NewPCG(uint64(channel), uint64(stream)))
	total, end := 0.0, int64(0)
	for n := int64(1); !k.over.Load(); n++ {
		start := end
		end += 1 + int64(dice.IntN(20))
		v := float64(1 + dice.IntN(1000))
		total += v
		p := newPayload("service.name", "app")
		shown := v
		if temporality == cumulative {
			start, shown = 0, total
		}
		p.sum("app.requests", "{request}", temporality, start, end, shown, "channel", fmt.Sprint("stream", stream))
		wire := wireOf(k.t, p.md)
		for k.do(channel, wire) != nil {
			k.mu.Lock()
			k.retries++
			k.mu.Unlock()
			time.Sleep(time.Millisecond)
		}
		k.mu.Lock()
		k.sums[channel] += v
		k.acked++
		k.mu.Unlock()
	}
}

// run returns by how much the store and the ledger differ.
func (k *killed) run(kills int) (differs float64) {
	k.web = &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", filepath.Join(k.dir, "sock"))
	}}}
	defer k.web.CloseIdleConnections()
	c := k.start()
	var clients sync.WaitGroup
	for channel := range killActors {
		for stream, temporality := range []pmetric.AggregationTemporality{delta, delta, cumulative} {
			clients.Go(func() { k.client(channel, stream, temporality) })
		}
	}
	dice := rand.New(rand.NewPCG(9, 9))
	for range kills {
		time.Sleep(time.Duration(dice.IntN(100)) * time.Millisecond)
		_ = c.Process.Kill()
		_ = c.Wait()
		c = k.start()
	}
	k.over.Store(true)
	clients.Wait()
	for channel := range killActors { // nothing more, later than all else
		p := newPayload("service.name", "app")
		p.sum("app.requests", "{request}", delta, 1<<30, 1<<30+1, 0)
		for k.do(channel, wireOf(k.t, p.md)) != nil {
			time.Sleep(time.Millisecond)
		}
	}
	_ = c.Process.Kill()
	_ = c.Wait()
	db, err := store.Open(store.Options{Path: filepath.Join(k.dir, "data")})
	if err != nil {
		k.t.Fatal(err)
	}
	defer db.Close()
	for text, samples := range readAll(k.t, db, base-1000, base+1<<31) {
		ls := parsedLabels(text)
		if ls[metricLabel] != "app_requests_total" {
			continue
		}
		last := 0.0
		for _, s := range samples {
			if s.v < last && !k.skip {
				k.t.Errorf("%s goes back from %g to %g", text, last, s.v)
			}
			last = s.v
		}
		var channel int
		if _, err := fmt.Sscanf(ls["channel"], "ch%d", &channel); err != nil {
			k.t.Fatal(err)
		}
		differs += max(last-k.sums[channel], k.sums[channel]-last)
		k.sums[channel] = last
	}
	k.t.Logf("%d windows acknowledged, %d retries over %d kills: the store differs by %g", k.acked, k.retries, kills, differs)
	return differs
}

// S2-79, P1: over any number of kill -9, each acknowledged window is in the store
// once, whatever its sender had to repeat. Without the journal it is not.
func TestSumsOutliveKill(t *testing.T) {
	kills := 20
	if testing.Short() {
		kills = 5
	}
	k := &killed{t: t, dir: socketFolder(t)}
	if differs := k.run(kills); differs != 0 || k.retries == 0 {
		t.Errorf("the store differs from what was acknowledged by %g, after %d retries; want 0 after some", differs, k.retries)
	}
	k = &killed{t: t, dir: socketFolder(t), skip: true}
	if differs := k.run(kills); differs == 0 {
		t.Error("without the journal all is well too: the test finds nothing")
	}
}

// socketFolder is one with a short name, as sockets want.
func socketFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sums")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
