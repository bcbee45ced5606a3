package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/wattloop/wattloop/access"
	"github.com/wattloop/wattloop/api"
	"github.com/wattloop/wattloop/ingest"
)

// matrixRoute is one route of the surface, as the routers have it.
type matrixRoute struct {
	pattern, listener string // listener is web (and the socket) or otlp
	role              access.Role
}

// trial is a request to a route that whoever has its role gets answered with ok.
type trial struct {
	path, body string
	ok         int
}

// trials has every route: one that is not here fails the test.
var trials = map[string]trial{
	"GET /{$}":                              {"/", "", 200},
	"GET /api/v1/query":                     {"/api/v1/query?query=1", "", 200},
	"POST /api/v1/query":                    {"/api/v1/query?query=1", "", 200},
	"GET /api/v1/query_range":               {"/api/v1/query_range?query=1&start=0&end=1&step=1", "", 200},
	"POST /api/v1/query_range":              {"/api/v1/query_range?query=1&start=0&end=1&step=1", "", 200},
	"GET /api/v1/query_exemplars":           {"/api/v1/query_exemplars?query=up&start=0&end=1", "", 200},
	"POST /api/v1/query_exemplars":          {"/api/v1/query_exemplars?query=up&start=0&end=1", "", 200},
	"GET /api/v1/status/wattloop":           {"/api/v1/status/wattloop", "", 200},
	"GET /api/v1/channels":                  {"/api/v1/channels", "", 200},
	"GET /api/v1/channels/{name}":           {"/api/v1/channels/default", "", 200},
	"PUT /api/v1/channels/{name}":           {"/api/v1/channels/none", "{", 400},
	"DELETE /api/v1/channels/{name}":        {"/api/v1/channels/none", "", 404},
	"POST /api/v1/channels/{name}/prove":    {"/api/v1/channels/none/prove", "", 404},
	"GET /api/v1/nodes/{node}/twin":         {"/api/v1/nodes/none/twin", "", 404},
	"PUT /api/v1/nodes/{node}/twin/spec":    {"/api/v1/nodes/none/twin/spec", "{", 404},
	"DELETE /api/v1/nodes/{node}/twin/spec": {"/api/v1/nodes/none/twin/spec", "", 404},
	"GET /api/v1/nodes/{node}/hardware":     {"/api/v1/nodes/none/hardware", "", 404},
	"GET /otlp/telemetry/{node}":            {"/otlp/telemetry/none", "", 404},
	"GET /telemetry/{node}":                 {"/telemetry/none", "", 404},
	"GET /metrics":                          {"/metrics", "", 200},
	"GET /-/healthy":                        {"/-/healthy", "", 200},
	"GET /-/ready":                          {"/-/ready", "", 200},
	"POST /-/reload":                        {"/-/reload", "", 200},
	"POST /api/v1/otlp/v1/metrics":          {"/api/v1/otlp/v1/metrics", "{}", 200},
	"POST /v1/metrics (otlp)":               {"/v1/metrics", "{}", 200},
	"POST /v1/traces (otlp)":                {"/v1/traces", "{}", 200},
	"POST /v1/logs (otlp)":                  {"/v1/logs", "{}", 200},
	"POST /api/v1/otlp/v1/metrics (otlp)":   {"/api/v1/otlp/v1/metrics", "{}", 200},
	"POST /api/v1/otlp/v1/traces (otlp)":    {"/api/v1/otlp/v1/traces", "{}", 200},
	"POST /api/v1/otlp/v1/logs (otlp)":      {"/api/v1/otlp/v1/logs", "{}", 200},
}

// routes are those of both HTTP routers.
func (r *accessRig) routes() []matrixRoute {
	var out []matrixRoute
	for _, route := range api.Routes(api.Options{Ingest: http.NotFoundHandler()}) {
		out = append(out, matrixRoute{route.Pattern, "web", route.Role})
	}
	for _, path := range ingest.Paths() {
		out = append(out, matrixRoute{"POST " + path + " (otlp)", "otlp", access.Push})
	}
	return out
}

// asker is one way to ask: what is sent as Authorization, and what it proves
// where credentials are configured.
type asker struct {
	name, header string
	roles        []access.Role
	token        bool
}

