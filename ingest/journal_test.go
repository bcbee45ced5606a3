package ingest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"golang.org/x/sys/unix"
)

// durableBed is a bed whose running sums lie in a folder; restart is the death of
// the process and the next one's start, over the store as it is.
type durableBed struct {
	*actorBed
	dir string
	o   Options
}

func newDurableBed(t *testing.T) *durableBed {
	d := &durableBed{actorBed: &actorBed{bed: newBed(t, nil)}, dir: t.TempDir()}
	d.o = Options{Appendable: d.db, Queryable: d.db, Clock: func() time.Time { return time.UnixMilli(d.now) }, StateSync: true}
	d.start(d.dir)
	t.Cleanup(func() { d.r.Close() })
	return d
}

func (d *durableBed) start(dir string) {
	d.t.Helper()
	d.dir, d.o.StateDir = dir, dir
	r, err := Open(d.o)
	if err != nil {
		d.t.Fatal(err)
	}
	d.r, d.act = r, nil
	d.open("")
}

// restart begins a new process over a copy of what the old one has written.
func (d *durableBed) restart() {
	d.t.Helper()
	d.start(d.copied())
}

func (d *durableBed) copied() string {
	d.t.Helper()
	dir := filepath.Join(d.t.TempDir(), "[copy]") // no pattern
	if err := os.CopyFS(dir, os.DirFS(d.dir)); err != nil {
		d.t.Fatal(err)
	}
	old := d.r
	d.t.Cleanup(func() { old.Close() })
	return dir
}

func (d *durableBed) newestLog() string {
	d.t.Helper()
	return d.r.w.sums.journal.path(d.r.w.sums.journal.number, logSuffix)
}

// S2-72, S2-74, S2-79: sums, intervals and last values outlive the process.
func TestSumsOutliveTheProcess(t *testing.T) {
	d := newDurableBed(t)
	d.at(1000)
	d.activate("a", 100, 100)
	d.delta(100, 110, 5, 1, 0, "")
	d.delta(110, 130, 7, 1, 0, "")
	d.count(0, 140, 1000, 0, 1, "")
	h := newPayload()
	hp := h.metric("h", "").SetEmptyHistogram()
	hp.SetAggregationTemporality(cumulative)
	dp := hp.DataPoints().AppendEmpty()
	dp.SetStartTimestamp(pcommon.Timestamp((base + 100_000) * 1e6))
	dp.SetTimestamp(pcommon.Timestamp((base + 140_000) * 1e6))
	dp.ExplicitBounds().FromRaw([]float64{1})
	dp.BucketCounts().FromRaw([]uint64{2, 3})
	dp.SetCount(5)
	d.take(h, 1, 0, "")
	for range 3 {
		d.restart()
		d.activate("a", 150, 100)
		d.delta(110, 130, 7, 0, 1, "") // a retry
		d.count(0, 140, 1000, 0, 1, "")
		d.take(h, 0, 1, "")
	}
	d.delta(130, 160, 1, 1, 0, "")
	d.count(0, 170, 1002, 1, 0, "")
	dp.SetTimestamp(pcommon.Timestamp((base + 170_000) * 1e6))
	dp.BucketCounts().FromRaw([]uint64{2, 4})
	dp.SetCount(6)
	d.take(h, 1, 0, "")
	d.check(actorRequests, tv{base + 110_000, 5}, tv{base + 130_000, 12}, tv{base + 140_000, 12}, tv{base + 160_000, 13}, tv{base + 170_000, 15})
	d.check(`{__name__="h_count", ate_actor_template_name="tpl", channel="ch1", instance="ch1", job="tpl"}`, tv{base + 140_000, 5}, tv{base + 170_000, 6})
	d.windows(Windows{Repeated: 3})
}

