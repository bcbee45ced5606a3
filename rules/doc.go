// Package rules is the rule language: it loads YAML files with the place of
// every word, merges drop-ins over presets, puts parameters and readings into
// PromQL, and evaluates the result through a function that answers queries. It
// refuses to know where files, samples or devices are: it opens nothing, reads
// no clock, and writes nothing.
package rules
