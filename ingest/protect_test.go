package ingest_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// A page that an operator looks at can make the browser send to the loopback,
// and by DNS rebinding under a name of its own. Points move caps, so neither is
// taken, with the answer in the request's encoding; senders that are no browser
// never notice.
func TestRefusesPages(t *testing.T) {
	r := newRig(t, nil)
	r.at(60)
	f := func(host, header, value string, want int) {
		t.Helper()
		for _, media := range []string{"application/json", "application/x-protobuf"} {
			for _, path := range []string{"/v1/metrics", "/api/v1/otlp/v1/metrics", "/v1/traces", "/nowhere"} {
				body := gauge(60)
				if media == "application/json" {
					body = gaugeJSON(60)
				}
				if strings.HasSuffix(path, "traces") && want == http.StatusOK || path == "/nowhere" && want == http.StatusOK {
					continue
				}
				req, err := http.NewRequest(http.MethodPost, r.url+path, bytes.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				if host != "" {
					req.Host = host
				}
				req.Header.Set("Content-Type", media)
				if header != "" {
					req.Header.Set(header, value)
				}
				transport := &http.Transport{DisableKeepAlives: true}
				resp, err := transport.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				got := readReply(t, resp)
				if got.code != want || got.header.Get("Content-Type") != media {
					t.Errorf("%s, Host %q, %s: %q: %d as %s; want %d as %s", path, host, header, value, got.code, got.header.Get("Content-Type"), want, media)
				}
				if want == http.StatusForbidden {
					checkForbidden(t, media, got.body)
				}
			}
		}
	}
	at := strings.TrimPrefix(r.url, "http://")
	f("rebind.example:4318", "", "", 403)
	f("rebind.example", "Origin", "http://rebind.example", 403)
	f("127.0.0.1.rebind.example", "", "", 403)
	f("localhost.rebind.example", "", "", 403)
	f("192.0.2.1:4318", "", "", 403)
	f("", "Origin", "http://page.example", 403)
	f("", "Origin", "null", 403)
	f("", "Origin", "http://localhost:1", 403)
	f("", "Sec-Fetch-Site", "cross-site", 403)
	f("", "Sec-Fetch-Site", "same-site", 403)
	r.check(`count({__name__=~"hw_.+"})`, 60, none)

	f("", "", "", 200)
	f("localhost:4318", "", "", 200)
	f("LOCALHOST", "", "", 200)
	f("[::1]:4318", "", "", 200)
	f("127.9.9.9", "", "", 200)
	f("", "Origin", "http://"+at, 200)
	f("", "Sec-Fetch-Site", "same-origin", 200)

	if got := r.metric("wattloop_ingest_requests_total", `transport="http"`, `answer="permission_denied"`); got != 80 {
		t.Errorf("refused requests counted: %v; want 80", got)
	}
}

func checkForbidden(t *testing.T, media, body string) {
	t.Helper()
	if media == "application/json" {
		if !strings.HasPrefix(body, `{"code":7,"message":"`) {
			t.Errorf("answer %s; want a google.rpc.Status with PERMISSION_DENIED", body)
		}
		return
	}
	var st statuspb.Status
	if err := proto.Unmarshal([]byte(body), &st); err != nil || codes.Code(st.GetCode()) != codes.PermissionDenied {
		t.Errorf("answer %v, %v; want PERMISSION_DENIED", &st, err)
	}
}

// The like over gRPC, where the authority is the name.
func TestGRPCRefusesOtherNames(t *testing.T) {
	r := newRig(t, nil)
	r.at(60)
	f := func(authority string, want codes.Code) {
		t.Helper()
		conn, err := grpc.NewClient(r.grpc, grpc.WithAuthority(authority), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		var out []byte
		err = conn.Invoke(t.Context(), exportMethod, gauge(60), &out, grpc.ForceCodecV2(plainBytes{}))
		if status.Code(err) != want {
			t.Errorf("%s: %v; want %v", authority, err, want)
		}
	}
	f("rebind.example:4317", codes.PermissionDenied)
	r.check(`count({__name__=~"hw_.+"})`, 60, none)
	f("localhost:4317", codes.OK)
	f("[::1]:4317", codes.OK)
	f(r.grpc, codes.OK)
}