// S2-80: so do the sums of exponential histograms, and the retry of one is known.
func TestNativeSumsOutliveTheProcess(t *testing.T) {
	d := newDurableBed(t)
	d.at(1000)
	send := func(start, end int64, n uint64, accepted, folded int64) {
		t.Helper()
		p := newPayload()
		h := p.metric("h", "").SetEmptyExponentialHistogram()
		h.SetAggregationTemporality(delta)
		dp := h.DataPoints().AppendEmpty()
		dp.SetStartTimestamp(pcommon.Timestamp((base + start*1000) * 1e6))
		dp.SetTimestamp(pcommon.Timestamp((base + end*1000) * 1e6))
		dp.SetScale(3)
		dp.Positive().SetOffset(-2)
		dp.Positive().BucketCounts().FromRaw([]uint64{n, 0, 1})
		dp.SetCount(n + 1)
		dp.SetSum(float64(n))
		d.take(p, accepted, folded, "")
	}
	d.activate("a", 100, 100)
	send(100, 110, 4, 1, 0)
	send(110, 120, 5, 1, 0)
	d.restart()
	d.activate("a", 125, 100)
	send(110, 120, 5, 0, 1)
	send(120, 130, 6, 1, 0)
	const series = `{__name__="h", ate_actor_template_name="tpl", channel="ch1", instance="ch1", job="tpl"}`
	for _, s := range d.r.w.cache.series {
		if s.labels.String() == series && (s.sum.f == nil || s.sum.f.Count != 18 || s.sum.f.Sum != 15) {
			t.Errorf("the sum is %v; want a count of 18 and a sum of 15", s.sum.f)
		}
	}
	d.start(t.TempDir()) // it goes on from the store
	d.activate("a", 135, 100)
	send(130, 140, 1, 1, 0)
	for _, s := range d.r.w.cache.series {
		if s.labels.String() == series && (s.sum.f == nil || s.sum.f.Count != 20) {
			t.Errorf("the sum is %v; want a count of 20", s.sum.f)
		}
	}
}

// A sum whose journal is gone, or behind the store, goes on from what is stored.
func TestSumsGoOnFromTheStore(t *testing.T) {
	d := newDurableBed(t)
	d.at(1000)
	d.activate("a", 100, 100)
	d.delta(100, 110, 5, 1, 0, "")
	behind := d.copied()
	d.delta(110, 120, 7, 1, 0, "")
	d.start(behind)
	d.activate("a", 120, 100)
	d.delta(120, 130, 1, 1, 0, "")
	d.check(actorRequests, tv{base + 110_000, 5}, tv{base + 120_000, 12}, tv{base + 130_000, 13})
	d.start(t.TempDir())
	d.activate("a", 130, 100)
	d.delta(130, 140, 1, 1, 0, "")
	d.check(actorRequests, tv{base + 110_000, 5}, tv{base + 120_000, 12}, tv{base + 130_000, 13}, tv{base + 140_000, 14})
}

// A late delta that was folded, with no sample of its own, is not lost.
func TestFoldedDeltaOutlivesTheProcess(t *testing.T) {
	d := newDurableBed(t)
	d.at(1000)
	d.activate("a", 100, 100)
	d.delta(100, 110, 5, 1, 0, "")
	d.delta(120, 130, 1, 1, 0, "")
	d.delta(110, 120, 10, 0, 1, "")
	d.restart()
	d.activate("a", 140, 100)
	d.delta(130, 140, 100, 1, 0, "")
	d.check(actorRequests, tv{base + 110_000, 5}, tv{base + 130_000, 6}, tv{base + 140_000, 116})
}

// A log that is cut anywhere gives the sums as of a whole record, and a byte that
// was turned is found.
func TestDamagedJournal(t *testing.T) {
	d := newDurableBed(t)
	d.at(1000)
	d.activate("a", 100, 100)
	var sizes []int64
	for i := int64(1); i <= 5; i++ {
		d.delta(100+i, 101+i, 1, 1, 0, "")
		info, err := os.Stat(d.newestLog())
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, info.Size())
	}
	whole, err := os.ReadFile(d.newestLog())
	if err != nil {
		t.Fatal(err)
	}
	read := func(b []byte) (v float64, torn bool, err error) {
		a := newAccumulator(&Options{}, newMetrics(nil))
		r := reading{a: &a, series: map[uint64]*runningSum{}, streams: map[uint64]*streamState{}}
		torn, err = r.file(b)
		for _, s := range a.sums {
			v = s.v
		}
		return v, torn, err
	}
	for cut := range whole {
		want := 0.0
		for _, size := range sizes {
			if int64(cut) >= size {
				want++
			}
		}
		v, _, err := read(whole[:cut])
		if v != want || err != nil {
			t.Errorf("cut at %d: %v, %v; want %v", cut, v, err, want)
		}
		if v, torn, err := read(append(bytes.Clone(whole[:cut]), make([]byte, 64)...)); v != want || err == nil && !torn {
			t.Errorf("zeros from %d: %v, torn %v, %v; want %v", cut, v, torn, err, want)
		}
		turned := bytes.Clone(whole)
		turned[cut] ^= 0x10
		if v, torn, err := read(turned); v == 5 || err == nil && !torn {
			t.Errorf("byte %d turned: %v, torn %v, %v; want less, and that it is said", cut, v, torn, err)
		}
	}

	// The receiver starts all the same, says so, and keeps the file.
	dir := d.copied()
	turned := bytes.Clone(whole)
	turned[sizes[2]-1] ^= 1
	name := filepath.Join(dir, filepath.Base(d.newestLog()))
	if err := os.WriteFile(name, turned, 0o600); err != nil {
		t.Fatal(err)
	}
	d.start(dir)
	if why := d.r.StateDamage(); !strings.Contains(why, filepath.Base(name)) {
		t.Errorf("damage %q; want one that names the file", why)
	}
	if kept, err := os.ReadFile(name + damagedSuffix); err != nil || !bytes.Equal(kept, turned) {
		t.Errorf("the damaged file was not kept: %v", err)
	}
	d.activate("a", 120, 100)
	d.delta(120, 130, 1, 1, 0, "")
	if got := d.values(actorRequests); got[len(got)-1].v != 6 {
		t.Errorf("the sum goes on at %v; want 6, what is stored and one", got[len(got)-1].v)
	}
}

