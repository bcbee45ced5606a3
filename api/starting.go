package api

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// errStarting is what is said of everything that needs the store.
var errStarting = &QueryError{Type: "unavailable", Err: errors.New("wattloop is starting: its store is still being read; ask again")}

// Starting serves every route of Handler, to whom it serves them, before there is
// a store: the process is healthy and not ready, and what asks for more is to come
// again in 5 s (503). Of the options it needs Door, Metrics and Ingest.
func Starting(o Options) http.Handler {
	a := &api{o}
	routes := a.routes()
	for i, r := range routes {
		switch path := r.pattern[strings.Index(r.pattern, "/"):]; {
		case path == "/-/healthy", path == "/metrics", strings.HasPrefix(path, ingestPath):
		default:
			routes[i].handler = http.HandlerFunc(starting)
		}
	}
	return a.serve(routes)
}

func starting(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Retry-After", "5")
	if strings.HasPrefix(r.URL.Path, "/-/") {
		http.Error(w, fmt.Sprint("wattloop is not ready: ", errStarting), http.StatusServiceUnavailable)
		return
	}
	fail(w, errStarting)
}
