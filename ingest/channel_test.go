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

// X1: a node channel with a list of nodes takes no other's name, wherever in
// the request it stands.
func TestForeignNode(t *testing.T) {
	r := newRig(t, nil)
	ch, err := r.recv.AddChannel(ingest.ChannelOptions{Name: "rack", Nodes: []string{"edge-a"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		resource, point string
		rejected        int64
	}{
		{`{"key":"k8s.node.name","value":{"stringValue":"edge-a"}}`, ``, 0},
		{``, ``, 0},
		{`{"key":"k8s.node.name","value":{"stringValue":"edge-b"}}`, ``, 1},
		{``, `{"key":"k8s.node.name","value":{"stringValue":"edge-b"}}`, 1},
		{``, `{"key":"k8s_node_name","value":{"stringValue":"edge-b"}}`, 1},
		{`{"key":"k8s.node.name","value":{"stringValue":"edge-a"}}`, `{"key":"k8s_node_name","value":{"stringValue":"edge-b"}}`, 0},
	} {
		body := `{"resourceMetrics":[{"resource":{"attributes":[` + c.resource + `]},"scopeMetrics":[{"metrics":[{"name":"m","gauge":{"dataPoints":[` +
			`{"timeUnixNano":"1760000000000000000","asDouble":1,"attributes":[` + c.point + `]}]}}]}]}]}`
		got, err := ch.ExportJSON(t.Context(), []byte(body))
		if err != nil || got.Rejected != c.rejected || c.rejected > 0 && got.ByReason["foreign_node"] != 1 {
			t.Errorf("resource %s, point %s: %+v, %v; want %d rejected as foreign_node", c.resource, c.point, got, err, c.rejected)
		}
	}
	if got := r.query(`{k8s_node_name="edge-b"}`, 0); len(got) > 0 {
		t.Errorf("the store has %v", got)
	}
}
