// Package rulesd holds the controls that are shipped inside the binary. They are
// ordinary rule files, loaded after the presets and before an operator's own.
// Each observes until an operator says enforce.
package rulesd

import "embed"

// Files has <name>.yaml for every shipped rule file.
//
//go:embed *.yaml
var Files embed.FS
