package listen

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wattloop/wattloop/ingest"
)

func isKind(err, kind error) bool { return errors.Is(err, kind) }

// S2-11, S2-13, S2-85: both transports at one address and at two, on TCP and on
// sockets, and the same address over activations; nobody answers between them.
func TestActivations(t *testing.T) {
	old := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, old) })
	dir := t.TempDir()
	f := func(name string, listen ...string) {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, nil)
			b.define("w1", listen...)
			var before []Address
			for i, uid := range []string{"a", "b", "a"} {
				s := b.activate("w1", uid)
				if i > 0 && text(s.Listen) != text(before) {
					t.Errorf("activation %d listens on %s; want %s", i, text(s.Listen), text(before))
				}
				before = s.Listen
				for _, a := range s.Listen {
					hc, url := client(t, a)
					if code, err := b.post(hc, url, 1); code != http.StatusOK {
						t.Fatalf("HTTP at %s: %d, %v", a, code, err)
					}
					_, rpc := dial(t, a)
					if _, err := rpc.Export(context.Background(), b.request(10)); err != nil {
						t.Fatalf("gRPC at %s: %v", a, err)
					}
				}
				b.end("w1")
				for _, a := range s.Listen {
					if c, err := net.Dial(a.Network, a.Addr); err == nil {
						c.Close()
						t.Errorf("%s answers after the end", a)
					}
				}
			}
			per := 11 * float64(len(before))
			if a, bb := b.work("a"), b.work("b"); a != 2*per || bb != per {
				t.Errorf("stored %g for a and %g for b; want %g and %g", a, bb, 2*per, per)
			}
		})
	}
	f("one address", "127.0.0.1:0")
	f("two addresses", "127.0.0.1:0", "127.0.0.1:0")
	f("one address twice", "unix:"+filepath.Join(dir, "twice.sock"), "unix:"+filepath.Join(dir, "twice.sock"))
	f("IPv6 and a socket", "[::1]:0", "unix:"+filepath.Join(dir, "six.sock"))
	f("socket", filepath.Join(dir, "one.sock"))
}

// S2-15: one identity at a time; the same request again changes nothing.
func TestSecondIdentityIsRefused(t *testing.T) {
	b := newBed(t, nil)
	b.define("w1")
	ctx := context.Background()
	at := time.Now().Add(-time.Minute)
	first := Activation{Identity: who("a"), At: at}
	if _, _, err := b.m.Activate(ctx, "w1", nil, first); err != nil {
		t.Fatal(err)
	}
	for _, same := range []Activation{first, {Identity: who("a")}, {Identity: who("a"), At: at, Since: at}} {
		if s, began, err := b.m.Activate(ctx, "w1", nil, same); err != nil || began || !s.Started.Equal(at) {
			t.Errorf("the same again: began %v at %s, %v", began, s.Started, err)
		}
	}
	_, _, err := b.m.Activate(ctx, "w1", nil, Activation{Identity: who("b")})
	want(t, err, ErrConflict, "channel w1: is live for another identity since")
	_, _, err = b.m.Activate(ctx, "w1", nil, Activation{Identity: who("a"), At: at.Add(time.Second)})
	want(t, err, ErrConflict, "end that activation first")
	if s := b.m.States()[0]; s.Who.ActorUID != "a" || !s.Live {
		t.Errorf("after the refusals: %+v", s)
	}
	b.end("w1")
	b.end("w1") // and again: nothing is live, nothing happens
	b.activate("w1", "b")
}