func askers() []asker {
	basic := func(password string) string {
		req, _ := http.NewRequest("GET", "http://x", nil)
		req.SetBasicAuth("alice", password)
		return req.Header.Get("Authorization")
	}
	out := []asker{
		{name: "none"},
		{name: "wrong token", header: "Bearer " + tokenOf("wrong")},
		{name: "a part of a token", header: "Bearer " + tokenOf("read")[:32]},
		{name: "empty token", header: "Bearer "},
		{name: "no scheme", header: tokenOf("admin")},
		{name: "alice", header: basic("wonderland"), roles: []access.Role{access.Read}},
		{name: "not alice", header: basic("looking-glass")},
		{name: "read and admin", header: "bearer " + tokenOf("both"), roles: []access.Role{access.Read, access.Admin}, token: true},
	}
	for _, role := range access.Roles() {
		out = append(out, asker{string(role), "Bearer " + tokenOf(string(role)), []access.Role{role}, true})
	}
	return out
}

const matrixAccess = `access:
  - {role: push, token: push-push-push-push-push-push-pu-token}
  - {role: read, token: read-read-read-read-read-read-re-token}
  - {role: admin, token: admin-admin-admin-admin-admin-ad-token}
  - {role: actuate, token: actuate-actuate-actuate-actuate--token}
  - {roles: [read, admin], token: both-both-both-both-both-both-bo-token}
  - {role: read, peer: {uid: 65534}}
`

// situation is all that the answer hangs on.
type situation struct {
	configured bool   // matrixAccess and alice; else nothing
	secure     bool   // over TLS
	socket     string // "" is TCP; else owner or foreign
	asker      asker
	host       string // "", or one that is not ours
	origin     string // "", own, or one that is not ours
}

// expected is the rule of docs/access.md.
func (s situation) expected(r matrixRoute, ok int) int {
	proves := s.configured && s.asker.roles != nil
	switch {
	case s.origin != "" && s.origin != "own" && (s.secure || s.origin != "http://"+s.host):
		return 403
	case s.socket == "" && s.host != "" && !(proves && s.asker.token):
		return 403
	case r.role == access.Anyone:
		return ok
	case s.asker.header != "" && !proves:
		return 401
	}
	has := map[access.Role]bool{}
	if proves {
		for _, role := range s.asker.roles {
			has[role] = true
		}
	}
	switch s.socket {
	case "owner":
		return ok
	case "foreign":
		has[access.Read] = has[access.Read] || s.configured
	case "":
		open := map[string]access.Role{"web": access.Read, "otlp": access.Push}[r.listener]
		has[open] = has[open] || !s.configured
	}
	switch {
	case has[r.role]:
		return ok
	case proves || s.socket != "":
		return 403
	}
	return 401
}

// P12: every route x who asks x how it comes in. The routes are the routers' own,
// so that a new one fails here until it is in trials, and one whose role is
// wrong or missing fails by its answer.
func TestAccessMatrix(t *testing.T) {
	for _, configured := range []bool{false, true} {
		for _, secure := range []bool{false, true} {
			name := map[bool]string{false: "nothing configured", true: "credentials"}[configured] + map[bool]string{false: "", true: ", TLS"}[secure]
			t.Run(name, func(t *testing.T) {
				text := ""
				if configured {
					text = matrixAccess
				}
				testMatrix(t, newAccessRig(t, text, configured, secure), configured, secure)
			})
		}
	}
}

func testMatrix(t *testing.T, r *accessRig, configured, secure bool) {
	tcp, owner, foreign := r.client(), r.socketClient(os.Geteuid()), r.socketClient(foreigner)
	scheme := map[bool]string{false: "http://", true: "https://"}[secure]
	cases := 0
	ways := []string{""}
	if !secure { // a socket speaks no TLS
		ways = append(ways, "owner", "foreign")
		if os.Geteuid() != 0 {
			ways = ways[:2]
			t.Log("not root: nobody connects as another user")
		} else if err := os.Chmod(r.at("s"), 0o666); err != nil { // the guard alone decides here
			t.Fatal(err)
		}
	}
	for _, route := range r.routes() {
		try, known := trials[route.pattern]
		if !known {
			t.Errorf("%s is a route that no trial is made of", route.pattern)
			continue
		}
		if route.role != access.Anyone && !slices.Contains(access.Roles(), route.role) {
			t.Errorf("%s declares the role %q", route.pattern, route.role)
		}
		method, _, _ := strings.Cut(route.pattern, " ")
		for _, way := range ways {
			if way != "" && route.listener == "otlp" {
				continue
			}
			base, hc := scheme+r.l.web.Addr().String(), tcp
			switch {
			case way == "owner":
				base, hc = "http://wattloop", owner
			case way == "foreign":
				base, hc = "http://wattloop", foreign
			case route.listener == "otlp":
				base = scheme + r.l.http.Addr().String()
			}
			for _, a := range askers() {
				for _, host := range []string{"", "evil.example", "localhost.evil.example:80"} {
					for _, origin := range []string{"", "own", "null", "http://evil.example", "https://localhost.evil.example"} {
						s := situation{configured, secure, way, a, host, origin}
						got, header := ask(t, hc, method, base, try, s)
						cases++
						if want := s.expected(route, try.ok); got != want {
							t.Errorf("%s, over %q, %s, Host %q, Origin %q: %d; want %d", route.pattern, way, a.name, host, origin, got, want)
						}
						checkAnswerHeaders(t, route, got, header)
					}
				}
			}
		}
	}
	t.Logf("%d cases over HTTP", cases)
}

