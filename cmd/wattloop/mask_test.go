package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// P12: no message of any kind of file shows a token, however broken the file is.
func TestMessagesShowNoToken(t *testing.T) {
	const token = "s3cret,0123}456789:abcdef0123456789"
	dir := t.TempDir()
	f := func(text string) {
		t.Helper()
		text = strings.ReplaceAll(text, "T", token)
		for _, l := range withoutTokens(strings.Split(text, "\n")) {
			if strings.Contains(l, "s3cret") || strings.Contains(l, "456789") {
				t.Errorf("%q: masked as %q", text, l)
			}
		}
		for _, name := range []string{"w7.yaml", "wattloop.yaml", "warden.yaml"} {
			path := filepath.Join(dir, name)
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			c := defaultConfig()
			got, err := c.checkPaths([]string{path}, strings.NewReader(""))
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			_ = got.print(&out, false, "table")
			c.Rules = []string{path}
			_, _, err = c.loadRules()
			if err != nil {
				out.WriteString(err.Error())
			}
			if strings.Contains(out.String(), "s3cret") || strings.Contains(out.String(), "456789") {
				t.Errorf("%s, %q: %s", name, text, out.String())
			}
		}
	}
	f("access:\n  - {role: push, token: T\n")
	f("access:\n  - {role: push, token: T}\n  - {role: push\n")
	f("access:\n  - role: push\n    token: T\n\tx")
	f("access:\n  - role: push\n    token:\n      \"T")
	f("access:\n  - role: push\n    token:\n      'T\n")
	f("access:\n  - role: push\n    token: \"T\nx: y")
	f("access:\n  - role: push\n    token: \"x\n T\"\n x: [")
	f("access:\n  - role: push\n    token: # mine\n\n      T\n  x")
	f("access:\n  - role: push\n    token: |\n      T\n      T\n  x")
	f("access:\n  - role: push\n    token: !!str\n      T: x\n  x")
	f("access: [{role: push, \"token\": T, x: y")
	f("access: [{role: push, \"token\":'T', x: y")
	f("access: [{role: push, token:\nT")
	f("access: [{role: push, api_token : T}, {token: T}")
	f("access:\r\n  - role: push\r\n    token:\r\n      \"T\r\n")
	// The library names the anchor that an alias lacks.
	for _, name := range []string{"s3cret456789", "s3cret_456789-x"} {
		f("access:\n  - role: push\n    token: *" + name + "\n")
		f("access: [{role: push, token: *" + name + "}]\n")
		f("access:\n  - role: push\n    token:\n      *" + name + "\n")
		f("version: 1\nreadings: {token: *" + name + "}\n")
		f("groups: [{token: *" + name + "}]\n")
		f("access:\n  - {role: push, token: &" + name + " }\n  - {role: push, token: *" + name + "}\n  - x: [\n")
	}
	f("params: {token: T}\n")
	f("version: 1\nparams:\n  token: T\n")
	if k := kindOf("w7.yaml", []byte("access:\n  - {role: push\n")); k != kindConfig {
		t.Errorf("a broken configuration is of kind %v", k)
	}
	if got := withoutTokens([]string{"{token: abc, role: pusher}", "token: a", "role: b", "token_file: /x"}); strings.Join(got, "|") != "{token: <secret>, role: pusher}|token: <secret>|role: b|token_file: /x" {
		t.Errorf("more is masked than need be: %q", got)
	}
}

// Each wrong entry is told, with its line.
func TestAccessErrorsShowTheirLines(t *testing.T) {
	_, err := loaded(t, "access:\n  - {role: pusher, token: s3cret}\n  - {role: read}\n  - role: read\n    secret: s3cret\n", "", noEnv)
	if err == nil {
		t.Fatal("taken")
	}
	for _, want := range []string{
		":2:12: error: access: entry 1: role \"pusher\"", "2 |   - {role: pusher, token: <secret>}\n",
		"access: entry 2: want one of", "3 |   - {role: read}\n", ":5:5: error: access: entry 3: unknown key secret", "5 |     secret: <secret>\n",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "s3cret") {
		t.Errorf("a token is shown: %v", err)
	}
}

// A token of the environment is none that the file shows to everybody.
func TestWarnReadable(t *testing.T) {
	const token = "0123456789abcdef0123456789abcdef"
	env := func(name string) (string, bool) { return token, name == "TOKEN" }
	for text, want := range map[string]bool{"${env:TOKEN}": false, token: true} {
		c, err := loaded(t, "access: [{role: push, token: \""+text+"\"}]", "", env)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(c.File, 0o644); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		c.warnReadable(slog.New(slog.NewTextHandler(&out, nil)))
		if got := out.Len() > 0; got != want {
			t.Errorf("%s: warned %v", text, got)
		}
	}
}
