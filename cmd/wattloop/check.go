package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"github.com/wattloop/wattloop/rules"
)

func checkCmd() *cobra.Command {
	var (
		strict, hardware bool
		output, page     string
	)
	c := defaultConfig()
	cmd := &cobra.Command{
		Use:   "check [PATH...]",
		Short: "Check rule files, over the presets, and configuration: every message with its place",
		Long: `check loads the presets of this binary and then PATH... in order, files or folders, exactly as
serve would, and prints every message with path:line:col, the source line and a caret. A PATH
that is a configuration file is checked as that, with the rules that it names; - is standard
input. What only this machine lacks, a file of credentials or a group, is a warning then.

Without a PATH it checks what serve would run here: what --config.file, --warden.file and the
environment name, as the user that the engine would be. What serve would refuse is an error.

With --hardware it looks at this machine instead, or at the tree that --sysfs names: each meter and
each actuator, whether it is found, readable, writable and locked, and what to do. It writes
nothing. Run it as root, as serve is: the kernel gives energy counters to root alone.

With --page it reads the page of one exporter, and says how many of its samples would be stored and
why others would not.

Exit codes: 0 fine, 1 errors (with --strict also warnings), or a PATH in which nothing is; with
--hardware 1 when something that is there cannot be read or written, 3 when the tree cannot be read;
with --page 1 when the page cannot be read. Without a PATH it is serve's: 3 when the sysfs tree
cannot be read.`,
		Example: `  wattloop check --strict rules.d/60-local.yaml wattloop.yaml
  sudo wattloop check --hardware -o json
  wattloop check --page http://127.0.0.1:9400/metrics`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: completeRuleFiles,
	}
	c.addFlags(cmd.Flags(), append([]string{"sysfs"}, ruleKeys...)...)
	cmd.Flags().StringVar(&c.WardenFile, "warden.file", c.WardenFile, "the warden's own configuration, where no PATH is given")
	cmd.Flags().BoolVar(&hardware, "hardware", false, "look at the machine's meters and actuators instead of files")
	cmd.Flags().StringVar(&page, "page", "", "read the page of an exporter at this URL instead of files")
	cmd.Flags().BoolVar(&strict, "strict", false, "a warning counts as an error")
	outputFlag(cmd, &output, "table", "json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := c.load(cmd.Flags(), os.LookupEnv); err != nil {
			return withCode(exitFound, err)
		}
		if page != "" {
			if len(args) > 0 || hardware {
				return withCode(exitUsage, errors.New("--page looks at one page alone; leave the rest out"))
			}
			return checkScrape(cmd.Context(), cmd.OutOrStdout(), page, output)
		}
		if hardware {
			if len(args) > 0 {
				return withCode(exitUsage, fmt.Errorf("--hardware looks at the machine, not at %s; leave one of them out", args[0]))
			}
			return c.checkHardware(cmd.Context(), cmd.OutOrStdout(), output)
		}
		if len(args) == 0 {
			return c.checkServe(cmd, strict, output)
		}
		got, err := c.checkPaths(args, cmd.InOrStdin())
		if err != nil {
			return withCode(exitFound, err)
		}
		return got.print(cmd.OutOrStdout(), strict, output)
	}
	return cmd
}

// ruleKeys are the settings that decide what rules are loaded and how.
var ruleKeys = []string{"rules", "rate_window", "rate", "naming", "presets.node_power.use", "presets.node_power.scope", "presets.node_power.attributes", "presets.facility.enabled"}

// checked is what one run of check has found.
type checked struct {
	messages []rules.Message
	set      *rules.Set // nil when a rule file is in error
	rules    int        // rule files over those of the binary
	configs  int        // configuration files
}

// checkPaths loads what args name.
func (c *config) checkPaths(args []string, stdin io.Reader) (checked, error) {
	var got checked
	sources, err := shippedRules()
	if err != nil {
		return got, err
	}
	shipped := len(sources)
	for _, p := range args {
		found, err := checkSources(p, stdin)
		if err != nil {
			return got, err
		}
		for _, s := range found {
			kind := kindOf(s.Name, s.Data)
			if kind == kindRules {
				sources = append(sources, s)
				continue
			}
			got.configs++
			got.messages = append(got.messages, checkConfig(s, kind == kindWarden)...)
		}
	}
	got.rules = len(sources) - shipped
	set, msgs := loadMasked(sources, c.ruleSettings())
	got.set = set
	for _, m := range msgs { // a configuration may have named the same file
		if !slices.Contains(got.messages, m) {
			got.messages = append(got.messages, m)
		}
	}
	return got, nil
}

