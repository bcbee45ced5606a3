package ingest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/wattloop/wattloop/ingest"
)

// door serves an activation over both transports until the test ends.
func door(t *testing.T, a *ingest.Activation) (httpURL, grpcAddr string) {
	t.Helper()
	s := ingest.NewServer(a)
	l, gl := a.Channel().Listen(bare(t)), a.Channel().Listen(bare(t))
	web, rpc := s.HTTP(), s.GRPC()
	var done sync.WaitGroup
	done.Go(func() { _ = web.Serve(l) }) // until Close
	done.Go(func() { _ = rpc.Serve(gl) })
	t.Cleanup(func() {
		_ = web.Close()
		rpc.Stop()
		done.Wait()
	})
	return "http://" + l.Addr().String(), gl.Addr().String()
}

func bare(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// sender is a client of both transports that keeps its connections.
type sender struct {
	t    *testing.T
	http *http.Client
	url  string
	conn *grpc.ClientConn
}

func newSender(t *testing.T, a *ingest.Activation) *sender {
	t.Helper()
	url, addr := door(t, a)
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	s := &sender{t, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}, url, conn}
	t.Cleanup(func() { conn.Close(); s.http.CloseIdleConnections() })
	return s
}

// post gives the status, and what was rejected of a success.
func (s *sender) post(media string, body []byte) (int, partial) {
	resp, err := s.http.Post(s.url+"/v1/metrics", media, bytes.NewReader(body))
	if err != nil {
		s.t.Error(err)
		return 0, partial{}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		s.t.Error(err)
	case resp.StatusCode != http.StatusOK:
	case media == "application/json":
		return resp.StatusCode, decodePartialJSON(s.t, string(text))
	default:
		return resp.StatusCode, decodePartial(s.t, string(text))
	}
	return resp.StatusCode, partial{}
}

func (s *sender) call(wire []byte) (codes.Code, partial) {
	var out []byte
	err := s.conn.Invoke(context.Background(), exportMethod, wire, &out, grpc.ForceCodecV2(plainBytes{}))
	if err != nil {
		return status.Code(err), partial{}
	}
	return codes.OK, decodePartial(s.t, string(out))
}

// P7: one hostile channel at more than 50 times its limit beside seven honest
// workload channels and a node channel, over real sockets. The clock stands, so
// that a limit a second is what the whole test may take. No honest point is lost or
// even refused; all that the hostile one sent is counted.
func TestNoisyNeighbour(t *testing.T) {
	const limit, requests, points = 2000, 20, 100 // honest: all of their limit
	db := newRig(t, nil)
	db.at(60)
	now := time.UnixMilli(db.now.Load())
	var honest []*sender
	for i := range 7 {
		honest = append(honest, newSender(t, activate(t, db.recv, fmt.Sprint("honest", i), ingest.Limits{Points: limit})))
	}
	producer, err := db.recv.AddChannel(ingest.ChannelOptions{Name: "producer"})
	if err != nil {
		t.Fatal(err)
	}
	honest = append(honest, newSender(t, producer.Live()))
	hostile := newSender(t, activate(t, db.recv, "hostile", ingest.Limits{Points: limit, NewSeries: 100, Series: 500}))

	var sent, refused, rejected atomic.Int64 // of the hostile one: requests and points
	stop := make(chan struct{})
	var hostiles, honests sync.WaitGroup
	for h := range 8 {
		hostiles.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					if sent.Load() >= 50*limit {
						return
					}
				default:
				}
				wire := manyGauges(int(sent.Add(1000)), 1000, now)
				over := false
				var p partial
				if h%2 == 0 {
					var code int
					code, p = hostile.post("application/x-protobuf", wire)
					over = code == http.StatusTooManyRequests
					if code != 200 && !over {
						t.Errorf("hostile: %d", code)
					}
				} else {
					var code codes.Code
					code, p = hostile.call(wire)
					over = code == codes.Unavailable
					if code != codes.OK && !over {
						t.Errorf("hostile: %v", code)
					}
				}
				rejected.Add(p.rejected)
				if over {
					refused.Add(1)
				}
			}
		})
	}
	for n, s := range honest {
		honests.Go(func() {
			for i := range requests {
				wire := manyGauges(1000*n, points, now.Add(time.Duration(i)*time.Millisecond))
				if i%2 == 0 {
					if code, p := s.post("application/x-protobuf", wire); code != 200 || p.rejected != 0 {
						t.Errorf("honest %d: %d %+v; want all stored", n, code, p)
					}
				} else if code, p := s.call(wire); code != codes.OK || p.rejected != 0 {
					t.Errorf("honest %d: %v %+v; want all stored", n, code, p)
				}
			}
		})
	}
	honests.Wait()
	close(stop)
	hostiles.Wait()

	for i := range 7 {
		db.check(fmt.Sprintf(`sum(count_over_time(hostile{channel="honest%d"}[1h]))`, i), 120, requests*points)
	}
	db.check(`sum(count_over_time(hostile{channel=""}[1h]))`, 120, requests*points)
	accepted := db.metric("wattloop_ingest_points_total", `channel="hostile"`, `result="accepted"`)
	counted := db.metric("wattloop_ingest_points_total", `channel="hostile"`, `result="rejected"`)
	turned := db.metric("wattloop_ingest_refused_requests_total", `channel="hostile"`)
	t.Logf("hostile: %d points sent, %g accepted, %g rejected by the point, %g requests refused; honest: %d points each, none refused",
		sent.Load(), accepted, counted, turned, requests*points)
	if accepted+counted+1000*turned != float64(sent.Load()) || counted != float64(rejected.Load()) || turned != float64(refused.Load()) {
		t.Errorf("hostile: %g + %g + 1000 x %g points are counted; it sent %d and was told of %d rejected and %d requests refused",
			accepted, counted, turned, sent.Load(), rejected.Load(), refused.Load())
	}
	if turned < 50*limit/1000/2 {
		t.Errorf("%g of the hostile channel's requests were refused; want most of them", turned)
	}
	for i := range 8 {
		name := fmt.Sprintf(`channel="honest%d"`, i)
		if n := db.metric("wattloop_ingest_refused_requests_total", name); n != 0 {
			t.Errorf("%s: %g requests refused", name, n)
		}
	}
}
