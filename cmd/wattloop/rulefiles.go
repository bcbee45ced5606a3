package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/wattloop/wattloop/presets"
	"github.com/wattloop/wattloop/rules"
	rulesd "github.com/wattloop/wattloop/rules.d"
)

// defaultRules is read when it is there; any other path must be.
const defaultRules = "/etc/wattloop/rules.d"

// shippedRules are the presets and the rules inside this binary.
func shippedRules() ([]rules.Source, error) {
	var out []rules.Source
	for _, in := range []struct {
		fsys   fs.FS
		prefix string
	}{{presets.Files, "presets"}, {rulesd.Files, "rules.d"}} {
		s, err := rules.Sources(in.fsys, in.prefix)
		if err != nil {
			return nil, fmt.Errorf("rules in the binary: %w", err)
		}
		out = append(out, s...)
	}
	return out, nil
}

// ruleSources reads the rules of the binary, then every drop-in folder or file
// in its order.
func ruleSources(paths []string) ([]rules.Source, error) {
	out, err := shippedRules()
	if err != nil {
		return nil, err
	}
	for _, p := range paths {
		s, err := readRulePath(p)
		if errors.Is(err, fs.ErrNotExist) && p == defaultRules {
			continue
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w; name the folder or file with --rules", err)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, s...)
	}
	return out, nil
}

// readRulePath reads one file, or every rule file of a folder.
func readRulePath(p string) ([]rules.Source, error) {
	st, err := os.Stat(p)
	if err == nil && st.IsDir() {
		var out []rules.Source
		if out, err = rules.Sources(os.DirFS(p), p); err == nil {
			return out, nil
		}
	}
	var b []byte
	if err == nil {
		b, err = os.ReadFile(p)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("rules: %s: %w", p, bare(err))
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("rules: %w; user %d, who runs the rules, must be able to read it", err, os.Geteuid())
	case err != nil:
		return nil, fmt.Errorf("rules: %w", err)
	}
	return []rules.Source{{Name: filepath.Clean(p), Data: b}}, nil
}

// settings are what the configuration says to the rule loader.
func (c *config) ruleSettings() rules.Settings {
	return rules.Settings{
		RateWindow: c.RateWindow, Rate: c.Rate, Use: c.variants(), Off: c.presetsOff(),
		Naming: c.Naming, Attributes: c.Attributes,
	}
}

// variants are what the configuration chooses. What it leaves at its default is
// the files' to say.
func (c *config) variants() map[string]rules.Choice {
	const use, scope = "presets.node_power.use", "presets.node_power.scope"
	var said []string
	say := func(key, value string) {
		said = append(said, fmt.Sprintf("%s (%s) is %s", key, c.origin[key], value))
	}
	var power, cpu rules.Choice
	if c.origin[use] != originDefault {
		say(use, c.PowerPreset)
		power.Use, cpu = c.PowerPreset, rules.Choice{Use: c.PowerPreset, Origin: said[0]}
	}
	if c.PowerSource != sourceStore { // which of the store's samples has no part in it
		said = nil
		say("presets.node_power.source", c.PowerSource)
		power.Use = c.PowerSource
	}
	if c.CPUSource != sourceStore {
		cpu = rules.Choice{Use: c.CPUSource, Origin: fmt.Sprintf("presets.cpu_power.source (%s) is %s", c.origin["presets.cpu_power.source"], c.CPUSource)}
	}
	if c.PowerScope == "host" {
		say(scope, c.PowerScope)
		power.Suffix = "-host"
	}
	power.Origin = strings.Join(said, ", ")
	return map[string]rules.Choice{"node_power": power, "cpu_power": cpu}
}

// presetsOff are the files in the binary whose rules do not run, and why.
func (c *config) presetsOff() map[string]string {
	if c.Facility {
		return nil
	}
	return map[string]string{"presets/facility/preset.yaml": "a reading of the facility preset, which is off: set presets.facility.enabled, or ENABLE_FACILITY_METRICS, to true"}
}

// rulesError is a refused rule set: its text is every error, as check prints
// them.
type rulesError struct{ messages []rules.Message }

func (e *rulesError) Error() string {
	errs := e.errors()
	var b strings.Builder
	fmt.Fprintf(&b, "rules: %s, nothing was loaded", plural(len(errs), "error"))
	for _, m := range errs {
		b.WriteString("\n" + m.String())
	}
	return b.String()
}

func (e *rulesError) errors() []rules.Message {
	return slices.DeleteFunc(slices.Clone(e.messages), func(m rules.Message) bool { return m.Severity != rules.SeverityError })
}

// loadRulesUnder is loadRules for a store that goes by another naming.
func (c *config) loadRulesUnder(naming string) (*rules.Set, []rules.Message, error) {
	under := *c
	under.Naming = naming
	return under.loadRules()
}

// loadRules loads all of the rule files or none. Warnings come beside the set.
func (c *config) loadRules() (*rules.Set, []rules.Message, error) {
	sources, err := ruleSources(c.Rules)
	if err != nil {
		return nil, nil, err
	}
	set, msgs := loadMasked(sources, c.ruleSettings())
	if set == nil {
		return nil, msgs, &rulesError{msgs}
	}
	return set, msgs, nil
}
