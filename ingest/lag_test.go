package ingest

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// S0-162, S0-163: a channel whose points come later than a tenth of its export
// interval is flagged, in a metric and once in the log, and no longer once they
// come in time. Lag is the age of a point when it is stored.
func TestLagIsFlagged(t *testing.T) {
	f := func(interval, lag float64, flagged bool) {
		t.Helper()
		var said bytes.Buffer
		reg := prometheus.NewRegistry()
		b := newBed(t, func(o *Options) { o.Logger, o.Registerer = slog.New(slog.NewTextHandler(&said, nil)), reg })
		c := b.r.Channel("default")
		now := 0.0
		send := func(n int, lag float64) {
			for range n {
				now += interval
				b.at(now + lag)
				p := newPayload(node...)
				p.gauge("hw.power", "W", int64(now*1000), now, "hw.id", "cpu0")
				p.sum("hw.energy", "J", cumulative, -1000, int64(now*1000), now, "hw.id", "cpu0")
				checkResult(t, b.export(p.md), 2, 0, nil)
			}
		}
		check := func(when string, want bool) {
			t.Helper()
			if got := c.Lagging(); got.Flagged != want || got.Interval != time.Duration(interval*float64(time.Second)) {
				t.Errorf("every %g s, %g s late, %s: %+v; want flagged %v at that interval", interval, lag, when, got, want)
			}
			if got := testutil.ToFloat64(c.m.lags.flag); got != map[bool]float64{true: 1, false: 0}[want] {
				t.Errorf("every %g s, %g s late, %s: wattloop_ingest_lagging = %g", interval, lag, when, got)
			}
		}
		send(30, lag)
		check("steadily", flagged)
		send(30, 0)
		check("then in time", false)
		send(30, lag)
		check("late again", flagged)
		if n, want := strings.Count(said.String(), "points arrive late"), map[bool]int{true: 1, false: 0}[flagged]; n != want {
			t.Errorf("every %g s, %g s late: said %d times; want %d:\n%s", interval, lag, n, want, &said)
		}
	}
	f(5, 0, false)
	f(5, 0.5, false)
	f(5, 0.501, true)
	f(60, 6, false) // S0-160
	f(60, 6.5, true)
	f(1, 0.2, true)
}

// Two producers of one channel: each point is held against the interval of its
// own series, and a request of a batch against that between its samples.
func TestLagOfEachProducersOwnInterval(t *testing.T) {
	b := newBed(t, nil)
	for i := range 120 {
		b.at(float64(i) + 0.3)
		p := newPayload(append(node, "service.name", "slow")...)
		if i%10 == 0 { // every 10 s, 0.3 s late
			p.gauge("hw.power", "W", int64(i)*1000, 1, "hw.id", "cpu0")
			b.export(p.md)
		}
	}
	if got := b.r.Channel("default").Lagging(); got.Flagged {
		t.Errorf("%+v; want not flagged", got)
	}
	for i := 120; i < 200; i++ {
		b.at(float64(i) + 0.3)
		p := newPayload(append(node, "service.name", "fast")...)
		p.gauge("hw.power", "W", int64(i)*1000, 1, "hw.id", "cpu0") // every second, as late
		b.export(p.md)
	}
	if got := b.r.Channel("default").Lagging(); !got.Flagged {
		t.Errorf("%+v; want flagged", got)
	}
}

// A few late requests among many are no lag.
func TestFewLateRequestsAreNoLag(t *testing.T) {
	g := lagGauge{flag: prometheus.NewGauge(prometheus.GaugeOpts{Name: "x"})}
	for i := range 100 {
		age := int64(100)
		if i%3 == 0 {
			age = 4000
		}
		if g.add(age, 5000); g.lagging().Flagged {
			t.Fatalf("flagged after %d requests, a third of them late", i)
		}
	}
	g.add(4000, 0) // the first of its series: nothing is known
	if g.n != 100 {
		t.Error("a request without an interval counts")
	}
}

// A sender that catches up with a history is late only until it has: each of its
// requests is nearer to now than the one before. One that stays behind is not.
func TestCatchingUpIsNoLag(t *testing.T) {
	b := newBed(t, nil)
	c := b.r.Channel("default")
	at := func(sample, now float64) {
		b.at(now)
		p := newPayload(node...)
		p.gauge("hw.power", "W", int64(sample*1000), sample, "hw.id", "cpu0")
		checkResult(t, b.export(p.md), 1, 0, nil)
	}
	for i := range 240 { // 20 minutes in 2 seconds
		at(float64(i)*5, 1200+float64(i)/120)
		if c.Lagging().Flagged {
			t.Fatalf("flagged at sample %d of a history", i)
		}
	}
	for i := range 40 {
		at(1205+float64(i)*5, 1265+float64(i)*5)
	}
	if !c.Lagging().Flagged {
		t.Error("60 s late for good, and not flagged")
	}
}
