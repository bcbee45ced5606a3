package warden

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wattloop/wattloop/actuate"
)

// cut is the death of the process: the next start finds what it left.
func (r *rig) cut() { r.warden.close(); r.warden = nil }

// The rows of actuation.md, section 4, for what an earlier run has left.
func TestLeftover(t *testing.T) {
	type row struct {
		name   string
		engage actuate.Command
		before func(*rig, *plug) // between the two lives
		in     inheritance
		want   string // result and reason of the device
		holds  string
		state  string
		open   bool // the journal's entry stays open
	}
	enforce := set("plug:a", 150)
	onStop := guard("plug:a", 150)
	onStop.OnStop = "hold"
	nothing := func(*rig, *plug) {}
	for _, f := range []row{
		{"our value: original", enforce, nothing, inheritance{}, "applied restored", "200/250", actuate.StateArmed, false},
		{"our value, protection: original too", guard("plug:a", 150), nothing, inheritance{kept: true}, "applied restored", "200/250", actuate.StateArmed, false},
		{"our value, handover: adopted", enforce, nothing, inheritance{handover: true}, "applied applied", "150/250", actuate.StateApplied, true},
		{"handover, but no longer allowed", enforce, func(r *rig, _ *plug) { r.opt.Enabled = false }, inheritance{handover: true}, "applied restored", "200/250", actuate.StateArmed, false},
		{"handover, but outside the limits by now", enforce, func(r *rig, _ *plug) { r.opt.Clamps = map[string]Clamp{"": {Min: 160}} }, inheritance{handover: true}, "applied restored", "200/250", actuate.StateArmed, false},
		{"handover, latched", enforce, func(r *rig, _ *plug) { (&latch{dir: filepath.Join(r.opt.StatePath, "warden")}).close() }, inheritance{handover: true}, "applied restored", "200/250", actuate.StateArmed, false},
		{"left alone for a successor", enforce, nothing, inheritance{handover: true, alone: true}, "applied holding", "150/250", actuate.StateArmed, true},
		{"original", enforce, func(_ *rig, p *plug) { p.put(p.t, 200) }, inheritance{}, "none", "200/250", actuate.StateArmed, false},
		{"neither: somebody changed it, lower", enforce, func(_ *rig, p *plug) { p.put(p.t, 100) }, inheritance{}, "none external_lower", "100/250", actuate.StateExternal, false},
		{"neither: somebody changed it, higher", enforce, func(_ *rig, p *plug) { p.put(p.t, 180) }, inheritance{}, "none contested", "180/250", actuate.StateArmed, false},
		{"original, but the short-term limit is ours", guard("plug:a", 150), func(_ *rig, p *plug) { p.put(p.t, 200) }, inheritance{}, "applied restored", "200/250", actuate.StateArmed, false},
		{"run.path lost with a container", enforce, func(r *rig, _ *plug) { os.RemoveAll(r.opt.RunPath) }, inheritance{}, "applied restored", "200/250", actuate.StateArmed, false},
		{"record torn", enforce, func(r *rig, p *plug) { p.spoil(filepath.Join(r.opt.RunPath, "warden", "intent-plug:a.json")) }, inheritance{}, "applied restored", "200/250", actuate.StateArmed, false},
		{"other boot: reset to the default", enforce, func(r *rig, p *plug) { r.boot = "boot-2"; p.put(p.t, 200) }, inheritance{}, "none", "200/250", actuate.StateArmed, false},
		{"other boot: something else", enforce, func(r *rig, p *plug) { r.boot = "boot-2"; p.put(p.t, 170) }, inheritance{}, "none", "170/250", actuate.StateArmed, false},
		{"other boot: our value survived", enforce, func(r *rig, _ *plug) { r.boot = "boot-2" }, inheritance{}, "applied restored", "200/250", actuate.StateArmed, false},
		{"other boot: our value is the default", enforce, func(r *rig, p *plug) { r.boot = "boot-2"; p.desc.Default = 150 }, inheritance{}, "none", "150/250", actuate.StateArmed, false},
		{"other boot, run.path lost", enforce, func(r *rig, _ *plug) { r.boot = "boot-2"; os.RemoveAll(r.opt.RunPath) }, inheritance{}, "none", "150/250", actuate.StateArmed, false},
		{"journal closed, record still there", enforce, func(r *rig, p *plug) {
			p.put(p.t, 200)
			os.Remove(filepath.Join(r.opt.StatePath, "warden", journalName))
		}, inheritance{}, "none", "200/250", actuate.StateArmed, false},
		{"journal lost, record still there", enforce, func(r *rig, p *plug) {
			os.Remove(filepath.Join(r.opt.StatePath, "warden", journalName))
		}, inheritance{}, "applied restored", "200/250", actuate.StateArmed, false},
		{"journal corrupt, record still there", enforce, func(r *rig, p *plug) {
			p.spoil(filepath.Join(r.opt.StatePath, "warden", journalName))
		}, inheritance{}, "applied restored", "200/250", actuate.StateArmed, false},
		{"disabled since", enforce, func(r *rig, _ *plug) { r.opt.Enabled = false }, inheritance{}, "applied restored", "200/250", actuate.StateArmed, false},
		{"unplugged since", enforce, func(_ *rig, p *plug) { os.Rename(p.dir, p.dir+".gone") }, inheritance{}, "error gone", "", actuate.StateGone, true},
		{"on_stop: hold, but killed", onStop, nothing, inheritance{kept: true}, "applied restored", "200/250", actuate.StateArmed, false},
	} {
		t.Run(f.name, func(t *testing.T) {
			p := plugIn(t, t.TempDir(), "a", 200)
			p.t = t
			r := bench(t, nil, p)
			r.says(f.engage, "applied 150")
			r.cut()
			f.before(r, p)
			left := r.start(f.in)[0]
			if got := strings.TrimSpace(left.Result + " " + left.Reason); got != f.want {
				t.Errorf("result %q (%s); want %q", got, left.Message, f.want)
			}
			if f.holds != "" {
				wantHolds(t, p, f.holds)
			}
			r.wantState("plug:a", f.state)
			if _, open := r.journal.get("plug:a"); open != f.open {
				t.Errorf("entry in the journal open: %t; want %t", open, f.open)
			}
		})
	}
}

