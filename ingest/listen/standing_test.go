package listen

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wattloop/wattloop/ingest"
	"github.com/wattloop/wattloop/internal/disk"
)

// restart ends the Manager as a process does, and makes the next one.
func (b *bed) restart(names ...string) {
	b.t.Helper()
	b.m.Close()
	o := b.m.o
	o.Receiver = ingest.NewReceiver(ingest.Options{Appendable: b.db, Queryable: b.db, Sync: b.db.Sync})
	b.m = NewManager(o)
	for _, name := range names {
		b.define(name)
	}
}

// S2-4, S2-74: what was live when the process ended goes on under the same
// activation: a window that ended meanwhile is its own. What was ended does not,
// nor does another actor.
func TestStanding(t *testing.T) {
	path := filepath.Join(t.TempDir(), "channels", "live.json") // the folder is made
	b := newBed(t, func(o *Options) { o.State = path })
	b.define("w1")
	b.define("w2")
	first, ended := b.activate("w1", "a"), b.activate("w2", "b")
	b.end("w2")
	b.restart("w1", "w2")
	again, anew := b.activate("w1", "a"), b.activate("w2", "b")
	if !again.Started.Equal(first.Started) || !again.Since.Equal(first.Since) {
		t.Errorf("after the restart it is live since %v, its own since %v; want %v and %v", again.Started, again.Since, first.Started, first.Since)
	}
	if !anew.Started.After(ended.Started) {
		t.Errorf("what was ended began at %v, as before", anew.Started)
	}
	b.restart("w1", "w2")
	if other := b.activate("w1", "c"); !other.Started.After(first.Started) {
		t.Errorf("another actor goes on with the activation of %v", other.Started)
	}
	b.restart("w1", "w2")
	if back := b.activate("w1", "a"); !back.Started.After(first.Started) {
		t.Errorf("the first actor goes on, though another one was live between: %v", back.Started)
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v; want mode 0600", st, err)
	}
}

// What cannot be written anew is removed: an activation that was ended must not go
// on after a restart, since its actor may have counted elsewhere.
func TestStandingOnAFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "live.json")
	b := newBed(t, func(o *Options) { o.State = path })
	b.define("w1")
	first := b.activate("w1", "a")
	inTheWay := path + disk.Unfinished // of the new file
	if err := os.MkdirAll(filepath.Join(inTheWay, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	b.end("w1")
	b.restart("w1")
	if again := b.activate("w1", "a"); !again.Started.After(first.Started) {
		t.Errorf("what was ended goes on since %v", again.Started)
	}
	if err := os.RemoveAll(inTheWay); err != nil {
		t.Fatal(err)
	}
	b.define("w2")
	b.activate("w2", "b")
	if s, err := readStanding(path); err != nil || len(s.live) != 2 {
		t.Errorf("once there is room again: %+v, %v; want both", s, err)
	}
}

// A file that cannot be read is no reason not to start, and is written anew.
func TestStandingDamaged(t *testing.T) {
	for _, text := range []string{"", "{", `{"version":2}`, `{"version":1,"live":{"w1":{"at":"x"}}}`, strings.Repeat("x", 1<<16)} {
		path := filepath.Join(t.TempDir(), "live.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readStanding(path); err == nil {
			t.Errorf("%.20q was read", text)
		}
		b := newBed(t, func(o *Options) { o.State = path })
		b.define("w1")
		b.activate("w1", "a")
		if s, err := readStanding(path); err != nil || len(s.live) != 1 {
			t.Errorf("%.20q: then %+v, %v", text, s, err)
		}
	}
}
