package ingest_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattloop/wattloop/ingest"
)

// onSocket is a connection as a unix socket has it.
type onSocket struct{ net.Conn }

func (onSocket) LocalAddr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }

// pipes is a listener in memory, so that time can be synctest's.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newPipes() *pipes {
	return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

// dial returns the client's end of a new connection.
func (p *pipes) dial() net.Conn {
	client, pipe := net.Pipe()
	server := onSocket{pipe}
	p.conns <- server
	return client
}

// 256 connections are open at most; the next is taken when one ends.
func TestLimitListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		l := ingest.LimitListener(p)
		accepted := make(chan net.Conn, 300)
		ended := make(chan error, 1)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					ended <- err
					return
				}
				accepted <- c
			}
		}()
		for range 256 {
			p.dial()
		}
		go p.dial()
		synctest.Wait()
		if n := len(accepted); n != 256 {
			t.Fatalf("%d connections; want 256", n)
		}
		first := <-accepted
		for range 2 { // closing twice frees one place
			if err := first.Close(); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		if n := len(accepted); n != 256 {
			t.Errorf("%d connections after one ended; want 256", n)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept after Close: %v; want net.ErrClosed", err)
		}
	})
}

// reliability.md section 2, "Slowloris": a client that is slow on purpose is let go: 5 s for the headers, 15 s for the
// whole request, 60 s of silence.
func TestSlowClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		web := ingest.NewServer(ingest.NewReceiver(ingest.Options{}).Channel("default").Live()).HTTP()
		done := make(chan error, 1)
		go func() { done <- web.Serve(p) }()

		f := func(name, send, want string, within time.Duration) {
			t.Helper()
			conn := p.dial()
			defer conn.Close()
			start := time.Now()
			go func() { _, _ = io.WriteString(conn, send) }()
			got, _ := io.ReadAll(bufio.NewReader(conn))
			if passed := time.Since(start); passed.Truncate(time.Second) != within {
				t.Errorf("%s: let go after %v; want %v", name, passed, within)
			}
			if line, _, _ := strings.Cut(string(got), "\r\n"); line != want {
				t.Errorf("%s: %q; want %q", name, line, want)
			}
		}
		f("no headers", "", "", 5*time.Second)
		f("half of the headers", "POST /v1/metrics HTTP/1.1\r\nHost: localhost\r\n", "", 5*time.Second)
		f("half of the body", "POST /v1/metrics HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\nContent-Length: 100\r\n\r\nabc",
			"HTTP/1.1 503 Service Unavailable", 15*time.Second)
		f("nothing more", "POST /v1/nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n",
			"HTTP/1.1 404 Not Found", 60*time.Second)
		f("huge headers", "POST /v1/metrics HTTP/1.1\r\nHost: "+strings.Repeat("a", 40<<10)+"\r\n\r\n",
			"HTTP/1.1 431 Request Header Fields Too Large", 0)

		if err := web.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}
