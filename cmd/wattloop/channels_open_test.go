package main

import (
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wattloop/wattloop/api"
	"github.com/wattloop/wattloop/ingest"
	"github.com/wattloop/wattloop/ingest/pull"
	"github.com/wattloop/wattloop/ingest/scrape"
)

// openBed is parts with the channels of a configuration, and what they log.
func openBed(t *testing.T, text string) (*parts, *strings.Builder) {
	t.Helper()
	c, err := loaded(t, text, "", noEnv)
	if err != nil {
		t.Fatal(err)
	}
	c.StatePath = t.TempDir()
	var said strings.Builder
	p := &parts{scraper: scrape.NewManager(scrape.Options{}), puller: &pull.Manager{},
		c: c, clk: wallClock(), entry: entry{reg: prometheus.NewRegistry()}, recv: ingest.NewReceiver(ingest.Options{}),
		log: slog.New(slog.NewTextHandler(&said, nil)),
	}
	p.recv.Channel(defaultChannel)
	if err := p.defineChannels(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.doors.Close)
	return p, &said
}

// S2-11: a channel that cannot be opened keeps nothing else from running. It stays
// closed, says why once, and opens by itself when the reason has gone.
func TestChannelThatCannotOpen(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p, said := openBed(t, `channels:
  - {name: good, class: node, listen: "127.0.0.1:0"}
  - {name: folder, class: node, listen: `+filepath.Join(dir, "none/x/s")+`}
  - {name: group, class: node, listen: `+filepath.Join(dir, "g/s")+`, group: no-such-group}
  - {name: taken, listen: "`+l.Addr().String()+`", identity: {actor_uid: a}}
  - {name: ended, listen: "`+filepath.Join(dir, "none/y/s")+`", identity: {actor_uid: b}}
`)
	state := func(name string, live bool, err string) {
		t.Helper()
		if c := p.channel(name); c.Live != live || !strings.Contains(c.Error, err) || (err == "") != (c.Error == "") {
			t.Errorf("%s: live %v, error %q; want %v, %q", name, c.Live, c.Error, live, err)
		}
	}
	if err := p.openChannels(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	for range 2 { // and at the next try, of which the log has nothing new
		state("good", true, "")
		state("folder", false, "no such file or directory")
		state("group", false, "group no-such-group: there is none of that name")
		state("taken", false, "address already in use")
		state("ended", false, "no such file or directory")
		if n := strings.Count(said.String(), "level=ERROR"); n != 4 {
			t.Errorf("%d lines of errors; want one for each channel:\n%s", n, said)
		}
		if err := p.tryChannels(t.Context(), io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	// Who ends it does not want it opened.
	if _, err := p.channelOps().End("ended"); err != nil {
		t.Error(err)
	}
	if _, left := p.opening.left["ended"]; left {
		t.Error("what was ended is still to be opened")
	}
	l.Close()
	tick := make(chan time.Time)
	done := make(chan error)
	r, w := io.Pipe()
	go func() { done <- p.reopenChannels(t.Context(), tick, w) }()
	tick <- time.Time{}
	line := make([]byte, 100)
	if n, err := r.Read(line); err != nil || !strings.HasPrefix(string(line[:n]), "listening on channel/taken=127.0.0.1:") {
		t.Errorf("%q, %v", line[:n], err)
	}
	state("taken", true, "")
	// An activation of the API is its own: ended, it is not opened again.
	ops := p.channelOps()
	if _, err := ops.End("taken"); err != nil {
		t.Error(err)
	}
	if _, _, err := ops.Activate(t.Context(), "taken", api.ChannelRequest{Identity: api.Identity{ActorUID: "c"}}); err != nil {
		t.Error(err)
	}
	if err := p.tryChannels(t.Context(), io.Discard); err != nil || len(p.opening.left) != 2 {
		t.Errorf("%v, left %v", err, p.opening.left)
	}
}

func TestSameAddress(t *testing.T) {
	f := func(a, b string, want bool) {
		t.Helper()
		if sameAddress(a, b) != want || sameAddress(b, a) != want {
			t.Errorf("%s and %s: want %v", a, b, want)
		}
	}
	f("127.0.0.1:1", "127.0.0.1:01", true)
	f("127.0.0.1:1", "127.0.0.1:2", false)
	f("127.0.0.1:0", "127.0.0.1:0", false)
	f("localhost:1", "127.0.0.1:1", true)
	f("127.0.0.2:1", "127.0.0.1:1", false)
	f("0.0.0.0:1", "127.0.0.1:1", true)
	f(":1", "127.0.0.1:1", true)
	f("[::]:1", "[::1]:1", true)
	f("[::]:1", "0.0.0.0:1", true)
	f("0.0.0.0:1", "[::1]:1", false)
	f("[::ffff:127.0.0.1]:1", "127.0.0.1:1", true)
	f("unix:/a", "unix:/a", true)
	f("unix:/a", "127.0.0.1:1", false)
}
