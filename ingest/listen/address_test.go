package listen

import (
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseAddress(t *testing.T) {
	f := func(in, want, wantErr string) {
		t.Helper()
		a, err := ParseAddress(in)
		switch {
		case wantErr != "":
			if err == nil || !strings.Contains(err.Error(), wantErr) {
				t.Errorf("%q: %v, %v; want %q", in, a, err, wantErr)
			}
		case err != nil || a.String() != want:
			t.Errorf("%q: %q, %v; want %q", in, a, err, want)
		}
	}
	f("127.0.0.1:4317", "127.0.0.1:4317", "")
	f("127.0.0.1:04317", "127.0.0.1:4317", "")
	f("[::1]:1", "[::1]:1", "")
	f("[::ffff:127.0.0.1]:1", "127.0.0.1:1", "")
	f("[fe80::1%eth0]:4317", "[fe80::1%eth0]:4317", "")
	f("localhost:1", "localhost:1", "")
	f("unix:/run/a.sock", "unix:/run/a.sock", "")
	f("/run/a.sock", "unix:/run/a.sock", "")
	f("", "", "is no address")
	f("127.0.0.1", "", "is no address")
	f("http://x", "", `"http://x" is no address; write it like 127.0.0.1:4317`)
	f(":4317", "", "no IP address")
	f("example.com:1", "", "no IP address")
	f("127.0.0.1:70000", "", "no number between")
	f("127.0.0.1:http", "", "no number between")
	f("unix:", "", "want a whole path")
	f("unix:a.sock", "", "want a whole path")
	f("unix:@a", "", "an abstract socket has no permissions")
	f("/run/../a.sock", "", "want a whole path")
	f("/run/a\x00.sock", "", "want a whole path")
	f("/"+strings.Repeat("x", 107), "", "108 bytes; a socket's path has at most 107")
}

// FuzzParseAddress: what is taken is written as it is read again, and is either
// a path without tricks or an address of this machine's or of its links.
func FuzzParseAddress(f *testing.F) {
	for _, s := range []string{"127.0.0.1:4317", "[fe80::1%eth0]:4317", "unix:/run/a.sock", "/a/../b", "unix:@a", "localhost:1", "[::]:1", "169.254.17.1:04317", "unix://a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAddress(s)
		if err != nil {
			return
		}
		if again, err := ParseAddress(a.String()); err != nil || again != a {
			t.Fatalf("%q: %v, then %v, %v", s, a, again, err)
		}
		if a.Network == "unix" && (!filepath.IsAbs(a.Addr) || filepath.Clean(a.Addr) != a.Addr || len(a.Addr) > longestSocket) {
			t.Fatalf("%q: path %q", s, a.Addr)
		}
		spec := Spec{Name: "w", Listen: []Address{a}}
		if spec.Check() == nil && a.Network == "tcp" {
			host, _, _ := net.SplitHostPort(a.Addr)
			if ip, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !ip.IsLoopback() && !ip.IsLinkLocalUnicast()) {
				t.Fatalf("%q: %s can be reached from elsewhere", s, a)
			}
		}
	})
}