func TestNewerJournalIsRefused(t *testing.T) {
	d := newDurableBed(t)
	dir := d.copied()
	if err := os.WriteFile(filepath.Join(dir, "00000009.log"), []byte(journalMagic+"2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.o.StateDir = dir
	if _, err := Open(d.o); err == nil || !strings.Contains(err.Error(), "format 2") {
		t.Errorf("Open = %v; want that the format is newer", err)
	}
	d.o.StateDir = d.dir
	if _, err := Open(d.o); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("Open of a folder in use = %v", err)
	}
}

// A journal that cannot be written refuses, and takes again from a new file, in
// which what was refused is not.
func TestJournalThatFails(t *testing.T) {
	d := newDurableBed(t)
	var said bytes.Buffer
	d.o.Logger = slog.New(slog.NewTextHandler(&said, nil))
	d.start(t.TempDir())
	d.at(1000)
	d.activate("a", 100, 100)
	d.delta(100, 110, 5, 1, 0, "")
	j := d.r.w.sums.journal
	p := newPayload()
	p.sum("app.requests", "{request}", delta, 110_000, 120_000, 7)
	refused := func(what string) {
		t.Helper()
		var unavailable *UnavailableError
		if res, err := d.act.Export(t.Context(), wireOf(t, p.md)); !errors.As(err, &unavailable) {
			t.Errorf("%s: %+v, %v; want an *UnavailableError", what, res, err)
		}
	}
	// fsync fails: committed, not acknowledged.
	j.sync = func(*os.File) error { return unix.EIO }
	refused("fsync fails")
	refused("and goes on failing") // the new file cannot be made durable either
	// Who sends on meanwhile has no snapshot made for each request.
	tried := j.number
	for range 20 {
		refused("and goes on failing")
	}
	if j.number != tried {
		t.Errorf("%d tries to begin anew within a second; want none", j.number-tried)
	}
	d.now += renewEvery
	refused("and goes on failing")
	if j.number != tried+1 {
		t.Errorf("%d tries to begin anew after a second; want 1", j.number-tried)
	}
	if n := strings.Count(said.String(), "cannot be written"); n != 1 {
		t.Errorf("said %d times; want once:\n%s", n, said.String())
	}
	if ms, _ := d.r.Export(t.Context(), nil); ms.Rejected != 0 {
		t.Error("a request without deltas was refused")
	}
	if err := d.r.StateError(); !errors.Is(err, unix.EIO) {
		t.Errorf("StateError = %v; want the disk's", err)
	}
	j.sync = (*os.File).Sync
	d.now += renewEvery
	d.take(p, 0, 1, "") // its value is in the sum once
	if err := d.r.StateError(); err != nil {
		t.Errorf("StateError = %v; want none", err)
	}
	if n := strings.Count(said.String(), "are written again"); n != 1 {
		t.Errorf("the end of it was said %d times; want once:\n%s", n, said.String())
	}
	// write fails: nothing is committed.
	if err := j.f.Close(); err != nil {
		t.Fatal(err)
	}
	d.delta2(120, 130, 1)
	d.delta(120, 130, 1, 1, 0, "")
	d.check(actorRequests, tv{base + 110_000, 5}, tv{base + 120_000, 12}, tv{base + 130_000, 13})
	d.restart()
	d.activate("a", 140, 100)
	d.delta(130, 140, 1, 1, 0, "")
	d.delta(120, 130, 1, 0, 1, "")
	got := d.values(actorRequests)
	if got[len(got)-1].v != 14 {
		t.Errorf("after a restart %v; want 14", got)
	}
}

// delta2 wants its point refused as a whole.
func (d *durableBed) delta2(start, end int64, v float64) {
	d.t.Helper()
	p := newPayload()
	p.sum("app.requests", "{request}", delta, start*1000, end*1000, v)
	var unavailable *UnavailableError
	if res, err := d.act.Export(d.t.Context(), wireOf(d.t, p.md)); !errors.As(err, &unavailable) {
		d.t.Errorf("%+v, %v; want an *UnavailableError", res, err)
	}
}

// A log that grows is replaced by a snapshot, with which nothing changes.
func TestSnapshot(t *testing.T) {
	d := newDurableBed(t)
	d.activate("a", -1000, -1000)
	const streams = 300
	n := 0
	for ; d.r.w.sums.journal.number < 3; n++ {
		p := newPayload()
		for i := range streams {
			p.sum("app.requests", "{request}", delta, int64(n-1), int64(n), 1, "path", fmt.Sprint(i))
		}
		if _, err := d.act.Export(t.Context(), wireOf(t, p.md)); err != nil {
			t.Fatal(err)
		}
		d.now++
	}
	names, _ := filepath.Glob(filepath.Join(d.dir, "*.*"))
	if len(names) != 2 {
		t.Errorf("the folder holds %v; want a snapshot and a log", names)
	}
	d.restart()
	d.activate("a", 0, -1000)
	p := newPayload()
	for i := range streams {
		p.sum("app.requests", "{request}", delta, int64(n-2), int64(n-1), 1, "path", fmt.Sprint(i)) // retries
		p.sum("app.requests", "{request}", delta, int64(n-1), int64(n), 1, "path", fmt.Sprint(i))
	}
	if res, err := d.act.Export(t.Context(), wireOf(t, p.md)); err != nil || res.Folded+res.Accepted != 2*streams {
		t.Fatal(res, err)
	}
	for labels, got := range d.stored() {
		if !strings.Contains(labels, "target_info") && got[len(got)-1].v != float64(n+1) {
			t.Errorf("%s ends at %v; want %d", labels, got[len(got)-1], n+1)
		}
	}
}

// What is idle is forgotten, and what is over the bound is refused until then.
func TestBoundOfStreams(t *testing.T) {
	d := newDurableBed(t)
	d.r.w.sums.max = 13 // of which node channels have the last quarter
	d.activate("a", -1000, -1000)
	send := func(path int, accepted int64, why string) {
		t.Helper()
		p := newPayload()
		p.sum("app.requests", "{request}", delta, d.now-base-1, d.now-base, 1, "path", fmt.Sprint(path))
		d.take(p, accepted, 0, why)
	}
	for i := range 10 {
		send(i, 1, "")
	}
	send(10, 0, "series_limit")
	d.now += 11 * 60_000
	send(10, 1, "")
	if a := &d.r.w.sums; a.nSums != 1 || len(a.streams) != 1 || d.ch.streams != 1 {
		t.Errorf("%d sums and %d streams, %d of the channel; want 1 of each", a.nSums, len(a.streams), d.ch.streams)
	}
	send(3, 1, "") // goes on from the store
	if got := d.values(strings.Replace(actorRequests, `job="tpl"`, `job="tpl", path="3"`, 1)); len(got) != 2 || got[1].v != 2 {
		t.Errorf("the forgotten series holds %v; want 1 and 2", got)
	}
}

// Who writes to the journal has the Receiver's lock, and does not wait for another
// one's fsync.
func TestJournalWriteBesideFsync(t *testing.T) {
	j, err := openJournal(t.TempDir(), true, nil, &newMetrics(nil).state)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.begin(1, true); err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if err := j.write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	began, end := make(chan struct{}), make(chan struct{})
	j.sync = func(f *os.File) error {
		close(began)
		<-end
		return f.Sync()
	}
	done := make(chan error, 1)
	go func() { done <- j.await() }()
	<-began
	wrote := make(chan struct{})
	go func() { write("two"); close(wrote) }()
	select {
	case <-wrote:
	case <-time.After(time.Minute):
		t.Fatal("a write waits for the fsync")
	}
	close(end)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	// What was written meanwhile is not taken for synced.
	if j.synced != 3 || j.written.Load() != 6 {
		t.Errorf("%d of %d bytes count as synced; want 3 of 6", j.synced, j.written.Load())
	}
	j.sync = (*os.File).Sync
	if err := j.close(); err != nil {
		t.Error(err)
	}
}

// A process that dies while it saves a snapshot leaves a part of one. No later
// snapshot has its number, so that only the next start can remove it.
func TestUnfinishedSnapshotIsRemoved(t *testing.T) {
	d := newDurableBed(t)
	d.at(1000)
	d.activate("a", 100, 100)
	d.delta(100, 110, 1, 1, 0, "")
	for _, name := range []string{"00000000.snapshot.tmp", "00000007.snapshot.tmp"} {
		if err := os.WriteFile(filepath.Join(d.r.w.sums.journal.dir, name), []byte("part"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d.restart()
	if left, _ := fs.Glob(os.DirFS(d.r.w.sums.journal.dir), "*.tmp"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	d.activate("a", 140, 100)
	d.delta(100, 110, 1, 0, 1, "") // what is whole is known
}
