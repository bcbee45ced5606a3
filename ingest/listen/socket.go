package listen

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// socket is a listening unix socket and the folder that it was bound in.
type socket struct {
	net.Listener
	dir  *os.File
	name string
	id   unix.Stat_t // of the file that bind made
	once sync.Once
}

// listenUnix binds path. All is done in the folder that was opened and checked
// first, by its descriptor, so that whoever swaps a part of the path for a link
// meanwhile gets nothing. Nobody can connect before the mode and the group are
// what was asked for: until listen(2) a connection is refused.
func listenUnix(path string, mode fs.FileMode, group string) (net.Listener, error) {
	gid, err := groupID(group)
	if err != nil {
		return nil, err
	}
	dir, err := openFolder(filepath.Dir(path), gid)
	if err != nil {
		return nil, err
	}
	s, err := bindIn(dir, filepath.Base(path), mode, gid)
	if err != nil {
		dir.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

func groupID(name string) (int, error) {
	if name == "" {
		return -1, nil
	}
	if n, err := strconv.ParseUint(name, 10, 31); err == nil {
		return int(n), nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, fmt.Errorf("group %s: there is none of that name", name)
	}
	return strconv.Atoi(g.Gid)
}

// openFolder opens the folder of a socket, made 0750 where there is none.
func openFolder(path string, gid int) (*os.File, error) {
	made := false
	if err := os.Mkdir(path, 0o750); err == nil {
		made = true
	} else if !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%s: %w; make the folder, owned by user %d", path, errno(err), os.Geteuid())
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: want a folder, and no link to one", path, errno(err))
	}
	if made { // the umask may have taken the group's part
		err = errors.Join(f.Chmod(0o750), chown(f, gid))
	}
	var st unix.Stat_t
	if err == nil {
		err = unix.Fstat(int(f.Fd()), &st)
	}
	switch {
	case err != nil:
		err = fmt.Errorf("%s: %w", path, errno(err))
	case st.Mode&0o022 != 0:
		err = fmt.Errorf("%s: others than its owner may write there (mode %#o), and could put their own socket in the place of this one; chmod 0750", path, st.Mode&0o7777)
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		err = fmt.Errorf("%s: belongs to user %d, and this is user %d", path, st.Uid, os.Geteuid())
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func chown(f *os.File, gid int) error {
	if gid < 0 {
		return nil
	}
	if err := f.Chown(-1, gid); err != nil {
		return fmt.Errorf("group %d: %w; user %d must be a member of it", gid, errno(err), os.Geteuid())
	}
	return nil
}

// bindIn makes the socket in dir, which it then owns.
func bindIn(dir *os.File, name string, mode fs.FileMode, gid int) (*socket, error) {
	d := int(dir.Fd())
	// Two processes that find the same stale socket would remove each other's.
	if err := unix.Flock(d, unix.LOCK_EX); err != nil {
		return nil, err
	}
	defer unix.Flock(d, unix.LOCK_UN)
	at := fmt.Sprintf("/proc/self/fd/%d/%s", d, name)
	if err := removeStale(d, name, at); err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), at)
	defer f.Close() // FileListener has its own
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: at}); err != nil {
		return nil, err
	}
	s := &socket{dir: dir, name: name}
	err = unix.Fstatat(d, name, &s.id, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && gid >= 0 {
		if err = unix.Fchownat(d, name, -1, gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			err = fmt.Errorf("group %d: %w; user %d must be a member of it", gid, err, os.Geteuid())
		}
	}
	if err == nil {
		err = unix.Fchmodat(d, name, uint32(mode.Perm()), 0)
	}
	if err == nil {
		err = unix.Listen(fd, unix.SOMAXCONN)
	}
	if err == nil {
		s.Listener, err = net.FileListener(f)
	}
	if err != nil {
		s.unlink()
		return nil, err
	}
	return s, nil
}

// removeStale makes room for a socket: what a process of this user left behind
// and nobody listens on is removed, anything else is not ours to take.
func removeStale(d int, name, at string) error {
	var st unix.Stat_t
	err := unix.Fstatat(d, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return err
	case st.Mode&unix.S_IFMT != unix.S_IFSOCK:
		return errors.New("something that is no socket lies there; remove it, or choose another path")
	case int(st.Uid) != os.Geteuid():
		return fmt.Errorf("a socket of user %d lies there; remove it, or choose another path", st.Uid)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: at}); !errors.Is(err, unix.ECONNREFUSED) {
		return errors.New("another process listens there; end it, or choose another path")
	}
	return unix.Unlinkat(d, name, 0)
}

// unlink removes the socket's file, if it still is the one that bind made.
func (s *socket) unlink() {
	var st unix.Stat_t
	d := int(s.dir.Fd())
	if unix.Fstatat(d, s.name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Ino == s.id.Ino && st.Dev == s.id.Dev {
		unix.Unlinkat(d, s.name, 0) // else it is stale, and the next to bind removes it
	}
}

// Close ends listening and removes the file.
func (s *socket) Close() error {
	err := net.ErrClosed
	s.once.Do(func() {
		s.unlink()
		err = errors.Join(s.Listener.Close(), s.dir.Close())
	})
	return err
}

// errno is the operating system's own word.
func errno(err error) error {
	var e unix.Errno
	if errors.As(err, &e) {
		return e
	}
	return err
}
