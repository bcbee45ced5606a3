package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/wattloop/wattloop/rules"
)

// Every key with values of every kind: check says of the file what serve and its
// engine say when they read it, and nothing else. The scripts hold the exit codes
// and the processes to that.
func TestCheckSaysOfEveryKeyWhatServeDoes(t *testing.T) {
	values := []string{"5", "-1", `"x y"`, "[1]", "[a, a]", "{a: 1}", `""`, "null", "true", "1ns", "http://a b", "/nowhere/x"}
	dir, refused := t.TempDir(), 0
	for _, s := range defaultConfig().settings() {
		name := filepath.Join(dir, "wattloop.yaml")
		warden := s.change == changeWarden
		if warden {
			name = filepath.Join(dir, "warden.yaml")
		}
		for _, v := range values {
			text := s.key + ": " + v + "\n"
			if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			serve := serveSays(name, warden)
			check := map[string]bool{}
			for _, m := range checkConfig(rules.Source{Name: name, Data: []byte(text)}, warden) {
				check[said(m)] = true
			}
			if diff := cmp.Diff(serve, check); diff != "" {
				t.Errorf("%s: serve (-) and check (+):\n%s", strings.TrimSpace(text), diff)
			}
			if len(serve) > 0 {
				refused++
			}
		}
	}
	if refused < 400 {
		t.Errorf("only %d values are refused", refused)
	}
}

// said is a message without its severity, which is the verb's own.
func said(m rules.Message) string { return fmt.Sprintf("%d:%d: %s", m.Line, m.Col, m.Text) }

// serveSays is all that keeps serve from starting with one file, or that it says of
// it and goes on, by the way that serve goes itself.
func serveSays(name string, warden bool) map[string]bool {
	c := defaultConfig()
	c.File, c.WardenFile = name, filepath.Join(filepath.Dir(name), "none")
	if warden {
		c.File, c.WardenFile = c.WardenFile, name
	}
	fl := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	c.addFlags(fl)
	out := map[string]bool{}
	tell := func(err error) {
		var ce *configError
		var re *rulesError
		switch {
		case err == nil:
		case errors.As(err, &ce):
			for _, m := range ce.messages {
				out[said(m)] = true
			}
		case errors.As(err, &re):
			for _, m := range re.errors() {
				out[said(m)] = true
			}
		default:
			out["0:0: "+err.Error()] = true
		}
	}
	errs := flat(c.load(fl, noEnv))
	if len(errs) == 0 && warden {
		_, err := c.credential()
		errs = flat(err)
	}
	if !warden && !slices.ContainsFunc(errs, func(err error) bool { return errors.As(err, new(*configError)) }) {
		errs = append(errs, c.would()...)
		_, _, err := c.loadRules()
		errs = append(errs, flat(err)...)
	}
	for _, err := range errs {
		tell(err)
	}
	return out
}
