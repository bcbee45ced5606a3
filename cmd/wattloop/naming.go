package main

import (
	"fmt"

	"github.com/wattloop/wattloop/ingest"
	"github.com/wattloop/wattloop/rules"
)

// namings are the words for naming.
func namings() []string {
	var out []string
	for _, n := range ingest.Namings() {
		out = append(out, string(n))
	}
	return out
}

// namingWarning says what a naming other than the default costs (S0-143); empty
// for the default.
func (c *config) namingWarning() string {
	if c.Naming == namings()[0] {
		return ""
	}
	return fmt.Sprintf("naming (%s) is %s: the presets and the shipped rules are written for %s and find no series that is pushed here; write readings of your own, or leave naming out",
		c.origin["naming"], c.Naming, namings()[0])
}

// warnings are what check has to say of a configuration without error.
func (c *config) warnings(file string) []rules.Message {
	if text := c.namingWarning(); text != "" {
		return []rules.Message{{File: file, Severity: rules.SeverityWarning, Text: text}}
	}
	return nil
}