// checkConfig says of a configuration file all that serve would.
func checkConfig(s rules.Source, warden bool) []rules.Message {
	c := defaultConfig()
	for _, set := range c.settings() {
		c.origin[set.key] = originDefault
	}
	var ce *configError
	if err := c.apply(s.Name, s.Data, warden, os.LookupEnv); errors.As(err, &ce) {
		c.derive() // serve says what else it sees, and looks no further
		errs := flat(errors.Join(c.deriveRemote(os.LookupEnv), c.validate()))
		return append(ce.messages, messagesOf(s.Name, errs, rules.SeverityWarning)...)
	}
	c.derive()
	err := c.validate()
	if err == nil && warden {
		_, err = c.credential()
	}
	if warden {
		return messagesOf(s.Name, flat(err), rules.SeverityWarning)
	}
	errs := append(flat(errors.Join(c.deriveRemote(os.LookupEnv), err)), c.would()...)
	_, msgs, err := c.loadRules()
	if c.origin["rules"] == originDefault { // said of the rules that are checked beside it
		msgs = nil
	}
	if err != nil && !errors.As(err, new(*rulesError)) {
		errs = append(errs, here(err))
	}
	return append(messagesOf(s.Name, errs, rules.SeverityWarning), msgs...)
}

// checkSources reads one argument. One that yields no file is an error: a typing
// mistake must not pass as "no errors".
func checkSources(p string, stdin io.Reader) ([]rules.Source, error) {
	if p == "-" {
		b, err := io.ReadAll(io.LimitReader(stdin, maxRuleFile+1))
		if err != nil {
			return nil, fmt.Errorf("-: %w", err)
		}
		return []rules.Source{{Name: "-", Data: b}}, nil
	}
	found, err := readRulePath(p)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%s: no rule file (*.yaml, *.yml) in this folder", p)
	}
	return found, err
}

// maxRuleFile is more than the loader takes (docs/rules.md); what is longer is
// refused there.
const maxRuleFile = 1 << 20

type fileKind int

const (
	kindRules fileKind = iota
	kindConfig
	kindWarden
)

// kindOf tells a configuration file from a rule file by its own name, or by the
// keys that only one of them has. What has keys of both configurations is
// wattloop.yaml, whose reader says where the others belong; what is neither is
// left to the rule loader, which says why.
func kindOf(name string, data []byte) fileKind {
	switch filepath.Base(name) {
	case "wattloop.yaml":
		return kindConfig
	case "warden.yaml":
		return kindWarden
	}
	kind := kindRules
	for _, key := range topKeys(data) {
		switch {
		case slices.Contains([]string{"version", "params", "readings", "controls", "groups"}, key):
			return kindRules
		case kind == kindConfig:
		case key == "actuation" || key == "engine" || strings.HasPrefix(key, "actuation.") || strings.HasPrefix(key, "engine."):
			kind = kindWarden
		case isConfigKey(key):
			kind = kindConfig
		}
	}
	return kind
}

// plainKey is a key at the begin of a line.
var plainKey = regexp.MustCompile(`(?m)^([A-Za-z_.]+)\s*:(?:\s|$)`)

// topKeys are the keys of a file; of one that is no YAML what look like them.
func topKeys(data []byte) []string {
	var doc yaml.Node
	var keys []string
	if err := yaml.Unmarshal(data, &doc); err != nil {
		for _, m := range plainKey.FindAllSubmatch(data, -1) {
			keys = append(keys, string(m[1]))
		}
		return keys
	}
	if len(doc.Content) > 0 && doc.Content[0].Kind == yaml.MappingNode {
		for i := 0; i < len(doc.Content[0].Content); i += 2 {
			keys = append(keys, doc.Content[0].Content[i].Value)
		}
	}
	return keys
}

// isConfigKey is true for a key of wattloop.yaml, and for one that begins as
// one does: the reader of that file says what is wrong with it.
func isConfigKey(key string) bool {
	first, _, _ := strings.Cut(key, ".")
	return isLater(key) || slices.ContainsFunc(defaultConfig().settings(), func(s setting) bool {
		return first == s.key || strings.HasPrefix(s.key, first+".")
	})
}

func (got checked) print(w io.Writer, strict bool, output string) error {
	var errs, warnings int
	for _, m := range got.messages {
		if m.Severity == rules.SeverityError {
			errs++
		} else {
			warnings++
		}
	}
	if output == "json" {
		all := got.messages
		if all == nil {
			all = []rules.Message{}
		}
		if err := writeIndented(w, all); err != nil {
			return withCode(exitCannot, err)
		}
	} else {
		for _, m := range got.messages {
			fmt.Fprintln(w, m.String())
		}
		if _, err := fmt.Fprintln(w, got.summary(errs, warnings)); err != nil {
			return withCode(exitCannot, err)
		}
	}
	if errs > 0 || strict && warnings > 0 {
		return withCode(exitFound, errSaid)
	}
	return nil
}

func (got checked) summary(errs, warnings int) string {
	s := plural(got.rules, "rule file") + " over the presets"
	if got.configs > 0 {
		s += ", " + plural(got.configs, "configuration file")
	}
	if got.set != nil {
		s += fmt.Sprintf(": %s, %s", plural(len(got.set.Readings), "reading"), plural(len(got.set.Controls), "control"))
	}
	return s + fmt.Sprintf("; %s, %s", plural(errs, "error"), plural(warnings, "warning"))
}