func TestRefusedActivations(t *testing.T) {
	b := newBed(t, func(o *Options) { o.Channels = 3 })
	b.define("w1", "127.0.0.1:0")
	ctx := context.Background()
	f := func(name string, def *Spec, a Activation, kind error, text string) {
		t.Helper()
		_, _, err := b.m.Activate(ctx, name, def, a)
		want(t, err, kind, text)
	}
	some := Activation{Identity: who("a")}
	any := []Address{addr(t, "127.0.0.1:0")}
	f("w9", nil, some, ErrUnknown, "channel w9: there is none of that name")
	f("w1", nil, Activation{}, ErrInvalid, "the identity is empty")
	f("w1", nil, Activation{Identity: who("a"), At: time.Now().Add(time.Hour)}, ErrInvalid, "is in the future")
	f("w1", nil, Activation{Identity: who("a"), Since: time.Now().Add(time.Hour)}, ErrInvalid, "later than the begin")
	f("w1", &Spec{Listen: []Address{addr(t, "127.0.0.1:1")}}, some, ErrConflict, "is defined otherwise")
	f("w2", &Spec{}, some, ErrInvalid, "want HOST:PORT")
	f("../w", &Spec{Listen: any}, some, ErrInvalid, "a name is 1 to 63")
	f("w2", &Spec{Listen: any, Class: "root"}, some, ErrInvalid, "want node or workload")
	f("w2", &Spec{Listen: any, Mode: 0o600}, some, ErrInvalid, "those of a unix socket")
	f("w2", &Spec{Listen: any, Limits: ingest.Limits{Conns: 7}}, some, ErrInvalid, "conns: 7: at least 8")
	f("w2", &Spec{Listen: any, Nodes: []string{"n"}}, some, ErrInvalid, "nodes: what a workload says")
	f("n1", &Spec{Listen: any, Class: ingest.Node}, some, ErrInvalid, "class node has no identity")
	f("n2", &Spec{Listen: []Address{addr(t, "169.254.17.1:4317")}, Class: ingest.Node}, Activation{}, ErrInvalid, "is not a loopback address")
	f("w2", &Spec{Listen: []Address{addr(t, "192.0.2.1:4317")}}, some, ErrInvalid, "neither a loopback nor a link-local")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f("w3", &Spec{Listen: []Address{addr(t, l.Addr().String())}}, some, nil, "address already in use")
	// What was never open is forgotten, the three before it too.
	if s := b.m.States(); len(s) != 1 {
		t.Errorf("after the refusals: %+v", s)
	}
	free := &Spec{Listen: any}
	for _, name := range []string{"w2", "w3"} {
		if _, began, err := b.m.Activate(ctx, name, free, some); err != nil || !began {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.end("w3")
	f("w3", &Spec{Listen: []Address{addr(t, l.Addr().String())}}, some, ErrConflict, "is defined otherwise")
	f("w3", &Spec{Listen: any, Gauge: ingest.GaugeMax}, some, ErrConflict, "is defined otherwise")
	f("w4", &Spec{Listen: any}, some, ErrConflict, "there are 3 channels already")
	if s := b.m.States(); len(s) != 3 || s[2].Err != nil {
		t.Errorf("after it has been open: %+v", s)
	}
	_, err = b.m.End("w9")
	want(t, err, ErrUnknown, "none of that name")
	b.m.Close()
	f("w1", nil, some, nil, "the process is ending")
}

// A channel of class node that came at run time is closed and opened again.
func TestNodeChannelAtRunTime(t *testing.T) {
	b := newBed(t, nil)
	ctx := context.Background()
	spec := &Spec{Class: ingest.Node, Listen: []Address{addr(t, "127.0.0.1:0")}}
	for i := range 2 {
		s, began, err := b.m.Activate(ctx, "n", spec, Activation{})
		if err != nil || !began {
			t.Fatalf("%d: %v, %v", i, began, err)
		}
		hc, url := client(t, s.Listen[0])
		if code, err := b.post(hc, url, 1); code != 200 {
			t.Fatalf("%d: %d, %v", i, code, err)
		}
		b.end("n")
		if code, err := b.post(hc, url, 1); err == nil {
			t.Errorf("%d: after the end: %d", i, code)
		}
	}
	if err := b.m.Define(Spec{Name: "fixed", Class: ingest.Node, Listen: spec.Listen}); err != nil {
		t.Fatal(err)
	}
	_, err := b.m.End("fixed")
	want(t, err, ErrConflict, "a node channel of the configuration")
}

func TestTwoOfOneAddress(t *testing.T) {
	b := newBed(t, nil)
	b.define("w1", "127.0.0.1:4999")
	err := b.m.Define(Spec{Name: "w2", Listen: []Address{addr(t, "127.0.0.1:4999")}})
	want(t, err, ErrConflict, "channel w2: 127.0.0.1:4999 is the address of channel w1")
	err = b.m.Define(Spec{Name: "w1", Listen: []Address{addr(t, "127.0.0.1:4998")}})
	want(t, err, ErrInvalid, "there is one of that name")
}

// S2-12: whatever swallows or answers the connections to the address, the
// activation fails, says what to do, and leaves nothing open.
func TestSelfTest(t *testing.T) {
	old := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, old) })
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	// It answers everything, the proof too, as a proxy in the way does.
	proxy := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/silent" {
			<-r.Context().Done()
		}
		w.Write([]byte(r.URL.Query().Get("nonce")))
	})}
	go proxy.Serve(other)
	defer proxy.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts in the kernel, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	f := func(name, to, text string) {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, func(o *Options) {
				o.Patience = 200 * time.Millisecond
				if name != "no answer" {
					o.Patience = time.Minute
				}
				o.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
					return (&net.Dialer{}).DialContext(ctx, network, to)
				}
			})
			b.define("w1", "127.0.0.1:0")
			_, _, err := b.m.Activate(context.Background(), "w1", nil, Activation{Identity: who("a")})
			want(t, err, nil, text)
			want(t, err, nil, "exempt this destination")
			s := b.m.States()[0]
			if s.Live || s.Err == nil || s.Who != (ingest.Identity{}) {
				t.Errorf("after a failed self-test: %+v", s)
			}
			// The activation has ended, so that the next one is a new one.
			b.m.o.Dial = (&net.Dialer{}).DialContext
			b.m.o.Patience = time.Minute
			b.activate("w1", "b")
		})
	}
	f("redirected", other.Addr().String(), "self-test: another program answers there")
	f("no answer", silent.Addr().String(), "self-test: no answer")
	f("nobody there", closed.Addr().String(), "self-test: connection refused")

	t.Run("address in use", func(t *testing.T) {
		b := newBed(t, nil)
		b.define("w1", other.Addr().String())
		_, _, err := b.m.Activate(context.Background(), "w1", nil, Activation{Identity: who("a")})
		want(t, err, nil, "address already in use")
		if b.m.States()[0].Live {
			t.Error("it is live")
		}
	})
	t.Run("socket taken away", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "w.sock")
		b := newBed(t, func(o *Options) {
			o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				if err := os.Rename(path, path+".old"); err != nil {
					return nil, err
				}
				l, err := net.Listen("unix", path)
				if err != nil {
					return nil, err
				}
				defer l.Close()
				return (&net.Dialer{}).DialContext(ctx, network, address)
			}
		})
		b.define("w1", path)
		_, _, err := b.m.Activate(context.Background(), "w1", nil, Activation{Identity: who("a")})
		want(t, err, nil, "see what lies at that path")
	})
}

