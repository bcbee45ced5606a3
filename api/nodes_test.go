package api

import (
	"errors"
	"strings"
	"testing"

	"github.com/wattloop/wattloop/twin"
)

// S0-187: what is put goes to the node of the path, whole; errors have their word.
func TestNodes(t *testing.T) {
	f := func(method, target, body string, err error, code int, want string) {
		t.Helper()
		var node, got string
		o := options()
		o.Nodes.PutSpec = func(n string, b []byte) (twin.Twin, error) {
			node, got = n, string(b)
			return twin.Twin{Kind: "NodeTwin"}, err
		}
		o.Nodes.DeleteSpec = func(n string) (twin.Twin, error) { node = n; return twin.Twin{Kind: "NodeTwin"}, err }
		w := overSocket(o, method, target, body)
		if w.Code != code || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s %s: %d %s; want %d %s", method, target, w.Code, w.Body, code, want)
		}
		if code == 200 && method != "GET" && (node != "w1" || got != body) {
			t.Errorf("%s %s: node %q, %q", method, target, node, got)
		}
		if code == 413 && got != "" {
			t.Errorf("%s %s: passed on", method, target)
		}
	}
	const spec = "/api/v1/nodes/w1/twin/spec"
	f("PUT", spec, "nodeName: w1", nil, 200, `"kind":"NodeTwin"`)
	f("DELETE", spec, "", nil, 200, `"kind":"NodeTwin"`)
	f("PUT", spec, "x", &CodedError{422, &twin.SpecError{Line: 1, Col: 1, Text: "want keys"}}, 422, `"errorType":"bad_data","error":"line 1, column 1: want keys"`)
	f("PUT", spec, "x", &CodedError{409, twin.ErrWatched}, 409, `"errorType":"conflict"`)
	f("DELETE", spec, "", &CodedError{404, errors.New("x")}, 404, `"errorType":"not_found"`)
	f("DELETE", spec, "", errors.New("disk"), 500, `"errorType":"internal"`)
	f("PUT", spec, strings.Repeat("x", twin.MaxSpec+1), nil, 413, "more than 65536 bytes")
	f("GET", "/api/v1/nodes/w1/twin", "", nil, 200, `"status"`)
	f("GET", "/api/v1/nodes/w1/hardware", "", nil, 200, `"status"`)
	f("GET", "/api/v1/nodes/w2/twin", "", nil, 404, `"errorType":"not_found","error":"node w2: `)
	f("GET", "/api/v1/nodes/w2/hardware", "", nil, 404, `"errorType":"not_found","error":"node w2 is not this machine`)
	for _, bad := range []string{"", "..", "..%2f", "a%2fb", "a/b", "-a", "a.", "a%00", "a%20b", "%ff", strings.Repeat("a", 254)} {
		f("PUT", "/api/v1/nodes/"+bad+"/twin/spec", "x", nil, 400, "the name of a node is")
		f("GET", "/api/v1/nodes/"+bad+"/twin", "", nil, 400, "the name of a node is")
	}
	f("GET", "/api/v1/nodes/"+strings.Repeat("a", 253)+"/twin", "", nil, 404, "not_found")
	f("GET", "/api/v1/nodes/w1/twins", "", nil, 400, "the name of a node is")
}
