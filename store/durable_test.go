package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"golang.org/x/sys/unix"
)

// ledger is what was acknowledged: by writer and time, the value.
type ledger struct {
	mu    sync.Mutex
	acked map[string]map[int64]float64
}

func (l *ledger) ack(writer string, points []point) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.acked[writer] == nil {
		l.acked[writer] = map[int64]float64{}
	}
	for _, p := range points {
		l.acked[writer][p.t] = p.v
	}
}

func (l *ledger) snapshot() (acked map[string]map[int64]float64, samples int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	acked = map[string]map[int64]float64{}
	for w, points := range l.acked {
		acked[w] = map[int64]float64{}
		for t, v := range points {
			acked[w][t] = v
			samples++
		}
	}
	return acked, samples
}

func writerLabels(name string) labels.Labels {
	return labels.FromStrings("__name__", "w", "writer", name)
}

// writeAndAck commits and syncs until stop, one in three commits late, and
// notes what was acknowledged.
func writeAndAck(db *DB, l *ledger, name string, commits int) error {
	const perCommit = 20
	for i := range commits {
		points := make([]point, perCommit)
		from := epoch + int64(i)*1000
		if i%3 == 2 {
			from -= 1500 // between the samples of the commits before
		}
		for j := range points {
			points[j] = point{from + int64(j)*20 + 1, rand.Float64()} // no two of a run compress
		}
		if err := tryWrite(db, writerLabels(name), points...); err != nil {
			return err
		}
		if err := db.Sync(context.Background()); err != nil {
			return err
		}
		l.ack(name, points)
	}
	return nil
}

// powerCut copies what a power cut would leave of db's log into a new folder:
// of each segment the bytes that had been fsynced, and nothing else.
func powerCut(t *testing.T, db *DB) string {
	t.Helper()
	dir := t.TempDir()
	for name, size := range db.Synced() {
		from, err := os.Open(filepath.Join(db.o.Path, name))
		if err != nil {
			t.Fatal(err)
		}
		defer from.Close()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		to, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(to, from, size); err != nil {
			t.Fatal(err)
		}
		if err := to.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// missing counts the samples of the ledger that a store does not hold.
func missing(t *testing.T, db *DB, acked map[string]map[int64]float64) int {
	t.Helper()
	q, err := db.Querier(0, epoch*2)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	lost := 0
	for writer, want := range acked {
		got := map[int64]float64{}
		set := q.Select(context.Background(), false, nil, labels.MustNewMatcher(labels.MatchEqual, "writer", writer))
		for set.Next() {
			it := set.At().Iterator(nil)
			for it.Next() == chunkenc.ValFloat {
				ts, v := it.At()
				got[ts] = v
			}
		}
		if err := set.Err(); err != nil {
			t.Fatal(err)
		}
		for ts, v := range want {
			if g, ok := got[ts]; !ok || g != v {
				lost++
			}
		}
	}
	return lost
}

// lossesAtPowerCut is the experiment: writers write, the power goes while they
// do, and what was acknowledged before is looked for.
func lossesAtPowerCut(t *testing.T, d Durability) (acked, lost int) {
	db := open(t, Options{Durability: d, segmentSize: 128 << 10})
	l := &ledger{acked: map[string]map[int64]float64{}}
	var writers sync.WaitGroup
	half := make(chan struct{}, 4)
	for w := range 4 {
		writers.Go(func() {
			for round := range 2 {
				if err := writeAndAck(db, l, fmt.Sprint(w, "-", round), 300); err != nil {
					t.Error(err)
				}
				half <- struct{}{}
			}
		})
	}
	<-half // one writer is half way, the others about
	ledger, acked := l.snapshot()
	dir := powerCut(t, db)
	for range 7 {
		<-half
	}
	writers.Wait()

	if d != DurabilityOS && len(db.Synced()) < 4 {
		t.Errorf("the logs have %d segments; want several, late samples among them", len(db.Synced()))
	}
	return acked, missing(t, open(t, Options{Path: dir}), ledger)
}

func TestAckedSamplesSurviveAPowerCut(t *testing.T) {
	acked, lost := lossesAtPowerCut(t, DurabilityFsync)
	if lost != 0 || acked < 6000 {
		t.Errorf("%d of %d acked samples lost; want 0 of at least 6000", lost, acked)
	}
}

// The experiment can fail: without fsync it finds the loss.
func TestPowerCutTestBites(t *testing.T) {
	if acked, lost := lossesAtPowerCut(t, DurabilityOS); lost != acked || acked < 6000 {
		t.Errorf("with durability os %d of %d acked samples are lost; want all", lost, acked)
	}
}

// P1: what is acked outlives the process in every mode, since it is in the
// kernel: a copy of the files as they stand has everything.
func TestAckedSamplesSurviveTheProcess(t *testing.T) {
	for _, d := range []Durability{DurabilityFsync, DurabilityOS, "interval:1h"} {
		db := open(t, Options{Durability: d})
		l := &ledger{acked: map[string]map[int64]float64{}}
		if err := writeAndAck(db, l, "a", 50); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "copy")
		if err := os.CopyFS(dir, os.DirFS(db.o.Path)); err != nil {
			t.Fatal(err)
		}
		ledger, acked := l.snapshot()
		if lost := missing(t, open(t, Options{Path: dir}), ledger); lost != 0 {
			t.Errorf("%s: %d of %d acked samples lost", d, lost, acked)
		}
	}
}

func TestIntervalMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, err := Open(Options{Path: t.TempDir(), Durability: "interval:1s"})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		write(t, db, writerLabels("a"), point{epoch, 1})
		if err := db.Sync(context.Background()); err != nil {
			t.Fatal(err)
		}
		lag := func() (n int64) {
			for name, size := range db.Synced() {
				info, err := os.Stat(filepath.Join(db.o.Path, name))
				if err != nil {
					t.Fatal(err)
				}
				n += info.Size() - size
			}
			return n
		}
		if lag() == 0 {
			t.Error("samples are on the disk at once; want the ack not to wait")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := lag(); n != 0 {
			t.Errorf("%d bytes are not on the disk after the interval", n)
		}
		db.logs.fsync = func(*os.File) error { return unix.EIO }
		write(t, db, writerLabels("a"), point{epoch + 1, 1})
		if err := db.Sync(context.Background()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if err := db.Sync(context.Background()); !errors.Is(err, ErrFrozen) || !errors.Is(err, unix.EIO) {
			t.Errorf("Sync after the fsync behind it failed = %v; want ErrFrozen and the cause", err)
		}
	})
}

