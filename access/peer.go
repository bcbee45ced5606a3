package access

import (
	"fmt"
	"net"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// PeerAddr is the own end of a connection over a unix socket, which knows who is
// at the other: as it was when they connected (SO_PEERCRED, unix(7)).
type PeerAddr struct {
	net.Addr
	Known  bool // false: the system did not say
	UID    uint32
	GID    uint32
	Groups []uint32 // the others that the peer is in (SO_PEERGROUPS)
}

// Listen returns l, a unix socket, with connections whose LocalAddr is a
// *PeerAddr. A wrapper that hides the connection must lie outside of it.
func Listen(l net.Listener) net.Listener { return peerListener{l} }

type peerListener struct{ net.Listener }

func (l peerListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return peerConn{c, peerOf(c)}, nil
}

// SetDeadline ends an Accept that waits, as that of *net.UnixListener does.
func (l peerListener) SetDeadline(t time.Time) error {
	d, ok := l.Listener.(interface{ SetDeadline(time.Time) error })
	if !ok {
		return fmt.Errorf("access: %T has no deadline", l.Listener)
	}
	return d.SetDeadline(t)
}

type peerConn struct {
	net.Conn
	addr *PeerAddr
}

func (c peerConn) LocalAddr() net.Addr { return c.addr }

func peerOf(c net.Conn) *PeerAddr {
	a := &PeerAddr{Addr: c.LocalAddr()}
	sc, ok := c.(syscall.Conn)
	if !ok {
		return a
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return a
	}
	_ = raw.Control(func(fd uintptr) { // a connection that is gone is not known
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			return
		}
		a.Known, a.UID, a.GID, a.Groups = true, cred.Uid, cred.Gid, peerGroups(fd)
	})
	return a
}

// peerGroups are none where the kernel does not tell (before 4.13).
func peerGroups(fd uintptr) []uint32 {
	const most = 65536 // NGROUPS_MAX
	for n := 32; n <= most; n *= 2 {
		groups := make([]uint32, n)
		size := uint32(4 * n)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch errno {
		case 0:
			return groups[:size/4]
		case unix.ERANGE:
			continue
		}
		return nil
	}
	return nil
}

func (p *Peer) matches(a *PeerAddr) bool {
	if p.UID != nil && *p.UID != a.UID {
		return false
	}
	return p.GID == nil || *p.GID == a.GID || slices.Contains(a.Groups, *p.GID)
}
