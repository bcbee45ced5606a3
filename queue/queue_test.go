package queue

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// tales are what a queue told.
type tales struct {
	lost    []error
	bytes   int64
	trouble []error
}

func (s *tales) options(dir string, limit int64, fsync bool) Options {
	return Options{
		Dir: dir, Limit: limit, Fsync: fsync,
		Lost:    func(why error, _ uint64, n int64) { s.lost, s.bytes = append(s.lost, why), s.bytes+n },
		Trouble: func(err error) { s.trouble = append(s.trouble, err) },
	}
}

func mustOpen(t testing.TB, dir string, limit int64, told *tales) *Queue {
	t.Helper()
	q, err := Open(told.options(dir, limit, false))
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func mustAppend(t testing.TB, q *Queue, wire string) {
	t.Helper()
	if err := q.Append(context.Background(), 1, []byte(wire)); err != nil {
		t.Fatal(err)
	}
}

// take reads all that waits, and is done with it.
func take(q *Queue) (got []string) {
	for {
		rec, ok := q.Peek()
		if !ok {
			return got
		}
		got = append(got, string(rec.Wire))
		q.Done(rec)
	}
}

func wantTaken(t *testing.T, q *Queue, want ...string) {
	t.Helper()
	if got := take(q); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the queue gives %.200q; want %.200q", got, want)
	}
}

