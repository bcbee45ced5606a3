package access

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	tokenA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	tokenB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

func id(n uint32) *uint32 { return &n }

// What is no credential is refused before anything goes by it, in words without
// the token; the Guard decides as before.
func TestCredentialsThatAreRefused(t *testing.T) {
	g, err := NewGuard(Config{Credentials: []Credential{{Roles: []Role{Read}, Token: tokenA}}})
	if err != nil {
		t.Fatal(err)
	}
	f := func(want string, cs ...Credential) {
		t.Helper()
		err := g.Replace(Config{Credentials: cs, Users: []string{"alice"}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
			return
		}
		for _, c := range cs {
			if c.Token != "" && strings.Contains(err.Error(), c.Token) {
				t.Errorf("the error has the token: %v", err)
			}
		}
	}
	f("entry 1: the token has 31 characters: want at least 32", Credential{Roles: []Role{Push}, Token: tokenA[1:]})
	f("characters that a header cannot carry", Credential{Roles: []Role{Push}, Token: tokenA[1:] + "ä"})
	f("characters that a header cannot carry", Credential{Roles: []Role{Push}, Token: tokenA + " " + tokenB})
	f("entry 2: the token stands in an earlier entry already", Credential{Roles: []Role{Push}, Token: tokenB}, Credential{Roles: []Role{Read}, Token: tokenB})
	f("has no role", Credential{Token: tokenB})
	f(`role "root": want push, read, admin or actuate`, Credential{Roles: []Role{"root"}, Token: tokenB})
	f(`role "anyone"`, Credential{Roles: []Role{Anyone}, Token: tokenB})
	f("want one of token, token_file, user and peer", Credential{Roles: []Role{Push}})
	f("want one of token, token_file, user and peer", Credential{Roles: []Role{Push}, Token: tokenB, User: "alice"})
	f("user bob: the web.config_file has no user of that name", Credential{Roles: []Role{Push}, User: "bob"})
	f("peer: want uid, gid, user or group", Credential{Roles: []Role{Push}, Peer: &Peer{}})

	if c := g.Caller(nil, []string{"Bearer " + tokenA}); !c.roles.has(Read) {
		t.Error("after a refused change the credential from before is gone")
	}
}

// A token is taken whole and as it is, by a scheme in any case, once.
func TestAuthorization(t *testing.T) {
	g, err := NewGuard(Config{Credentials: []Credential{{Roles: []Role{Read}, Token: tokenA}, {Roles: []Role{Push, Admin}, Token: tokenB}}})
	if err != nil {
		t.Fatal(err)
	}
	f := func(want string, sent ...string) {
		t.Helper()
		c := g.Caller(nil, sent)
		if got := c.roles.String(); got != want || c.wrong != (want == "no role" && len(sent) > 0) {
			t.Errorf("%q: %s, wrong %v; want %s", sent, got, c.wrong, want)
		}
	}
	f("no role")
	f("read", "Bearer "+tokenA)
	f("read", "bEARER   "+tokenA+" ")
	f("admin, push", "Bearer "+tokenB)
	f("no role", tokenA)
	f("no role", "")
	f("no role", "Bearer")
	f("no role", "Bearer "+tokenA+"a")
	f("no role", "Bearer "+tokenA[1:])
	f("no role", "Bearer "+strings.ToUpper(tokenA))
	f("no role", "Token "+tokenA)
	f("no role", "Bearer "+tokenA, "Bearer "+tokenA)
	f("no role", "Bearer "+tokenA+","+tokenB)
	f("no role", "Basic YWxpY2U6eA==") // there is no web file
}

// Users and the roles that they get without being named.
func TestUsers(t *testing.T) {
	g, err := NewGuard(Config{
		Users: []string{"alice", "bob"}, Password: func(user, password string) (bool, error) { return password == user+"!", nil },
		Credentials: []Credential{{Roles: []Role{Push}, User: "bob"}, {Roles: []Role{Admin}, User: "bob"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	f := func(user, password, want string) {
		t.Helper()
		r := httptest.NewRequest("GET", "/", nil)
		r.SetBasicAuth(user, password)
		if got := g.Caller(nil, r.Header.Values("Authorization")).roles.String(); got != want {
			t.Errorf("%s: %s; want %s", user, got, want)
		}
	}
	f("alice", "alice!", "read")
	f("bob", "bob!", "admin, push")
	f("carol", "carol!", "read") // whom the file has got since
	f("bob", "alice!", "no role")
	if !g.OverTCP(Read) || !g.OverTCP(Push) || g.OverTCP(Actuate) {
		t.Error("the users' roles are asked for over TCP")
	}
}

// Who is at the other end of a socket is what the kernel says, with all groups.
func TestPeer(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l = Listen(l)
	out, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	in, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	a, ok := in.LocalAddr().(*PeerAddr)
	if !ok || !a.Known || int(a.UID) != os.Getuid() || int(a.GID) != os.Getgid() || a.Network() != "unix" {
		t.Fatalf("the other end is %+v", in.LocalAddr())
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	groups, err := os.Getgroups()
	if err != nil || len(groups) != len(a.Groups) {
		t.Errorf("%s: groups %v, %v; the socket says %v", me.Username, groups, err, a.Groups)
	}

	f := func(p Peer, a PeerAddr, want bool) {
		t.Helper()
		if p.matches(&a) != want {
			t.Errorf("%+v and %+v: %v", p, a, !want)
		}
	}
	f(Peer{UID: id(7)}, PeerAddr{UID: 7}, true)
	f(Peer{UID: id(7)}, PeerAddr{UID: 8}, false)
	f(Peer{GID: id(7)}, PeerAddr{GID: 7}, true)
	f(Peer{GID: id(7)}, PeerAddr{GID: 8, Groups: []uint32{9, 7}}, true)
	f(Peer{GID: id(7)}, PeerAddr{UID: 7, GID: 8}, false)
	f(Peer{UID: id(7), GID: id(8)}, PeerAddr{UID: 7, GID: 8}, true)
	f(Peer{UID: id(7), GID: id(8)}, PeerAddr{UID: 7, GID: 7}, false)
	unknown := (&Guard{}).Caller(&PeerAddr{}, nil)
	if unknown.proven || len(unknown.roles) > 0 {
		t.Errorf("an end that the system says nothing of is %+v", unknown)
	}
}

// A door without anything is shut to everybody, and a role that nobody declared
// is nobody's, root on the socket included.
func TestShut(t *testing.T) {
	here := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}
	root := &PeerAddr{Known: true}
	for _, role := range append(Roles(), "") {
		if (Door{}).Check((*Guard)(nil).Caller(here, nil), role) == nil {
			t.Errorf("%q: the zero Door is open", role)
		}
	}
	d := Door{Open: "", Always: true, Sockets: true}
	if d.Check(d.Guard.Caller(root, nil), "") == nil {
		t.Error("what declares no role is open")
	}
	d = Door{Open: Read}
	for _, local := range []net.Addr{&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}, &net.TCPAddr{}, &net.UnixAddr{Net: "unix"}, nil} {
		if d.Check(d.Guard.Caller(local, nil), Read) == nil {
			t.Errorf("%v: what is open on the loopback is open there too", local)
		}
	}
	if no := d.Check(d.Guard.Caller(here, nil), Read); no != nil {
		t.Errorf("the loopback: %v", no)
	}
}

// Which Host a request may give, and that web.hosts is by name alone.
func TestHosts(t *testing.T) {
	g, err := NewGuard(Config{Hosts: []string{"worker-01.example"}, Credentials: []Credential{{Roles: []Role{Read}, Token: tokenA}}})
	if err != nil {
		t.Fatal(err)
	}
	wide := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7)}
	f := func(host string, want bool, sent ...string) {
		t.Helper()
		if no := g.state().host(g.Caller(wide, sent), host, wide); (no == nil) != want {
			t.Errorf("%s %q: %v", host, sent, no)
		}
	}
	f("worker-01.example:9464", true)
	f("WORKER-01.example", true)
	f("192.0.2.7:9464", true)
	f("[::ffff:192.0.2.7]:9464", true)
	f("localhost", true)
	f("192.0.2.8:9464", false)
	f("evil.worker-01.example", false)
	f("worker-01.example.", false)
	f("", false)
	f("evil.example", true, "Bearer "+tokenA)
	f("evil.example", false, "Bearer "+tokenB)
}

func TestOrigins(t *testing.T) {
	f := func(target, origin string, want bool) {
		t.Helper()
		r := httptest.NewRequest("GET", target, nil)
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		if foreign(r) == want {
			t.Errorf("%s from %q is taken: %v", target, origin, !want)
		}
	}
	f("http://a:1/", "", true)
	f("http://a:1/", "http://a:1", true)
	f("http://a:1/", "https://a:1", true) // behind a proxy that ends TLS
	f("https://a:1/", "https://a:1", true)
	f("https://a:1/", "http://a:1", false) // whoever sits on the wire
	f("http://a:1/", "http://a", false)
	f("http://a:1/", "null", false)
	f("http://a:1/", "http://b:1", false)
	r := httptest.NewRequest("GET", "http://a/", nil)
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	if !foreign(r) {
		t.Error("a cross-site read is taken")
	}
}

// FuzzCaller: whatever is sent, nobody gets a role without the whole token.
func FuzzCaller(f *testing.F) {
	for _, s := range []string{"", "Bearer " + tokenA, "Bearer\t" + tokenA, "Basic Og==", "bearer  ", "Bearer " + tokenA + "\x00"} {
		f.Add(s)
	}
	g, err := NewGuard(Config{Credentials: []Credential{{Roles: []Role{Read}, Token: tokenA}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, sent string) {
		c := g.Caller(nil, []string{sent})
		scheme, rest, _ := strings.Cut(sent, " ")
		if whole := strings.EqualFold(scheme, "bearer") && strings.TrimSpace(rest) == tokenA; whole != slices.Equal(c.roles, set{Read}) {
			t.Errorf("%q has %s", sent, c.roles)
		}
		no := Door{Guard: g}.Check(c, Admin)
		if strings.Contains(fmt.Sprint(no), tokenA) || no.Unauthenticated != c.wrong {
			t.Errorf("%q: %v", sent, no)
		}
	})
}

// The challenge names what would be taken.
func TestChallenge(t *testing.T) {
	g, err := NewGuard(Config{Users: []string{"alice"}, Password: func(string, string) (bool, error) { return false, nil }})
	if err != nil {
		t.Fatal(err)
	}
	for d, want := range map[Door]int{{}: 1, {Guard: g}: 2} {
		h := http.Header{}
		d.challenge(h)
		if got := h.Values("WWW-Authenticate"); len(got) != want || !strings.HasPrefix(got[0], "Bearer ") {
			t.Errorf("challenge %q; want %d", got, want)
		}
	}
}
