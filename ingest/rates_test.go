package ingest_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wattloop/wattloop/ingest"
)

// workload makes a channel "w" of class workload, activated at T0.
func workload(t *testing.T, l ingest.Limits) func(*ingest.Receiver) *ingest.Activation {
	return func(recv *ingest.Receiver) *ingest.Activation { return activate(t, recv, "w", l) }
}

func activate(t *testing.T, recv *ingest.Receiver, name string, l ingest.Limits) *ingest.Activation {
	t.Helper()
	ch, err := recv.AddChannel(ingest.ChannelOptions{Name: name, Class: ingest.Workload, Limits: l})
	if err != nil {
		t.Fatal(err)
	}
	a, err := ch.Activate(ingest.Identity{ActorUID: "actor-" + name, TemplateName: "t"}, time.Unix(t0, 0), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// S2-67: a channel over its own rate is told so over every transport, and counted by
// reason; what it sends is not even decoded. It goes on once the debt is paid, by
// the receiver's clock.
func TestAnswersOverOwnRate(t *testing.T) {
	over := answer{codes.Unavailable, 429, 0, time.Second}
	fine := answer{codes.OK, 200, 0, 0}
	f := func(name string, l ingest.Limits, reason string, after float64) {
		t.Run(name, func(t *testing.T) {
			r := newRigOn(t, nil, workload(t, l))
			r.at(60)
			r.checkGRPC(gauge(60, 59, 58), fine)
			for range 2 {
				r.checkGRPC(gauge(60), over)
				r.checkHTTP(gauge(60), "application/x-protobuf", over)
				r.checkHTTP([]byte("{"), "application/json", over)
				got := r.post([]byte("no gzip"), "Content-Type", "application/json", "Content-Encoding", "gzip")
				if got.code != 429 {
					t.Errorf("gzip: %d %q; want 429", got.code, got.body)
				}
			}
			if n := r.metric("wattloop_ingest_refused_requests_total", `channel="w"`, fmt.Sprintf("reason=%q", reason)); n != 8 {
				t.Errorf("%g requests count as refused for %s; want 8", n, reason)
			}
			r.at(60 + after - 0.01)
			r.checkGRPC(gauge(60), over)
			r.at(60 + after + 0.01)
			r.checkGRPC(gauge(60), fine)
			r.at(60 + 10*after)
			r.checkHTTP(gauge(60), "application/x-protobuf", fine)
			r.at(60 + 20*after)
			r.checkHTTP(gaugeJSON(60), "application/json", fine)
			if n := r.server.InFlight(); n != 0 {
				t.Errorf("%d bytes still count as in flight", n)
			}
		})
	}
	size := float64(len(gauge(60, 59, 58)))
	f("points", ingest.Limits{Points: 2}, "points_rate", 0.5)
	f("bytes", ingest.Limits{Bytes: size / 2}, "bytes_rate", 1)
}

// S2-67: spans and log records are bounded as points are, with and without an
// upstream.
func TestRecordsOverOwnRate(t *testing.T) {
	for _, up := range []ingest.Onward{nil, &queue{n: map[ingest.Signal]int{}}} {
		r := newRigOn(t, func(o *ingest.Options) { o.Onward = up }, workload(t, ingest.Limits{Points: 2}))
		f := func(seconds float64, path string, want int) {
			t.Helper()
			r.at(seconds)
			// Two resources; one scope with two records, one with none, one with one.
			three := bytes.NewReader([]byte("\x0a\x06\x12\x04\x12\x00\x12\x00" + "\x0a\x06\x12\x00\x12\x02\x12\x00"))
			got := r.do("POST", path, three, "Content-Type", "application/x-protobuf")
			if after := got.header.Get("Retry-After"); got.code != want || (after == "1") != (want == 429) {
				t.Errorf("%s at %g: %d, Retry-After %q; want %d", path, seconds, got.code, after, want)
			}
		}
		f(60, "/v1/traces", 200)
		f(60, "/v1/traces", 429)
		f(60, "/v1/logs", 429)
		f(61, "/v1/logs", 200)
		f(61.4, "/v1/traces", 429)
		f(70, "/v1/traces", 200)
		if n := r.metric("wattloop_ingest_refused_requests_total", `channel="w"`, `reason="points_rate"`); n != 3 {
			t.Errorf("%g requests count as refused; want 3", n)
		}
	}
}

// Requests that come at once do not all begin on what is left for one: those under
// way will have to be paid for too.
func TestPointsUnderWayCount(t *testing.T) {
	var ch *ingest.Channel
	r := newRigOn(t, nil, func(recv *ingest.Receiver) *ingest.Activation {
		a := activate(t, recv, "w", ingest.Limits{Points: 10})
		ch = a.Channel()
		return a
	})
	r.at(60)
	r.checkGRPC(gauge(60, 59, 58, 57), answer{codes.OK, 200, 0, 0}) // 6 points are left
	leave, err := ch.Enter()
	if err != nil {
		t.Fatal(err)
	}
	more, err := ch.Enter() // 4 for the one before, and something for this one
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.Enter(); err == nil {
		t.Error("a third request began on what is left for one and a half")
	}
	leave()
	more()
	leave, err = ch.Enter() // nothing is under way any more
	if err != nil {
		t.Fatal(err)
	}
	leave()
}

// Requests at a time are counted over all connections and transports.
func TestAnswersOverStreams(t *testing.T) {
	var ch *ingest.Channel
	r := newRigOn(t, nil, func(recv *ingest.Receiver) *ingest.Activation {
		a := activate(t, recv, "w", ingest.Limits{Streams: 2})
		ch = a.Channel()
		return a
	})
	r.at(60)
	var leave [2]func()
	for i := range leave {
		var err error
		if leave[i], err = ch.Enter(); err != nil {
			t.Fatal(err)
		}
	}
	over := answer{codes.Unavailable, 429, 0, time.Second}
	r.checkGRPC(gauge(60), over)
	r.checkHTTP(gauge(60), "application/x-protobuf", over)
	r.checkHTTP(gaugeJSON(60), "application/json", over)
	if n := r.metric("wattloop_ingest_refused_requests_total", `reason="streams"`); n != 3 {
		t.Errorf("%g requests count as refused; want 3", n)
	}
	leave[0]()
	for range 20 { // each gives its place back
		r.checkGRPC(gauge(60), answer{codes.OK, 200, 0, 0})
		r.checkHTTP(gauge(60), "application/x-protobuf", answer{codes.OK, 200, 0, 0})
		r.checkHTTP(nested(40), "application/x-protobuf", answer{codes.InvalidArgument, 400, 0, 0})
		r.checkGRPC(nested(40), answer{codes.InvalidArgument, 400, 0, 0})
	}
	leave[1]()
}

// A body whose declared length is over what is left is refused before it is read.
func TestRefusedByDeclaredLength(t *testing.T) {
	r := newRigOn(t, nil, workload(t, ingest.Limits{Bytes: 1000}))
	post := func(n int) (code, left int) {
		body := bytes.NewReader(make([]byte, n))
		req := httptest.NewRequest("POST", "http://localhost/v1/metrics", body)
		req.Header.Set("Content-Type", "application/x-protobuf")
		req.Header.Set("Expect", "100-continue")
		w := httptest.NewRecorder()
		r.server.Handler().ServeHTTP(w, toLoopback(req))
		return w.Code, body.Len()
	}
	if code, left := post(600); code != 400 || left != 0 { // zeros are no message
		t.Errorf("600 of 1000 bytes: %d, %d unread; want 400 and 0", code, left)
	}
	if code, left := post(600); code != 429 || left != 600 {
		t.Errorf("600 of the 400 bytes that are left: %d, %d unread; want 429 and 600", code, left)
	}
	if code, left := post(400); code != 400 || left != 0 {
		t.Errorf("the 400 bytes that are left: %d, %d unread; want 400 and 0", code, left)
	}
}

// One workload channel may not fill what all of them share, nor all of them what
// is kept for nodes.
func TestSharesOfMemory(t *testing.T) {
	r := newRigOn(t, nil, workload(t, ingest.Limits{Bytes: -1}))
	r.at(60)
	node := ingest.NewServer(r.recv.Channel("default").Live())
	free := node.Occupy(46 << 20)
	status := func(s *ingest.Server, size int) int {
		req := httptest.NewRequest("POST", "http://localhost/v1/metrics", bytes.NewReader(make([]byte, size)))
		req.Header.Set("Content-Type", "application/x-protobuf")
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, toLoopback(req))
		return w.Code
	}
	if got := status(r.server, 16<<20); got != 503 {
		t.Errorf("a workload's 16 MiB beside 46: %d; want 503", got)
	}
	free()
	if got := status(r.server, 16<<20); got != 400 {
		t.Errorf("a workload's 16 MiB alone: %d; want 400", got)
	}
	full, err := r.recv.Channel("w").Reserve(48 << 20)
	if err != nil {
		t.Fatal(err)
	}
	if got := status(r.server, 100<<10); got != 503 {
		t.Errorf("a workload's request when workloads hold 48 MiB: %d; want 503", got)
	}
	if got := status(node, 6<<20); got != 400 {
		t.Errorf("a node's request when workloads hold 48 MiB: %d; want 400", got)
	}
	full()
	leave, err := r.recv.Channel("w").Enter()
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	if got := status(r.server, 18<<20); got != 429 {
		t.Errorf("18 MiB as a channel's second request: %d; want 429", got)
	}
	if n := r.metric("wattloop_ingest_refused_requests_total", `reason="bytes_in_flight"`); n != 1 {
		t.Errorf("%g requests count as refused for the channel's share; want 1", n)
	}
	if n := r.metric("wattloop_ingest_refused_requests_total", `reason="memory"`); n != 2 {
		t.Errorf("%g requests count as refused for memory; want 2", n)
	}
	if n := r.server.InFlight(); n != 0 {
		t.Errorf("%d bytes still count as in flight", n)
	}
}

// manyGauges is a request with n points, each of a series of its own.
func manyGauges(from, n int, at time.Time) []byte {
	md := pmetric.NewMetrics()
	m := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName("hostile")
	points := m.SetEmptyGauge().DataPoints()
	for i := range n {
		dp := points.AppendEmpty()
		dp.SetTimestamp(pcommon.NewTimestampFromTime(at))
		dp.SetIntValue(int64(i))
		dp.Attributes().PutInt("i", int64(from+i))
	}
	wire, err := pmetricotlp.NewExportRequestFromMetrics(md).MarshalProto()
	if err != nil {
		panic(err)
	}
	return wire
}

// Series over the channel's limits are rejected by the point, never by the
// request, the same over every transport.
func TestAnswersOverSeries(t *testing.T) {
	r := newRigOn(t, nil, workload(t, ingest.Limits{Series: 2}))
	r.at(60)
	r.checkGRPC(gauge(60, 60, 60), answer{codes.OK, 200, 2, 0}) // target_info takes one
	r.checkHTTP(gauge(60, 60, 60), "application/x-protobuf", answer{codes.OK, 200, 2, 0})
	r.checkHTTP(gaugeJSON(60, 60, 60), "application/json", answer{codes.OK, 200, 2, 0})
	if n := r.metric("wattloop_ingest_points_total", `channel="w"`, `reason="series_limit"`); n != 6 {
		t.Errorf("%g points count as rejected; want 6", n)
	}
}

// The cardinality explosion of reliability.md section 2: ever new series on one
// channel stop at its limits, and the others' go on.
func TestCardinalityExplosion(t *testing.T) {
	const perMinute, most = 100, 1000
	r := newRigOn(t, nil, workload(t, ingest.Limits{NewSeries: perMinute, Series: most}))
	node := r.recv.Channel("default").Live()
	var stored, rejected int64
	for minute := range 240 {
		r.at(float64(60 * minute))
		now := time.UnixMilli(r.now.Load())
		got, err := r.recv.Channel("w").Export(context.Background(), manyGauges(minute*5000, 5000, now))
		if err != nil {
			t.Fatal(err)
		}
		if got.Accepted+got.Rejected != 5000 {
			t.Fatalf("minute %d: %+v", minute, got)
		}
		stored, rejected = stored+got.Accepted, rejected+got.Rejected
		if got, err := node.Export(context.Background(), manyGauges(0, 10, now)); err != nil || got.Accepted != 10 {
			t.Fatalf("minute %d: the node channel's series: %+v, %v", minute, got, err)
		}
		if n := r.db.Stats().Series; n > most+11 {
			t.Fatalf("minute %d: %d series in the head; want at most %d", minute, n, most+11)
		}
	}
	if stored < most-1 || stored > 2*most {
		t.Errorf("%d of %d series were taken in 4 hours; want %d at once and no more than as many again", stored, stored+rejected, most)
	}
	if n := r.metric("wattloop_ingest_points_total", `channel="w"`, `result="rejected"`); n != float64(rejected) {
		t.Errorf("%g points count as rejected; want %d", n, rejected)
	}
}

// A workload reads nothing of this machine in an answer, such as the name of a
// file that the disk did not take; who is trusted reads why.
func TestWhatAWorkloadIsTold(t *testing.T) {
	const secret = "/var/lib/wattloop/data/wal/00000007"
	broken := func(o *ingest.Options) {
		o.Sync = func(context.Context) error { return fmt.Errorf("fsync %s: input/output error", secret) }
	}
	f := func(name string, r *rig, want bool) {
		r.at(60)
		got := r.postJSON(gaugeJSON(60))
		_, err := r.call(t.Context(), exportMethod, gauge(60))
		for transport, text := range map[string]string{"http": got.body, "grpc": status.Convert(err).Message()} {
			if text == "" || strings.Contains(text, secret) != want {
				t.Errorf("%s over %s: %q; want the file named: %v", name, transport, text, want)
			}
		}
	}
	f("workload", newRigOn(t, broken, workload(t, ingest.Limits{})), false)
	f("node", newRig(t, broken), true)
}
