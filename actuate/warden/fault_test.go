package warden

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/wattloop/wattloop/actuate"
)

// P8, I1, I3: the warden is killed at each point in the life of a cap. Whoever
// comes next, a warden or `caps restore`, brings the tree back; and at no
// instant is there a value of ours on the tree without an original on disk.
func TestKilledAt(t *testing.T) {
	trigger := map[string]func(*house){
		FaultBeforeSave: nil, FaultTmpWritten: nil, FaultRenamed: nil, FaultRecorded: nil,
		FaultMidWrite: nil, FaultBeforeReadBack: nil, FaultReadBack: nil, FaultRenew: nil,
		FaultMidRestore: (*house).releaseAll, FaultRestored: (*house).releaseAll,
		FaultLeftover: (*house).killOnce,
		FaultReturned: func(h *house) {
			h.untilOurs()
			h.input(false)
			away := h.plugs[0].dir + ".away"
			if err := os.Rename(h.plugs[0].dir, away); err != nil {
				h.t.Fatal(err)
			}
			h.until("the device to be gone", func() bool { return h.list().Devices[0].State == actuate.StateGone })
			if err := os.Rename(away, h.plugs[0].dir); err != nil {
				h.t.Fatal(err)
			}
		},
	}
	if len(trigger) != 12 {
		t.Fatalf("%d fault points; want 12", len(trigger))
	}
	for point, pull := range trigger {
		for _, successor := range []string{"warden", "caps restore"} {
			t.Run(fmt.Sprintf("%s, then %s", point, successor), func(t *testing.T) {
				h := build(t, "a", "b")
				h.part.TTLMS = 60_000
				if point == FaultLeftover {
					pull(h)
				}
				watch := h.watch()
				cmd := h.outside(point)
				if pull != nil && point != FaultLeftover {
					pull(h)
				}
				err := cmd.Wait()
				if s := cmd.ProcessState.Sys().(syscall.WaitStatus); !s.Signaled() || s.Signal() != syscall.SIGKILL {
					t.Fatalf("warden ended: %v; want that it was killed at the point", err)
				}
				h.input(true)
				h.input(false)
				if successor == "warden" {
					h.run(nil)
					h.until("an answer", func() bool { return h.list().PID != 0 })
				} else if _, err := RestoreAll(context.Background(), h.successor(), true); err != nil {
					t.Error(err)
				}
				h.untilAll("200/250")
				for _, bad := range watch() {
					t.Error(bad)
				}
				if successor == "warden" {
					if err := h.end(); err != nil {
						t.Error(err)
					}
				}
				h.clean()
			})
		}
	}
}

// releaseAll has the engine engage, then release.
func (h *house) releaseAll() {
	h.untilOurs()
	if err := os.WriteFile(h.file("release"), nil, 0o644); err != nil {
		h.t.Fatal(err)
	}
}

// killOnce leaves the caps of a warden that was killed.
func (h *house) killOnce() {
	cmd := h.outside("")
	h.untilOurs()
	s := h.list()
	cmd.Process.Kill()
	cmd.Wait()
	h.until("the engine to die with its warden", func() bool { return !alive(s.EnginePID) })
}

// watch is an oracle that polls the tree until it is asked what it saw: a value
// that is neither the original nor one that was asked for, or one of ours
// without an entry in the journal (I1, I2).
func (h *house) watch() func() []string {
	stop, done := make(chan struct{}), make(chan []string)
	go func() {
		var bad []string
		for {
			for _, p := range h.plugs {
				now := p.holds()
				if now != "150/250" {
					continue // original, being written, or away
				}
				_, err := os.Stat(filepath.Join(h.part.Dir, "state", "warden", journalName))
				if err != nil && p.holds() == now {
					bad = append(bad, fmt.Sprintf("%s holds %s without an original on disk: %v", p.desc.ID, now, err))
				}
			}
			select {
			case <-stop:
				done <- bad
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	return func() []string { close(stop); return <-done }
}

// The engine is killed again and again while the tree holds a value of ours;
// with its input gone too, the old limits are back in the time that the lease
// allows. The full campaign counts the seconds, outside of this package.
func TestEngineKilledOften(t *testing.T) {
	h := build(t, "a", "b")
	h.run(nil)
	for range 8 {
		h.untilOurs()
		engine := h.list().EnginePID
		h.input(false)
		syscall.Kill(engine, syscall.SIGKILL)
		h.untilAll("200/250")
		h.input(true)
	}
	if err := h.end(); err != nil {
		t.Error(err)
	}
	h.untilAll("200/250")
	h.clean()
}
