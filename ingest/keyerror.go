package ingest

import "fmt"

// KeyError is what is wrong with one key of a definition, such as that of a
// channel or a target: Key is the one to change. A reader of files points at it.
type KeyError struct {
	Key string
	Err error
}

func (e *KeyError) Error() string { return e.Err.Error() }
func (e *KeyError) Unwrap() error { return e.Err }

// InKey says that key is the one to change.
func InKey(key, format string, args ...any) error {
	return &KeyError{key, fmt.Errorf(format, args...)}
}
