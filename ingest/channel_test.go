package ingest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/wattloop/wattloop/ingest"
)

// S2-14, S2-15, S2-85: one activation at a time, and none is delivered under
// another's identity (S2-17, S2-86).
func TestActivation(t *testing.T) {
	r := ingest.NewReceiver(ingest.Options{})
	ch, err := r.AddChannel(ingest.ChannelOptions{Name: "ch7", Class: ingest.Workload})
	if err != nil {
		t.Fatal(err)
	}
	var unavailable *ingest.UnavailableError
	if _, err := ch.Export(context.Background(), nil); !errors.As(err, &unavailable) {
		t.Errorf("before the first activation: %v; want an *UnavailableError", err)
	}
	now := time.Now()
	a, err := ch.Activate(ingest.Identity{ActorUID: "a"}, now, now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.Activate(ingest.Identity{ActorUID: "b"}, now, now); !errors.Is(err, ingest.ErrLive) {
		t.Errorf("a second activation: %v; want ErrLive", err)
	}
	if _, err := a.Export(context.Background(), nil); err != nil {
		t.Error(err)
	}
	a.End()
	a.End()
	if _, err := a.Export(context.Background(), nil); !errors.As(err, &unavailable) {
		t.Errorf("after the end: %v; want an *UnavailableError", err)
	}
	b, err := ch.Activate(ingest.Identity{ActorUID: "b"}, now, now)
	if err != nil {
		t.Fatal(err)
	}
	a.End() // the end of the first is not the end of the second
	if ch.Live() != b {
		t.Error("an old activation's end ended the new one")
	}
}

func TestBadChannels(t *testing.T) {
	r := ingest.NewReceiver(ingest.Options{})
	for _, o := range []ingest.ChannelOptions{
		{}, {Name: "a/b"}, {Name: "a", Class: "root"}, {Name: "a", Gauge: "sum"}, {Name: strings.Repeat("x", 64)},
	} {
		if _, err := r.AddChannel(o); err == nil {
			t.Errorf("AddChannel(%+v) succeeded", o)
		}
	}
	node, err := r.AddChannel(ingest.ChannelOptions{Name: "n"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.AddChannel(ingest.ChannelOptions{Name: "n"}); err == nil {
		t.Error("two channels of one name")
	}
	if _, err := node.Activate(ingest.Identity{ActorUID: "a"}, time.Now(), time.Time{}); err == nil {
		t.Error("a node channel was given an identity")
	}
	work, err := r.AddChannel(ingest.ChannelOptions{Name: "w", Class: ingest.Workload})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []ingest.Identity{{}, {ActorUID: "\xff"}, {Node: "a\nb"}, {PodName: strings.Repeat("x", 1025)}} {
		if _, err := work.Activate(id, time.Now(), time.Time{}); err == nil {
			t.Errorf("identity %+v was taken", id)
		}
	}
}
