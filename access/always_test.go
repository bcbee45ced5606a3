package access

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// S2-17, P12: at a door that is always open nobody looks at a credential: what is
// sent as one changes no answer and is compared with nothing.
func TestAlwaysOpenAsksNobody(t *testing.T) {
	asked := 0
	g, err := NewGuard(Config{
		Credentials: []Credential{{Roles: []Role{Push}, Token: tokenA}, {Roles: []Role{Read}, Token: tokenB}},
		Users:       []string{"alice"}, Password: func(string, string) (bool, error) { asked++; return true, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	d := Door{Guard: g, Open: Push, Sockets: true, Always: true}
	local := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4317}
	for _, sent := range [][]string{nil, {""}, {"Bearer " + tokenA}, {"Bearer " + tokenB}, {"Bearer stale"}, {"Basic YWxpY2U6eA=="}, {"x", "y"}} {
		if no := d.Call(Push, local, []string{"127.0.0.1:4317"}, sent); no != nil {
			t.Errorf("gRPC, %q: %v", sent, no)
		}
		if code := alwaysHTTP(d, "127.0.0.1:4317", "", local, sent); code != http.StatusOK {
			t.Errorf("HTTP, %q: %d", sent, code)
		}
		// Nor does a token stand for the name that the request gives.
		if no := d.Call(Push, local, []string{"evil.example"}, sent); no == nil || no.Unauthenticated {
			t.Errorf("gRPC, evil.example, %q: %v", sent, no)
		}
		if code := alwaysHTTP(d, "evil.example", "", local, sent); code != http.StatusForbidden {
			t.Errorf("HTTP, evil.example, %q: %d", sent, code)
		}
	}
	if asked != 0 {
		t.Errorf("%d passwords were checked that nobody asked for", asked)
	}
}

// Behind an address translation the Host is the address that the sender knows:
// where nobody is asked any address is taken, since no name was resolved.
func TestAlwaysOpenTakesAddresses(t *testing.T) {
	local := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 41317}
	f := func(host string, always, shut bool) {
		t.Helper()
		for d, want := range map[Door]bool{{Open: Push, Always: true}: always, {Open: Push}: shut} {
			if no := d.Call(Push, local, []string{host}, nil); (no == nil) != want {
				t.Errorf("gRPC, %q, always %v: %v", host, d.Always, no)
			}
			if code := alwaysHTTP(d, host, "", local, nil); (code == http.StatusOK) != want {
				t.Errorf("HTTP, %q, always %v: %d", host, d.Always, code)
			}
		}
	}
	f("169.254.17.1:4317", true, false)
	f("169.254.17.1", true, false)
	f("[fe80::1]:4317", true, false)
	f("[fe80::1]", true, false)
	f("127.0.0.1:1", true, true)
	f("localhost:1", true, true)
	f("otel.example:4317", false, false)
	f("169.254.17.1.example:4317", false, false)
	f("169.254.17:4317", false, false)
	f("2852000001:4317", false, false)
	f("", false, false)
	d := Door{Open: Push, Always: true}
	for origin, want := range map[string]int{"http://169.254.17.1:4317": http.StatusOK, "http://evil.example": http.StatusForbidden, "null": http.StatusForbidden} {
		if code := alwaysHTTP(d, "169.254.17.1:4317", origin, local, nil); code != want {
			t.Errorf("Origin %q: %d; want %d", origin, code, want)
		}
	}
}

func alwaysHTTP(d Door, host, origin string, local net.Addr, sent []string) int {
	refuse := func(w http.ResponseWriter, _ *http.Request, no *Refusal) {
		w.WriteHeader(map[bool]int{true: http.StatusUnauthorized, false: http.StatusForbidden}[no.Unauthenticated])
	}
	r := httptest.NewRequest("POST", "/v1/metrics", nil)
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, local))
	r.Host = host
	for _, a := range sent {
		r.Header.Add("Authorization", a)
	}
	if origin != "" {
		r.Header.Set("Origin", origin)
	}
	w := httptest.NewRecorder()
	d.HTTP(d.Need(Push, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), refuse), refuse).ServeHTTP(w, r)
	return w.Code
}
