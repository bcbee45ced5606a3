package warden

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattloop/wattloop/actuate"
)

// What fails again and again is logged when it begins, when its cause is
// another, and when it is over.
func TestTroubleLoggedOnChange(t *testing.T) {
	f := func(what string, begin, end func(*rig, *plug), again func(*rig)) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			var said bytes.Buffer
			p := plugIn(t, t.TempDir(), "a", 200)
			r := bench(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&said, nil)) }, p)
			counts := func(want, wantOver int) {
				t.Helper()
				over := strings.Count(said.String(), `msg="over: `+what)
				if n := strings.Count(said.String(), `msg="`+what); n != want || over != wantOver {
					t.Errorf("%s: logged %d times, over %d times; want %d and %d:\n%s", what, n, over, want, wantOver, said.String())
				}
			}
			for turn := range 2 {
				begin(r, p)
				for range 20 {
					again(r)
				}
				counts(turn+1, turn)
				end(r, p)
				again(r)
				counts(turn+1, turn+1)
			}
		})
	}
	var dir string
	f("original not saved: nothing is written",
		func(r *rig, _ *plug) { dir, r.journal.dir = r.journal.dir, "/nowhere" },
		func(r *rig, _ *plug) { r.journal.dir = dir },
		func(r *rig) {
			r.ask(set("plug:a", 150))
			r.ask(with(set("plug:a", 0), actuate.OpRelease))
		})
	f("renewal not recorded",
		func(r *rig, _ *plug) {
			r.ask(set("plug:a", 150))
			dir, r.intents.dir = r.intents.dir, "/nowhere"
		},
		func(r *rig, _ *plug) { r.intents.dir = dir },
		func(r *rig) { r.ask(with(set("plug:a", 0), actuate.OpRenew)) })
	f("original could not be given back",
		func(r *rig, p *plug) {
			r.ask(set("plug:a", 150))
			p.break_(always(syscall.EIO))
			r.ask(with(set("plug:a", 0), actuate.OpRelease))
		},
		func(_ *rig, p *plug) { p.break_(nil) },
		func(r *rig) { r.pass(10 * time.Second) })
	f("device cannot be read",
		func(_ *rig, p *plug) { p.blind(func() error { return syscall.EIO }) },
		func(_ *rig, p *plug) { p.blind(nil) },
		func(r *rig) { r.look() })
	f("lock cannot be checked",
		func(r *rig, _ *plug) { // a file in the folder's place
			ok(t, os.Rename(r.opt.RunPath, r.opt.RunPath+".aside"))
			ok(t, os.WriteFile(r.opt.RunPath, nil, 0o600))
		},
		func(r *rig, _ *plug) {
			ok(t, os.Remove(r.opt.RunPath))
			ok(t, os.Rename(r.opt.RunPath+".aside", r.opt.RunPath))
		},
		func(r *rig) { r.keepLocks() })
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Another cause is news, another value in the text is none.
func TestTroubleCause(t *testing.T) {
	var said bytes.Buffer
	p := plugIn(t, t.TempDir(), "a", 200)
	r := bench(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&said, nil)) }, p)
	k := r.knobs[0]
	for _, err := range []error{
		&failure{"a", syscall.EIO}, &failure{"b", syscall.EIO}, syscall.EIO, syscall.ENOSPC, syscall.ENOSPC, syscall.EIO,
	} {
		k.fail("trouble", err)
	}
	if n := strings.Count(said.String(), "msg=trouble"); n != 3 {
		t.Errorf("logged %d times; want 3:\n%s", n, said.String())
	}
}
