package listen

import (
	"context"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// reliability.md section 2, "Slowloris, idle conns": 5,000 connections that begin a
// request, or say nothing, and wait. No channel lets in more than it may have, and
// who sends on another is answered as if they were not there.
func TestSlowConnections(t *testing.T) {
	each := 2500
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	if files.Cur < 8192 {
		each = int(files.Cur) / 4
	}
	// What waits to be let in waits in the kernel, where there is room for so many.
	if text, err := os.ReadFile("/proc/sys/net/core/somaxconn"); err == nil {
		if room, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			each = min(each, room)
		}
	}
	b := newBed(t, nil)
	for _, name := range []string{"slow1", "slow2", "honest"} {
		b.define(name)
	}
	descriptors := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	honest := b.activate("honest", "honest")
	hc, url := client(t, honest.Listen[0])
	_, rpc := dial(t, honest.Listen[0])
	send := func() {
		t.Helper()
		if code, err := b.post(hc, url, 1); code != http.StatusOK {
			t.Fatalf("HTTP: %d, %v", code, err)
		}
		if _, err := rpc.Export(context.Background(), b.request(1)); err != nil {
			t.Fatalf("gRPC: %v", err)
		}
	}
	send()
	before, held := descriptors(), 0
	for _, name := range []string{"slow1", "slow2"} {
		a := b.activate(name, name).Listen[0]
		for i := range each {
			c, err := net.Dial(a.Network, a.Addr)
			if err != nil {
				t.Fatalf("connection %d: %v", i, err)
			}
			defer c.Close()
			held++
			if i%2 == 0 {
				if _, err := c.Write([]byte("POST /v1/metrics HTTP/1.1\r\nHost: localhost\r\n")); err != nil {
					t.Fatal(err)
				}
			}
			if i%50 == 0 {
				send()
			}
		}
	}
	const most = 256
	if n := descriptors() - before - held; n > 2*(most+2) {
		t.Errorf("%d connections are let in; want at most %d on each of two channels", n, most)
	}
	sent := 1 + 2*((each+49)/50)
	if got := b.work("honest"); got != float64(2*sent) {
		t.Errorf("honest has %g; want %d", got, 2*sent)
	}
	t.Logf("%d slow connections, %d requests beside them", held, 2*sent)
}
