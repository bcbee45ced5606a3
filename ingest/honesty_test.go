package ingest_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"google.golang.org/grpc/codes"
)

// P5: sent = stored + folded + rejected, to the point, for eight clients at once on
// shared series over gRPC, HTTP protobuf and HTTP JSON: repeats, other values at
// the same time, late, early and far-off points, points without a number, stale
// markers, invalid UTF-8, one series from metrics of two types, deltas and their
// retries. After each round everything is read back: which of several values has
// won is the store's to say, and with that each single answer must be right.
func TestHonesty(t *testing.T) {
	clients, each, rounds := 8, 25, 50
	if testing.Short() {
		rounds = 5
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := newRig(t, nil)
	senders := make([]*honest, clients)
	for i := range senders {
		senders[i] = &honest{n: i, rig: r, rnd: rand.New(rand.NewPCG(seed, uint64(i))),
			s: newSender(t, r.recv.Channel("default").Live())}
	}
	closer := &honest{n: clients, rig: r, rnd: rand.New(rand.NewPCG(seed, 99)), s: newSender(t, r.recv.Channel("default").Live())}
	h := &ledger{deltas: map[string]float64{}}
	for round := range rounds {
		r.at(float64(60 * round))
		var wg sync.WaitGroup
		for _, c := range senders {
			wg.Go(func() {
				for range each {
					c.send(r.now.Load())
				}
			})
		}
		wg.Wait()
		closer.close(r.now.Load())
		stored := readBack(t, r)
		for _, c := range append(senders, closer) {
			for _, q := range c.sent {
				h.check(t, q, stored)
			}
			c.sent = nil
		}
		h.checkDeltas(t, stored)
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
	accepted := r.metric("wattloop_ingest_points_total", `result="accepted"`)
	folded := r.metric("wattloop_ingest_points_total", `result="folded"`)
	rejected := r.metric("wattloop_ingest_points_total", `result="rejected"`)
	t.Logf("%d requests, %d points: %g stored, %g folded, %g rejected (%d of them for another value that won)",
		h.requests, h.points, accepted, folded, rejected, h.lost)
	if accepted+folded+rejected != float64(h.points) || rejected != float64(h.rejected) {
		t.Errorf("the receiver counts %g + %g + %g; want %d points, %d of them rejected", accepted, folded, rejected, h.points, h.rejected)
	}
	if floor := clients * each * rounds; h.requests < floor || floor < 10_000 && !testing.Short() {
		t.Errorf("%d requests; want %d, and 10000 in CI", h.requests, floor)
	}
	if folded == 0 || h.lost == 0 || rejected < float64(h.points)/50 {
		t.Error("the requests are too tame: nothing folded, or hardly anything rejected")
	}
}

// sentPoint is one point and what is known of it before the store is read.
type sentPoint struct {
	series string // name and id
	t      int64
	bits   uint64
	metric string // what tells its metric from others that give the series
	bad    bool   // to be rejected whatever else is sent
	noUTF8 bool   // JSON cannot say it: there the whole request would be refused
	delta  float64
	counts bool // the delta is to be in the sum
}

type sentRequest struct {
	points   []sentPoint
	rejected int64
	failed   string
}

// honest is one client.
type honest struct {
	n   int
	rig *rig
	rnd *rand.Rand
	s   *sender

	sent []sentRequest
	end  int64 // of its newest delta interval, in ms
	last *pmetric.Metrics
	was  []sentPoint

	lastAt int64
}

func pick[T any](rnd *rand.Rand, of ...T) T { return of[rnd.IntN(len(of))] }

func (h *honest) send(now int64) {
	if h.last != nil && h.lastAt == now && h.rnd.IntN(10) == 0 { // the same once more, as after a lost answer
		again := append([]sentPoint(nil), h.was...)
		for i := range again {
			again[i].counts = false
		}
		h.export(*h.last, again)
		return
	}
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	rm.Resource().Attributes().PutStr("service.name", "x")
	rm.Resource().Attributes().PutInt("process.pid", int64(h.n))
	ms := rm.ScopeMetrics().AppendEmpty().Metrics()
	var points []sentPoint
	for range 1 + h.rnd.IntN(3) {
		if h.rnd.IntN(3) == 0 {
			points = append(points, h.delta(ms.AppendEmpty(), now))
		} else {
			points = append(points, h.numbers(ms.AppendEmpty(), now)...)
		}
	}
	h.last, h.was, h.lastAt = &md, points, now
	h.export(md, points)
}

// numbers makes points of a gauge, or of a sum that gives the same series.
func (h *honest) numbers(m pmetric.Metric, now int64) (points []sentPoint) {
	name, kind := pick(h.rnd, "p0", "p1"), pick(h.rnd, "gauge", "gauge", "gauge", "sum")
	m.SetName(name)
	var dps pmetric.NumberDataPointSlice
	if kind == "gauge" {
		dps = m.SetEmptyGauge().DataPoints()
	} else {
		m.SetEmptySum().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		dps = m.Sum().DataPoints()
	}
	for range 1 + h.rnd.IntN(4) {
		dp := dps.AppendEmpty()
		id := pick(h.rnd, "a", "b", "c")
		p := sentPoint{series: name + " " + id, metric: kind, t: now - 1000*pick[int64](h.rnd, 0, 10, 30, 60, 120, 300, 900, 1200, -30, -60)}
		dp.Attributes().PutStr("id", id)
		v := float64(p.t%1000) + pick(h.rnd, 0, 0, 0, 0.5)
		dp.SetDoubleValue(v)
		p.bits = math.Float64bits(v)
		switch h.rnd.IntN(25) {
		case 0:
			p.t, p.bad = now+61_000, true
		case 1:
			p.t, p.bad = now-31*60_000, true
		case 2:
			p.t, p.bad = 0, true
		case 3:
			dp.Attributes().PutStr("evil", "\xff\xfe")
			p.bad, p.noUTF8 = true, true
		case 4:
			dp.Attributes().PutStr("evil", "a\u202eb")
			p.bad = true
		case 5:
			dp2 := pmetric.NewNumberDataPoint()
			dp.Attributes().CopyTo(dp2.Attributes())
			dp2.CopyTo(dp) // without a number
			p.bad = true
		case 6:
			dp.SetFlags(dp.Flags().WithNoRecordedValue(true))
			p.bits = value.StaleNaN
		}
		dp.SetTimestamp(pcommon.Timestamp(p.t * 1e6))
		points = append(points, p)
	}
	return points
}

// delta makes the next interval of a stream of this client's own, of a series that
// all share.
func (h *honest) delta(m pmetric.Metric, now int64) sentPoint {
	m.SetName("d")
	s := m.SetEmptySum()
	s.SetIsMonotonic(true)
	s.SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
	dp := s.DataPoints().AppendEmpty()
	dp.Attributes().PutStr("id", "a")
	v := float64(1 + h.rnd.IntN(5))
	start := max(h.end, now-20*60_000)
	h.end = start + 1000
	p := sentPoint{series: "d_total a", metric: "delta", delta: v, counts: true}
	if h.rnd.IntN(20) == 0 {
		v, p.counts, p.bad = -v, false, true
	}
	dp.SetStartTimestamp(pcommon.Timestamp(start * 1e6))
	dp.SetTimestamp(pcommon.Timestamp(h.end * 1e6))
	dp.SetDoubleValue(v)
	return p
}

// close sends a delta newer than all others: with it the sum that it is added to is
// written, and what was folded into that stands in the store.
func (h *honest) close(now int64) {
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	rm.Resource().Attributes().PutStr("service.name", "x")
	rm.Resource().Attributes().PutInt("process.pid", int64(h.n))
	h.end = now - 1000
	p := h.delta(rm.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty(), now)
	for p.bad {
		md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().RemoveIf(func(pmetric.Metric) bool { return true })
		h.end = now - 1000
		p = h.delta(rm.ScopeMetrics().At(0).Metrics().AppendEmpty(), now)
	}
	h.export(md, []sentPoint{p})
}

// export sends over one of the three transports, and notes the answer.
func (h *honest) export(md pmetric.Metrics, points []sentPoint) {
	q := sentRequest{points: points}
	defer func() { h.sent = append(h.sent, q) }()
	req := pmetricotlp.NewExportRequestFromMetrics(md)
	wire, err := req.MarshalProto()
	if err != nil {
		q.failed = err.Error()
		return
	}
	transport := h.rnd.IntN(3)
	if body, err := req.MarshalJSON(); transport == 0 && err == nil && !slices.ContainsFunc(points, func(p sentPoint) bool { return p.noUTF8 }) {
		code, p := h.s.post("application/json", body)
		q.rejected = p.rejected
		if code != 200 {
			q.failed = fmt.Sprint("JSON: ", code)
		}
		return
	}
	if transport == 1 {
		code, p := h.s.call(wire)
		q.rejected = p.rejected
		if code != codes.OK {
			q.failed = fmt.Sprint("gRPC: ", code)
		}
		return
	}
	code, p := h.s.post("application/x-protobuf", wire)
	q.rejected = p.rejected
	if code != 200 {
		q.failed = fmt.Sprint("HTTP: ", code)
	}
}

// ledger adds up all rounds.
type ledger struct {
	requests, points int
	rejected         int64
	lost             int // points whose series has another value at their time
	deltas           map[string]float64
}

type at struct {
	series string
	t      int64
}

// check holds the answer to one request against what is stored.
func (l *ledger) check(t *testing.T, q sentRequest, stored map[at]uint64) {
	t.Helper()
	if q.failed != "" {
		t.Errorf("a request failed: %s", q.failed)
	}
	l.requests++
	l.points += len(q.points)
	l.rejected += q.rejected
	var want int64
	owner := map[string]string{}
	for _, p := range q.points {
		switch {
		case p.bad:
			want++
			continue
		case owner[p.series] != "" && owner[p.series] != p.metric: // two metrics, one series
			want++
			continue
		}
		owner[p.series] = p.metric
		if p.metric == "delta" {
			if p.counts {
				l.deltas[p.series] += p.delta
			}
			continue
		}
		bits, ok := stored[at{p.series, p.t}]
		switch {
		case !ok:
			t.Errorf("%s at %d: nothing is stored", p.series, p.t)
		case bits != p.bits:
			want++
			l.lost++
		}
	}
	if q.rejected != want {
		t.Errorf("the answer was %d rejected; want %d of %+v", q.rejected, want, q.points)
	}
}

// checkDeltas compares the newest sample of each running sum with what was sent.
func (l *ledger) checkDeltas(t *testing.T, stored map[at]uint64) {
	t.Helper()
	for series, want := range l.deltas {
		newest, got := int64(0), 0.0
		for k, bits := range stored {
			if k.series == series && k.t > newest {
				newest, got = k.t, math.Float64frombits(bits)
			}
		}
		if got != want {
			t.Errorf("%s is %g; the deltas sent make %g", series, got, want)
		}
	}
}

// readBack is all that is stored but for target_info.
func readBack(t *testing.T, r *rig) map[at]uint64 {
	t.Helper()
	q, err := r.db.Querier(math.MinInt64, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	out := map[at]uint64{}
	set := q.Select(context.Background(), false, nil, labels.MustNewMatcher(labels.MatchNotEqual, "id", ""))
	for set.Next() {
		s := set.At()
		key := s.Labels().Get("__name__") + " " + s.Labels().Get("id")
		it := s.Iterator(nil)
		for it.Next() != chunkenc.ValNone {
			ts, v := it.At()
			if _, twice := out[at{key, ts}]; twice {
				t.Errorf("%s at %d: two samples", key, ts)
			}
			out[at{key, ts}] = math.Float64bits(v)
		}
		if it.Err() != nil {
			t.Fatal(it.Err())
		}
	}
	if set.Err() != nil {
		t.Fatal(set.Err())
	}
	return out
}
