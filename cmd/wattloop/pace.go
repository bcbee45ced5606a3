//go:build !wattloop_bench

package main

import "github.com/wattloop/wattloop/actuate"

// pace is how gently devices are written: the governor's defaults.
func pace() map[string]actuate.Pace { return nil }
