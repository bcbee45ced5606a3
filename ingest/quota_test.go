package ingest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// What one workload channel sends fills no more of the cache than its share, and
// drives out nothing of the others; what is not remembered is counted and stored
// all the same.
func TestCacheShares(t *testing.T) {
	b := newBed(t, nil)
	c := &b.r.w.cache
	ch, err := b.r.AddChannel(ChannelOptions{Name: "w", Class: Workload, Limits: Limits{Series: 50}})
	if err != nil {
		t.Fatal(err)
	}
	a, err := ch.Activate(Identity{ActorUID: "a"}, time.UnixMilli(base), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	honest := newPayload(node...)
	honest.gauge("hw.power", "W", 0, 1, "hw.id", "cpu0")
	b.export(honest.md)
	known := c.nodes
	f := func(name string, wantFull bool, send func(i int) *payload) {
		t.Helper()
		for i := range 300 {
			b.now += 10
			p := send(i)
			res, err := a.Export(context.Background(), wireOf(t, p.md))
			if err != nil || res.Accepted+res.Rejected != 1 {
				t.Fatalf("%s %d: %+v, %v", name, i, res, err)
			}
			if a.src.keyBytes > sourceKeyBytes || a.src.nodes > sourceNodes*50 {
				t.Fatalf("%s %d: %d bytes of keys, %d entries; want at most %d and %d", name, i, a.src.keyBytes, a.src.nodes, sourceKeyBytes, sourceNodes*50)
			}
		}
		full := a.src.full
		if c.nodes != known+a.src.nodes {
			t.Errorf("%s: %d entries; want the %d of the node channel and %d", name, c.nodes, known, a.src.nodes)
		}
		// A minute later all of it goes, if there was too much.
		b.now += 61_000
		p := newPayload("service.name", "x")
		p.gauge("g", "", b.now-base, 1)
		if _, err := a.Export(context.Background(), wireOf(t, p.md)); err != nil {
			t.Fatal(err)
		}
		if full != wantFull || full && a.src.nodes > 4 {
			t.Errorf("%s: full is %v; want %v; %d entries after a minute; want those of the last request", name, full, wantFull, a.src.nodes)
		}
	}
	one := func(attrs ...string) *payload {
		p := newPayload("service.name", "x")
		p.gauge("g", "", b.now-base, 1, attrs...)
		return p
	}
	f("long keys", true, func(i int) *payload { return one(fmt.Sprint("k", i), strings.Repeat("v", 100<<10)) })
	f("many streams", false, func(i int) *payload { return one("k", fmt.Sprint(i)) })
	f("many resources", true, func(i int) *payload {
		p := newPayload("service.name", "x", "pid", fmt.Sprint(i))
		p.gauge("g", "", b.now-base, 1)
		return p
	})
	for range 10 {
		one := one("k", strings.Repeat("v", maxKey))
		if _, err := a.Export(context.Background(), wireOf(t, one.md)); err != nil {
			t.Fatal(err)
		}
	}
	if a.src.keyBytes > 10_000 {
		t.Errorf("%d bytes of keys; want none of 128 KiB", a.src.keyBytes)
	}
}

// P7, X20: workload channels together leave node channels the last quarter of all
// series, whatever each of them may have.
func TestSeriesShares(t *testing.T) {
	b := newBed(t, func(o *Options) { o.MaxSeries = 41 }) // one is the node's target_info
	gauges := func(n int, attrs ...string) *payload {
		p := newPayload(attrs...)
		for i := range n {
			p.gauge("g", "", 0, 1, "i", fmt.Sprint(i))
		}
		return p
	}
	taken := int64(0)
	for _, name := range []string{"w1", "w2"} {
		ch, err := b.r.AddChannel(ChannelOptions{Name: name, Class: Workload, Limits: Limits{Series: 40}})
		if err != nil {
			t.Fatal(err)
		}
		a, err := ch.Activate(Identity{ActorUID: name}, time.UnixMilli(base), time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		res, err := a.Export(t.Context(), wireOf(t, gauges(25).md))
		if err != nil {
			t.Fatal(err)
		}
		taken += res.Accepted
	}
	if known := b.r.w.cache.nSeries; taken >= 50 || known != 31 {
		t.Errorf("%d points taken, %d series of workload channels; want 31, three quarters of 41", taken, known)
	}
	checkResult(t, b.export(gauges(9, node...).md), 9, 0, nil)
	checkResult(t, b.export(gauges(12, node...).md), 9, 0, map[string]int64{"series_limit": 3})
}