// on_stop: hold leaves a cap of protection standing over a clean stop, over an
// ExecStopPost, and into the next life, which holds it.
func TestKept(t *testing.T) {
	p := plugIn(t, t.TempDir(), "a", 200)
	q := plugIn(t, filepath.Dir(p.dir), "b", 200)
	r := bench(t, nil, p, q)
	cmd := guard("plug:a", 150)
	cmd.OnStop = "hold"
	r.says(cmd, "applied 150")
	r.says(guard("plug:b", 150), "applied 150") // without on_stop
	r.closing.Store(true)
	var left []Restored
	r.warden.opt.Standing = func(s []Restored) { left = s }
	if err := r.giveUp(nil); err != nil || len(left) != 1 || left[0].Name != "a" || left[0].Value != 150 {
		t.Errorf("giveUp = %v, and leaves %+v; want a at 150", err, left)
	}
	results := r.restoreEach(t.Context(), true) // once more changes nothing
	if results[0].Reason != actuate.ReasonHolding || results[1].Result != actuate.None {
		t.Errorf("stop = %+v", results)
	}
	wantHolds(t, q, "200/250")
	r.look()
	r.cut()

	report, err := RestoreAll(t.Context(), r.opt, true)
	if err != nil || report.Devices[0].Reason != actuate.ReasonHolding || report.Devices[1].Result != actuate.None {
		t.Errorf("RestoreAll = %+v, %v", report, err)
	}
	wantHolds(t, p, "150/150")

	r.start(inheritance{kept: true})
	wantHolds(t, p, "150/150")
	r.wantState("plug:a", actuate.StateHolding)
	r.pass(15 * time.Minute)
	wantHolds(t, p, "120/120")
	r.cut()

	report, err = RestoreAll(t.Context(), r.opt, false) // a person: everything
	if err != nil || report.Devices[0].Reason != actuate.ReasonRestored || !report.Latched {
		t.Errorf("RestoreAll = %+v, %v", report, err)
	}
	wantHolds(t, p, "200/250")
	r.start(inheritance{kept: true})
	r.says(cmd, "blocked latched 200")
	r.cut()
	if was, err := Resume(t.Context(), r.opt); err != nil || !was {
		t.Errorf("Resume = %v, %v", was, err)
	}
	r.start(inheritance{kept: true})
	r.says(cmd, "applied 150")
}

