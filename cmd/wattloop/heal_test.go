package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wattloop/wattloop/actuate"
	"github.com/wattloop/wattloop/api"
	"github.com/wattloop/wattloop/engine"
	"github.com/wattloop/wattloop/ingest"
	"github.com/wattloop/wattloop/ingest/pull"
	"github.com/wattloop/wattloop/ingest/scrape"
	"github.com/wattloop/wattloop/rules"
	"github.com/wattloop/wattloop/store"
	"github.com/wattloop/wattloop/twin"
)

// A full disk is a range of integrity once it is over, from the last look that
// found space; the log says its begin and its end, whatever the numbers do.
func TestFullDiskIsStated(t *testing.T) {
	var log strings.Builder
	start := time.Unix(1760000000, 0)
	p := &parts{log: slog.New(slog.NewTextHandler(&log, nil))}
	at := func(second int, st store.Stats) {
		p.tell(st)
		p.space(st, start.Add(time.Duration(second)*time.Second))
	}
	full := func(mib int, refused uint64) store.Stats {
		return store.Stats{Full: fmt.Errorf("store: /data: %w: %d MiB free", store.ErrDiskFull, mib), Refused: refused}
	}
	at(1, store.Stats{})
	at(2, full(200, 3))
	at(3, full(199, 5))
	if len(p.losses) != 0 || strings.Count(log.String(), "takes no samples") != 1 {
		t.Errorf("while it is full: %v, log\n%s", p.losses, &log)
	}
	at(4, store.Stats{Refused: 6})
	at(5, store.Stats{Refused: 6})
	at(6, store.Stats{Refused: 7}) // and for less than a look
	at(7, full(100, 7))            // and with nobody who sends
	at(8, store.Stats{Refused: 7})
	want := []api.Loss{
		{From: start.Add(time.Second), To: start.Add(4 * time.Second), Why: "points were refused: store: /data: disk is nearly full: 199 MiB free"},
		{From: start.Add(5 * time.Second), To: start.Add(6 * time.Second), Why: "points were refused: disk is nearly full"},
	}
	if fmt.Sprint(p.losses) != fmt.Sprint(want) {
		t.Errorf("integrity %v; want %v", p.losses, want)
	}
	if got := strings.Count(log.String(), "takes samples again"); got != 2 {
		t.Errorf("its end is logged %d times; want 2:\n%s", got, &log)
	}
}

// Below the floor the process is not ready and says why, there and in its facts.
func TestFullDiskIsNotReady(t *testing.T) {
	db, err := store.Open(store.Options{Path: t.TempDir(), Durability: "os", MinFree: 1 << 60})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	recv := ingest.NewReceiver(ingest.Options{Appendable: db})
	p := &parts{
		c: &config{}, clk: wallClock(), entry: entry{reg: prometheus.NewRegistry()}, db: db, recv: recv, otlp: ingest.NewServer(recv.Channel("default").Live()),
		eng: engine.New(engine.Options{Rules: &rules.Set{}, Governor: &actuate.Governor{Link: dryPackages(1)}}), log: slog.New(slog.DiscardHandler), scraper: &scrape.Manager{}, puller: &pull.Manager{},
	}
	p.twins = &twins{p: p, keeper: &twin.Keeper{}}
	p.twins.wiring.Store(&twin.Wiring{})
	if err := p.defineChannels(); err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	p.apiHandler(func() api.Facts { return p.factsAt(p.clk.Now()) }, nil).ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/-/ready", nil))
	if w.Code != 503 || !strings.Contains(w.Body.String(), "disk is nearly full") {
		t.Errorf("/-/ready: %d %s; want 503 and the reason", w.Code, w.Body)
	}
	if got := p.factsAt(p.clk.Now()).StoreError; !strings.Contains(got, "disk is nearly full") {
		t.Errorf("store_error %q; want the reason", got)
	}
}

// A full disk and a store that is opened anew take their time; the rest of what
// can fail is the receiver's to say.
func TestRetryAfter(t *testing.T) {
	f := func(err error, want time.Duration) {
		t.Helper()
		if got := retryAfter(fmt.Errorf("otlp: commit: %w", err)); got != want {
			t.Errorf("%v: %v; want %v", err, got, want)
		}
	}
	f(store.ErrDiskFull, 30*time.Second)
	f(store.ErrFrozen, 30*time.Second)
	f(store.ErrClosed, 30*time.Second)
	f(errors.New("fsync: input/output error"), 0)
}
