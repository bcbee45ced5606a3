package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/wattloop/wattloop/access"
)

// listeners are the open doors of the engine.
type listeners struct {
	web, grpc, http, socket net.Listener
}

// listen opens every door or none. A port in use is exit code 3.
func (c *config) listen() (*listeners, error) {
	l := &listeners{}
	for _, d := range []struct {
		to        *net.Listener
		key, addr string
	}{{&l.web, "web.listen", c.WebListen}, {&l.grpc, "otlp.grpc.listen", c.GRPCListen}, {&l.http, "otlp.http.listen", c.HTTPListen}} {
		if d.addr == "" {
			continue
		}
		got, err := net.Listen("tcp", d.addr)
		if err != nil {
			l.close()
			return nil, withCode(exitCannot, fmt.Errorf("%s: %s: %w; choose another with --%s-address, port 0 picks one", d.key, d.addr, bare(err), d.key))
		}
		*d.to = got
	}
	if c.APISocket != "" {
		got, err := listenSocket(c.APISocket, c.Access.hasPeer())
		if err != nil {
			l.close()
			return nil, withCode(exitCannot, fmt.Errorf("api.socket: %w", err))
		}
		l.socket = got
	}
	return l, nil
}

// bare is the operating system's own word, without the call and the place that
// the message around it names already.
func bare(err error) error {
	var errno syscall.Errno
	var ue *url.Error
	switch {
	case errors.As(err, &errno):
		return errno
	case errors.As(err, &ue):
		return ue.Err
	}
	return err
}

// listenSocket makes the command line's socket, 0600, or with peers 0666: then
// the kernel says of each connection whose it is, and the guard decides. A stale
// one, which nobody answers on, is removed; a live one is not ours to take.
func listenSocket(path string, peers bool) (net.Listener, error) {
	const longest = 107 // bytes in a unix socket's address (unix(7))
	if len(path) > longest {
		return nil, fmt.Errorf("%s: %d bytes, a socket's path has at most %d; name a shorter one with --api.socket", path, len(path), longest)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, err
	}
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		conn.Close()
		return nil, fmt.Errorf("%s: another wattloop answers there; give this one its own --run.path or --api.socket", path)
	}
	if st, err := os.Lstat(path); err == nil && st.Mode()&os.ModeSocket != 0 {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	old := syscall.Umask(int(0o777 &^ socketMode(peers)))
	defer syscall.Umask(old)
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, bare(err))
	}
	return access.Listen(l), nil
}

func socketMode(peers bool) os.FileMode {
	if peers {
		return 0o666
	}
	return 0o600
}

// announce prints each chosen address on a line of its own.
func (l *listeners) announce(w io.Writer) {
	for _, d := range []struct {
		name string
		l    net.Listener
	}{{"web", l.web}, {"otlp-grpc", l.grpc}, {"otlp-http", l.http}} {
		if d.l != nil {
			fmt.Fprintf(w, "listening on %s=%s\n", d.name, d.l.Addr())
		}
	}
}

// otlp are the addresses of the default channel.
func (l *listeners) otlp() []string {
	out := []string{}
	for _, d := range []net.Listener{l.grpc, l.http} {
		if d != nil {
			out = append(out, d.Addr().String())
		}
	}
	return out
}

func (l *listeners) close() {
	for _, x := range []net.Listener{l.web, l.grpc, l.http, l.socket} {
		if x != nil {
			x.Close()
		}
	}
}

// with are the same doors, each that is there wrapped.
func (l *listeners) with(wrap func(net.Listener) net.Listener) *listeners {
	out := *l
	for _, x := range []*net.Listener{&out.web, &out.grpc, &out.http, &out.socket} {
		if *x != nil {
			*x = wrap(*x)
		}
	}
	return &out
}
