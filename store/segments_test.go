package store

import (
	"os"
	"path/filepath"
	"testing"
)

// What a round of syncAll makes durable, by segment, as the TSDB adds and
// deletes them between two rounds.
func TestSyncFindsEverySegment(t *testing.T) {
	root := t.TempDir()
	l := newSegmentLogs(root)
	synced := map[string]int{}
	l.fsync = func(f *os.File) error {
		rel, err := filepath.Rel(root, f.Name())
		synced[rel]++
		return err
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(i int, text string) {
		t.Helper()
		f, err := os.OpenFile(filepath.Join(root, segmentPath("wal", i)), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		must(err)
		_, err = f.WriteString(text)
		must(err)
		must(f.Close())
	}
	remove := func(i int) {
		t.Helper()
		must(os.Remove(filepath.Join(root, segmentPath("wal", i))))
	}
	round := func(what string, want ...string) {
		t.Helper()
		clear(synced)
		must(l.syncAll())
		if len(synced) != len(want) {
			t.Errorf("%s: synced %v; want %v", what, synced, want)
		}
		for _, name := range want {
			if synced[name] != 1 {
				t.Errorf("%s: synced %v; want %v, each once", what, synced, want)
			}
		}
	}
	must(os.Mkdir(filepath.Join(root, "wal"), 0o755))
	round("an empty log")
	write(0, "a")
	round("the first segment", "wal/00000000", "wal")
	round("nothing new")
	write(0, "b")
	round("a segment that has grown", "wal/00000000")
	write(0, "c")
	write(1, "d")
	round("grown, then a next one", "wal/00000000", "wal/00000001", "wal")
	write(2, "e")
	write(3, "f")
	remove(0)
	remove(1)
	remove(2)
	round("a gap behind the one that is open", "wal/00000003", "wal")
	write(3, "g")
	round("grown again", "wal/00000003")
	if got := l.synced; len(got) != 1 || got[segmentPath("wal", 3)] != 2 {
		t.Errorf("offsets %v; want wal/00000003 at 2 alone", got)
	}
}
