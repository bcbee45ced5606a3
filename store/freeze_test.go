package store

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"golang.org/x/sys/unix"
)

// wantFrozen checks that nothing is taken and nothing acked, and that queries
// go on.
func wantFrozen(t *testing.T, db *DB, cause error) {
	t.Helper()
	app := db.Appender(context.Background())
	_, appendErr := app.Append(0, writerLabels("frozen"), epoch, 1)
	for call, err := range map[string]error{"Append": appendErr, "Commit": app.Commit(), "Sync": db.Sync(context.Background()), "Stats": db.Stats().Frozen} {
		if !errors.Is(err, ErrFrozen) || cause != nil && !errors.Is(err, cause) {
			t.Errorf("%s of a frozen store = %v; want ErrFrozen and %v", call, err, cause)
		}
	}
	if err := app.Rollback(); err != nil {
		t.Error(err)
	}
	instant(t, db, "w", epoch)
}

// alone says whether this process may be limited: it is a child that runs the
// one test. Otherwise it runs that child and reports it, since the limit would
// also meet what the test binary writes for itself.
func alone(t *testing.T) bool {
	t.Helper()
	const env = "WATTLOOP_TEST_ALONE"
	if os.Getenv(env) == t.Name() {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), env+"="+t.Name())
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("alone: %v\n%s", err, out)
	}
	return false
}