// A kill between two starts never makes our own cap the original.
func TestOriginalNeverOverwritten(t *testing.T) {
	p := plugIn(t, t.TempDir(), "a", 200)
	r := bench(t, nil, p)
	r.says(set("plug:a", 150), "applied 150")
	if got, err := r.journal.save("plug:a", r.boot, actuate.State{Value: 150}); err != nil || got.Value != 200 {
		t.Errorf("save = %g, %v; want the original that is saved already", got.Value, err)
	}
	r.cut()
	j, err := openJournal(filepath.Join(r.opt.StatePath, "warden"), func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := j.save("plug:a", r.boot, actuate.State{Value: 150}); err != nil || got.Value != 200 {
		t.Errorf("save after a restart = %g, %v; want the original that is saved already", got.Value, err)
	}
}

// A corrupt journal without records: a device below its default is suspect. It
// goes to the default where the owner allows that, and nothing else is written
// to it until a person has cleared it.
func TestJournalCorrupt(t *testing.T) {
	start := func(t *testing.T, change func(*Options, *plug)) (*rig, *plug, *plug, []Restored) {
		p := plugIn(t, t.TempDir(), "a", 200)
		q := plugIn(t, filepath.Dir(p.dir), "b", 200)
		p.t = t
		r := bench(t, nil, p, q)
		r.says(set("plug:a", 150), "applied 150")
		r.cut()
		p.spoil(filepath.Join(r.opt.StatePath, "warden", journalName))
		os.RemoveAll(r.opt.RunPath)
		if change != nil {
			change(&r.opt, p)
		}
		return r, p, q, r.start(inheritance{})
	}
	t.Run("left", func(t *testing.T) {
		r, p, q, left := start(t, nil)
		if left[0].Result != actuate.Error || left[0].Reason != actuate.ReasonJournal || left[1].Result != actuate.None {
			t.Errorf("start = %+v", left)
		}
		wantHolds(t, p, "150/250")
		r.says(set("plug:a", 120), "error journal_corrupt 150")
		r.says(set("plug:b", 120), "applied 120")
		wantHolds(t, q, "120/250")
		kept, err := filepath.Glob(filepath.Join(r.opt.StatePath, "warden", "quarantine", "*"))
		if err != nil || len(kept) != 1 {
			t.Errorf("quarantine holds %v, %v", kept, err)
		}
		r.says(with(set("plug:b", 0), actuate.OpRelease), "applied restored 200")
		r.start(inheritance{}) // survives a restart
		r.says(set("plug:a", 120), "error journal_corrupt 150")
		if _, err := r.resume(); err != nil {
			t.Fatal(err)
		}
		r.says(set("plug:a", 120), "applied 120")
	})
	t.Run("set to its default", func(t *testing.T) {
		yes := true
		r, p, _, left := start(t, func(o *Options, _ *plug) { o.RestoreDefaultOnCorrupt = &yes })
		if left[0].Result != actuate.Error {
			t.Errorf("start = %+v", left)
		}
		wantHolds(t, p, "200/250")
		r.says(set("plug:a", 120), "error journal_corrupt 200")
	})
	t.Run("a GPU is, by default", func(t *testing.T) {
		_, p, _, _ := start(t, func(_ *Options, p *plug) { p.desc.Action = actuate.ActionGPUCap })
		wantHolds(t, p, "200/250")
	})
	t.Run("of an earlier boot: the hardware was reset", func(t *testing.T) {
		r, _, _, left := start(t, func(o *Options, _ *plug) {
			old := time.Now().Add(-bootTime() - time.Hour)
			if err := os.Chtimes(filepath.Join(o.StatePath, "warden", journalName), old, old); err != nil {
				t.Fatal(err)
			}
		})
		if left[0].Result != actuate.None {
			t.Errorf("start = %+v", left)
		}
		r.says(set("plug:a", 120), "applied 120")
	})
}

// Files of a newer wattloop are left as they are, and nothing starts.
func TestNewerRefused(t *testing.T) {
	for _, name := range []string{journalName, latchName} {
		p := plugIn(t, t.TempDir(), "a", 200)
		r := bench(t, nil, p)
		r.cut()
		path := filepath.Join(r.opt.StatePath, "warden", name)
		if err := os.WriteFile(path, []byte(`{"version":2,"whatever":true}`), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := open(r.opt); !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), name) {
			t.Errorf("open with a newer %s = %v", name, err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != `{"version":2,"whatever":true}` {
			t.Errorf("%s was changed: %s, %v", name, b, err)
		}
	}
}

// An original of a device that is not there is kept for a day, then forgotten.
func TestStray(t *testing.T) {
	p := plugIn(t, t.TempDir(), "a", 200)
	r := bench(t, nil, p)
	r.says(set("plug:a", 150), "applied 150")
	devices := r.opt.Devices
	r.opt.Devices = nil
	r.start(inheritance{})
	r.opt.Devices = devices
	r.start(inheritance{})
	wantHolds(t, p, "200/250")

	r.says(set("plug:a", 150), "applied 150")
	e, _ := r.journal.get("plug:a")
	e.SavedMS -= (25 * time.Hour).Milliseconds()
	r.journal.body.Entries["plug:a"] = e
	r.journal.changed()
	if err := r.journal.flush(r.journal.changes); err != nil {
		t.Fatal(err)
	}
	r.opt.Devices = nil
	r.start(inheritance{})
	if ids := r.journal.ids(); len(ids) != 0 {
		t.Errorf("originals of %v are kept for more than a day", ids)
	}
}

func TestHandoverToken(t *testing.T) {
	in := intents{t.TempDir()}
	f := func(what string, want bool, boot string, now time.Duration) {
		t.Helper()
		if got := in.tokenFresh(boot, now); got != want {
			t.Errorf("%s: fresh %t; want %t", what, got, want)
		}
	}
	f("none", false, "b", time.Hour)
	if err := in.leaveToken("b", time.Hour); err != nil {
		t.Fatal(err)
	}
	f("new", true, "b", time.Hour)
	f("29 s old", true, "b", time.Hour+29*time.Second)
	f("30 s old", false, "b", time.Hour+30*time.Second)
	f("of another boot", false, "c", time.Hour)
	f("of the future", false, "b", time.Minute)
	if err := in.dropToken(); err != nil {
		t.Fatal(err)
	}
	f("dropped", false, "b", time.Hour)
}

// What a dead warden left is found whatever the folder is called: a record that
// is overlooked is a cap that stays.
func TestRecordsAreFound(t *testing.T) {
	in := intents{filepath.Join(t.TempDir(), "[run]*")}
	if ids, err := in.ids(); err != nil || len(ids) != 0 {
		t.Errorf("without a folder: %q, %v", ids, err)
	}
	if err := os.Mkdir(in.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"rapl:package-0", "a/b"} {
		if err := in.write(record{Device: id}); err != nil {
			t.Fatal(err)
		}
	}
	for _, other := range []string{tokenName, "intent-rapl:package-1.json.tmp", "lock"} {
		if err := os.WriteFile(filepath.Join(in.dir, other), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if ids, err := in.ids(); err != nil || !slices.Equal(ids, []string{"a/b", "rapl:package-0"}) {
		t.Errorf("found %q, %v", ids, err)
	}
	if _, err := (intents{filepath.Join(in.dir, "lock")}).ids(); err == nil {
		t.Error("a file that is no folder has no records")
	}
}
