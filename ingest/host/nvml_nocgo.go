//go:build !cgo

package host

import "errors"

// openNVML says that this build cannot load the library.
func openNVML() (library, error) {
	return nil, errors.New("this wattloop was built without cgo and cannot load NVIDIA's library")
}
