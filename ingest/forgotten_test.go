package ingest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// last is the newest value of the actor's counter.
func (b *actorBed) last() float64 {
	b.t.Helper()
	got := b.values(actorRequests)
	return got[len(got)-1].v
}

// S2-74: a cumulative stream of which nothing is known any more may have been
// counted: what it says then is where the count begins, and never counted twice.
func TestForgottenCumulativeStream(t *testing.T) {
	f := func(name string, forget func(d *durableBed) (later int64)) {
		t.Run(name, func(t *testing.T) {
			d := newDurableBed(t)
			d.at(1000)
			d.activate("a", 100, 100)
			d.count(100, 990, 1000, 1, 0, "")
			now := 1000 + forget(d)
			d.at(float64(now))
			// The platform vouches that the actor was nowhere else since 100.
			d.activate("a", float64(now), 100)
			d.count(100, now, 1010, 0, 1, "")
			d.count(100, now+10, 1015, 1, 0, "")
			if got := d.last(); got != 1005 {
				t.Errorf("counted %v; want 1005: 1000, and 5 after the count began again", got)
			}
			// What begins now was counted by nobody.
			d.activate("b", float64(now+20), float64(now+20))
			d.count(now+20, now+30, 7, 1, 0, "")
			if got := d.last(); got != 1012 {
				t.Errorf("counted %v with another actor's 7; want 1012", got)
			}
		})
	}
	f("idle for longer than it is kept", func(d *durableBed) int64 {
		for hour := range int64(26) { // others go on
			d.at(float64(1000 + 3600*hour))
			d.delta(999+3600*hour, 1000+3600*hour, 0, 1, 0, "")
		}
		return 26 * 3600
	})
	f("idle, and a restart", func(d *durableBed) int64 {
		for hour := range int64(26) {
			d.at(float64(1000 + 3600*hour))
			d.delta(999+3600*hour, 1000+3600*hour, 0, 1, 0, "")
		}
		d.r.w.sums.journal.behind = true // so that there is a snapshot without it
		d.delta(3600*25+1001, 3600*25+1030, 0, 1, 0, "")
		d.restart()
		d.restart()
		return 26 * 3600
	})
	f("the journal is gone", func(d *durableBed) int64 {
		d.start(d.t.TempDir())
		return 10
	})
	f("the journal is damaged", func(d *durableBed) int64 {
		dir := d.copied()
		name := filepath.Join(dir, filepath.Base(d.newestLog()))
		b, err := os.ReadFile(name)
		if err != nil {
			d.t.Fatal(err)
		}
		b[len(journalHeader())+recordHeader] ^= 1
		if err := os.WriteFile(name, append(b, b[len(journalHeader()):]...), 0o600); err != nil {
			d.t.Fatal(err)
		}
		d.start(dir)
		if d.r.StateDamage() == "" {
			d.t.Fatal("no damage was found")
		}
		return 10
	})
}

// A clock that was years ahead, and with it what was forgotten then, takes nothing
// from who begins after it was set right.
func TestForgottenAhead(t *testing.T) {
	d := newDurableBed(t)
	d.at(1000)
	d.activate("a", 900, 900)
	d.count(900, 990, 1000, 1, 0, "")
	const years = 3 * 365 * 86400
	d.at(years)
	d.count(900, years, 1001, 0, 1, "") // after three idle years
	for hour := range int64(26) {
		now := years + 3600*hour
		d.at(float64(now))
		d.delta(now+1, now+2, 0, 1, 0, "")
	}
	d.at(2000)
	d.activate("b", 2000, 2000)
	d.delta(2000, 2001, 0, 0, 1, "") // the first to come after that; the store is ahead still
	d.at(2010)
	d.activate("c", 2005, 2005)
	d.count(2005, 2010, 7, 0, 1, "")
	if n := d.ch.Windows().Baseline; n != 1 { // the one above
		t.Errorf("%d values were taken for the begin of a count; want one", n)
	}
}

// P7: what one channel has too many of drives out nothing of another, and leaves
// node channels room.
func TestStreamShares(t *testing.T) {
	b := newBed(t, func(o *Options) { o.MaxSeries = 200 })
	var acts []*Activation
	for i := range 6 {
		ch, err := b.r.AddChannel(ChannelOptions{Name: fmt.Sprint("w", i), Class: Workload, Limits: Limits{Series: 50}})
		if err != nil {
			t.Fatal(err)
		}
		a, err := ch.Activate(Identity{ActorUID: fmt.Sprint("a", i), TemplateName: "t"}, time.UnixMilli(base-1), time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		acts = append(acts, a)
	}
	send := func(a *Activation, pid int) Result {
		t.Helper()
		p := newPayload("service.name", "x", "process.pid", fmt.Sprint(pid)) // a stream each, and one series
		p.sum("app.requests", "", delta, b.now-base-1, b.now-base, 1)
		res, err := a.Export(t.Context(), wireOf(t, p.md))
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	checkResult(t, send(acts[0], 0), 1, 0, nil)
	// Over its own limit, ten minutes later: its own idle streams go, no other's.
	b.now += forgetFull + 1000
	for pid := range 60 {
		b.now++
		if res := send(acts[1], pid); (res.Rejected == 0) != (pid < 50) {
			t.Fatalf("stream %d: %+v", pid, res)
		}
	}
	if n := acts[0].c.streams; n != 1 {
		t.Errorf("the other channel has %d streams; want its 1", n)
	}
	for _, a := range acts[2:] {
		for pid := range 60 {
			b.now++
			send(a, pid)
		}
	}
	p := newPayload(node...)
	p.sum("app.requests", "", delta, b.now-base-1, b.now-base, 1)
	checkResult(t, b.export(p.md), 1, 0, nil)
	if n := len(b.r.w.sums.streams); n > 151 {
		t.Errorf("%d streams; want workload channels to leave node channels a quarter of 200", n)
	}
}

// P7: so with the bucket counts of cumulative histograms.
func TestCountShares(t *testing.T) {
	b := newBed(t, func(o *Options) { o.MaxSeries = 200 })
	act := func(name string) *Activation {
		ch, err := b.r.AddChannel(ChannelOptions{Name: name, Class: Workload, Limits: Limits{Series: 100}})
		if err != nil {
			t.Fatal(err)
		}
		a, err := ch.Activate(Identity{ActorUID: name, TemplateName: "t"}, time.UnixMilli(base-10), time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	send := func(a *Activation, pid, buckets int) Result {
		t.Helper()
		p := newPayload("service.name", "x", "process.pid", fmt.Sprint(pid))
		h := p.metric("h", "").SetEmptyExponentialHistogram()
		h.SetAggregationTemporality(cumulative)
		dp := h.DataPoints().AppendEmpty()
		dp.SetStartTimestamp(pcommon.Timestamp((base - 5) * 1e6))
		dp.SetTimestamp(pcommon.Timestamp(b.now * 1e6))
		counts := make([]uint64, buckets)
		for i := range counts {
			counts[i] = 1
		}
		dp.Positive().BucketCounts().FromRaw(counts)
		dp.SetCount(uint64(buckets))
		dp.SetScale(5)
		res, err := a.Export(t.Context(), wireOf(t, p.md))
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	hostile, honest := act("hostile"), act("honest")
	for pid := range 50 {
		b.now++
		send(hostile, pid, 160)
	}
	b.now++
	checkResult(t, send(honest, 0, 160), 1, 0, nil)
	if n := b.r.w.sums.nCounts; n > maxCounts*200 {
		t.Errorf("%d counts; want at most %d", n, maxCounts*200)
	}
}
