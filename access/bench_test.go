package access

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// BenchmarkDoor is what each request pays before it is let in.
func BenchmarkDoor(b *testing.B) {
	g, err := NewGuard(Config{Credentials: []Credential{{Roles: []Role{Read}, Token: tokenA}, {Roles: []Role{Push}, Token: tokenB}}})
	if err != nil {
		b.Fatal(err)
	}
	refuse := func(http.ResponseWriter, *http.Request, *Refusal) { b.Fatal("refused") }
	fine := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for _, bb := range []struct {
		name, sent string
		door       Door
	}{{"open", "", Door{Open: Push}}, {"token", "Bearer " + tokenB, Door{Guard: g, Open: Push}}} {
		h := bb.door.HTTP(bb.door.Need(Push, fine, refuse), refuse)
		r := httptest.NewRequest("POST", "http://127.0.0.1:4318/v1/metrics", nil)
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}))
		if bb.sent != "" {
			r.Header.Set("Authorization", bb.sent)
		}
		w := httptest.NewRecorder()
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(w, r)
			}
		})
	}
}
