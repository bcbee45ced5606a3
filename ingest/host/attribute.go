package host

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/wattloop/wattloop/sysfs"
)

// attribute is one file of the kernel that is read again and again. It is
// opened at the first read, and anew after one that failed.
type attribute struct {
	fs   sysfs.FS
	path string
	file *os.File
}

func (a *attribute) close() {
	if a.file != nil {
		a.file.Close() // only read from
		a.file = nil
	}
}

// ReadAt reads as pread does.
func (a *attribute) ReadAt(p []byte, off int64) (int, error) {
	if a.file == nil {
		f, err := a.fs.Open(a.path)
		if err != nil {
			return 0, err
		}
		a.file = f
	}
	n, err := a.file.ReadAt(p, off)
	if err != nil && err != io.EOF {
		a.close()
		return n, &fs.PathError{Op: "read", Path: a.path, Err: bare(err)}
	}
	return n, err
}

// text returns the contents without blanks at the end. Longer than 1 KiB is none
// of the files that are read here.
func (a *attribute) text() (string, error) {
	var buf [1024]byte
	n, err := a.ReadAt(buf[:], 0)
	if err != nil && err != io.EOF {
		return "", err
	}
	return strings.TrimRight(string(buf[:n]), "\n\x00 "), nil
}

// number returns the contents as a number.
func (a *attribute) number() (float64, error) {
	text, err := a.text()
	if err != nil {
		return 0, err
	}
	return a.parse(text)
}

func (a *attribute) parse(text string) (float64, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s holds %.40q: %w", a.path, text, errNoNumber)
	}
	return float64(n), nil
}

// errNoNumber is a file of which the driver has nothing to say: some are empty,
// or hold a word.
var errNoNumber = errors.New("not a number")

// bare is the cause of an error that carries a path of its own.
func bare(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// attributes keeps files open by their path, from one look for meters to the
// next.
type attributes struct {
	fs   sysfs.FS
	open map[string]*attribute
}

// of returns the file, the one that is open already where there is one.
func (as *attributes) of(path string) *attribute {
	if a := as.open[path]; a != nil {
		return a
	}
	if as.open == nil {
		as.open = map[string]*attribute{}
	}
	a := &attribute{fs: as.fs, path: path}
	as.open[path] = a
	return a
}

// keep closes all but these.
func (as *attributes) keep(used map[string]bool) {
	for path, a := range as.open {
		if !used[path] {
			a.close()
			delete(as.open, path)
		}
	}
}
