package listen

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/wattloop/wattloop/ingest"
)

// A channel that came at run time and whose first activation fails is forgotten,
// whatever failed: it may be defined otherwise, its address is free for another,
// and nobody has to delete what never was.
func TestForgottenAfterTheFirstFailure(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := []Address{addr(t, l.Addr().String())}
	some := Activation{Identity: who("a")}
	f := func(name string, class ingest.Class, listen []Address, a Activation) {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, nil)
			ctx := context.Background()
			activate := func(name string, s Spec, a Activation) error {
				_, _, err := b.m.Activate(ctx, name, &s, a)
				return err
			}
			if err := activate("w", Spec{Class: class, Listen: listen}, a); err == nil {
				t.Fatal("activated")
			}
			if s := b.m.States(); len(s) != 0 || b.m.o.Receiver.Named("w") != nil {
				t.Errorf("it is still there: %+v", s)
			}
			_, err := b.m.End("w")
			want(t, err, ErrUnknown, "none of that name")
			// Another has its address, for it the same trouble and not a conflict.
			if listen[0] == taken[0] {
				want(t, activate("v", Spec{Listen: taken}, some), nil, "address already in use")
			}
			free := Spec{Listen: []Address{addr(t, "127.0.0.1:0")}, Gauge: ingest.GaugeMax, Limits: ingest.Limits{Points: 5}}
			if err := activate("w", free, some); err != nil {
				t.Fatal(err)
			}
			hc, url := client(t, b.m.States()[0].Listen[0])
			if code, err := b.post(hc, url, 1); code != 200 {
				t.Errorf("%d, %v", code, err)
			}
			b.end("w") // it was live, and is kept
			want(t, activate("w", Spec{Listen: taken}, some), ErrConflict, "is defined otherwise")
			if s := b.m.States(); len(s) != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
	any := []Address{addr(t, "127.0.0.1:0")}
	f("address in use", ingest.Workload, taken, some)
	f("node, address in use", ingest.Node, taken, Activation{})
	f("no identity", ingest.Workload, any, Activation{})
	f("node with an identity", ingest.Node, any, some)

	t.Run("many at once", func(t *testing.T) {
		b := newBed(t, nil)
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				_, _, err := b.m.Activate(context.Background(), "w", &Spec{Listen: taken}, some)
				want(t, err, nil, "address already in use")
			})
			all.Go(func() { b.m.End("w") })
		}
		all.Wait()
		if s := b.m.States(); len(s) != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// What is refused says why, and advises only what helps.
func TestWordsOfRefusals(t *testing.T) {
	b := newBed(t, nil)
	spec := &Spec{Class: ingest.Node, Listen: []Address{addr(t, "127.0.0.1:0")}}
	ctx := context.Background()
	if _, _, err := b.m.Activate(ctx, "n", spec, Activation{}); err != nil {
		t.Fatal(err)
	}
	_, _, err := b.m.Activate(ctx, "n", nil, Activation{Identity: who("a")})
	want(t, err, ErrInvalid, "channel n: a channel of class node has no identity")
	_, _, err = b.m.Activate(ctx, "nope", nil, Activation{})
	want(t, err, ErrUnknown, "channel nope: there is none of that name: give it a listen address")
	const none = "channel nope: there is none of that name; wattloop channels list prints those that there are"
	_, err = b.m.End("nope")
	exactly(t, err, none)
	_, err = b.m.Prove("nope")
	exactly(t, err, none)
}

func exactly(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || err.Error() != text {
		t.Errorf("%v; want %q", err, text)
	}
}
