package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// Address is where an OTLP/gRPC endpoint is: HOST:PORT or unix:PATH.
type Address struct {
	network string // "tcp" or "unix"
	addr    string
}

// ParseAddress reads HOST:PORT or unix:PATH.
func ParseAddress(s string) (Address, error) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		if rest, ok := strings.CutPrefix(path, "//"); ok {
			path = rest
		}
		if path == "" {
			return Address{}, errors.New("names no socket; write it like unix:/run/wattloop/relay.sock")
		}
		return Address{"unix", path}, nil
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil || host == "" || strings.Contains(s, "/") {
		return Address{}, fmt.Errorf("%q is neither HOST:PORT nor unix:PATH; write it like collector:4317 or unix:/run/wattloop/relay.sock", s)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return Address{}, fmt.Errorf("%q: port %q is no number between 1 and 65535", s, port)
	}
	return Address{"tcp", s}, nil
}

// String is the address as ParseAddress reads it.
func (a Address) String() string {
	if a.network == "unix" {
		return "unix:" + a.addr
	}
	return a.addr
}

// Dial opens a connection; network is "tcp" or "unix".
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// dialNet is Dial by the operating system. A TCP peer that is gone without a
// word is given up after the time that one attempt takes.
func dialNet(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Control: func(network, _ string, c syscall.RawConn) error {
		if network == "unix" {
			return nil
		}
		var err error
		ctl := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(defaultTimeout/time.Millisecond))
		})
		return errors.Join(ctl, err)
	}}
	return d.DialContext(ctx, network, address)
}

// connect prepares a connection of its own to a; it is opened by the first
// call. No resolver, proxy or service configuration has a part in where it leads.
func connect(a Address, dial Dial) (*grpc.ClientConn, error) {
	if dial == nil {
		dial = dialNet
	}
	authority := a.addr
	if a.network == "unix" {
		authority = "localhost"
	}
	return grpc.NewClient("passthrough:///"+a.addr,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return dial(ctx, a.network, a.addr)
		}),
		grpc.WithAuthority(authority),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: 500 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second,
			},
			MinConnectTimeout: 5 * time.Second,
		}),
	)
}
