package rules

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// C66, the parts that this language has. The case's files are `groups:` files,
// which come later: each must be refused as that, at its first line. The same
// slips in files of version 1 must be refused for what they are, where they are.
func TestC66GroupsComeLater(t *testing.T) {
	files, err := filepath.Glob("../testdata/cases/C66-rule-file-strictness/*.yml")
	if err != nil || len(files) != 14 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(path)
		set, messages := Load([]Source{{name, data}}, Settings{})
		if set != nil || len(messages) != 1 {
			t.Errorf("%s: set %v, messages\n%s", name, set != nil, printed(messages))
			continue
		}
		switch m := messages[0]; name {
		case "bad3-tab.yml":
			if m.Line != 4 || m.Col != 1 || !strings.Contains(m.Text, "a tab") {
				t.Errorf("%s: %s", name, m)
			}
		default:
			if m.Line != 1 || m.Col != 1 || !strings.Contains(m.Text, "not in this version") {
				t.Errorf("%s: %s", name, m)
			}
		}
	}
}

// c66 is a version 1 file whose line 6 is the given one.
func c66(line string) string {
	return "version: 1\nreadings:\n  p: {key: [n], expr: sum by (n) (watts)}\ncontrols:\n  a:\n    " + line + `
    key: [n]
    release: {when: p < 90}
    action: rapl.set_power_cap_watts
    target: {hw_type: cpu}
    value: p
    limits: {min: 60, max: 250}
    ttl: 30s
    purpose: efficiency
`
}

func TestC66(t *testing.T) {
	const good = "engage: {when: p > 100, for: 5m}"
	bad := func(name, data string, line, col int, text string) {
		t.Helper()
		set, messages := Load([]Source{{name, []byte(data)}}, Settings{})
		if set != nil || len(messages) != 1 {
			t.Errorf("%s: set %v, messages\n%s", name, set != nil, printed(messages))
			return
		}
		if m := messages[0]; m.Line != line || m.Col != col || !strings.Contains(m.Text, text) {
			t.Errorf("%s: got %s\nwant %d:%d %q", name, m, line, col, text)
		}
	}
	bad("bad1-unknown-field", c66(good+"\n    annotation: {x: y}"), 7, 5, "unknown key annotation")
	bad("bad2-duplicate-key", c66("engage:\n      when: p > 100\n      for: 5m\n      for: 1m"), 9, 7, "for is already defined at line 8")
	bad("bad3-tab", strings.Replace(c66(good), "    engage", "\tengage", 1), 6, 1, "a tab in the indentation")
	bad("bad4-duration-space", c66("engage: {when: p > 100, for: 5 m}"), 6, 34, `invalid duration "5 m"`)
	bad("bad5-duration-fraction", c66("engage: {when: p > 100, for: 1.5h}"), 6, 34, `invalid duration "1.5h"`)
	bad("bad6-duration-bare", c66("engage: {when: p > 100, for: 300}"), 6, 34, `invalid duration "300"`)
	bad("bad7-order", c66("engage: {when: p > 100, for: 30m1h}"), 6, 34, `invalid duration "30m1h"`)
	bad("bad8-promql", c66("engage: {when: p > = 0, for: 5m}"), 6, 24, `unexpected "="`)
	bad("bad9-one-name", c66(good)+"  a: {mode: enforce}\n", 15, 3, "a is already defined at line 5")

	ok := func(name, data string) *Control {
		t.Helper()
		set, messages := Load([]Source{{name, []byte(data)}}, Settings{})
		if len(messages) > 0 {
			t.Fatalf("%s:\n%s", name, printed(messages))
		}
		return set.Control("a")
	}
	c := ok("ok1-bom-crlf", "\ufeff"+strings.ReplaceAll(c66(good), "\n", "\r\n"))
	if c.Engage.For != 5*time.Minute || c.Engage.When != "p > 100" {
		t.Errorf("ok1-bom-crlf: engage %+v", c.Engage)
	}
	if c := ok("ok2-compound", c66("engage: {when: p > 100, for: 1h30m}")); c.Engage.For != 5400*time.Second {
		t.Errorf("ok2-compound: for %s", c.Engage.For)
	}
	if c := ok("ok3-zero", c66("engage: {when: p > 100, for: 0s}")); c.Engage.For != 0 {
		t.Errorf("ok3-zero: for %s", c.Engage.For)
	}
	block := c66("engage:\n      for: 5m\n      when: |\n        p * on (n) max by (n) (up{job=\"x: y #z\"}) == 0")
	if c := ok("ok5-block", block); !strings.Contains(c.engage.query, `up{channel="",job="x: y #z"}`) || !strings.HasSuffix(c.engage.query, "== 0") {
		t.Errorf("ok5-block: engages on %s", c.engage.query)
	}
}

// A duration reads as Prometheus reads it, and is written back the same.
func TestDuration(t *testing.T) {
	f := func(text string, want time.Duration, ok bool) {
		t.Helper()
		got, gotOK := parseDuration(text)
		if got != want || gotOK != ok {
			t.Errorf("parseDuration(%q) = %s, %v; want %s, %v", text, got, gotOK, want, ok)
		}
		if ok && text != "0" && formatDuration(got) != text {
			t.Errorf("%s is written as %s", text, formatDuration(got))
		}
	}
	f("5m", 5*time.Minute, true)
	f("1h30m", 90*time.Minute, true)
	f("0s", 0, true)
	f("0", 0, true)
	f("250ms", 250*time.Millisecond, true)
	f("1s500ms", 1500*time.Millisecond, true)
	f("8d", 8*24*time.Hour, true)
	f("2w", 14*24*time.Hour, true)
	f("1y", 365*24*time.Hour, true)
	for _, bad := range []string{"", "5 m", "1.5h", "300", "30m1h", "5m5m", "-5m", "5M", "m", "5us", "292471209y", "9223372036854775807w"} {
		f(bad, 0, false)
	}
	guess := func(text, want string) {
		t.Helper()
		if got := meantDuration(text); got != want {
			t.Errorf("meantDuration(%q) = %q; want %q", text, got, want)
		}
	}
	guess("5 m", "5m")
	guess("1.5h", "1h30m")
	guess("300", "5m")
	guess("30m1h", "1h30m")
	guess("soon", "")
}
