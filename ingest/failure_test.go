package ingest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
)

// An error of the store is the sender's to repeat, and leaves nothing behind.
func TestStoreErrors(t *testing.T) {
	failing := &flaky{}
	synced := 0
	var syncErr error
	b := newBed(t, func(o *Options) {
		failing.Appendable = o.Appendable
		o.Appendable = failing
		o.Sync = func(context.Context) error { synced++; return syncErr }
	})
	p := newPayload(node...)
	p.gauge("hw.power", "W", 0, 1, "hw.id", "cpu0")
	p.sum("app.requests", "", delta, -1000, 0, 5)
	wire := wireOf(t, p.md)
	broken := errors.New("no space left on device")
	unavailable := func() {
		t.Helper()
		_, err := b.r.Export(context.Background(), wire)
		var ue *UnavailableError
		if !errors.As(err, &ue) || !errors.Is(err, broken) {
			t.Errorf("got %v; want an *UnavailableError of %v", err, broken)
		}
	}
	failing.append = broken
	unavailable()
	failing.append, failing.commit = nil, broken
	unavailable()
	if n := testutil.ToFloat64(b.r.metrics.points.WithLabelValues("default", "rejected", "unavailable")); n != 4 {
		t.Errorf("%v points counted as refused by the store; want 2, twice", n)
	}
	if synced != 0 || len(b.stored()) != 0 {
		t.Errorf("synced %d times, %d series; want none", synced, len(b.stored()))
	}
	failing.commit, syncErr = nil, broken
	unavailable() // committed, not durable
	syncErr = nil
	res, err := b.r.Export(context.Background(), wire)
	if err != nil {
		t.Fatal(err)
	}
	checkResult(t, res, 1, 1, nil)
	b.check(watts, tv{base, 1})
	b.check(`{__name__="app_requests_total", instance="edge-a", job="hwexp", k8s_node_name="edge-a"}`, tv{base, 5})
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := b.r.Export(canceled, wire); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v; want context.Canceled", err)
	}
}

// flaky fails where it is told to.
type flaky struct {
	storage.Appendable
	append, commit error
}

type flakyAppender struct {
	storage.Appender
	f *flaky
}

func (f *flaky) Appender(ctx context.Context) storage.Appender {
	return &flakyAppender{f.Appendable.Appender(ctx), f}
}

func (a *flakyAppender) Append(ref storage.SeriesRef, l labels.Labels, t int64, v float64) (storage.SeriesRef, error) {
	if a.f.append != nil {
		return 0, a.f.append
	}
	return a.Appender.Append(ref, l, t, v)
}

func (a *flakyAppender) Commit() error {
	if a.f.commit != nil {
		return errors.Join(a.f.commit, a.Rollback())
	}
	return a.Appender.Commit()
}

// The watcher hears once a request which rules' series grew, and is asked about a
// series once a generation.
func TestWatch(t *testing.T) {
	gen, asked := uint64(1), 0
	type call struct {
		rules  []int32
		newest int64
	}
	var calls []call
	b := newBed(t, func(o *Options) {
		o.Watch = Watch{
			Gen: func() uint64 { return gen },
			Rules: func(l labels.Labels) []int32 {
				asked++
				if l.Get("__name__") == "hw_power_watts" {
					return []int32{7, 2}
				}
				return nil
			},
			Grew: func(rules []int32, newest int64) {
				slices.Sort(rules)
				calls = append(calls, call{rules, newest})
			},
		}
	})
	send := func(ms int64, name string) {
		p := newPayload(node...)
		p.gauge(name, "W", ms, 1, "hw.id", "cpu0")
		p.gauge(name, "W", ms, 1, "hw.id", "cpu1")
		b.export(p.md)
	}
	send(0, "hw.power")
	send(1000, "hw.power")
	send(1000, "other")
	if len(calls) != 2 || asked != 5 { // two of each metric, and target_info
		t.Fatalf("%d calls, %d questions; want 2 and 5", len(calls), asked)
	}
	for i, c := range calls {
		if !slices.Equal(c.rules, []int32{2, 7}) || c.newest != base+int64(i)*1000 {
			t.Errorf("call %d: %v at %d", i, c.rules, c.newest)
		}
	}
	gen++
	send(2000, "hw.power")
	if len(calls) != 3 || asked != 7 {
		t.Errorf("%d calls, %d questions after a new rule set; want 3 and 7", len(calls), asked)
	}
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	b := newBed(t, func(o *Options) { o.Registerer = reg })
	p := newPayload(node...)
	p.gauge("a", "", -2000, 1)
	p.gauge("b", "", 61_000, 1)
	if _, err := b.r.Channel("otlp").Export(context.Background(), wireOf(t, p.md)); err != nil {
		t.Fatal(err)
	}
	m := b.r.metrics
	for _, c := range []struct {
		labels []string
		want   float64
	}{
		{[]string{"otlp", "accepted", ""}, 1}, {[]string{"otlp", "rejected", "future"}, 1}, {[]string{"otlp", "folded", ""}, 0},
	} {
		if got := testutil.ToFloat64(m.points.WithLabelValues(c.labels...)); got != c.want {
			t.Errorf("wattloop_ingest_points_total%v = %v; want %v", c.labels, got, c.want)
		}
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "wattloop_ingest_lag_seconds" && f.GetMetric()[0].GetHistogram().GetSampleSum() != 2 {
			t.Errorf("lag %v; want 2 s", f.GetMetric()[0])
		}
	}
}
