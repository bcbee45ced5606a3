//go:build wattloop_bench

package main

import "github.com/wattloop/wattloop/actuate"

// pace sets no bound, so that a benchmark measures the path and not the waiting.
// Only bench/ builds with this tag; the binary that ships has no such switch.
func pace() map[string]actuate.Pace {
	return map[string]actuate.Pace{actuate.ActionRAPLCap: {}}
}
