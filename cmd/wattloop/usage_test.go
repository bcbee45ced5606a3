package main

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

func everyVerb(c *cobra.Command, f func(*cobra.Command)) {
	f(c)
	for _, sub := range c.Commands() {
		everyVerb(sub, f)
	}
}

// Help of every verb says what it does and ends with two or three examples that begin
// with the program or a pipe into it.
func TestHelpOfEveryVerb(t *testing.T) {
	everyVerb(newRoot(), func(c *cobra.Command) {
		if c.Name() == "help" {
			return
		}
		if c.Short == "" {
			t.Errorf("%s: no short text", c.CommandPath())
		}
		args := append(strings.Fields(c.CommandPath())[1:], "--help")
		var out, errs bytes.Buffer
		if code := run(context.Background(), args, strings.NewReader(""), &out, &errs); code != exitFine || errs.Len() > 0 {
			t.Errorf("%s --help: exit code %d, %s", c.CommandPath(), code, errs.String())
		}
		_, tail, ok := strings.Cut(out.String(), "\nExamples:\n")
		lines := strings.Split(strings.TrimRight(tail, "\n"), "\n")
		if !ok || len(lines) < 2 || len(lines) > 3 {
			t.Errorf("%s --help ends with %q; want two examples, or three", c.CommandPath(), tail)
		}
		for _, l := range lines {
			if !strings.HasPrefix(l, "  ") || !strings.Contains(l, "wattloop") {
				t.Errorf("%s --help: example %q", c.CommandPath(), l)
			}
		}
		for line := range strings.Lines(out.String()) {
			if strings.Contains(line, "\t") {
				t.Errorf("%s --help: a tab in %q", c.CommandPath(), line)
			}
		}
	})
}

// The flags in the examples exist.
func TestExamplesUseFlagsThatExist(t *testing.T) {
	root := newRoot()
	everyVerb(root, func(c *cobra.Command) {
		for line := range strings.Lines(c.Example) {
			words := strings.Fields(line)
			at := slices.Index(words, "wattloop")
			if at < 0 {
				continue
			}
			used, _, err := root.Find(words[at+1:])
			if err != nil {
				t.Errorf("%s: example %q: %v", c.CommandPath(), line, err)
				continue
			}
			for _, w := range words[at+1:] {
				name, _, _ := strings.Cut(strings.TrimPrefix(w, "--"), "=")
				if strings.HasPrefix(w, "--") && used.Flags().Lookup(strings.TrimRight(name, ")")) == nil && name != "help" {
					t.Errorf("%s: example %q: no flag --%s", c.CommandPath(), strings.TrimSpace(line), name)
				}
			}
		}
	})
}

// The spellings that other programs and unit files are written against.
func TestFixedFlags(t *testing.T) {
	has := map[string][]string{
		"serve": {"config.file", "rules", "storage.path", "state.path", "run.path", "sysfs", "warden.file", "actuation.enabled",
			"actuation.observe-first", "web.listen-address", "otlp.grpc.listen-address", "otlp.http.listen-address", "api.socket",
			"storage.retention.time", "storage.retention.size"},
		"caps restore": {"config.file", "state.path", "run.path", "sysfs", "no-latch", "deadline"},
		"caps resume":  {"config.file", "state.path", "run.path", "sysfs"},
		"demo":         {"for", "speed", "seed", "gpus", "output"},
		"check":        {"strict", "output"},
		"query":        {"range", "step", "url", "output"},
	}
	for verb, flags := range has {
		c, _, err := newRoot().Find(strings.Fields(verb))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range flags {
			if c.Flags().Lookup(f) == nil {
				t.Errorf("%s has no --%s", verb, f)
			}
		}
	}
}

const configPage = "../../docs/config.md"

// docs/config.md is written from settings().
func TestGoldenConfigPage(t *testing.T) {
	var b strings.Builder
	b.WriteString(configPageHead)
	table := func(warden bool) {
		b.WriteString("| key | default | comes into force | flag | variable | meaning |\n|---|---|---|---|---|---|\n")
		for _, s := range defaultConfig().settings() {
			if (s.change == changeWarden) != warden {
				continue
			}
			cells := []string{"`" + s.key + "`", code(templateValue(s)), changes[s.change], flagCell(s), code(strings.Join(s.variables(), "`, `")), s.help}
			b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
		}
	}
	table(false)
	b.WriteString(configPageWarden)
	table(true)
	if *update {
		if err := os.WriteFile(configPage, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(configPage)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("make golden rewrites %s; read the diff:\n%s", configPage, diff)
	}
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

const configPageHead = `# Configuration

Generated from the settings of the program; ` + "`make golden`" + ` rewrites it.

A value comes from a flag, else a variable, else a file, else the default; ` + "`wattloop config show`" + ` prints each with where it
came from, and ` + "`wattloop config init`" + ` a file to begin with. A key is written with dots or nested: ` + "`storage.path: /x`" + ` is
` + "`storage: {path: /x}`" + `. A key that is unknown, stands twice or has no value is an error with its place. A whole value may be
` + "`${env:NAME}`" + ` or ` + "`${env:NAME:-DEFAULT}`" + `; inside a longer text a ` + "`$`" + ` is a ` + "`$`" + `.

SIGHUP and ` + "`POST /-/reload`" + ` read the file again: what is reloaded live comes into force together with the rules, all or none;
a change that needs a restart is named in the log. A list in a variable is parted by commas; a flag is repeated.

## wattloop.yaml

` + "`--config.file`" + `, /etc/wattloop/wattloop.yaml. It may be absent at its default place. The engine's user must be able to read it.

`

const configPageWarden = `
## warden.yaml

` + "`--warden.file`" + `, /etc/wattloop/warden.yaml: what only the owner of the machine decides. It belongs to root and is read at start, by
the warden alone. A key of one file is an error in the other.

`

func flagCell(s setting) string {
	if s.flag == noFlag {
		return "none"
	}
	return "`--" + s.flagName() + "`"
}
