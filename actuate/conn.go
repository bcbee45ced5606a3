package actuate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrMessage is returned by Receive for a packet that is no message: too long,
// no JSON, or JSON of another shape. The connection is still good.
var ErrMessage = errors.New("actuate: not a message")

// maxFiles is how many open files one message carries; the kernel takes 253.
const maxFiles = 128

// Conn is one end of the pair that joins engine and warden. Send may be called
// by several goroutines, Receive by one at a time.
type Conn struct {
	unix *net.UnixConn
	buf  []byte // of Receive; a byte longer than the longest message

	mu sync.Mutex // held while a message is sent
}

// NewConn takes over one end of a SOCK_SEQPACKET pair; f is closed.
func NewConn(f *os.File) (*Conn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("actuate: connection: %w", err)
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, fmt.Errorf("actuate: connection: descriptor is a %T, want a unix socket", c)
	}
	return &Conn{unix: u, buf: make([]byte, MaxMessage+1)}, nil
}

// Send writes one message, with open files beside it. It fails when the other
// end is gone, or has not read for two seconds.
func (c *Conn) Send(m Message, files ...*os.File) error {
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("actuate: %s message: %w", m.Type, err)
	}
	if len(data) > MaxMessage {
		return fmt.Errorf("actuate: %s message: %d bytes, want at most %d", m.Type, len(data), MaxMessage)
	}
	fds, err := descriptors(files)
	if err != nil {
		return fmt.Errorf("actuate: %s message: %w", m.Type, err)
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.unix.SetWriteDeadline(after(sendLimit)); err != nil {
		return fmt.Errorf("actuate: %s message: %w", m.Type, err)
	}
	if _, _, err := c.unix.WriteMsgUnix(data, rights, nil); err != nil {
		return fmt.Errorf("actuate: %s message: %w", m.Type, err)
	}
	return nil
}

// Receive waits for the next message. Files that come with it are dropped by
// the kernel, so that nobody can fill the table of descriptors. It returns
// io.EOF when the other end is gone.
func (c *Conn) Receive() (Message, error) {
	m, _, err := c.receive(nil)
	return m, err
}

// ReceiveFiles is Receive, and returns the open files that came with the
// message; the caller closes them.
func (c *Conn) ReceiveFiles() (Message, []*os.File, error) {
	return c.receive(make([]byte, unix.CmsgSpace(4*maxFiles)))
}

// Close ends the connection; a Receive that waits returns.
func (c *Conn) Close() error { return c.unix.Close() }

func (c *Conn) receive(rights []byte) (m Message, files []*os.File, err error) {
	n, rn, flags, _, err := c.unix.ReadMsgUnix(c.buf, rights)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(err, syscall.ECONNRESET):
		return m, nil, io.EOF
	case err != nil:
		return m, nil, fmt.Errorf("actuate: receive: %w", err)
	}
	files, err = openFiles(rights[:rn])
	if err != nil {
		return m, nil, fmt.Errorf("actuate: receive: %w", err)
	}
	defer func() {
		if err != nil {
			closeAll(files)
			files = nil
		}
	}()
	if n > MaxMessage || flags&unix.MSG_TRUNC != 0 {
		return m, files, fmt.Errorf("%w: longer than %d bytes", ErrMessage, MaxMessage)
	}
	if err := json.Unmarshal(c.buf[:n], &m); err != nil {
		return Message{}, files, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	return m, files, nil
}

// descriptors returns the numbers of the files without taking them from the
// runtime's poller, as Fd would.
func descriptors(files []*os.File) ([]int, error) {
	fds := make([]int, 0, len(files))
	for _, f := range files {
		raw, err := f.SyscallConn()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		if err := raw.Control(func(fd uintptr) { fds = append(fds, int(fd)) }); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
	}
	return fds, nil
}

func openFiles(rights []byte) ([]*os.File, error) {
	if len(rights) == 0 {
		return nil, nil
	}
	parts, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for _, p := range parts {
		fds, err := unix.ParseUnixRights(&p)
		if err != nil {
			continue // another kind of control message carries no descriptor
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "meter"))
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
