package warden

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"
)

// errStuck is what a device's call ends in when it does not return in time.
var errStuck = errors.New("the driver does not answer")

// callLimit is how long one call of a device may take before the warden goes on
// without it.
const callLimit = 2 * time.Second

// hand makes the calls of one device, one at a time, each in a goroutine of its
// own and with a limit: a driver that hangs blocks its own device and no other.
// While a call hangs every further one fails at once.
type hand struct{ busy chan struct{} }

func newHand() hand { return hand{busy: make(chan struct{}, 1)} }

// call runs f by the hand. The goroutine of a call that hangs outlives it, for
// there is no way to end it. A panic in f is an error: it is the bug of one
// backend, and the other devices still need their warden.
func call[T any](h hand, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	select {
	case h.busy <- struct{}{}:
	default:
		return *new(T), errStuck
	}
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			if p := recover(); p != nil {
				r.err = fmt.Errorf("BUG: backend: %v", p)
			}
			<-h.busy
			done <- r
		}()
		r.value, r.err = f()
	}()
	limit := time.NewTimer(callLimit)
	defer limit.Stop()
	select {
	case r := <-done:
		return r.value, r.err
	case <-limit.C:
		return *new(T), errStuck
	}
}

// gone says that the device is not there any more.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO)
}

// denied says that the device is there and does not let itself be written: no
// permission, read-only, locked by the firmware. Trying again changes nothing.
func denied(err error) bool {
	for _, e := range []error{fs.ErrPermission, unix.EROFS, unix.ENODATA, unix.EOPNOTSUPP, errors.ErrUnsupported} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
