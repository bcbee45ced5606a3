package ingest_test

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/wattloop/wattloop/access"
	"github.com/wattloop/wattloop/ingest"
)

// The row of the table of answers on credentials: who has none or a wrong one, and
// who has another role, is told so over each transport, in the request's own
// encoding, and nothing of what he sends is stored.
func TestAnswersToCredentials(t *testing.T) {
	const push, read = "push-push-push-push-push-push-push", "read-read-read-read-read-read-read"
	busy := func(string, string) (bool, error) { return false, errors.New("busy") }
	guard, err := access.NewGuard(access.Config{Password: busy, Credentials: []access.Credential{
		{Roles: []access.Role{access.Push}, Token: push}, {Roles: []access.Role{access.Read}, Token: read}}})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(o *ingest.Options) { o.Guard = guard })
	r.at(60)
	f := func(authorization string, wantHTTP int, want codes.Code) {
		t.Helper()
		retries := map[bool]int{true: 1}[want == codes.Unavailable]
		ctx, headers := context.Background(), []string{}
		if authorization != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", authorization)
			headers = []string{"Authorization", authorization}
		}
		_, err := r.call(ctx, exportMethod, gauge(60))
		if st := status.Convert(err); st.Code() != want || len(st.Details()) != retries {
			t.Errorf("gRPC, %q: %v; want %v with %d details", authorization, err, want, retries)
		}
		for media, body := range map[string][]byte{"application/x-protobuf": gauge(60), "application/json": gaugeJSON(60)} {
			got := r.post(body, append(headers, "Content-Type", media)...)
			if got.code != wantHTTP || got.header.Get("Content-Type") != media || (got.header.Get("Retry-After") != "") != (retries > 0) {
				t.Errorf("%s, %q: %d as %s; want %d", media, authorization, got.code, got.header.Get("Content-Type"), wantHTTP)
				continue
			}
			if want == codes.OK {
				continue
			}
			if code, message := decodeStatus(t, got); code != want || message == "" {
				t.Errorf("%s, %q: status %v %q; want %v and a message", media, authorization, code, message, want)
			}
		}
	}
	f("", 401, codes.Unauthenticated)
	f("Bearer "+push[1:]+"x", 401, codes.Unauthenticated)
	f("Basic YWxpY2U6eA==", 429, codes.Unavailable) // a password that cannot be checked now
	f("Bearer "+read, 403, codes.PermissionDenied)
	r.check(`count({__name__=~"hw_.+"})`, 60, none)
	f("Bearer "+push, 200, codes.OK)
	r.check(`hw_power_watts`, 60, 1)
}
