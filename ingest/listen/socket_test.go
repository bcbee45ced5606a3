package listen

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// connectVar names a socket to connect to, for this program run as another user.
const connectVar = "WATTLOOP_TEST_CONNECT"

func TestMain(m *testing.M) {
	if path := os.Getenv(connectVar); path != "" {
		c, err := net.Dial("unix", path)
		switch {
		case err == nil:
			c.Close()
			os.Exit(10)
		case errors.Is(err, fs.ErrPermission):
			os.Exit(11)
		}
		os.Exit(12)
	}
	os.Exit(m.Run())
}

// reliability.md, unix socket permissions: the folder is made 0750, the socket has
// its mode and group whatever the umask is, and goes with the listener.
func TestSocketModeAndGroup(t *testing.T) {
	root := t.TempDir()
	gid := os.Getegid()
	group := ""
	if os.Geteuid() == 0 {
		gid, group = 12345, "12345"
	}
	for i, umask := range []int{0, 0o022, 0o077, 0o777} {
		path := filepath.Join(root, "d"+string(rune('0'+i)), "w.sock")
		old := syscall.Umask(umask)
		l, err := listenUnix(path, 0o620, group)
		syscall.Umask(old)
		if err != nil {
			t.Fatalf("umask %#o: %v", umask, err)
		}
		for p, want := range map[string]fs.FileMode{path: 0o620 | fs.ModeSocket, filepath.Dir(path): 0o750 | fs.ModeDir} {
			st, err := os.Lstat(p)
			if err != nil {
				t.Fatal(err)
			}
			if got := int(st.Sys().(*syscall.Stat_t).Gid); st.Mode() != want || got != gid {
				t.Errorf("umask %#o: %s is %s of group %d; want %s of %d", umask, p, st.Mode(), got, want, gid)
			}
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("the second Close: %v", err)
		}
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("after Close: %v", err)
		}
	}
	_, err := listenUnix(filepath.Join(root, "g", "w.sock"), 0o660, "no such group")
	want(t, err, nil, "group no such group: there is none of that name")
}

// Another user than the owner and the group gets EACCES, by the folder and by the
// socket itself.
func TestSocketOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be another user")
	}
	root, err := os.MkdirTemp("", "wattloop-socket")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(root)
	exe := filepath.Join(root, "test")
	b, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = errors.Join(os.WriteFile(exe, b, 0o755), os.Chmod(root, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	connect := func(path string, uid, gid uint32) int {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), connectVar+"="+path)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
		var ee *exec.ExitError
		if err := cmd.Run(); !errors.As(err, &ee) {
			t.Fatal(err)
		}
		return ee.ExitCode()
	}
	path := filepath.Join(root, "d", "w.sock")
	l, err := listenUnix(path, 0o660, "12345")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const connected, denied = 10, 11
	if got := connect(path, 23456, 23456); got != denied {
		t.Errorf("another user: %d; want EACCES", got)
	}
	if got := connect(path, 23456, 12345); got != connected {
		t.Errorf("of the group: %d; want a connection", got)
	}
	if err := os.Chmod(filepath.Dir(path), 0o755); err != nil { // the socket's own mode must do alone
		t.Fatal(err)
	}
	if got := connect(path, 23456, 23456); got != denied {
		t.Errorf("another user, in an open folder: %d; want EACCES", got)
	}
}

