package main

import "github.com/wattloop/wattloop/ingest"

// namings are the words for naming.
func namings() []string {
	var out []string
	for _, n := range ingest.Namings() {
		out = append(out, string(n))
	}
	return out
}
