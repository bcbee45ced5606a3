package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// overSocket sends one request with a body over the socket.
func overSocket(o Options, method, target, body string) *httptest.ResponseRecorder {
	return ask(Handler(o), method, target, func(r *http.Request) {
		asRoot(r)
		r.Body = io.NopCloser(strings.NewReader(body))
	})
}

// A request is taken as it stands or refused with the place and what was meant.
func TestPutChannel(t *testing.T) {
	at := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	f := func(body string, code int, want any) {
		t.Helper()
		var got *ChannelRequest
		o := options()
		o.Channels.Activate = func(_ context.Context, name string, r ChannelRequest) (Channel, bool, error) {
			got = &r
			return Channel{Name: name}, true, nil
		}
		w := overSocket(o, "PUT", "/api/v1/channels/w1", body)
		if w.Code != code {
			t.Errorf("%s: %d %s; want %d", body, w.Code, w.Body, code)
		}
		switch want := want.(type) {
		case string:
			if got != nil || !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s: %s; want %s", body, w.Body, want)
			}
		case ChannelRequest:
			if diff := cmp.Diff(&want, got); diff != "" {
				t.Errorf("%s: %s", body, diff)
			}
		}
	}
	f(`{"identity":{"actor_uid":"7f2c","node":"worker-01"}}`, 201, ChannelRequest{Identity: Identity{ActorUID: "7f2c", Node: "worker-01"}})
	f(`{"identity":{"actor_uid":"a"},"at":"2026-01-02T15:04:05Z","since":"2026-01-02T15:04:05+00:00","listen":"127.0.0.1:1","limits":{"points":5,"conns":3},"nodes":["n"]}`, 201,
		ChannelRequest{Identity: Identity{ActorUID: "a"}, At: &at, Since: &at, Listen: &ChannelListen{GRPC: "127.0.0.1:1"}, Limits: &ChannelLimits{Points: 5, Conns: 3}, Nodes: []string{"n"}})
	f(`{"listen":{"grpc":"a","http":"b"}}`, 201, ChannelRequest{Listen: &ChannelListen{"a", "b"}})

	f(``, 400, "the request is no JSON")
	f(`{} {}`, 400, "the request is no JSON")
	f(`identity=x`, 400, "the request is no JSON")
	f(`[]`, 422, "want an object")
	f(`null`, 422, "want an object")
	f(`{"identty":{}}`, 422, `unknown field \"identty\" (did you mean \"identity\"?)`)
	f(`{"Identity":{}}`, 422, `unknown field \"Identity\" (did you mean \"identity\"?)`)
	f(`{"identity":{"Actor_UID":"a"}}`, 422, `identity: unknown field \"Actor_UID\" (did you mean \"actor_uid\"?)`)
	f(`{"identity":{"x":"a"}}`, 422, `identity: unknown field \"x\"; known are actor_uid, `)
	f(`{"identity":{"actor_uid":"a","actor_uid":"b"}}`, 422, `identity: field \"actor_uid\" stands twice`)
	f(`{"identity":null}`, 422, `field \"identity\" is null; leave it out`)
	f(`{"identity":{"actor_uid":1}}`, 422, "identity.actor_uid: want a text, got number")
	f(`{"limits":{"conns":1.5}}`, 422, "limits.conns: want a number, got number 1.5")
	f(`{"listen":{"grp":"x"}}`, 422, `unknown field \"grp\" (did you mean \"grpc\"?)`)
	f(`{"at":"yesterday"}`, 422, "is no time; write it like")

	// What is half a character, or none, would be stored as U+FFFD: two names could become one.
	f(`{"identity":{"actor_uid":"a\ud83d\ude00"}}`, 201, ChannelRequest{Identity: Identity{ActorUID: "a\U0001F600"}})
	f(`{"identity":{"actor_uid":"a\\ud800b"}}`, 201, ChannelRequest{Identity: Identity{ActorUID: `a\ud800b`}})
	f(`{"identity":{"actor_uid":"a\ufffd"}}`, 201, ChannelRequest{Identity: Identity{ActorUID: "a\ufffd"}})
	f(`{"identity":{"actor_uid":"a\ud800b"}}`, 422, `column 28: \\ud800 is half a character`)
	f("{\n \"identity\":{\"actor_uid\":\"a\\uDC00\"}}", 422, `line 2, column 28: \\uDC00 is half a character`)
	f(`{"nodes":["\ud800\ud83d\ude00"]}`, 422, `column 12: \\ud800 is half`)
	f(`{"nodes":["\ud800"]}`, 422, `column 12: \\ud800 is half`)
	f(`{"a\udfff":1}`, 422, `column 4: \\udfff is half`)
	f("{\"identity\":{\"actor_uid\":\"a\xffb\"}}", 422, "column 28: the byte 0xff is no UTF-8")
	f("{\"listen\":\"\xc3\"}", 422, "column 12: the byte 0xc3 is no UTF-8")
	f(`{"mode":"`+strings.Repeat("x", maxChannelRequest)+`"}`, 413, "more than 65536 bytes")
}

