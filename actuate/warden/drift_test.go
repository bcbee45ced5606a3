package warden

import (
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattloop/wattloop/actuate"
)

// Somebody else lowers a device of ours: respected, the new baseline, no fight.
func TestExternalLower(t *testing.T) {
	p := plugIn(t, t.TempDir(), "a", 200)
	r := bench(t, nil, p)
	r.says(set("plug:a", 150), "applied 150")
	p.put(t, 100)
	r.look()
	r.wantState("plug:a", actuate.StateExternal)
	r.says(set("plug:a", 140), "blocked external_lower 100")
	r.pass(time.Minute)
	wantHolds(t, p, "100/250")
	r.says(set("plug:a", 90), "applied 90")
	r.says(with(set("plug:a", 0), actuate.OpRelease), "applied restored 100")
	wantHolds(t, p, "100/250")

	r.says(set("plug:a", 90), "applied 90")
	p.put(t, 85)
	r.says(set("plug:a", 95), "blocked external_lower 85") // seen by the set itself
	p.put(t, 200)                                          // and they change their mind
	r.look()
	r.says(set("plug:a", 95), "applied 95")
}

// C62: somebody else raises it, or the driver lost it: set again three times in
// ten minutes, then left to them with an alarm.
func TestContested(t *testing.T) {
	p := plugIn(t, t.TempDir(), "a", 200)
	r := bench(t, func(o *Options) { o.TTLMax = time.Hour }, p)
	cmd := set("plug:a", 150)
	cmd.TTLMillis = time.Hour.Milliseconds()
	r.says(cmd, "applied 150")
	for range 3 {
		p.put(t, 200)
		r.pass(time.Minute)
		wantHolds(t, p, "150/250")
	}
	p.put(t, 200)
	r.look()
	r.wantState("plug:a", actuate.StateContested)
	r.says(cmd, "blocked contested 200")
	r.pass(6 * time.Minute)
	r.says(cmd, "blocked contested 200")
	r.pass(2 * time.Minute) // the first of the three is ten minutes old
	r.wantState("plug:a", actuate.StateArmed)
	r.says(cmd, "applied 150")
}

// A release finds that somebody else has changed the device: it is theirs.
func TestReleaseOfAChangedDevice(t *testing.T) {
	p := plugIn(t, t.TempDir(), "a", 200)
	r := bench(t, nil, p)
	r.says(set("plug:a", 150), "applied 150")
	p.put(t, 100)
	r.says(with(set("plug:a", 0), actuate.OpRelease), "blocked external_lower 100")
	wantHolds(t, p, "100/250")
	r.says(with(set("plug:a", 0), actuate.OpRenew), "blocked no_lease 100")
}

// GONE: the lease ends, the original is kept; on return what was ours is given
// back, and nothing is set before a rule says so.
func TestUnplugged(t *testing.T) {
	p := plugIn(t, t.TempDir(), "a", 200)
	r := bench(t, func(o *Options) { o.ObserveFirst = 30 * time.Second }, p)
	r.pass(30 * time.Second)
	r.says(set("plug:a", 150), "applied 150")
	p.blind(func() error { return &os.PathError{Op: "read", Path: "a/limit", Err: syscall.ENODEV} })
	r.look()
	r.wantState("plug:a", actuate.StateGone)
	r.says(set("plug:a", 150), "blocked gone 150")
	r.says(with(set("plug:a", 0), actuate.OpRelease), "none not_owner 150")
	r.pass(time.Hour)
	if _, open := r.journal.get("plug:a"); !open {
		t.Fatal("the original was forgotten")
	}
	p.blind(nil)
	r.look()
	wantHolds(t, p, "200/250")
	r.wantState("plug:a", actuate.StateArmed)
	r.says(set("plug:a", 150), "blocked observing 200")

	r.pass(30 * time.Second)
	r.says(set("plug:a", 150), "applied 150")
	p.blind(func() error { return syscall.ENODEV })
	r.look()
	p.put(t, 250) // the driver has reset it to something else
	p.blind(nil)
	r.look()
	wantHolds(t, p, "250/250")

	r.pass(30 * time.Second)
	r.says(set("plug:a", 150), "applied 150")
	p.blind(func() error { return syscall.ENODEV })
	r.pass(24*time.Hour + time.Minute)
	if _, open := r.journal.get("plug:a"); open {
		t.Error("the original is kept for longer than a day")
	}
}

// A device whose reads fail is not renewed, for nothing is verified; its lease
// ends, and the original is given back as soon as it can be.
func TestUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := plugIn(t, t.TempDir(), "a", 200)
		r := bench(t, nil, p)
		r.says(set("plug:a", 150), "applied 150")
		p.blind(func() error { return syscall.EIO })
		r.look()
		r.says(set("plug:a", 150), "error read_failed 150")
		r.says(with(set("plug:a", 0), actuate.OpRenew), "error read_failed 150")
		r.pass(30 * time.Second)
		wantHolds(t, p, "200/250") // written blind
		r.wantState("plug:a", actuate.StateRestoreFailed)
		p.blind(nil)
		r.pass(10 * time.Second)
		r.wantState("plug:a", actuate.StateArmed)
	})
}

// A journal that cannot be written when the original is back is closed later,
// and the next original is not the old one.
func TestJournalClosedLater(t *testing.T) {
	p := plugIn(t, t.TempDir(), "a", 200)
	r := bench(t, nil, p)
	r.says(set("plug:a", 150), "applied 150")
	dir := r.journal.dir
	r.journal.dir = "/nowhere"
	r.says(with(set("plug:a", 0), actuate.OpRelease), "applied restored 200")
	p.put(t, 180)
	r.look()
	r.says(set("plug:a", 150), "blocked originals_not_saved 180")
	r.journal.dir = dir
	r.says(set("plug:a", 150), "applied 150")
	if got := r.state("plug:a").Original; got != 180 {
		t.Errorf("original %g; want 180", got)
	}
}
