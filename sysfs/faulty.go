package sysfs

import (
	"fmt"
	"math"
	"path"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Faulty makes files of a tree misbehave as hardware does. It is keyed by the
// path that the caller uses, relative to the root. What may be said of a file:
//
//	on a read    EACCES, EIO, ENODATA, ...  the read fails so
//	on a write   EACCES, EIO, ENOENT, ...   the write fails so, after an open that went well
//	             open:ERR                   the file cannot even be opened for writing
//	             ignored                    the write succeeds, the contents stay
//	             range:MIN:MAX:ERR          a value outside MIN..MAX fails so
//	             clamp:MIN:MAX              a value outside MIN..MAX is silently brought inside
//	             first:N:FAULT              FAULT for the first N writes, then none
//
// Its methods may be called by many goroutines.
type Faulty struct {
	// Trace, when it is set, is told of each read and write before it happens:
	// op is "read" or "write", value what is to be written. It is set before
	// first use.
	Trace func(op, path, value string)

	mu      sync.Mutex
	onRead  map[string]syscall.Errno
	onWrite map[string]*fault
}

// NewFaulty returns the faults of two tables, path to fault, as a tree.json
// carries them; either may be nil. A fault that cannot be read is an error.
func NewFaulty(onRead, onWrite map[string]string) (*Faulty, error) {
	f := &Faulty{onRead: map[string]syscall.Errno{}, onWrite: map[string]*fault{}}
	for p, text := range onRead {
		if err := f.SetRead(p, text); err != nil {
			return nil, err
		}
	}
	for p, text := range onWrite {
		if err := f.SetWrite(p, text); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// SetRead sets the fault for reads of the file; the empty string heals it.
func (f *Faulty) SetRead(p, text string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if text == "" {
		delete(f.onRead, path.Clean(p))
		return nil
	}
	e, err := errno(text)
	if err != nil {
		return fmt.Errorf("sysfs: fault on reading %s: %w", p, err)
	}
	f.onRead[path.Clean(p)] = e
	return nil
}

// SetWrite sets the fault for writes of the file; the empty string heals it.
func (f *Faulty) SetWrite(p, text string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if text == "" {
		delete(f.onWrite, path.Clean(p))
		return nil
	}
	ft, err := parseFault(text)
	if err != nil {
		return fmt.Errorf("sysfs: fault on writing %s: %w", p, err)
	}
	f.onWrite[path.Clean(p)] = &ft
	return nil
}

// read, write and probe are FS's hooks; a nil Faulty has no faults.
func (f *Faulty) read(p string) error {
	if f == nil {
		return nil
	}
	if f.Trace != nil {
		f.Trace("read", p, "")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if e, ok := f.onRead[path.Clean(p)]; ok {
		return e
	}
	return nil
}

func (f *Faulty) probe(p string) error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if ft := f.onWrite[path.Clean(p)]; ft != nil && ft.atOpen {
		return ft.err
	}
	return nil
}

// write reports done when the file must not be touched, and may change *s to
// what the hardware makes of it.
func (f *Faulty) write(p string, s *string) (done bool, err error) {
	if f == nil {
		return false, nil
	}
	if f.Trace != nil {
		f.Trace("write", p, *s)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	ft := f.onWrite[path.Clean(p)]
	if ft == nil {
		return false, nil
	}
	if ft.times > 0 {
		if ft.used == ft.times {
			return false, nil
		}
		ft.used++
	}
	return ft.apply(s)
}

// fault is one entry of the table of writes, read.
type fault struct {
	err         error // nil: none
	atOpen      bool
	ignored     bool
	ranged      bool // outside min..max: err, or clamped when err is nil
	min, max    float64
	times, used int // times 0: always
}

func (ft fault) apply(s *string) (done bool, err error) {
	switch {
	case ft.ignored:
		return true, nil
	case !ft.ranged:
		return false, ft.err
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(*s), 64)
	if err != nil {
		return true, syscall.EINVAL
	}
	if v >= ft.min && v <= ft.max {
		return false, nil
	}
	if ft.err != nil {
		return true, ft.err
	}
	*s = strconv.FormatFloat(math.Min(math.Max(v, ft.min), ft.max), 'f', -1, 64)
	return false, nil
}

func parseFault(text string) (fault, error) {
	word, rest, _ := strings.Cut(text, ":")
	switch word {
	case "ignored":
		return fault{ignored: true}, nil
	case "open":
		e, err := errno(rest)
		return fault{err: e, atOpen: true}, err
	case "range", "clamp":
		return parseRange(word, rest)
	case "first":
		n, inner, _ := strings.Cut(rest, ":")
		times, err := strconv.Atoi(n)
		if err != nil || times < 1 || strings.HasPrefix(inner, "first:") {
			return fault{}, fmt.Errorf("%q: want first:N:FAULT", text)
		}
		ft, err := parseFault(inner)
		ft.times = times
		return ft, err
	}
	e, err := errno(text)
	return fault{err: e}, err
}

func parseRange(word, rest string) (fault, error) {
	parts := strings.Split(rest, ":")
	if word == "range" && len(parts) != 3 || word == "clamp" && len(parts) != 2 {
		return fault{}, fmt.Errorf("%s:%s: want range:MIN:MAX:ERR or clamp:MIN:MAX", word, rest)
	}
	ft := fault{ranged: true}
	var err error
	if ft.min, err = strconv.ParseFloat(parts[0], 64); err != nil {
		return ft, err
	}
	if ft.max, err = strconv.ParseFloat(parts[1], 64); err != nil {
		return ft, err
	}
	if word == "range" {
		e, err := errno(parts[2])
		ft.err = e
		return ft, err
	}
	return ft, nil
}

// errno knows the errors that power files of the kernel give.
func errno(name string) (syscall.Errno, error) {
	for _, e := range []struct {
		name  string
		errno syscall.Errno
	}{
		{"EACCES", syscall.EACCES}, {"EPERM", syscall.EPERM}, {"EIO", syscall.EIO}, {"ENOENT", syscall.ENOENT},
		{"ENODATA", syscall.ENODATA}, {"ENODEV", syscall.ENODEV}, {"EINVAL", syscall.EINVAL}, {"EBUSY", syscall.EBUSY},
		{"EROFS", syscall.EROFS}, {"ENOSPC", syscall.ENOSPC}, {"EOPNOTSUPP", syscall.EOPNOTSUPP},
	} {
		if e.name == name {
			return e.errno, nil
		}
	}
	return 0, fmt.Errorf("%q: unknown fault", name)
}
