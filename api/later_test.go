package api

import (
	"errors"
	"net/http/httptest"
	"testing"

	"github.com/wattloop/wattloop/access"
)

// P12: a password that cannot be checked now is not called wrong.
func TestPasswordLater(t *testing.T) {
	g, err := access.NewGuard(access.Config{Users: []string{"alice"}, Password: func(string, string) (bool, error) { return false, errors.New("busy") }})
	if err != nil {
		t.Fatal(err)
	}
	h := Handler(Options{Door: access.Door{Guard: g, Open: access.Read}})
	for path, want := range map[string]int{"/metrics": 429, "/-/healthy": 200} {
		r := httptest.NewRequest("GET", "http://localhost"+path, nil)
		r.SetBasicAuth("alice", "one")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want || (w.Header().Get("Retry-After") == "1") != (want == 429) || w.Header().Get("WWW-Authenticate") != "" {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
	}
}
