package sysfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// DefaultRoot is where Linux mounts sysfs.
const DefaultRoot = "/sys"

// maxAttribute bounds what is read of one file. The kernel hands an attribute
// out in one page (Documentation/filesystems/sysfs.rst), 64 KiB on the widest.
const maxAttribute = 64 << 10

// maxEntries bounds how many names are taken from one directory.
const maxEntries = 1 << 16

// FS is a sysfs tree below a directory. All paths are relative to Root and
// never leave it: symbolic links are followed inside the tree alone, as from
// class/powercap/x to ../../devices/..., and an absolute path, a ".." past the
// top or a link that points outside is an error. The zero value is /sys.
//
// FS holds no descriptor; it may be copied and used by many goroutines.
type FS struct {
	Root string
	// Faulty, when it is set, makes chosen files fail: for tests and the
	// simulator. No machine is made with it.
	Faulty *Faulty
}

// New returns the tree below root. The empty string means /sys.
func New(root string) FS { return FS{Root: root} }

// NewDry returns the tree below root for a caller that must not touch the
// machine (replay, tests). A root that holds a real sysfs is refused.
func NewDry(root string) (FS, error) {
	f := New(root)
	if IsReal(f.root()) {
		return FS{}, fmt.Errorf("sysfs: %s: is this machine's sysfs, and this run must not touch the machine; give a copied or simulated tree", f.root())
	}
	return f, nil
}

// IsReal reports whether root is a mounted sysfs, or a directory that has one
// mounted at a place where power is read or set (a container may mount parts
// of /sys alone). A root that does not exist is not real.
func IsReal(root string) bool {
	for _, sub := range []string{"", "/class", "/devices", "/class/powercap", "/devices/virtual/powercap", "/devices/system/cpu", "/class/hwmon"} {
		var st unix.Statfs_t
		if unix.Statfs(root+sub, &st) == nil && st.Type == unix.SYSFS_MAGIC {
			return true
		}
	}
	return false
}

func (f FS) root() string {
	if f.Root == "" {
		return DefaultRoot
	}
	return f.Root
}

// ReadString returns the contents of the file, without the newlines and NUL
// bytes at its end (some drivers end their text in NUL). A file longer than
// 64 KiB is no attribute and an error.
func (f FS) ReadString(path string) (string, error) {
	if err := f.Faulty.read(path); err != nil {
		return "", &fs.PathError{Op: "read", Path: path, Err: err}
	}
	file, err := f.open(path, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer file.Close()
	b, err := readAll(file)
	if err != nil {
		return "", &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return strings.TrimRight(string(b), "\n\x00"), nil
}

// readAll reads by plain system calls. os.File.Read would hand the file to the
// runtime's poller, which waits for ever where a driver answers EAGAIN, as some
// sensors do.
func readAll(file *os.File) ([]byte, error) {
	fd := int(file.Fd())
	buf := make([]byte, 512)
	for n := 0; ; {
		m, err := retry(func() (int, error) { return unix.Read(fd, buf[n:]) })
		if err != nil {
			return nil, err
		}
		if m == 0 {
			return buf[:n], nil
		}
		if n += m; n > maxAttribute {
			return nil, errors.New("longer than any sysfs attribute")
		}
		if n == len(buf) {
			buf = append(buf, make([]byte, len(buf))...)
		}
	}
}

// WriteString writes s and a newline to an existing file with one write, as the
// kernel's store functions want it. It never creates a file. In a tree of plain
// files a reader beside it sees the old value or the new one, never an empty file.
func (f FS) WriteString(path, s string) error {
	done, err := f.Faulty.write(path, &s)
	if err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	if done {
		return nil
	}
	file, err := f.open(path, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := writeAll(file, strings.TrimRight(s, "\n")+"\n"); err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

// writeAll replaces the contents of file. A kernel attribute takes the one
// write whole. A plain file keeps what lies behind the text, so there the text
// is first filled up with newlines to the old length, which readers trim, and
// the file is cut after.
func writeAll(file *os.File, s string) error {
	fd := int(file.Fd())
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return err
	}
	text := s
	if st.Type != unix.SYSFS_MAGIC {
		info, err := file.Stat()
		if err != nil {
			return err
		}
		if old := info.Size(); old > int64(len(s)) && old <= maxAttribute {
			text += strings.Repeat("\n", int(old)-len(s))
		}
	}
	n, err := retry(func() (int, error) { return unix.Write(fd, []byte(text)) })
	if err != nil {
		return err
	}
	if n != len(text) {
		return fmt.Errorf("took %d of %d bytes", n, len(text))
	}
	if st.Type != unix.SYSFS_MAGIC {
		return unix.Ftruncate(fd, int64(len(s)))
	}
	return nil
}

func retry(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); err != syscall.EINTR {
			return n, err
		}
	}
}

// Open opens the file for reading. The caller may keep it and read it at offset
// 0 again and again: the kernel renders an attribute anew for each such read.
func (f FS) Open(path string) (*os.File, error) {
	if err := f.Faulty.read(path); err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return f.open(path, unix.O_RDONLY)
}

// Probe reports why the file cannot be opened for writing, or nil. It writes
// nothing. A firmware lock shows only when something is written.
func (f FS) Probe(path string) error {
	if err := f.Faulty.probe(path); err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	file, err := f.open(path, unix.O_WRONLY)
	if err != nil {
		return err
	}
	return file.Close()
}

// ReadDir returns the sorted names in a directory; "." is the root.
func (f FS) ReadDir(path string) ([]string, error) {
	dir, err := f.open(path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(maxEntries)
	if err != nil && err != io.EOF {
		return nil, &fs.PathError{Op: "list", Path: path, Err: cause(err)}
	}
	slices.Sort(names)
	return names, nil
}

// Readlink returns where a symbolic link points, as it is written there. What
// is no link is an error.
func (f FS) Readlink(path string) (string, error) {
	root, err := os.OpenRoot(f.root())
	if err != nil {
		return "", err
	}
	defer root.Close()
	target, err := root.Readlink(path)
	if err != nil {
		return "", &fs.PathError{Op: "readlink", Path: path, Err: cause(err)}
	}
	return target, nil
}

// open walks from the root without leaving it. An error carries the path below
// the root, or the root itself when that is what is wrong.
func (f FS) open(path string, flag int) (*os.File, error) {
	root, err := os.OpenRoot(f.root())
	if err != nil {
		return nil, err
	}
	defer root.Close()
	file, err := root.OpenFile(path, flag, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: cause(err)}
	}
	return file, nil
}

func cause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
