package nearest

import "testing"

func TestOf(t *testing.T) {
	words := []string{"release", "engage", "key", "up", "storage.path"}
	for word, want := range map[string]string{
		"relase": "release", "realese": "release", "rlease": "release", "engage": "", "engaeg": "engage",
		"kye": "key", "kex": "key", "xyz": "", "u": "", "uq": "up", "upp": "up", "": "", "storage_path": "storage.path",
		"something else": "",
	} {
		if got := Of(word, words); got != want {
			t.Errorf("Of(%q) = %q; want %q", word, got, want)
		}
	}
	if got := Of("cat", []string{"bat", "hat"}); got != "bat" {
		t.Errorf("of two as near %q; want the first", got)
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"abc", "acb", 1}, {"abcd", "badc", 2}, {"kitten", "sitting", 3}} {
		if got := Distance(c.a, c.b); got != c.want {
			t.Errorf("Distance(%q, %q) = %d; want %d", c.a, c.b, got, c.want)
		}
	}
}