// limitFileSize makes writes beyond n bytes of a file fail, as a full disk
// would, until the returned function is called. The whole process is limited.
func limitFileSize(t *testing.T, n int64) (lift func()) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: uint64(n), Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	lift = func() {
		once.Do(func() {
			if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(lift)
	return lift
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// P3: a write that the disk refuses freezes the store; what was acked before
// and after it outlives a power cut, once the store has been reopened between.
func TestCommitErrorFreezesUntilReopen(t *testing.T) {
	if !alone(t) {
		return
	}
	at := time.Unix(1_760_000_000, 0)
	db := open(t, Options{Clock: func() time.Time { return at }})
	l := &ledger{acked: map[string]map[int64]float64{}}
	if err := writeAndAck(db, l, "before", 30); err != nil {
		t.Fatal(err)
	}
	late := db.Appender(context.Background())
	if _, err := late.Append(0, writerLabels("late"), epoch+100_000, 1); err != nil {
		t.Fatal(err)
	}

	lift := limitFileSize(t, fileSize(t, filepath.Join(db.o.Path, "wal/00000000"))+1000)
	err := writeAndAck(db, l, "torn", 100)
	lift()
	if !errors.Is(err, ErrFrozen) || !errors.Is(err, unix.EFBIG) || !strings.Contains(err.Error(), "the store must be reopened") {
		t.Fatalf("a commit that the disk refused = %v; want ErrFrozen, the cause and what to do", err)
	}
	wantFrozen(t, db, unix.EFBIG)
	if got := db.Stats().FrozenAt; !got.Equal(at) {
		t.Errorf("FrozenAt = %v; want the clock's %v", got, at)
	}
	if err := late.Commit(); !errors.Is(err, ErrFrozen) {
		t.Errorf("an appender from before the failure commits: %v; want ErrFrozen", err)
	}

	if err := db.Reopen(context.Background()); err != nil {
		t.Fatal(err)
	}
	if st := db.Stats(); st.Frozen != nil || st.Opened != 2 {
		t.Errorf("Stats after Reopen = %+v", st)
	}
	if err := writeAndAck(db, l, "after", 30); err != nil {
		t.Fatal(err)
	}
	ledger, acked := l.snapshot()
	if lost := missing(t, db, ledger); lost != 0 {
		t.Errorf("%d of %d acked samples are not there after Reopen", lost, acked)
	}
	if lost := missing(t, open(t, Options{Path: powerCut(t, db)}), ledger); lost != 0 {
		t.Errorf("%d of %d acked samples lost at a power cut", lost, acked)
	}
}

// A late sample whose log could not be written is in memory only, and the TSDB
// answers nil: Sync must not.
func TestLateLogErrorFreezes(t *testing.T) {
	if !alone(t) {
		return
	}
	for _, d := range []Durability{DurabilityFsync, DurabilityOS} {
		db := open(t, Options{Durability: d})
		x := writerLabels("x")
		write(t, db, x, point{epoch, 1})
		var late []point
		for i := range int64(3000) {
			late = append(late, point{epoch - 3000 + i, float64(i * i)})
		}
		write(t, db, x, late...)
		if err := db.Sync(context.Background()); err != nil {
			t.Fatal(err)
		}
		// A new segment of the main log has room below the late log's size.
		if err := db.current.Load().tsdb.Head().Truncate(epoch - 100); err != nil {
			t.Fatal(err)
		}
		size := fileSize(t, filepath.Join(db.o.Path, "wbl/00000000"))
		lift := limitFileSize(t, size)
		err := tryWrite(db, x, point{epoch - 5000, 7})
		if err != nil {
			t.Fatalf("Commit = %v; want the main log to have room", err)
		}
		err = db.Sync(context.Background())
		lift()
		if !errors.Is(err, ErrFrozen) || !strings.Contains(err.Error(), "log of late samples") {
			t.Fatalf("%s: Sync = %v; want ErrFrozen", d, err)
		}
		wantFrozen(t, db, nil)
		if err := db.Reopen(context.Background()); err != nil {
			t.Fatal(err)
		}
		write(t, db, x, point{epoch - 6000, 7})
		if err := db.Sync(context.Background()); err != nil {
			t.Errorf("%s: Sync after Reopen = %v", d, err)
		}
	}
}

// A failed fsync is not tried again on that descriptor: the kernel may have
// dropped the bytes and call the file clean. The segment is written anew.
func TestFsyncErrorFreezesUntilReopen(t *testing.T) {
	db := open(t, Options{})
	l := &ledger{acked: map[string]map[int64]float64{}}
	if err := writeAndAck(db, l, "before", 30); err != nil {
		t.Fatal(err)
	}
	segment := filepath.Join(db.o.Path, "wal/00000000")
	inode := func() uint64 {
		var st unix.Stat_t
		if err := unix.Stat(segment, &st); err != nil {
			t.Fatal(err)
		}
		return st.Ino
	}
	old := inode()

	calls := 0
	fsync := db.logs.fsync
	db.logs.fsync = func(*os.File) error { calls++; return unix.EIO }
	if err := writeAndAck(db, l, "torn", 1); !errors.Is(err, ErrFrozen) || !errors.Is(err, unix.EIO) {
		t.Fatalf("Sync = %v; want ErrFrozen and the cause", err)
	}
	wantFrozen(t, db, unix.EIO)
	if calls != 1 {
		t.Errorf("%d fsyncs; want the failed one alone", calls)
	}

	// The disk is still bad: nothing is acked, nothing is made worse.
	if err := db.Reopen(context.Background()); !errors.Is(err, unix.EIO) {
		t.Errorf("Reopen on a bad disk = %v; want its error", err)
	}
	if err := db.Sync(context.Background()); !errors.Is(err, ErrFrozen) {
		t.Errorf("Sync after a failed Reopen = %v; want ErrFrozen", err)
	}
	_, err := db.Instant(context.Background(), "w", epoch)
	wantQueryError(t, "Instant between", err, Unavailable, "no samples are taken")
	if leftover, _ := filepath.Glob(filepath.Join(db.o.Path, "*", "*"+rewriteSuffix)); len(leftover) > 0 {
		t.Errorf("a failed Reopen left %v", leftover)
	}

	db.logs.fsync = fsync
	if err := db.Reopen(context.Background()); err != nil {
		t.Fatal(err)
	}
	if inode() == old {
		t.Error("the segment whose fsync failed is the same file still")
	}
	if err := writeAndAck(db, l, "after", 30); err != nil {
		t.Fatal(err)
	}
	ledger, acked := l.snapshot()
	if lost := missing(t, open(t, Options{Path: powerCut(t, db)}), ledger); lost != 0 {
		t.Errorf("%d of %d acked samples lost at a power cut", lost, acked)
	}
}

// What a start finds must reach the disk before anything is acked behind it.
func TestReopenFailsWhenTheLogCannotBeSynced(t *testing.T) {
	db := open(t, Options{})
	fsync := db.logs.fsync
	db.logs.fsync = func(*os.File) error { return unix.EIO }
	if err := db.Reopen(context.Background()); !errors.Is(err, unix.EIO) {
		t.Errorf("Reopen = %v; want the disk's error", err)
	}
	if err := db.Sync(context.Background()); !errors.Is(err, ErrFrozen) {
		t.Errorf("Sync = %v; want ErrFrozen", err)
	}
	db.logs.fsync = fsync
	if err := db.Reopen(context.Background()); err != nil {
		t.Fatal(err)
	}
	write(t, db, writerLabels("a"), point{epoch, 1})
}

func TestRewriteLeftoversGo(t *testing.T) {
	db := open(t, Options{Path: filepath.Join(t.TempDir(), "[data]")}) // no pattern
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	leftover := filepath.Join(db.o.Path, "wal", "00000000"+rewriteSuffix)
	if err := os.WriteFile(leftover, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, Options{Path: db.o.Path})
	if _, err := os.Stat(leftover); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", leftover, err)
	}
}

func TestReopenWaitsForAppenders(t *testing.T) {
	db := open(t, Options{})
	app := db.Appender(context.Background())
	if _, err := app.Append(0, writerLabels("a"), epoch, 1); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := db.Reopen(ctx); !errors.Is(err, errInUse) || !errors.Is(err, context.Canceled) {
		t.Errorf("Reopen under an appender = %v; want it to wait for ctx", err)
	}
	if err := app.Commit(); err != nil {
		t.Errorf("Commit after Reopen gave up = %v", err)
	}
	if err := errors.Join(db.Sync(context.Background()), db.Reopen(context.Background())); err != nil {
		t.Fatal(err)
	}
	if v, _ := valueOf(t, db, "w", epoch); v != 1 {
		t.Errorf("w reads %g; want 1", v)
	}
}

func TestReopenEndsQueries(t *testing.T) {
	db := open(t, Options{})
	running := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- db.run(context.Background(), nil, func(ctx context.Context, _ storage.Queryable) error {
			close(running)
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	<-running
	if err := db.Reopen(context.Background()); err != nil {
		t.Fatal(err)
	}
	wantQueryError(t, "a query during Reopen", <-ended, Unavailable, "it is being reopened")
}

// A ref from before a Reopen may be another series' after it.
func TestRefsAreOfOneSession(t *testing.T) {
	db := open(t, Options{})
	appendTo := func(app interface {
		Append(ref storage.SeriesRef, l labels.Labels, t int64, v float64) (storage.SeriesRef, error)
	}, ref storage.SeriesRef, ls labels.Labels, ts int64) storage.SeriesRef {
		t.Helper()
		ref, err := app.Append(ref, ls, ts, 1)
		if err != nil {
			t.Fatal(err)
		}
		return ref
	}
	app := db.Appender(context.Background())
	old := appendTo(app, 0, writerLabels("a"), epoch)
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	app = db.Appender(context.Background())
	if got := appendTo(app, old, labels.EmptyLabels(), epoch+1); got != old {
		t.Errorf("ref %x became %x in one session", old, got)
	}
	if err := errors.Join(app.Commit(), db.Reopen(context.Background())); err != nil {
		t.Fatal(err)
	}
	app = db.Appender(context.Background())
	defer app.Rollback()
	if _, err := app.Append(old, labels.EmptyLabels(), epoch+2, 1); err == nil {
		t.Error("an old ref without labels was taken")
	}
	if got := appendTo(app, old, writerLabels("a"), epoch+2); got == old {
		t.Errorf("ref %x is the same after Reopen", got)
	}
}

// Writers, readers and reopens at once; for the race detector.
func TestReopenUnderLoad(t *testing.T) {
	db := open(t, Options{segmentSize: 64 << 10})
	l := &ledger{acked: map[string]map[int64]float64{}}
	var writers, reopens sync.WaitGroup
	var reopening sync.RWMutex // waited for by who was refused
	again := make(chan struct{}, 1)
	for _, w := range []string{"a", "b", "c"} {
		writers.Go(func() {
			for i := range int64(200) {
				if i%25 == 0 {
					select {
					case again <- struct{}{}:
					default: // one is under way
					}
				}
				points := []point{{epoch + i*10, float64(i)}}
				for {
					err := tryWrite(db, writerLabels(w), points...)
					if err == nil {
						err = db.Sync(context.Background())
					}
					if err == nil {
						l.ack(w, points)
						break
					}
					if !errors.Is(err, ErrFrozen) {
						t.Error(err)
						return
					}
					reopening.RLock()
					//lint:ignore SA2001 to wait is all that is wanted
					reopening.RUnlock()
				}
				if _, err := db.Instant(context.Background(), "sum(w)", epoch+i*10); err != nil {
					var q *QueryError
					if !errors.As(err, &q) || q.Kind != Unavailable {
						t.Error(err)
					}
				}
			}
		})
	}
	reopens.Go(func() {
		for range again {
			reopening.Lock()
			err := db.Reopen(context.Background())
			reopening.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	writers.Wait()
	close(again)
	reopens.Wait()
	ledger, acked := l.snapshot()
	if lost := missing(t, db, ledger); lost != 0 || acked != 600 {
		t.Errorf("%d of %d acked samples lost; want 0 of 600", lost, acked)
	}
	if lost := missing(t, open(t, Options{Path: powerCut(t, db)}), ledger); lost != 0 {
		t.Errorf("%d of %d acked samples lost at a power cut", lost, acked)
	}
}
