package ingest

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"testing"
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
