//go:build !cgo

package nvml

// Probe says that this build cannot load the library.
func Probe() string { return "absent (built without cgo)" }
