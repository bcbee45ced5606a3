package ingest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"go.opentelemetry.io/collector/pdata/pmetric"
)

// upstream keeps what is forwarded to it, or refuses it with err.
type upstream struct {
	mu   sync.Mutex
	got  []Forwarded
	err  error
	wait func() // called before the request is taken
}

func (u *upstream) Forward(_ context.Context, f Forwarded) error {
	if u.wait != nil {
		u.wait()
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err != nil {
		return u.err
	}
	f.Wire = slices.Clone(f.Wire)
	u.got = append(u.got, f)
	return nil
}

// S2-9, S2-65: what a node channel has taken goes on as it came, also what the store
// refused; an upstream that refuses it changes no answer.
func TestNodeMetricsOnward(t *testing.T) {
	up := &upstream{}
	b := newBed(t, func(o *Options) { o.Onward = up })
	p := newPayload(node...)
	p.gauge("hw.power", "W", 0, 7, "hw.id", "cpu0")
	p.gauge("wattloop.fake", "W", 0, 7)
	wire := wireOf(t, p.md)
	for _, err := range []error{nil, ErrNoRoom} {
		up.err = err
		res, err := b.r.Export(context.Background(), wire)
		if err != nil {
			t.Fatal(err)
		}
		checkResult(t, res, 1, 0, map[string]int64{"reserved_name": 1})
	}
	if len(up.got) != 1 || up.got[0].Signal != SignalMetrics || up.got[0].Plane != PlanePlatform || !bytes.Equal(up.got[0].Wire, wire) {
		t.Errorf("forwarded %+v; want one request of the platform, as it came", up.got)
	}
}

// Metrics that are kept elsewhere go there as they came, also beside an upstream,
// and are not taken while they find no room.
func TestMetricsElsewhere(t *testing.T) {
	up, there := &upstream{}, &upstream{}
	b := newBed(t, func(o *Options) { o.Onward, o.Elsewhere = up, there })
	p := newPayload(node...)
	p.gauge("hw.power", "W", 0, 7, "hw.id", "cpu0")
	p.gauge("wattloop.fake", "W", 0, 7)
	wire := wireOf(t, p.md)
	for range 2 { // a repeat goes on again
		res, err := b.r.Export(context.Background(), wire)
		if err != nil {
			t.Fatal(err)
		}
		checkResult(t, res, 1, 0, map[string]int64{"reserved_name": 1})
	}
	for _, u := range []*upstream{up, there} {
		if len(u.got) != 2 || !bytes.Equal(u.got[0].Wire, wire) {
			t.Errorf("forwarded %+v; want two requests, as they came", u.got)
		}
	}
	there.err = ErrNoRoom
	if _, err := b.r.Export(context.Background(), wire); !errors.Is(err, ErrNoRoom) {
		t.Errorf("no room: %v", err)
	}
	if n := b.seriesCount(); n > 0 {
		t.Errorf("%d series are kept here", n)
	}
}

// What a workload sends is stamped before it goes elsewhere.
func TestWorkloadMetricsElsewhere(t *testing.T) {
	there := &upstream{}
	_, a, _ := workload(t, Identity{ActorUID: "a"}, func(o *Options) { o.Onward, o.Elsewhere = nil, there })
	p := newPayload("k8s.node.name", "evil", "service.name", "s")
	p.gauge("load", "", 0, 7)
	if _, err := a.Export(context.Background(), wireOf(t, p.md)); err != nil {
		t.Fatal(err)
	}
	if len(there.got) != 1 || bytes.Contains(there.got[0].Wire, []byte("evil")) || !bytes.Contains(there.got[0].Wire, []byte("ate.telemetry.plane")) || there.got[0].Plane != PlaneWorkload {
		t.Errorf("forwarded %q", there.got)
	}
}

// What found no room elsewhere was not taken: when it is sent again it goes there,
// once, delta and cumulative, and only then onward.
func TestWorkloadMetricsFindNoRoom(t *testing.T) {
	up, there := &upstream{}, &upstream{}
	b, a, _ := workload(t, Identity{ActorUID: "a"}, func(o *Options) { o.Onward, o.Elsewhere = up, there })
	for i, temporality := range []pmetric.AggregationTemporality{delta, cumulative} {
		b.now += 1000
		p := newPayload("service.name", "s")
		p.sum("jobs", "", temporality, b.now-base-500, b.now-base, 7)
		wire := wireOf(t, p.md)
		there.err = ErrNoRoom
		for range 2 {
			if _, err := a.Export(t.Context(), wire); !errors.Is(err, ErrNoRoom) {
				t.Fatalf("no room: %v", err)
			}
		}
		there.err = nil
		res, err := a.Export(t.Context(), wire)
		if err != nil {
			t.Fatal(err)
		}
		checkResult(t, res, 1, 0, nil)
		res, err = a.Export(t.Context(), wire) // a repeat
		if err != nil {
			t.Fatal(err)
		}
		checkResult(t, res, 0, 1, nil)
		for name, u := range map[string]*upstream{"elsewhere": there, "onward": up} {
			if len(u.got) != i+1 {
				t.Errorf("temporality %d: %d requests went %s; want %d", temporality, len(u.got), name, i+1)
			}
		}
	}
}
