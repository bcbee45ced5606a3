package ingest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/prometheus/otlptranslator"

	"github.com/wattloop/wattloop/presets/names"
)

// Attributes in another order are other bytes and the same series.
func TestAttributeOrder(t *testing.T) {
	b := newBed(t, nil)
	for i, attrs := range [][]string{{"hw.id", "cpu0", "hw.type", "cpu"}, {"hw.type", "cpu", "hw.id", "cpu0"}} {
		p := newPayload(node...)
		p.gauge("hw.power", "W", int64(i)*1000, float64(i), attrs...)
		b.export(p.md)
	}
	b.check(`{__name__="hw_power_watts", hw_id="cpu0", hw_type="cpu", instance="edge-a", job="hwexp", k8s_node_name="edge-a"}`,
		tv{base, 0}, tv{base + 1000, 1})
	if n := b.r.w.cache.nSeries; n != 2 { // and target_info
		t.Errorf("%d series are known; want 2", n)
	}
}

// Past the bound on series a point is refused, until idle ones have made room;
// what is known goes on.
func TestSeriesLimit(t *testing.T) {
	b := newBed(t, func(o *Options) { o.MaxSeries = 10; o.NoTimeGate = true })
	send := func(from, n int) Result {
		p := newPayload()
		for i := range n {
			p.gauge("g", "", b.now-base, 1, "i", fmt.Sprint(from+i))
		}
		return b.export(p.md)
	}
	for range 2 {
		checkResult(t, send(0, 12), 10, 0, map[string]int64{"series_limit": 2})
	}
	checkResult(t, send(20, 1), 0, 0, map[string]int64{"series_limit": 1})
	b.at(300)
	checkResult(t, send(5, 5), 5, 0, nil)
	b.at(700) // the first five are idle now, the others are not
	checkResult(t, send(20, 6), 5, 0, map[string]int64{"series_limit": 1})
	checkResult(t, send(5, 5), 5, 0, nil)
	c := &b.r.w.cache
	if c.nSeries != 10 || len(c.series) > 10 {
		t.Errorf("%d series are known, %d chains; want 10", c.nSeries, len(c.series))
	}
}

// The cache lets go of what nobody sends any more, and of byte forms when there
// are too many; the sums and the series that are in use stay.
func TestCacheIsBounded(t *testing.T) {
	b := newBed(t, func(o *Options) { o.MaxSeries = 100; o.NoTimeGate = true })
	d := deltaSender{b, nil}
	for i := range 40 {
		b.at(float64(i) * 120)
		for j := range 50 { // a resource of its own each time: other bytes, the same series
			p := newPayload("service.name", "x", "process.pid", fmt.Sprint(100*i+j))
			p.gauge("g", "", int64(i*50+j)*1000, float64(j))
			b.export(p.md)
		}
		d.send(int64(i)*120-120, int64(i)*120, 1, 1, 0, "")
	}
	c := &b.r.w.cache
	if c.nodes > 4*c.maxSeries+4*51 || c.nSeries > 100 {
		t.Errorf("%d entries, %d series; bounds 400 and 100", c.nodes, c.nSeries)
	}
	if got := b.values(requests); len(got) != 40 || got[39].v != 40 {
		t.Errorf("the running sum was lost: %v", got)
	}
	b.at(40*120 + 3*3600)
	d.send(4680, 4800, 1, 1, 0, "")
	if c.nSeries > 4 || c.nodes > 4 {
		t.Errorf("%d entries, %d series after three hours of silence; want those of one point", c.nodes, c.nSeries)
	}
}

// The four strategies are a setting; the table of names says what each gives.
func TestStrategies(t *testing.T) {
	for _, s := range names.Strategies() {
		b := newBed(t, func(o *Options) { o.Naming = otlptranslator.TranslationStrategyOption(s) })
		p := newPayload(node...)
		want := map[string]bool{}
		for _, m := range names.Metrics() {
			want[m.Stored(s)] = true
			if m.Kind == names.Counter {
				p.sum(m.Name, m.Unit, cumulative, -1000, 0, 1)
			} else {
				p.gauge(m.Name, m.Unit, 0, 1)
			}
		}
		checkResult(t, b.export(p.md), int64(len(want)), 0, nil)
		for _, series := range b.r.w.cache.series {
			name := series.labels.Get("__name__")
			if name != targetInfoName && !want[name] {
				t.Errorf("%s stores %s, which is not in the table", s, name)
			}
			key := names.Attributes()[0].Stored(s)
			if series.labels.Get(key) != "edge-a" {
				t.Errorf("%s: %s has no %s", s, series.labels, key)
			}
		}
	}
}

// A resource whose attributes share a label keeps the promoted one; the others are
// left out of target_info, and never joined.
func TestTargetInfoCollision(t *testing.T) {
	b := newBed(t, nil)
	p := newPayload(append(node, "k8s_node_name", "evil", "os.type", "a", "os_type", "b", "cmd\x00", "x", "line", "a\nb")...)
	p.gauge("hw.power", "W", 0, 1, "hw.id", "cpu0")
	b.export(p.md)
	b.check(watts, tv{base, 1})
	b.check(`{__name__="target_info", instance="edge-a", job="hwexp", k8s_node_name="edge-a"}`, tv{base, 1})
}

// An identity that is unfit for a label refuses the points of its resource.
func TestUnfitIdentity(t *testing.T) {
	long := string(make([]byte, 1025))
	for _, c := range []struct{ key, value, want string }{
		{"k8s.node.name", "a\nb", "bad_text"}, {"service.name", "a\x7fb", "bad_text"},
		{"service.instance.id", long, "label_limit"}, {"host.name", long, "label_limit"},
	} {
		b := newBed(t, nil)
		p := newPayload(c.key, c.value)
		p.gauge("hw.power", "W", 0, 1)
		p.resource("service.name", "other")
		p.gauge("hw.power", "W", 0, 1)
		checkResult(t, b.export(p.md), 1, 0, map[string]int64{c.want: 1})
	}
}

// P5 of reliability.md: clients that share series and disagree about them. What is
// stored is what was accepted, no more and no less.
func TestSharedSeries(t *testing.T) {
	b := newBed(t, nil)
	const clients, perClient = 8, 60
	var mu sync.Mutex
	accepted := map[string]map[int64]float64{}
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(c), 1))
			for range perClient {
				// One point a request, so that its result is the point's own.
				id, ms, v := fmt.Sprint(rnd.IntN(3)), int64(rnd.IntN(40))*1000-39_000, float64(rnd.IntN(2))
				p := newPayload()
				p.gauge("g", "", ms, v, "i", id)
				res, err := b.r.Export(context.Background(), wireOf(t, p.md))
				if err != nil || res.Accepted+res.Rejected != 1 {
					t.Error(res, err)
				}
				if res.Accepted == 0 {
					continue
				}
				mu.Lock()
				key := `{__name__="g", i="` + id + `"}`
				if accepted[key] == nil {
					accepted[key] = map[int64]float64{}
				}
				if old, twice := accepted[key][base+ms]; twice && old != v {
					t.Errorf("%s at %d: %v and %v are both accepted", key, ms, old, v)
				}
				accepted[key][base+ms] = v
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	stored := b.stored()
	for key, want := range accepted {
		if len(stored[key]) != len(want) {
			t.Errorf("%s holds %d samples; %d were accepted", key, len(stored[key]), len(want))
		}
		for _, s := range stored[key] {
			if v, ok := want[s.t]; !ok || v != s.v {
				t.Errorf("%s holds %v, which was not accepted", key, s)
			}
		}
	}
}
