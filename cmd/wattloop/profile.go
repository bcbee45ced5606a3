//go:build !wattloop_profile

package main

// profile does nothing: the binary that ships writes no profile of itself.
func profile(string) (stop func()) { return func() {} }