func ask(t *testing.T, hc *http.Client, method, base string, try trial, s situation) (int, http.Header) {
	t.Helper()
	req, err := http.NewRequest(method, base+try.path, strings.NewReader(try.body))
	if err != nil {
		t.Fatal(err)
	}
	if s.host != "" {
		req.Host = s.host
	}
	if s.asker.header != "" {
		req.Header.Set("Authorization", s.asker.header)
	}
	switch {
	case s.origin == "own":
		host := req.URL.Host
		if s.host != "" {
			host = s.host
		}
		req.Header.Set("Origin", req.URL.Scheme+"://"+host)
	case s.origin != "":
		req.Header.Set("Origin", s.origin)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := hc.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, base+try.path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(body), "-token") {
		t.Errorf("%s %s: an answer has a token in it: %s", method, try.path, body)
	}
	return resp.StatusCode, resp.Header
}

func checkAnswerHeaders(t *testing.T, r matrixRoute, code int, h http.Header) {
	t.Helper()
	if h.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%s: %d without nosniff", r.pattern, code)
	}
	if csp := h.Get("Content-Security-Policy"); r.listener == "web" && !strings.HasPrefix(csp, "default-src 'none'") {
		t.Errorf("%s: %d with the policy %q", r.pattern, code, csp)
	}
	if code == http.StatusUnauthorized && !strings.HasPrefix(h.Get("WWW-Authenticate"), "Bearer ") {
		t.Errorf("%s: 401 without a challenge", r.pattern)
	}
}

// The same over gRPC, with the methods that the server registers.
func TestAccessMatrixGRPC(t *testing.T) {
	for _, configured := range []bool{false, true} {
		for _, secure := range []bool{false, true} {
			text := map[bool]string{true: matrixAccess}[configured]
			r := newAccessRig(t, text, configured, secure)
			cases := 0
			for service, info := range r.s.grpc.GetServiceInfo() {
				for _, m := range info.Methods {
					cases += testMethod(t, r, "/"+service+"/"+m.Name, configured, secure)
				}
			}
			if cases < 3*len(askers())*2 {
				t.Errorf("%d cases; want each of three methods", cases)
			}
			t.Logf("%d cases over gRPC", cases)
		}
	}
}

func testMethod(t *testing.T, r *accessRig, method string, configured, secure bool) (cases int) {
	for _, host := range []string{"", "evil.example"} {
		creds := insecure.NewCredentials()
		if secure { // whose name is asked for is not what is tested
			creds = credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})
		}
		options := []grpc.DialOption{grpc.WithTransportCredentials(creds)}
		if host != "" {
			options = append(options, grpc.WithAuthority(host))
		}
		conn, err := grpc.NewClient(r.l.grpc.Addr().String(), options...)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range askers() {
			ctx := context.Background()
			if a.header != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, "authorization", a.header)
			}
			s := situation{configured: configured, asker: a, host: host}
			want := map[int]codes.Code{200: codes.OK, 401: codes.Unauthenticated, 403: codes.PermissionDenied}[s.expected(matrixRoute{listener: "otlp", role: access.Push}, 200)]
			err := conn.Invoke(ctx, method, &emptypb.Empty{}, &emptypb.Empty{})
			if grpcstatus.Code(err) != want {
				t.Errorf("%s, TLS %v, %s, :authority %q: %v; want %v", method, secure, a.name, host, err, want)
			}
			if strings.Contains(fmt.Sprint(err), "-token") {
				t.Errorf("%s: the status has a token in it: %v", method, err)
			}
			cases++
		}
		conn.Close()
	}
	return cases
}