// reliability.md, path traversal in names: 400 before anything is asked.
func TestChannelNames(t *testing.T) {
	reached := false
	o := options()
	o.Channels.Activate = func(context.Context, string, ChannelRequest) (Channel, bool, error) {
		reached = true
		return Channel{}, true, nil
	}
	f := func(path string, code int) {
		t.Helper()
		reached = false
		w := overSocket(o, "PUT", "/api/v1/channels/"+path, `{}`)
		if w.Code != code || reached != (code == 201) {
			t.Errorf("%s: %d, reached %v; want %d", path, w.Code, reached, code)
		}
	}
	f("w1", 201)
	f("a..b", 201)
	f(strings.Repeat("a", 63), 201)
	for _, bad := range []string{"", "..", ".", "..%2f", "%2e%2e", "a%2fb", "a/b", "a/../b", "a/..", "../w1", "a%00", "a%5c..", "%c0%ae%c0%ae", "%ff", "a%20b", "-a", ".a",
		"w1/", "w1//prove", strings.Repeat("a", 64), "caf%C3%A9", "a;b", "%77%31"} {
		f(bad, 400)
	}
}

func TestChannelAnswers(t *testing.T) {
	f := func(method, target string, err error, code int, word string) {
		t.Helper()
		o := options()
		o.Channels.Activate = func(context.Context, string, ChannelRequest) (Channel, bool, error) { return Channel{}, false, err }
		o.Channels.End = func(string) (Channel, error) { return Channel{}, err }
		o.Channels.Prove = func(string) (ChannelProof, error) { return ChannelProof{}, err }
		w := overSocket(o, method, target, `{}`)
		if w.Code != code || word != "" && !strings.Contains(w.Body.String(), `"errorType":"`+word+`"`) {
			t.Errorf("%s %s with %v: %d %s; want %d %s", method, target, err, w.Code, w.Body, code, word)
		}
	}
	for _, r := range [][2]string{{"PUT", "/api/v1/channels/w1"}, {"DELETE", "/api/v1/channels/w1"}, {"POST", "/api/v1/channels/w1/prove"}} {
		f(r[0], r[1], nil, 200, "")
		f(r[0], r[1], &CodedError{409, errors.New("x")}, 409, "conflict")
		f(r[0], r[1], &CodedError{404, errors.New("x")}, 404, "not_found")
		f(r[0], r[1], &CodedError{422, errors.New("x")}, 422, "bad_data")
		f(r[0], r[1], errors.New("self-test"), 500, "internal")
	}
	f("GET", "/api/v1/channels/w2", nil, 404, "not_found")
	w := ask(Handler(options()), "PUT", "/api/v1/channels/w1", nil)
	if w.Code != 401 || !strings.Contains(w.Body.String(), "the role admin is needed, and no token has it: ask over the API socket") {
		t.Errorf("PUT over TCP: %d %s", w.Code, w.Body)
	}
}

// The requests that docs/api.md shows are taken.
func TestDocumentedChannelRequests(t *testing.T) {
	page, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```json\n// PUT [^\n]*\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 2 {
		t.Fatalf("%d requests in docs/api.md", len(blocks))
	}
	for _, b := range blocks {
		if w := overSocket(options(), "PUT", "/api/v1/channels/w1", b[1]); w.Code != 200 {
			t.Errorf("%s: %d %s", b[1], w.Code, w.Body)
		}
	}
}

// FuzzChannelRequest: whatever is sent, a request is taken or refused with a
// reason; what is taken means the same when it is read by the letter.
func FuzzChannelRequest(f *testing.F) {
	f.Add(`{"identity":{"actor_uid":"7f2c"},"at":"2026-01-02T15:04:05Z","listen":{"grpc":"a"}}`)
	f.Add(`{"identity":{"actor_uid":"a","Actor_uid":"b"}}`)
	f.Add(`{"listen":"x","limits":{"points":1e400}}`)
	f.Add(`{"identity":{"actor_uid":"a","actor_uid":"b"}}`)
	f.Add(`{"identity":{"actor_uid":"a\ud800b","actor_name":"\ud83d\ude00"}}`)
	f.Fuzz(func(t *testing.T, body string) {
		var got, want ChannelRequest
		if err := DecodeStrict([]byte(body), &got); err != nil {
			if err.Error() == "" {
				t.Fatal("refused without a reason")
			}
			return
		}
		dec := json.NewDecoder(strings.NewReader(body))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&want); err != nil {
			t.Fatalf("%q is taken: %v", body, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%q: %s", body, diff)
		}
		const none = "\ufffd"
		if strings.Contains(fmt.Sprint(got), none) && !strings.Contains(body, none) && !strings.Contains(strings.ToLower(body), `\ufffd`) {
			t.Fatalf("%q: something has become U+FFFD", body)
		}
		again, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if err := DecodeStrict(again, &want); err != nil {
			t.Fatalf("%s, written again: %v", again, err)
		}
	})
}
