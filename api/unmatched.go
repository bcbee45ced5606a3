package api

import (
	"fmt"
	"net/http"
	"strings"
)

// answerUnmatched answers in the API's own words what no route takes: Go's mux
// would answer it as text.
func answerUnmatched(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, pattern := mux.Handler(r)
		if pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		v := verdict{header: http.Header{}}
		h.ServeHTTP(&v, r)
		switch v.code {
		case http.StatusMethodNotAllowed:
			allow := v.header.Get("Allow")
			w.Header().Set("Allow", allow)
			failCoded(w, v.code, fmt.Errorf("%.20s is not taken at %.200s; send %s", r.Method, r.URL.Path, strings.ReplaceAll(allow, ", ", " or ")))
		case http.StatusNotFound:
			failCoded(w, v.code, fmt.Errorf("there is no %.200s; GET / names the routes", r.URL.Path))
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// verdict keeps the status and the headers of an answer, and drops its text.
type verdict struct {
	header http.Header
	code   int
}

func (v *verdict) Header() http.Header { return v.header }
func (v *verdict) WriteHeader(code int) {
	if v.code == 0 {
		v.code = code
	}
}
func (v *verdict) Write(b []byte) (int, error) {
	v.WriteHeader(http.StatusOK)
	return len(b), nil
}
