package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/wattloop/wattloop/api"
	"github.com/wattloop/wattloop/ingest"
	"github.com/wattloop/wattloop/ingest/relay"
	"github.com/wattloop/wattloop/store"
)

// relayDir is where the queue to the upstream lies.
func (c *config) relayDir() string { return filepath.Join(c.StatePath, "relay") }

// engineDirs are the folders that the warden makes for the engine's user.
func (c *config) engineDirs() []string {
	dirs := []string{c.StoragePath, c.sumsPath(), c.writeDir(), c.channelsPath(), c.nodesPath()}
	if c.HostEnabled {
		dirs = append(dirs, c.hostPath())
	}
	if c.RelayUpstream != "" {
		dirs = append(dirs, c.relayDir())
	}
	if c.elsewhere() {
		dirs = append(dirs, c.remoteDir())
	}
	return dirs
}

// onward opens the way to the upstream; nil without one.
func (p *parts) onward(durability store.Durability) (ingest.Onward, error) {
	c := p.c
	if c.RelayUpstream == "" {
		return nil, nil
	}
	up, err := relay.ParseAddress(c.RelayUpstream)
	if err != nil {
		return nil, fmt.Errorf("relay.upstream: %w", err)
	}
	o := relay.Options{
		Upstream: up, Dir: c.relayDir(), MaxBytes: int64(c.RelayQueue), Fsync: durability == store.DurabilityFsync,
		Jitter: rand.Float64, Registerer: p.reg, Logger: p.log.With("part", "relay"), Clock: p.clk.Now,
	}
	if c.RelayFallback != "" {
		back, err := relay.ParseAddress(c.RelayFallback)
		if err != nil {
			return nil, fmt.Errorf("relay.fallback: %w", err)
		}
		o.Fallback = &back
	}
	if p.relay, err = relay.Open(o); err != nil {
		return nil, err
	}
	return p.relay, nil
}

// relayDeadline bounds what the end of the engine waits for the upstream. What
// is not sent by then is sent by the next engine.
const relayDeadline = 2 * time.Second

func (p *parts) closeRelay() error {
	ctx, cancel := context.WithTimeout(context.Background(), relayDeadline)
	defer cancel()
	var errs [2]error
	var ending sync.WaitGroup
	for i, r := range []*relay.Relay{p.relay, p.push} {
		if r != nil {
			ending.Go(func() { errs[i] = r.Close(ctx) })
		}
	}
	ending.Wait()
	return errors.Join(errs[:]...)
}

// relayFacts is how the way onward stands; none without an upstream.
func (p *parts) relayFacts() []api.Relay {
	if p.relay == nil {
		return nil
	}
	return relayStatus(p.relay, p.c.RelayUpstream)
}

func relayStatus(of *relay.Relay, upstream string) []api.Relay {
	var out []api.Relay
	for _, s := range of.Status() {
		r := api.Relay{
			Plane: string(s.Plane), Upstream: upstream, QueueBytes: s.QueueBytes, QueueLimit: s.QueueLimit,
			Sent: s.Sent, Dropped: s.Dropped, Refused: s.Refused, Rejected: s.Rejected, LostBytes: s.LostBytes,
			Answering: s.Answering, Error: s.Error,
		}
		if s.Error != "" {
			r.ErrorAt = known(s.ErrorAt)
		}
		out = append(out, r)
	}
	return out
}

// printRelay is the way onward as status shows it.
func printRelay(w io.Writer, name string, planes []api.Relay) error {
	if len(planes) == 0 {
		return nil
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "\n"+name+"\tUPSTREAM\tWAITING\tSENT\tDROPPED\tREFUSED\tREJECTED\tSTATE")
	for _, r := range planes {
		fmt.Fprintf(tw, "%s\t%s\t%s of %s\t%d\t%d\t%d\t%d\t%s\n", r.Plane, r.Upstream, bytesText(r.QueueBytes), bytesText(r.QueueLimit),
			r.Sent, r.Dropped, r.Refused, r.Rejected, relayState(r))
	}
	return tw.Flush()
}

func relayState(r api.Relay) string {
	s := "-"
	switch {
	case r.Answering:
		s = "answers"
	case r.Error != "":
		s = "down"
	}
	if r.ErrorAt != nil && (!r.Answering || r.Dropped > 0) {
		s += ", last error " + r.ErrorAt.Format(time.RFC3339) + " " + r.Error
	}
	if r.LostBytes > 0 {
		s += ", " + bytesText(int64(r.LostBytes)) + " of the queue could not be read"
	}
	return s
}

// bytesText rounds a number of bytes for people.
func bytesText(n int64) string {
	for _, u := range sizes {
		if u.n > 1 && n >= u.n {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(u.n), u.suffix)
		}
	}
	return fmt.Sprintf("%d B", n)
}
