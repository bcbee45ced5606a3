package ingest

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wattloop/wattloop/store"
)

// benchRequest is a request of n gauge points, 100 nodes of n/100 components, 86
// bytes a point or so, and where in it the times stand.
func benchRequest(t testing.TB, n int) (wire []byte, times []int) {
	md := pmetric.NewMetrics()
	for i := range 100 {
		rm := md.ResourceMetrics().AppendEmpty()
		put(rm.Resource().Attributes(), []string{"k8s.node.name", fmt.Sprintf("node-%03d", i), "service.name", "hwexp",
			"service.instance.id", fmt.Sprintf("node-%03d", i)})
		sm := rm.ScopeMetrics().AppendEmpty()
		sm.Scope().SetName("hwexp")
		m := sm.Metrics().AppendEmpty()
		m.SetName("hw.power")
		m.SetUnit("W")
		dps := m.SetEmptyGauge().DataPoints()
		for j := range n / 100 {
			dp := dps.AppendEmpty()
			dp.SetTimestamp(benchMark)
			dp.SetDoubleValue(float64(j))
			put(dp.Attributes(), []string{"hw.type", "gpu", "hw.id", fmt.Sprintf("gpu%04d", j)})
		}
	}
	wire = wireOf(t, md)
	var mark [8]byte
	binary.LittleEndian.PutUint64(mark[:], uint64(benchMark))
	for i := 0; i+8 <= len(wire); i++ {
		if string(wire[i:i+8]) == string(mark[:]) {
			times = append(times, i)
		}
	}
	if len(times) != n {
		t.Fatalf("%d times in the request; want %d", len(times), n)
	}
	return wire, times
}

const benchMark = pcommon.Timestamp(0x0102030405060708)

func stampTimes(wire []byte, times []int, ms int64) {
	for _, at := range times {
		binary.LittleEndian.PutUint64(wire[at:], uint64(ms*1e6))
	}
}

// BenchmarkExport is bytes to committed, without the fsync, over 10,000 series in
// requests of 1,000 points, against the store; append is the same samples handed
// to the store by reference alone, the least that any way in can cost.
func BenchmarkExport(b *testing.B) {
	const perRequest, requests = 1000, 10
	open := func(b *testing.B) *store.DB {
		db, err := store.Open(store.Options{Path: b.TempDir(), Durability: "os"})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := db.Close(); err != nil {
				b.Error(err)
			}
		})
		return db
	}
	b.Run("otlp", func(b *testing.B) {
		db := open(b)
		r := NewReceiver(Options{Appendable: db, Queryable: db, NoTimeGate: true})
		var wires [requests][]byte
		var times [requests][]int
		for i := range requests {
			// Ten requests, each of other components than the others.
			wires[i], times[i] = benchRequest(b, perRequest)
			for j := range wires[i] {
				if string(wires[i][j:min(j+3, len(wires[i]))]) == "gpu" && j+7 <= len(wires[i]) && wires[i][j+3] == '0' {
					wires[i][j+3] = '0' + byte(i)
				}
			}
		}
		ctx := context.Background()
		export := func(n int) {
			i := n % requests
			stampTimes(wires[i], times[i], base+int64(n/requests)*5000)
			res, err := r.Export(ctx, wires[i])
			if err != nil || res.Accepted != perRequest {
				b.Fatal(res, err)
			}
		}
		for i := range 2 * requests {
			export(i)
		}
		b.ReportAllocs()
		n := 2 * requests
		for b.Loop() {
			export(n)
			n++
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/perRequest, "ns/point")
	})
	b.Run("append", func(b *testing.B) {
		db := open(b)
		var refs [requests * perRequest]storage.SeriesRef
		var series [requests * perRequest]labels.Labels
		for i := range series {
			series[i] = labels.FromStrings("__name__", "hw_power_watts", "hw_id", fmt.Sprint(i), "hw_type", "gpu",
				"instance", "node", "job", "hwexp", "k8s_node_name", "node")
		}
		n := 0
		commit := func() {
			app := db.Appender(context.Background())
			from := n % requests * perRequest
			for i := from; i < from+perRequest; i++ {
				ref, err := app.Append(refs[i], series[i], base+int64(n/requests)*5000, float64(i))
				if err != nil {
					b.Fatal(err)
				}
				refs[i] = ref
			}
			if err := app.Commit(); err != nil {
				b.Fatal(err)
			}
			n++
		}
		for range 2 * requests {
			commit()
		}
		b.ReportAllocs()
		for b.Loop() {
			commit()
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/perRequest, "ns/point")
	})
}

