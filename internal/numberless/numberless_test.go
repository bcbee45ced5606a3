package numberless

import "testing"

func TestOf(t *testing.T) {
	f := func(a, b string, same bool) {
		t.Helper()
		if got := Of(a) == Of(b); got != same {
			t.Errorf("%q and %q are the same: %v; want %v", a, b, got, same)
		}
	}
	f("12 of 14 devices do not answer", "9 of 14 devices do not answer", true)
	f("12 of 14 devices do not answer", "12 of 14 devices are gone", false)
	f("no answer within 1.5s", "no answer within 10.25s", true)
	f("", "7", true)
	f("Ångström ٣", "Ångström ٤", false) // other digits than ours are words of others
	if got := Of("k8s: node 12"); got != "ks: node " {
		t.Errorf("%q", got)
	}
}