// Whoever asks from elsewhere with a question of the API gets the right answer,
// and no request but the test's is let in before it has passed.
func TestProof(t *testing.T) {
	b := newBed(t, nil)
	b.define("w1")
	_, err := b.m.Prove("w1")
	want(t, err, ErrConflict, "nothing listens")
	s := b.activate("w1", "a")
	p, err := b.m.Prove("w1")
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if err := Ask(ctx, (&net.Dialer{}).DialContext, s.Listen[0], p); err != nil {
		t.Error(err)
	}
	b.end("w1")
	b.activate("w1", "a")
	want(t, Ask(ctx, (&net.Dialer{}).DialContext, s.Listen[0], p), nil, "another program answers") // it was the last activation's
	hc, url := client(t, s.Listen[0])
	for _, q := range []string{"", "?nonce=" + strings.Repeat("x", 65)} {
		resp, err := hc.Get(url + provePath + q)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%q: %s", q, resp.Status)
		}
	}
}

func TestActors(t *testing.T) {
	a := newActors(2)
	t1, t2 := time.Unix(1, 0), time.Unix(2, 0)
	f := func(uid string, at, want time.Time) {
		t.Helper()
		if got := a.since(uid, at); !got.Equal(want) {
			t.Errorf("%s at %s: %s; want %s", uid, at, got, want)
		}
	}
	a.saw("a", t1)
	a.saw("", t1)
	f("a", t2, t1)
	f("", t2, t2)
	a.saw("b", t2)
	f("b", t1, t1) // asked about a time before the earliest
	a.saw("a", t2)
	f("a", t2, t1)
	a.saw("c", t1) // b is the longest unseen
	f("b", t2.Add(1), t2.Add(1))
	f("a", t2, t1)
	f("c", t2, t1)
}

// A channel of few connections is activated although its actor, which kept trying
// while it was suspended, connects at once.
func TestActivationWhileTheActorConnects(t *testing.T) {
	var held []net.Conn
	b := newBed(t, func(o *Options) {
		o.Grace = 50 * time.Millisecond
		o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			var d net.Dialer
			for range 3 {
				c, err := d.DialContext(ctx, network, address)
				if err != nil {
					return nil, err
				}
				held = append(held, c)
			}
			return d.DialContext(ctx, network, address)
		}
	})
	two := []Address{addr(t, "127.0.0.1:0"), addr(t, "127.0.0.1:0")}
	if err := b.m.Define(Spec{Name: "w1", Listen: two, Limits: ingest.Limits{Conns: leastConns}}); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		b.activate("w1", "a")
		b.end("w1")
		for _, c := range held {
			c.Close()
		}
		held = nil
	}
}
