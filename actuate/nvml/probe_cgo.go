//go:build cgo

package nvml

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Probe loads the library, counts its devices and unloads it. The answer is a
// sentence for people: NVIDIA's library is absent on most machines, which is no
// error.
func Probe() string {
	if r := nvml.Init(); r != nvml.SUCCESS {
		return "built in; the library on this machine: " + lower(r)
	}
	defer nvml.Shutdown()
	n, r := nvml.DeviceGetCount()
	if r != nvml.SUCCESS {
		return "built in; devices: " + lower(r)
	}
	return fmt.Sprintf("built in; %d devices; this version caps none of them", n)
}

// lower is a return code in words. ErrorString asks the library, which may be
// what is missing.
func lower(r nvml.Return) string {
	if r == nvml.ERROR_LIBRARY_NOT_FOUND {
		return "not found"
	}
	return nvml.ErrorString(r)
}
