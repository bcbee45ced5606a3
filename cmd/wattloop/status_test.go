package main

import (
	"strings"
	"testing"

	"github.com/wattloop/wattloop/api"
)

// The table says what a value was clamped to; that nothing changes any more is
// no reason beside it.
func TestDevicesSayTheClamp(t *testing.T) {
	f := func(limit float64, reason, want string) {
		t.Helper()
		d := api.Device{Name: "cpu0", Unit: "W", Reason: reason}
		if limit != 0 {
			n := api.Number(limit)
			d.ClampedTo = &n
		}
		var b strings.Builder
		if err := printDevices(&b, []api.Device{d}); err != nil {
			t.Fatal(err)
		}
		if _, row, _ := strings.Cut(b.String(), "\n"); !strings.HasSuffix(row, "  "+want+"\n") {
			t.Errorf("%g, %q: %q; want %q at its end", limit, reason, row, want)
		}
	}
	f(0, "", "-")
	f(0, "unchanged", "unchanged")
	f(82, "", "clamped to 82.0 W")
	f(82, "unchanged", "clamped to 82.0 W")
	f(82, "ramping", "clamped to 82.0 W, ramping")
}
