package listen

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/wattloop/wattloop/ingest"
)

// Address is where a channel listens: a TCP address or the path of a unix
// socket.
type Address struct {
	Network string // "tcp" or "unix"
	Addr    string // HOST:PORT, or an absolute path
}

// longestSocket is how many bytes the path of a socket may have (unix(7)).
const longestSocket = 107

// ParseAddress reads HOST:PORT, unix:PATH or an absolute path. HOST is an IP
// address or localhost.
func ParseAddress(s string) (Address, error) {
	path, isUnix := strings.CutPrefix(s, "unix:")
	if isUnix || strings.HasPrefix(s, "/") {
		switch {
		case strings.HasPrefix(path, "@"):
			return Address{}, fmt.Errorf("%q: an abstract socket has no permissions; name a path", s)
		case !strings.HasPrefix(path, "/") || filepath.Clean(path) != path || strings.ContainsRune(path, 0):
			return Address{}, fmt.Errorf("%q: want a whole path without . and .., like unix:/run/wattloop/worker-1.sock", s)
		case len(path) > longestSocket:
			return Address{}, fmt.Errorf("%q: %d bytes; a socket's path has at most %d", s, len(path), longestSocket)
		}
		return Address{"unix", path}, nil
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil || strings.Contains(s, "/") {
		return Address{}, fmt.Errorf("%q is no address; write it like 127.0.0.1:4317 or unix:/run/wattloop/worker-1.sock", s)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return Address{}, fmt.Errorf("%q: port %q is no number between 0 and 65535", s, port)
	}
	if host == "localhost" {
		return Address{"tcp", s}, nil
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return Address{}, fmt.Errorf("%q: host %q is no IP address", s, host)
	}
	n, _ := strconv.Atoi(port)
	return Address{"tcp", netip.AddrPortFrom(ip.Unmap(), uint16(n)).String()}, nil
}

// String is a in the form that ParseAddress reads.
func (a Address) String() string {
	if a.Network == "unix" {
		return "unix:" + a.Addr
	}
	return a.Addr
}

// MarshalText implements encoding.TextMarshaler.
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// picks reports whether the system picks the port, so that two may be written
// alike.
func (a Address) picks() bool { return a.Network == "tcp" && strings.HasSuffix(a.Addr, ":0") }

// reach refuses an address that other machines can get to. A workload channel
// may have a link-local one: nobody routes those, and what is sent there is the
// channel's alone, whoever sends it (S2-10).
func (a Address) reach(class ingest.Class) error {
	if a.Network == "unix" {
		return nil
	}
	host, _, _ := net.SplitHostPort(a.Addr) // ParseAddress has read it
	ip, err := netip.ParseAddr(host)
	switch {
	case err != nil, ip.IsLoopback(): // localhost
		return nil
	case class != ingest.Workload:
		return fmt.Errorf("%s is not a loopback address; listening beyond this machine needs TLS and a credential, which a channel does not have", a)
	case ip.IsLinkLocalUnicast():
		return nil
	}
	return fmt.Errorf("%s is neither a loopback nor a link-local address (169.254.0.0/16, fe80::/10)", a)
}

// errNoAddress is a channel that nobody could reach.
var errNoAddress = errors.New("listen: want HOST:PORT or unix:PATH")
