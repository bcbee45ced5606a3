package listen

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/wattloop/wattloop/access"
	"github.com/wattloop/wattloop/ingest"
)

// Once push has a credential, a node channel asks for one, over TCP and of peers
// that are not the owner; a workload channel asks nobody.
func TestAccess(t *testing.T) {
	config := func(owner uint32, peers ...access.Credential) access.Config {
		token := access.Credential{Roles: []access.Role{access.Push}, Token: "push-push-push-push-push-push-push"}
		return access.Config{Owner: owner, Credentials: append(peers, token)}
	}
	me, other := uint32(os.Getuid()), uint32(os.Getuid())+1
	peer := func(uid uint32) access.Credential {
		return access.Credential{Roles: []access.Role{access.Push}, Peer: &access.Peer{UID: &uid}}
	}
	f := func(name string, class ingest.Class, unix bool, c access.Config, want int) {
		t.Run(name, func(t *testing.T) {
			guard, err := access.NewGuard(c)
			if err != nil {
				t.Fatal(err)
			}
			b := newBed(t, nil, func(o *ingest.Options) { o.Guard = guard })
			at := "127.0.0.1:0"
			if unix {
				at = "unix:" + filepath.Join(t.TempDir(), "d", "s")
			}
			if err := b.m.Define(Spec{Name: "w1", Class: class, Listen: []Address{addr(t, at)}}); err != nil {
				t.Fatal(err)
			}
			var s State
			if class == ingest.Workload {
				s = b.activate("w1", "a")
			} else if s, _, err = b.m.Activate(t.Context(), "w1", nil, Activation{}); err != nil {
				t.Fatal(err)
			}
			hc, url := client(t, s.Listen[0])
			if code, err := b.post(hc, url, 1); code != want || err != nil {
				t.Errorf("HTTP: %d, %v; want %d", code, err, want)
			}
			_, rpc := dial(t, s.Listen[0])
			if _, err := rpc.Export(t.Context(), b.request(1)); (err == nil) != (want == http.StatusOK) {
				t.Errorf("gRPC: %v; want what HTTP is answered, %d", err, want)
			}
		})
	}
	f("node, TCP", ingest.Node, false, config(me), 401)
	f("node, socket of the owner", ingest.Node, true, config(me), 200)
	f("workload, TCP", ingest.Workload, false, config(me), 200)
	f("workload, socket", ingest.Workload, true, config(other), 200)
	if me == 0 {
		t.Skip("root is every peer")
	}
	f("node, socket of another", ingest.Node, true, config(other), 403)
	f("node, socket, a peer", ingest.Node, true, config(other, peer(me)), 200)
}

// S2-17, P12: what an actor sends as a credential, frozen into a snapshot long
// ago, does not lock it out; nor does the address that it knows the channel by.
func TestWorkloadIsNotAsked(t *testing.T) {
	guard, err := access.NewGuard(access.Config{Credentials: []access.Credential{{Roles: []access.Role{access.Push}, Token: "push-push-push-push-push-push-push"}}})
	if err != nil {
		t.Fatal(err)
	}
	b := newBed(t, nil, func(o *ingest.Options) { o.Guard = guard })
	if err := b.m.Define(Spec{Name: "w1", Class: ingest.Workload, Listen: []Address{addr(t, "127.0.0.1:0")}}); err != nil {
		t.Fatal(err)
	}
	at := b.activate("w1", "a").Listen[0]
	for _, authorization := range []string{"Bearer stale", "Basic YWxpY2U6eA=="} {
		hc, url := client(t, at)
		hc.Transport = frozen{hc.Transport, authorization}
		if code, err := b.post(hc, url, 1); code != http.StatusOK || err != nil {
			t.Errorf("HTTP, %s: %d, %v", authorization, code, err)
		}
		conn, err := grpc.NewClient(at.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority(frozenHost))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", authorization)
		if _, err := pmetricotlp.NewGRPCClient(conn).Export(ctx, b.request(1)); err != nil {
			t.Errorf("gRPC, %s: %v", authorization, err)
		}
	}
}

const frozenHost = "169.254.17.1:4317"

// frozen sends what an SDK in a snapshot would.
type frozen struct {
	http.RoundTripper
	authorization string
}

func (f frozen) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Host = frozenHost
	r.Header.Set("Authorization", f.authorization)
	return f.RoundTripper.RoundTrip(r)
}
