//go:build wattloop_profile

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
)

// profile writes the CPU profile of this process to cpu.pprof in dir until it is
// stopped. Only bench/ builds with this tag, to make what `make build` is guided by.
func profile(dir string) (stop func()) {
	f, err := os.Create(filepath.Join(dir, "cpu.pprof"))
	if err == nil {
		err = pprof.StartCPUProfile(f)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "profile:", err)
		return func() {}
	}
	return func() {
		pprof.StopCPUProfile()
		if err := f.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "profile:", err)
		}
	}
}
