package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("STORE_TEST_HOLD"); dir != "" {
		holdFolder(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// holdFolder is the second process of TestLockedByAnotherProcess: it holds a
// store until its standard input ends.
func holdFolder(dir string) {
	db, err := Open(Options{Path: dir})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("open")
	_, _ = os.Stdin.Read(make([]byte, 1))
	if err := db.Close(); err != nil {
		os.Exit(1)
	}
}

// epoch is the origin of the tests' samples, in Unix milliseconds: a full hour,
// so that subqueries, whose steps are aligned to 1970, meet the samples.
const epoch = int64(1_760_000_400_000)

// second is a time of a table, in seconds, as a timestamp of the store.
func second(s float64) int64 { return epoch + int64(s*1000) }

func open(t testing.TB, o Options) *DB {
	t.Helper()
	if o.Path == "" {
		o.Path = t.TempDir()
	}
	db, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

type point struct {
	t int64
	v float64
}

// write commits samples of one series, one commit for all.
func write(t testing.TB, db *DB, ls labels.Labels, points ...point) {
	t.Helper()
	if err := tryWrite(db, ls, points...); err != nil {
		t.Fatal(err)
	}
}

func tryWrite(db *DB, ls labels.Labels, points ...point) error {
	app := db.Appender(context.Background())
	for _, p := range points {
		if _, err := app.Append(0, ls, p.t, p.v); err != nil {
			return errors.Join(err, app.Rollback())
		}
	}
	return app.Commit()
}

func instant(t testing.TB, db *DB, expr string, ts int64) []Sample {
	t.Helper()
	got, err := db.Instant(context.Background(), expr, ts)
	if err != nil {
		t.Fatalf("Instant(%s): %v", expr, err)
	}
	return got
}

// valueOf is the single value of an expression; ok is false when it has none.
func valueOf(t testing.TB, db *DB, expr string, ts int64) (v float64, ok bool) {
	t.Helper()
	got := instant(t, db, expr, ts)
	if len(got) > 1 {
		t.Fatalf("Instant(%s) = %v; want one sample", expr, got)
	}
	if len(got) == 0 {
		return 0, false
	}
	return got[0].V, true
}

func TestOpenMakesTheFolderPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "data")
	if err := open(t, Options{Path: dir}).Close(); err != nil {
		t.Fatal(err)
	}
	mode := func() os.FileMode {
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode().Perm()
	}
	if got := mode(); got != 0o700 {
		t.Errorf("a new folder has mode %o; want 700", got)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	open(t, Options{Path: dir})
	if got := mode(); got != 0o700 {
		t.Errorf("a store's folder that was open to others has mode %o; want 700", got)
	}

	other := t.TempDir()
	if err := errors.Join(os.Chmod(other, 0o755), os.WriteFile(filepath.Join(other, "letter"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	open(t, Options{Path: other})
	if info, _ := os.Stat(other); info.Mode().Perm() != 0o755 {
		t.Errorf("a folder with other files has mode %o; want it left at 755", info.Mode().Perm())
	}
}

func TestOpenRefuses(t *testing.T) {
	f := func(o Options, want string) {
		t.Helper()
		db, err := Open(o)
		if err == nil {
			db.Close()
			t.Errorf("Open(%+v) = nil; want %q", o, want)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("Open(%+v) = %v; want %q", o, err, want)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f(Options{}, "set storage.path")
	f(Options{Path: file}, "not a directory")
	f(Options{Path: t.TempDir(), Durability: "always"}, `storage.durability: "always": want fsync, interval:`)
}

func TestParseDurability(t *testing.T) {
	f := func(in string, ok bool) {
		t.Helper()
		got, err := ParseDurability(in)
		if ok != (err == nil) || ok && string(got) != in {
			t.Errorf("ParseDurability(%q) = %q, %v; want ok %v", in, got, err, ok)
		}
	}
	f("fsync", true)
	f("os", true)
	f("interval:1s", true)
	f("interval:250ms", true)
	f("", false)
	f("interval", false)
	f("interval:", false)
	f("interval:0s", false)
	f("interval:-1s", false)
	f("interval:1", false)
	f("FSYNC", false)
}

func TestLocked(t *testing.T) {
	db := open(t, Options{})
	_, err := Open(Options{Path: db.o.Path})
	if !errors.Is(err, ErrLocked) {
		t.Fatalf("second Open = %v; want ErrLocked", err)
	}
	want := fmt.Sprintf("store: %s: folder is locked by process %d: stop it, or choose another folder", db.o.Path, os.Getpid())
	if err.Error() != want {
		t.Errorf("second Open = %q; want %q", err, want)
	}
	// Prometheus's own tools are kept out by the same lock.
	if p, err := tsdb.Open(db.o.Path, nil, nil, tsdb.DefaultOptions(), nil); err == nil {
		p.Close()
		t.Error("tsdb.Open of a folder in use = nil; want an error")
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, Options{Path: db.o.Path})
}

func TestLockedByAnotherProcess(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "STORE_TEST_HOLD="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line := make([]byte, 4); true {
		if _, err := out.Read(line); err != nil || string(line) != "open" {
			t.Fatalf("second process said %q, %v", line, err)
		}
	}
	_, err = Open(Options{Path: dir})
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("by process %d", cmd.Process.Pid)) {
		t.Errorf("Open = %v; want ErrLocked and the pid %d", err, cmd.Process.Pid)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	open(t, Options{Path: dir})
}

func TestClosed(t *testing.T) {
	db := open(t, Options{})
	if err := errors.Join(db.Close(), db.Close()); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	_, instantErr := db.Instant(ctx, "1", epoch)
	_, intervalErr := db.Interval(ctx, "x", epoch)
	_, jsonErr := db.QueryJSON(ctx, "1", epoch, 0)
	_, querierErr := db.Querier(0, 1)
	for name, err := range map[string]error{
		"Sync": db.Sync(ctx), "Commit": db.Appender(ctx).Commit(), "Reopen": db.Reopen(ctx),
		"Instant": instantErr, "Interval": intervalErr, "QueryJSON": jsonErr, "Querier": querierErr,
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s after Close = %v; want ErrClosed", name, err)
		}
	}
	if st := db.Stats(); !errors.Is(st.Frozen, ErrClosed) {
		t.Errorf("Stats after Close = %+v; want ErrClosed", st)
	}
}

// S0-150: late samples are taken for half an hour, and are there after a start.
func TestOutOfOrderWindow(t *testing.T) {
	dir := t.TempDir()
	db := open(t, Options{Path: dir})
	x := labels.FromStrings("__name__", "x")
	write(t, db, x, point{second(3600), 1})
	write(t, db, x, point{second(3600 - 29*60), 2})
	if err := tryWrite(db, x, point{second(3600 - 31*60), 3}); err == nil {
		t.Error("a sample 31 min late was taken")
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = open(t, Options{Path: dir})
	if v, _ := valueOf(t, db, "x", second(3600-29*60)); v != 2 {
		t.Errorf("late sample reads %g after a start; want 2", v)
	}
}

func TestUTF8Names(t *testing.T) {
	db := open(t, Options{})
	write(t, db, labels.FromStrings("__name__", "hw.power", "k8s.node.name", "nœud"), point{epoch, 7})
	if v, _ := valueOf(t, db, `{"hw.power","k8s.node.name"="nœud"}`, epoch); v != 7 {
		t.Errorf("hw.power reads %g; want 7", v)
	}
}

func TestStats(t *testing.T) {
	db := open(t, Options{Durability: "os"})
	if st := db.Stats(); st != (Stats{Durability: "os", Opened: 1}) {
		t.Errorf("Stats of an empty store = %+v", st)
	}
	write(t, db, labels.FromStrings("__name__", "x"), point{epoch, 1}, point{epoch + 5, 1})
	write(t, db, labels.FromStrings("__name__", "y"), point{epoch + 9, 1})
	want := Stats{Series: 2, MinTime: epoch, MaxTime: epoch + 9, Durability: "os", Opened: 1}
	if st := db.Stats(); st != want {
		t.Errorf("Stats = %+v; want %+v", st, want)
	}
}

// A metric that is registered twice panics, so each name must go with the TSDB
// that brought it.
func TestMetricsSurviveReopen(t *testing.T) {
	reg := prometheus.NewRegistry()
	db := open(t, Options{Registerer: reg})
	count := func() int {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		return len(families)
	}
	before := count()
	if err := db.Reopen(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := count(); got != before || before < 50 {
		t.Errorf("%d metrics after Reopen; want the %d from before", got, before)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if got := count(); got != 0 {
		t.Errorf("%d metrics after Close; want none", got)
	}
}

// The size bound counts the write-ahead log: where the blocks alone have room,
// one goes.
func TestRetentionBySizeCountsTheLog(t *testing.T) {
	db := open(t, Options{OutOfOrder: time.Minute})
	x := labels.FromStrings("__name__", "x")
	for h := range 9 {
		write(t, db, x, point{second(float64(h) * 3600), 1})
	}
	if err := db.current.Load().tsdb.Compact(context.Background()); err != nil {
		t.Fatal(err)
	}
	blocks, size := db.current.Load().tsdb.Blocks(), int64(0)
	for _, b := range blocks {
		size += b.Size()
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = open(t, Options{Path: db.o.Path, OutOfOrder: time.Minute, RetentionBytes: size + 1})
	if got := len(db.current.Load().tsdb.Blocks()); got >= len(blocks) || len(blocks) < 2 {
		t.Errorf("%d of %d blocks are kept in their own size; want fewer", got, len(blocks))
	}
	db = open(t, Options{Path: closed(t, db), OutOfOrder: time.Minute})
	if v, _ := valueOf(t, db, "x", second(8*3600)); v != 1 {
		t.Errorf("the newest sample reads %g; want 1", v)
	}
}

// closed closes a store and tells its folder.
func closed(t *testing.T, db *DB) string {
	t.Helper()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return db.o.Path
}

func TestRetentionByTime(t *testing.T) {
	db := open(t, Options{RetentionTime: 4 * time.Hour, OutOfOrder: time.Minute})
	x := labels.FromStrings("__name__", "x")
	for h := range 24 {
		write(t, db, x, point{second(float64(h) * 3600), float64(h)})
	}
	s := db.current.Load()
	if err := s.tsdb.Compact(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, ok := valueOf(t, db, "x", second(2*3600)); ok {
		t.Error("a sample 21 h old is kept for 4 h")
	}
	if v, _ := valueOf(t, db, "x", second(22*3600)); v != 22 {
		t.Errorf("a sample 1 h old reads %g; want 22", v)
	}
}

func TestDiskFull(t *testing.T) {
	db := open(t, Options{})
	x := labels.FromStrings("__name__", "x")
	write(t, db, x, point{epoch, 1})
	disk := db.freeBytes
	db.freeBytes = func(string) (int64, error) { return 200 << 20, nil }
	err := tryWrite(db, x, point{epoch + 1, 2})
	if !errors.Is(err, ErrDiskFull) || !strings.Contains(err.Error(), "200 MiB free, 256 MiB wanted") {
		t.Errorf("a sample on a full disk = %v; want ErrDiskFull and both numbers", err)
	}
	if err := db.Reopen(context.Background()); !errors.Is(err, ErrDiskFull) {
		t.Errorf("Reopen on a full disk = %v; want ErrDiskFull", err)
	}
	if v, _ := valueOf(t, db, "x", epoch+1); v != 1 {
		t.Errorf("x reads %g on a full disk; want 1", v)
	}
	if st := db.Stats(); !errors.Is(st.Full, ErrDiskFull) || st.Refused != 1 || st.Frozen != nil {
		t.Errorf("Stats on a full disk: %v, %d refused, frozen %v; want ErrDiskFull, 1, not frozen", st.Full, st.Refused, st.Frozen)
	}
	db.freeBytes = disk
	if st := db.Stats(); st.Full != nil || st.Refused != 1 {
		t.Errorf("Stats with space again: %v, %d refused; want none, 1", st.Full, st.Refused)
	}
	write(t, db, x, point{epoch + 1, 2})
}
