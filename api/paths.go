package api

import (
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// namedPath is a part of the surface whose paths have a name in them, and what may
// stand there, as reliability asks of every name that a request brings: one
// segment that no file system and no log takes for something else.
type namedPath struct {
	prefix string
	name   *regexp.Regexp
	tails  []string // behind the name
	want   string
}

var nodeNames = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$`)

const wantNode = "the name of a node is 1 to 253 letters, digits, '.', '_' and '-', and begins and ends with a letter or a digit"

var namedPaths = []namedPath{
	{"/api/v1/channels/", regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`), []string{"/prove"},
		"the name of a channel is 1 to 63 letters, digits, '.', '_' and '-', and begins with a letter or a digit"},
	{"/api/v1/nodes/", nodeNames, []string{"/twin/spec", "/twin", "/hardware"}, wantNode},
	{"/otlp/telemetry/", nodeNames, nil, wantNode},
	{"/telemetry/", nodeNames, nil, wantNode},
}

// checkNames refuses a path with a name that is none before the mux could clean it,
// which would make another name of it.
func checkNames(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, n := range namedPaths {
			rest, ok := strings.CutPrefix(r.URL.EscapedPath(), n.prefix)
			if !ok {
				continue
			}
			if i := slices.IndexFunc(n.tails, func(t string) bool { return strings.HasSuffix(rest, t) }); i >= 0 {
				rest = strings.TrimSuffix(rest, n.tails[i])
			}
			if !n.name.MatchString(rest) {
				failCoded(w, http.StatusBadRequest, errors.New(n.want))
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}
