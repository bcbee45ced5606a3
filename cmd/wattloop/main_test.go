package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain makes the test binary a wattloop when it is called by that name, so
// that tests start real processes of exactly this code.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"wattloop": main})
}
