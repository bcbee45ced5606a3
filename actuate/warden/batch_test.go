package warden

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/wattloop/wattloop/actuate"
)

// Eight devices of one control stand or fall together.
func TestGroup(t *testing.T) {
	run := func(name string, partial bool, make_ func(string, float64) actuate.Command, break_ func([]*plug), words []string, holds string) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				var plugs []*plug
				var devices []actuate.Device
				for i := range 8 {
					p := plugIn(t, dir, fmt.Sprint(i), 200)
					plugs, devices = append(plugs, p), append(devices, p)
				}
				r := bench(t, func(o *Options) { o.Partial = partial }, devices...)
				break_(plugs)
				var cmds []actuate.Command
				for _, p := range plugs {
					cmds = append(cmds, make_(p.desc.ID, 150))
				}
				var got []string
				for _, reply := range r.ask(cmds...) {
					got = append(got, word(reply))
				}
				slices.Sort(got)
				if diff := cmp.Diff(words, slices.Compact(got)); diff != "" {
					t.Error(diff)
				}
				var tree []string
				for _, p := range plugs {
					tree = append(tree, strings.Split(p.holds(), "/")[0])
				}
				if got := strings.Join(tree, " "); got != holds {
					t.Errorf("tree %s; want %s", got, holds)
				}
			})
		})
	}
	stock, capped := "200 200 200 200 200 200 200 200", "150 150 150 150 150 150 150 150"
	run("all well", false, set, func([]*plug) {}, []string{"applied 150"}, capped)
	run("preflight fails on one", false, set, func(p []*plug) { p[5].put(t, 70) },
		[]string{"blocked group 200", "blocked out_of_range 70"}, "200 200 200 200 200 70 200 200")
	run("preflight fails on one, partial allowed", true, set, func(p []*plug) { p[5].put(t, 70) },
		[]string{"applied 150", "blocked out_of_range 70"}, "150 150 150 150 150 70 150 150")
	run("write fails on one: rolled back", false, set, func(p []*plug) { p[5].break_(always(syscall.EIO)) },
		[]string{"error rolled_back 200", "error write_failed 200"}, stock)
	run("write fails on one: protection keeps what it lowered", false, guard, func(p []*plug) { p[5].break_(always(syscall.EIO)) },
		[]string{"applied 150", "error write_failed 200"}, "150 150 150 150 150 200 150 150")
}

// A roll back goes to the value before, not to the original.
func TestRollBackToPrevious(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		p, q := plugIn(t, dir, "a", 200), plugIn(t, dir, "b", 200)
		r := bench(t, nil, p, q)
		r.ask(set("plug:a", 150), set("plug:b", 150))
		q.break_(func(v float64) (float64, error) {
			if v == 120 {
				return 0, syscall.EIO
			}
			return v, nil
		})
		replies := r.ask(set("plug:a", 120), set("plug:b", 120))
		if got := word(replies[0]); got != "error rolled_back 150" {
			t.Errorf("first device: %q", got)
		}
		wantHolds(t, p, "150/250")
		wantHolds(t, q, "200/250") // efficiency: the original
	})
}
