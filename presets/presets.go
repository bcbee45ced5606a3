// Package presets holds the readings that are shipped inside the binary: one
// folder for each producer whose metrics they read, with its preset.yaml. They
// are ordinary rule files, loaded before all others. It refuses to know how they
// are read: that is package rules.
package presets

import "embed"

// Files has <name>/preset.yaml for every preset.
//
//go:embed */preset.yaml
var Files embed.FS