// segmentFiles of a queue, oldest first.
func segmentFiles(t testing.TB, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.seg"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestQueueKeepsOrderOverRestarts(t *testing.T) {
	dir := t.TempDir()
	var told tales
	q := mustOpen(t, dir, 1<<20, &told)
	mustAppend(t, q, "a")
	mustAppend(t, q, "")
	mustAppend(t, q, "c")
	rec, ok := q.Peek()
	if !ok || string(rec.Wire) != "a" || rec.Kind != 1 {
		t.Fatalf("peek: %+v, %v", rec, ok)
	}
	q.Done(rec)
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if err := q.Append(t.Context(), 1, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("append after close: %v; want ErrClosed", err)
	}
	q = mustOpen(t, dir, 1<<20, &told)
	mustAppend(t, q, "d")
	wantTaken(t, q, "", "c", "d")
	if waiting, _ := q.Size(); waiting != 0 {
		t.Errorf("%d bytes wait; want 0", waiting)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	q = mustOpen(t, dir, 1<<20, &told)
	wantTaken(t, q)
	if told.lost != nil || told.trouble != nil {
		t.Errorf("told %+v; want nothing", told)
	}
}

// A queue that is full refuses the newest, has room again once a file is done
// with, and never holds more bytes than it may.
func TestQueueFull(t *testing.T) {
	var told tales
	dir := t.TempDir()
	q := mustOpen(t, dir, 4*minSegment, &told)
	wire := bytes.Repeat([]byte("x"), 1000)
	queued := 0
	for {
		err := q.Append(t.Context(), 2, wire)
		if errors.Is(err, ErrNoRoom) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		queued++
	}
	if want := 4 * minSegment / int(recordBytes(1000)); queued != want {
		t.Errorf("%d requests fit; want %d", queued, want)
	}
	got := 0
	for range 3 * queued {
		rec, ok := q.Peek()
		if !ok {
			break
		}
		q.Done(rec)
		got++
		if q.Append(t.Context(), 2, wire) == nil {
			queued++
		}
		if _, disk := q.Size(); disk > 4*minSegment {
			t.Fatalf("%d bytes on disk; want at most %d", disk, 4*minSegment)
		}
	}
	got += len(take(q))
	if got != queued {
		t.Errorf("%d requests come out of %d", got, queued)
	}
	if n := len(segmentFiles(t, dir)); n > 1 {
		t.Errorf("%d files are left of an empty queue", n)
	}
	if err := q.Append(t.Context(), 2, make([]byte, 4*minSegment)); !errors.Is(err, ErrNoRoom) {
		t.Errorf("a request beyond the whole queue: %v; want ErrNoRoom", err)
	}
	// One that fits exactly is taken although the last file is not yet deleted.
	if err := q.Append(t.Context(), 2, make([]byte, 4*minSegment-headBytes-1)); err != nil {
		t.Errorf("a request as large as the queue: %v", err)
	}
}

// What a crash or a disk does to the files is passed over and told, and all the
// rest comes out.
func TestQueueDamage(t *testing.T) {
	const each = 30 << 10 // three a file
	body := func(i int) string { return fmt.Sprintf("%02d", i) + string(bytes.Repeat([]byte{'x'}, each)) }
	f := func(name string, harm func(t *testing.T, files []string), want []int, wantLost []error) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var told tales
			q := mustOpen(t, dir, 1<<20, &told)
			for i := range 9 {
				mustAppend(t, q, body(i))
			}
			if err := q.Close(); err != nil {
				t.Fatal(err)
			}
			files := segmentFiles(t, dir)
			if len(files) != 3 {
				t.Fatalf("%d files; want 3", len(files))
			}
			harm(t, files)
			q = mustOpen(t, dir, 1<<20, &told)
			mustAppend(t, q, body(9))
			var got []int
			for _, s := range take(q) {
				n := 0
				fmt.Sscanf(s, "%02d", &n)
				if s != body(n) {
					t.Errorf("request %d is not what was queued", n)
				}
				got = append(got, n)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("requests %v come out; want %v", got, want)
			}
			if len(told.lost) != len(wantLost) {
				t.Fatalf("told of %v; want %v", told.lost, wantLost)
			}
			for i := range wantLost {
				if !errors.Is(told.lost[i], wantLost[i]) {
					t.Errorf("told of %v; want %v", told.lost[i], wantLost[i])
				}
			}
		})
	}
	rec := recordBytes(each + 2)
	cut := func(file int, by int64) func(*testing.T, []string) {
		return func(t *testing.T, files []string) {
			if err := os.Truncate(files[file], 3*rec-by); err != nil {
				t.Fatal(err)
			}
		}
	}
	patch := func(file int, at int64, b ...byte) func(*testing.T, []string) {
		return func(t *testing.T, files []string) {
			w, err := os.OpenFile(files[file], os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			if _, err := w.WriteAt(b, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	all := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	f("none", func(*testing.T, []string) {}, all, nil)
	f("torn tail", cut(2, 7), []int{0, 1, 2, 3, 4, 5, 6, 7, 9}, []error{ErrTorn})
	f("torn in the head", cut(2, rec-3), []int{0, 1, 2, 3, 4, 5, 6, 7, 9}, []error{ErrTorn})
	f("cut at a record's end", cut(2, rec), []int{0, 1, 2, 3, 4, 5, 6, 7, 9}, nil)
	f("emptied", cut(1, 3*rec), []int{0, 1, 2, 6, 7, 8, 9}, nil)
	f("a byte flipped", patch(1, rec+500, 'y'), []int{0, 1, 2, 3, 6, 7, 8, 9}, []error{ErrCorrupt})
	f("the first byte of a length", patch(0, 0, 0xff), []int{3, 4, 5, 6, 7, 8, 9}, []error{ErrCorrupt})
	f("a length beyond the file", patch(0, 0, 0xff, 0xff, 0xff, 0xff), []int{3, 4, 5, 6, 7, 8, 9}, []error{ErrTorn})
	f("zeros", patch(2, rec, make([]byte, 4096)...), []int{0, 1, 2, 3, 4, 5, 6, 9}, []error{ErrCorrupt})
	f("a file deleted", func(t *testing.T, files []string) { os.Remove(files[1]) }, []int{0, 1, 2, 6, 7, 8, 9}, nil)
	f("zeros behind the end", func(t *testing.T, files []string) {
		if err := os.Truncate(files[2], 3*rec+100); err != nil {
			t.Fatal(err)
		}
	}, all, []error{ErrCorrupt})
	f("cursor cut", func(t *testing.T, files []string) { os.Truncate(filepath.Join(filepath.Dir(files[0]), "cursor"), 3) }, all, nil)
	f("cursor deleted", func(t *testing.T, files []string) { os.Remove(filepath.Join(filepath.Dir(files[0]), "cursor")) }, all, nil)
	f("cursor of garbage", func(t *testing.T, files []string) {
		os.WriteFile(filepath.Join(filepath.Dir(files[0]), "cursor"), bytes.Repeat([]byte{0xaa}, 40), 0o600)
	}, all, nil)
	f("foreign files", func(t *testing.T, files []string) {
		for _, n := range []string{"x.seg", "zzzzzzzzzzzzzzzz.seg", "README"} {
			os.WriteFile(filepath.Join(filepath.Dir(files[0]), n), []byte("?"), 0o600)
		}
	}, all, nil)
}

// A file that goes away under the reader is told and gone on behind.
func TestQueueFileGone(t *testing.T) {
	dir := t.TempDir()
	var told tales
	q := mustOpen(t, dir, 1<<20, &told)
	for range 3 {
		mustAppend(t, q, string(make([]byte, minSegment)))
	}
	if err := os.Remove(segmentFiles(t, dir)[0]); err != nil {
		t.Fatal(err)
	}
	if got := take(q); len(got) != 2 || len(told.lost) != 1 || told.bytes != recordBytes(minSegment) {
		t.Errorf("%d requests come out, told of %v, %d bytes; want 2, and the first file", len(got), told.lost, told.bytes)
	}
}

// A queue that drops its oldest file takes every record that fits, tells what it
// dropped, and what is left comes out in order.
func TestQueueDropsOldest(t *testing.T) {
	var told tales
	o := told.options(t.TempDir(), 4*minSegment, false)
	o.Oldest = true
	dropped := 0
	o.Dropped = func(_ uint64, rest func(func(Record))) { rest(func(Record) { dropped++ }) }
	q, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	body := func(i int) string { return fmt.Sprintf("%04d", i) + string(bytes.Repeat([]byte{'x'}, 1000)) }
	segments := map[uint64]bool{}
	for i := range 1000 {
		if err := q.AppendFunc(t.Context(), 1, func(segment uint64) []byte { segments[segment] = true; return []byte(body(i)) }); err != nil {
			t.Fatal(err)
		}
		if i == 10 { // the reader is in a file that will be gone
			recs := q.PeekMany(3000)
			if len(recs) != 3 || string(recs[2].Wire) != body(2) {
				t.Fatalf("%d records", len(recs))
			}
			defer q.Done(recs...) // of a file that is gone: nothing
			q.Done(recs[0])
		}
		if _, disk := q.Size(); disk > o.Limit {
			t.Fatalf("%d bytes on disk", disk)
		}
	}
	if err := q.Append(t.Context(), 1, make([]byte, o.Limit)); !errors.Is(err, ErrNoRoom) {
		t.Errorf("more than the whole queue: %v", err)
	}
	got := take(q)
	if len(got)+dropped != 999 || got[0] != body(1+dropped) || got[len(got)-1] != body(999) {
		t.Errorf("%d come out, %d dropped, one was done with; want 1000 in all", len(got), dropped)
	}
	if len(segments) < 10 {
		t.Errorf("build was told of %d files", len(segments))
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
}

// Before has what an earlier process was done with, of the file that is read on.
func TestQueueBefore(t *testing.T) {
	dir := t.TempDir()
	var told tales
	q := mustOpen(t, dir, 1<<20, &told)
	for _, s := range []string{"a", "b", "c"} {
		mustAppend(t, q, s)
	}
	q.Done(q.PeekMany(1)...)
	q.Begin()
	mustAppend(t, q, "d")
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	q = mustOpen(t, dir, 1<<20, &told)
	before := ""
	var file uint64
	q.Before(func(r Record) { before, file = before+string(r.Wire), r.Segment() })
	if recs := q.PeekMany(1 << 20); before != "a" || len(recs) != 2 || recs[0].Segment() == 0 || recs[0].Segment() != file {
		t.Errorf("before %q, then %d records of one file", before, len(recs))
	}
	wantTaken(t, q, "b", "c", "d")
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
}

// Property: over any order of appends, reads and ends of the process, clean or
// not, each request comes out in order, at least once, and again only where the
// process ended before its reader was done with it.
func TestQueueModel(t *testing.T) {
	checks, floor, cases := 10_000, 10_000, 0
	if testing.Short() {
		checks, floor = 500, 100 // rapid itself takes a fifth
	}
	if err := flag.Set("rapid.checks", strconv.Itoa(checks)); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		cases++
		dir, err := os.MkdirTemp(t.TempDir(), "q")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		var told tales
		fsync := rapid.Bool().Draw(rt, "fsync") && cases%64 == 0 // each costs the disk's time
		limit := int64(rapid.IntRange(1, 4).Draw(rt, "limit")) * minSegment
		open := func() *Queue {
			q, err := Open(told.options(dir, limit, fsync))
			if err != nil {
				rt.Fatal(err)
			}
			return q
		}
		q := open()
		var model []string
		next := 0
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "step") {
			case 0: // as after kill -9: nothing is flushed or closed in order
				q = open()
			case 1:
				if err := q.Close(); err != nil {
					rt.Fatal(err)
				}
				q = open()
			case 2, 3, 4:
				rec, ok := q.Peek()
				if ok != (len(model) > 0) {
					rt.Fatalf("peek: %v, want %d requests", ok, len(model))
				}
				if ok {
					if string(rec.Wire) != model[0] {
						rt.Fatalf("peek gives another request than the oldest")
					}
					q.Done(rec)
					model = model[1:]
				}
			default:
				b := make([]byte, 4+rapid.IntRange(0, 20<<10).Draw(rt, "size"))
				binary.LittleEndian.PutUint32(b, uint32(next))
				next++
				switch err := q.Append(context.Background(), 3, b); {
				case err == nil:
					model = append(model, string(b))
				case !errors.Is(err, ErrNoRoom):
					rt.Fatal(err)
				}
			}
			if _, disk := q.Size(); disk > limit {
				rt.Fatalf("%d bytes on disk; want at most %d", disk, limit)
			}
		}
		if got := take(q); fmt.Sprint(got) != fmt.Sprint(model) {
			rt.Fatalf("%d requests come out; want %d", len(got), len(model))
		}
		if told.lost != nil || told.trouble != nil {
			rt.Fatalf("told %+v; want nothing", told)
		}
		_ = q.Close()
	})
	t.Logf("%d cases", cases)
	if cases < floor {
		t.Errorf("%d cases; want %d", cases, floor)
	}
}

// Whatever stands in the files, the queue opens, reads to its end and goes on.
func FuzzQueue(f *testing.F) {
	h := head(1, []byte("abc"))
	good := append(h[:], "abc"...)
	f.Add(good, []byte{})
	f.Add(append(good[:len(good):len(good)], good[:5]...), make([]byte, cursorBytes))
	f.Add(make([]byte, 64), bytes.Repeat([]byte{0xff}, cursorBytes))
	f.Fuzz(func(t *testing.T, file, cursor []byte) {
		dir := t.TempDir()
		for name, b := range map[string][]byte{"0000000000000001.seg": file, "0000000000000002.seg": good, "cursor": cursor} {
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var told tales
		q := mustOpen(t, dir, 1<<20, &told)
		mustAppend(t, q, "last")
		got := take(q)
		if len(got) == 0 || got[len(got)-1] != "last" {
			t.Fatalf("the queue gives %q; want the last appended at the end", got)
		}
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