// Twenty writers that commit while an fsync runs share the next one.
func TestSyncIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, err := Open(Options{Path: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		fsyncs := 0
		goOn := make(chan struct{})
		db.logs.fsync = func(f *os.File) error {
			fsyncs++
			<-goOn
			return f.Sync()
		}
		var writers sync.WaitGroup
		for w := range 21 {
			writers.Go(func() {
				if err := errors.Join(tryWrite(db, writerLabels(fmt.Sprint(w)), point{epoch, 1}), db.Sync(context.Background())); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait() // the first is in its fsync, the others wait
		}
		close(goOn)
		writers.Wait()
		if fsyncs != 2 {
			t.Errorf("%d fsyncs for 21 writers; want 2", fsyncs)
		}
	})
}

// Segments that the TSDB cuts off are forgotten, and the new ones followed, also
// when several went by between two fsyncs.
func TestSyncFollowsTruncation(t *testing.T) {
	db := open(t, Options{segmentSize: 32 << 10, OutOfOrder: time.Minute})
	l := &ledger{acked: map[string]map[int64]float64{}}
	for round := range 4 {
		for i := range 300 {
			points := make([]point, 50)
			for j := range points {
				points[j] = point{epoch + int64(round)*3_600_000 + int64(i*50+j), rand.Float64()}
			}
			write(t, db, writerLabels("a"), points...)
			l.ack("a", points)
		}
		if err := db.current.Load().tsdb.Head().Truncate(epoch + int64(round)*3_600_000); err != nil {
			t.Fatal(err)
		}
		if err := db.Sync(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	first := ""
	for name, size := range db.Synced() {
		info, err := os.Stat(filepath.Join(db.o.Path, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() != size {
			t.Errorf("%s: %d of %d bytes are fsynced", name, size, info.Size())
		}
		if strings.HasPrefix(name, "wal/") && (first == "" || name < first) {
			first = name
		}
	}
	if first == "wal/00000000" {
		t.Error("nothing was truncated: the test tests nothing")
	}
}

// BenchmarkCommitAndSync is one request of 500 samples, written and acked; with
// writers at once they share the fsync.
func BenchmarkCommitAndSync(b *testing.B) {
	for _, d := range []Durability{DurabilityOS, DurabilityFsync} {
		b.Run(string(d), func(b *testing.B) {
			db := open(b, Options{Durability: d})
			series := make([]labels.Labels, 500)
			refs := make([]storage.SeriesRef, len(series))
			for i := range series {
				series[i] = labels.FromStrings("__name__", "b", "i", fmt.Sprint(i))
			}
			ts := epoch
			for b.Loop() {
				ts += 5000
				app := db.Appender(context.Background())
				for i := range series {
					var err error
					if refs[i], err = app.Append(refs[i], series[i], ts, float64(ts)); err != nil {
						b.Fatal(err)
					}
				}
				if err := errors.Join(app.Commit(), db.Sync(context.Background())); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(series)), "ns/sample")
		})
	}
}