// What is there already is taken only when it is certainly a leftover.
func TestSocketPlaces(t *testing.T) {
	root := t.TempDir()
	f := func(name, wantErr string, prepare func(dir, path string) error) {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(root, strings.ReplaceAll(name, " ", "-"))
			path := filepath.Join(dir, "w.sock")
			if err := prepare(dir, path); err != nil {
				t.Fatal(err)
			}
			l, err := listenUnix(path, 0o660, "")
			if wantErr != "" {
				want(t, err, nil, wantErr)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			c, err := net.Dial("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			c.Close()
			l.Close()
		})
	}
	mkdir := func(mode fs.FileMode) func(string, string) error {
		return func(dir, _ string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, mode)) }
	}
	bind := func(path string) (net.Listener, error) {
		l, err := net.Listen("unix", path)
		if err == nil {
			l.(*net.UnixListener).SetUnlinkOnClose(false)
		}
		return l, err
	}
	f("nothing", "", func(string, string) error { return nil })
	f("a folder", "", mkdir(0o700))
	f("a folder that the group may write", "others than its owner may write there", mkdir(0o770))
	f("a folder that all may write", "chmod 0750", mkdir(0o1777))
	f("a link to a folder", "want a folder, and no link to one", func(dir, _ string) error {
		return errors.Join(os.Mkdir(dir+".real", 0o700), os.Symlink(dir+".real", dir))
	})
	f("a file in the place of the folder", "want a folder", func(dir, _ string) error { return os.WriteFile(dir, nil, 0o600) })
	f("a file", "something that is no socket lies there", func(dir, path string) error {
		return errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(path, nil, 0o600))
	})
	f("a link", "something that is no socket lies there", func(dir, path string) error {
		return errors.Join(os.Mkdir(dir, 0o700), os.Symlink("/nonexistent", path))
	})
	f("a stale socket", "", func(dir, path string) error {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		l, err := bind(path)
		if err != nil {
			return err
		}
		return l.Close()
	})
	f("a live socket", "another process listens there", func(dir, path string) error {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		l, err := bind(path)
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	})
	if os.Geteuid() == 0 {
		f("a stale socket of another user", "a socket of user 23456 lies there", func(dir, path string) error {
			if err := os.Mkdir(dir, 0o700); err != nil {
				return err
			}
			l, err := bind(path)
			if err != nil {
				return err
			}
			return errors.Join(l.Close(), os.Lchown(path, 23456, -1))
		})
		f("a folder of another user", "belongs to user 23456", func(dir, _ string) error {
			return errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, 23456, -1))
		})
	}
	t.Run("no parent", func(t *testing.T) {
		_, err := listenUnix(filepath.Join(root, "a", "b", "w.sock"), 0o660, "")
		want(t, err, nil, "no such file or directory; make the folder, owned by user")
	})
}

// reliability.md: a symlink race and a pre-bind race, a thousand times. Whoever
// may change the folders above swaps the socket's folder for a link to his own,
// where he listens, and binds in it first. Nothing of ours is ever bound in his
// folder, and an activation that succeeds was reached at its own path.
func TestSocketRaces(t *testing.T) {
	tries := 1000
	if testing.Short() {
		tries = 200
	}
	root := t.TempDir()
	dir, evil := filepath.Join(root, "d"), filepath.Join(root, "evil")
	path := filepath.Join(dir, "w.sock")
	for _, d := range []string{dir, evil} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	his, err := net.Listen("unix", filepath.Join(evil, "w.sock"))
	if err != nil {
		t.Fatal(err)
	}
	go func() { // he takes connections and answers none
		for {
			c, err := his.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	inode := func() uint64 {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(evil, "w.sock"), &st); err != nil {
			t.Fatal(err)
		}
		return st.Ino
	}
	b := newBed(t, func(o *Options) { o.Patience, o.Grace = time.Second, 10*time.Millisecond })
	b.define("w1", path)
	before := inode()
	stop := make(chan struct{})
	var attacker sync.WaitGroup
	attacker.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			os.Rename(dir, dir+".aside")
			os.Symlink(evil, dir)
			os.Remove(dir)
			os.Rename(dir+".aside", dir)
			if l, err := net.Listen("unix", path); err == nil {
				l.Close()
			}
		}
	})
	ok := 0
	for range tries {
		_, _, err := b.m.Activate(context.Background(), "w1", nil, Activation{Identity: who("a")})
		if err != nil {
			if s := b.m.States()[0]; s.Live {
				t.Fatalf("live after %v", err)
			}
		} else {
			ok++
			b.end("w1")
		}
		if got := inode(); got != before {
			t.Fatalf("the socket in the other's folder is inode %d; want %d", got, before)
		}
	}
	close(stop)
	attacker.Wait()
	his.Close()
	t.Logf("%d activations succeeded, %d failed", ok, tries-ok)
	os.Remove(path)
	b.activate("w1", "a") // and once the attack is over it works
	if got, err := os.ReadDir(evil); err != nil || len(got) > 0 {
		t.Errorf("in the other's folder: %v, %v", got, err)
	}
}
