package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	noisyHonest = 7
	noisyPace   = 100 * time.Millisecond // of an honest channel, 100 points each time
	noisyTimes  = 50                     // of its limit of 10,000 points/s is what the hostile channel sends
	noisyFlood  = 1000                   // points a request of the hostile channel
	noisyLimit  = 10_000
	noisySettle = time.Second // in which the flood spends what its buckets held
)

// noisy measures the ack of seven honest workload channels with and without an
// eighth that sends 50 times its limit, in alternating phases of one run of the
// binary as it ships.
func noisy(r run) error {
	dir := filepath.Join(r.dir, "noisy")
	if err := writeTree(filepath.Join(dir, "sys")); err != nil {
		return err
	}
	at := func(name string) string { return filepath.Join(dir, "run", name, "otlp.sock") }
	var names []string
	for i := range noisyHonest {
		names = append(names, fmt.Sprint("honest", i))
	}
	var config strings.Builder
	config.WriteString("channels:\n")
	for _, name := range append(names, "hostile") {
		fmt.Fprintf(&config, "  - name: %s\n    listen: unix:%s\n    identity: {actor_uid: %[1]s}\n", name, at(name))
	}
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(config.String()), 0o644); err != nil {
		return err
	}
	s, err := startServer(r.ctx, r.bin, dir, "--config.file", file)
	if err != nil {
		return err
	}
	defer s.stop()

	phases, long := 9, 2*time.Second
	if r.short {
		phases = 3
	}
	var p99 [2][]time.Duration // of each phase, quiet and noisy
	acked := 0
	var offered, refused int
	if _, err := noisyPhase(r.ctx, at, names, time.Second); err != nil { // makes the series
		return err
	}
	for range phases {
		for loud := range p99 {
			ctx, cancel := context.WithCancel(r.ctx)
			var flood sync.WaitGroup
			if loud == 1 {
				flood.Go(func() { n, over := floodPhase(ctx, at("hostile")); offered += n; refused += over })
				time.Sleep(noisySettle)
			}
			acks, err := noisyPhase(r.ctx, at, names, long)
			cancel()
			flood.Wait()
			if err != nil {
				return err
			}
			p99[loud] = append(p99[loud], percentile(acks, 99))
			acked += len(acks)
		}
	}
	quiet, loud := percentile(p99[0], 50), percentile(p99[1], 50)
	limits := fmt.Sprintf("median of %d phases, %d acks of 7 channels at 1000 points/s, durability fsync", phases, acked)
	figure("noisy_neighbour_p99_ms", ms(loud), "ms", limits)
	figure("noisy_neighbour_quiet_p99_ms", ms(quiet), "ms", limits)
	figure("noisy_neighbour_p99_ratio", ms(loud)/ms(quiet), "", fmt.Sprintf("goal at most 2; hostile: %.0f points/s offered of a limit of %d, %d of %d requests refused; honest: none refused",
		float64(offered*noisyFlood)/(float64(phases)*(long+noisySettle).Seconds()), noisyLimit, refused, offered))
	return nil
}

// noisyPhase sends on all honest channels for a while, and fails when anything is
// refused.
func noisyPhase(ctx context.Context, at func(string) string, names []string, long time.Duration) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	var mu sync.Mutex
	var all []time.Duration
	var failed error
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() {
			c := socketClient(at(name))
			defer c.CloseIdleConnections()
			n := newNode(name, 0, 100)
			time.Sleep(time.Duration(i) * noisyPace / noisyHonest) // not all at once
			tick := time.NewTicker(noisyPace)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				wire := n.request(time.Now(), noisyPace, func(string) float64 { return 50 })
				start := time.Now()
				code, text, err := postTo(c, wire)
				d := time.Since(start)
				mu.Lock()
				if all = append(all, d); err != nil || code != http.StatusOK || text != "" {
					failed = fmt.Errorf("%s: %d %q: %w", name, code, text, err)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return all, failed
}

// floodPhase offers 50 times the limit until ctx ends.
func floodPhase(ctx context.Context, path string) (offered, refused int) {
	const senders = 8
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range senders {
		wg.Go(func() {
			c := socketClient(path)
			defer c.CloseIdleConnections()
			n := newNode(fmt.Sprint("flood", i), 0, noisyFlood)
			fresh := func() []byte { return n.request(time.Now(), time.Second, func(string) float64 { return 1 }) }
			wire := fresh()
			const every = senders * noisyFlood * time.Second / (noisyTimes * noisyLimit)
			time.Sleep(time.Duration(i) * every / senders) // not all at once
			tick := time.NewTicker(every)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				code, _, _ := postTo(c, wire)
				mu.Lock()
				if offered++; code != http.StatusOK {
					refused++
				}
				mu.Unlock()
				if code == http.StatusOK { // what was refused is sent again, what was taken is not
					wire = fresh()
				}
			}
		})
	}
	wg.Wait()
	return offered, refused
}

func socketClient(path string) *http.Client {
	return &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}}}
}

func postTo(c *http.Client, wire []byte) (int, string, error) {
	resp, err := c.Post("http://localhost/v1/metrics", "application/x-protobuf", bytes.NewReader(wire))
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}