// BenchmarkTranslate is the same without a store.
func BenchmarkTranslate(b *testing.B) {
	r := NewReceiver(Options{Appendable: nowhere{}, NoTimeGate: true})
	wire, times := benchRequest(b, 1000)
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		stampTimes(wire, times, base+int64(n)*1000)
		n++
		if _, err := r.Export(context.Background(), wire); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/point")
}

// In the steady state a request of known series allocates nothing for a point.
func TestAllocations(t *testing.T) {
	r := NewReceiver(Options{Appendable: nowhere{}, NoTimeGate: true})
	wire, times := benchRequest(t, 1000)
	n := int64(0)
	export := func() {
		stampTimes(wire, times, base+n*1000)
		n++
		if _, err := r.Export(context.Background(), wire); err != nil {
			t.Fatal(err)
		}
	}
	export()
	if got := testing.AllocsPerRun(50, export); got > 20 {
		t.Errorf("%v allocations for a request of 1000 points; want a few", got)
	}
}

// BenchmarkSeriesMemory is what 100,000 series cost: in the head of the store, with
// what the receiver remembers of them. bytesPerSeries of cmd/wattloop is above it.
func BenchmarkSeriesMemory(b *testing.B) {
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for b.Loop() {
		db, err := store.Open(store.Options{Path: b.TempDir(), Durability: "os"})
		if err != nil {
			b.Fatal(err)
		}
		r := NewReceiver(Options{Appendable: db, NoTimeGate: true})
		before := heap()
		const n = 100_000
		for i := range n / 1000 {
			p := newPayload(append([]string{"pid", fmt.Sprint(i)}, node...)...)
			dps := p.metric("hw.power", "W").SetEmptyGauge().DataPoints()
			for j := range 1000 {
				dp := dps.AppendEmpty()
				dp.SetTimestamp(pcommon.Timestamp(base * 1e6))
				dp.SetDoubleValue(float64(j))
				put(dp.Attributes(), []string{"hw.type", "gpu", "hw.id", fmt.Sprintf("gpu-%d-%d", i, j), "region", "eu-1", "kind", "x"})
			}
			if res, err := r.Export(context.Background(), wireOf(b, p.md)); err != nil || res.Accepted != 1000 {
				b.Fatal(res, err)
			}
		}
		b.ReportMetric(float64(heap()-before)/n, "B/series")
		if got := db.Stats().Series; got < n {
			b.Fatalf("%d series", got)
		}
		runtime.KeepAlive(r)
		if err := db.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLimits is what the limits add to each request: its place, its charges,
// its memory and its turn.
func BenchmarkLimits(b *testing.B) {
	r := NewReceiver(Options{Appendable: nowhere{}})
	c, err := r.AddChannel(ChannelOptions{Name: "w", Class: Workload, Limits: Limits{Points: 1e12, Bytes: 1e12}})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := c.enter(0); err != nil {
			b.Fatal(err)
		}
		c.spendBytes(86_000)
		if err := r.inFlight.take(c, 86_000); err != nil {
			b.Fatal(err)
		}
		r.mu.lock(&c.line)
		c.spendPoints(1000)
		r.mu.Unlock()
		r.inFlight.give(c, 86_000)
		c.leave()
	}
}

// BenchmarkOverLimit is what it costs to turn one away.
func BenchmarkOverLimit(b *testing.B) {
	r := NewReceiver(Options{Appendable: nowhere{}})
	c, err := r.AddChannel(ChannelOptions{Name: "w", Class: Workload, Limits: Limits{Points: 1e-9}})
	if err != nil {
		b.Fatal(err)
	}
	c.spendPoints(1000)
	b.ReportAllocs()
	for b.Loop() {
		if c.enter(0) == nil {
			b.Fatal("let in")
		}
	}
}
