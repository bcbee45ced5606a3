package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"
)

// While the store is being read whoever comes is told so, at every door, and goes
// on afterwards as if nothing had been: no connection is refused or broken, nothing
// is acknowledged that is not there, and what was refused is counted exactly.
func TestStarting(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("tls %v", secure), func(t *testing.T) {
			var senders startingSenders
			r := newAccessRigAfter(t, "", false, secure, func(r *accessRig) {
				senders.refused.Add(startingAnswers(r, secure))
				senders.begin(r, secure)
			})
			senders.all.Wait()
			c, base := r.client(), r.base(secure)
			if code, body, _ := httpGet(t, c, base+"/-/ready"); code != 200 {
				t.Errorf("afterwards: /-/ready: %d %s", code, body)
			}
			_, body, _ := httpGet(t, c, base+"/api/v1/query?query=count(sent_early)")
			if want := fmt.Sprintf(`"%d"]`, senders.taken.Load()); !strings.Contains(body, want) {
				t.Errorf("the senders were told that %d series are taken: %s", senders.taken.Load(), body)
			}
			_, body, _ = httpGet(t, c, base+"/metrics")
			if want := fmt.Sprintf("wattloop_ingest_refused_requests_total{channel=\"default\",reason=\"starting\"} %d\n", senders.refused.Load()); !strings.Contains(body, want) {
				t.Errorf("/metrics lacks %s", want)
			}
		})
	}
}

// Who may not come in later may not now.
func TestStartingAccess(t *testing.T) {
	access := "access: [{roles: [push], token: " + tokenOf("push") + "}, {roles: [read, admin], token: " + tokenOf("read") + "}]\n"
	newAccessRigAfter(t, access, false, false, func(r *accessRig) {
		base := r.base(false)
		for _, url := range []string{base + "/api/v1/query?query=up", base + "/metrics", "http://" + r.l.http.Addr().String() + "/v1/metrics"} {
			if code, body, _ := httpGet(t, r.client(), url); code != http.StatusUnauthorized {
				t.Errorf("%s: %d %s; want 401", url, code, body)
			}
		}
		if code, _, _ := httpGet(t, r.client(), base+"/-/healthy"); code != 200 {
			t.Errorf("/-/healthy: %d", code)
		}
	})
}

func (r *accessRig) base(secure bool) string {
	if secure {
		return "https://" + r.l.web.Addr().String()
	}
	return "http://" + r.l.web.Addr().String()
}

func httpGet(t *testing.T, c *http.Client, url string) (int, string, http.Header) {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Error(err)
		return 0, "", http.Header{}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(body), resp.Header
}

// startingAnswers looks at the doors of an engine that is starting, and returns how
// many OTLP requests it was refused.
func startingAnswers(r *accessRig, secure bool) int64 {
	t, base := r.t, r.base(secure)
	f := func(c *http.Client, url string, want int, says, retry string) {
		t.Helper()
		code, body, h := httpGet(t, c, url)
		if code != want || !strings.Contains(body, says) || h.Get("Retry-After") != retry {
			t.Errorf("%s: %d %q, Retry-After %q; want %d, %q, %q", url, code, body, h.Get("Retry-After"), want, says, retry)
		}
	}
	f(r.client(), base+"/-/healthy", 200, "wattloop is healthy", "")
	f(r.client(), base+"/-/ready", 503, "wattloop is not ready: wattloop is starting: its store is still being read", "5")
	f(r.client(), base+"/api/v1/query?query=up", 503, `{"status":"error","errorType":"unavailable","error":"wattloop is starting`, "5")
	f(r.client(), base+"/metrics", 200, "wattloop_ingest_refused_requests_total", "")
	f(r.client(), base+"/nothing", 404, "there is no /nothing", "")
	f(r.socketClient(0), "http://wattloop/api/v1/status/wattloop", 503, "wattloop is starting", "5")

	resp, err := r.socketClient(0).Post("http://wattloop/api/v1/otlp/v1/metrics", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "5" {
		t.Errorf("OTLP at the web address: %d", resp.StatusCode)
	}
	cl := client{socket: r.at("s")}
	if err := cl.getJSON(t.Context(), "/api/v1/status/wattloop", &struct{}{}); err == nil || err.Error() != cl.socket+": wattloop is starting: its store is still being read; ask again" {
		t.Errorf("the command line says: %v", err)
	}
	return 1
}

// startingSenders send until they are told that it was taken.
type startingSenders struct {
	all            sync.WaitGroup
	refused, taken atomic.Int64
}

// begin returns once each has been refused.
func (s *startingSenders) begin(r *accessRig, secure bool) {
	var early sync.WaitGroup
	n := 0
	start := func(send func(wire []byte) (taken bool)) {
		n++
		wire := gauges("sent.early", 1, func(_ int, m pcommon.Map) { m.PutInt("id", int64(n)) })
		early.Add(1)
		s.all.Go(func() {
			told := sync.OnceFunc(early.Done)
			defer told()
			for !r.t.Failed() && !send(wire) {
				told()
			}
			s.taken.Add(1)
		})
	}
	scheme, creds := "http://", insecure.NewCredentials()
	if secure {
		scheme, creds = "https://", credentials.NewClientTLSFromCert(r.pool, "")
	}
	for _, keep := range []bool{true, false} {
		for range 4 {
			c := r.client()
			c.Transport.(*http.Transport).DisableKeepAlives = !keep
			start(func(wire []byte) bool { return s.post(r, c, scheme+r.l.http.Addr().String()+"/v1/metrics", wire) })
		}
	}
	for range 4 {
		cc, err := grpc.NewClient(r.l.grpc.Addr().String(), grpc.WithTransportCredentials(creds))
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(func() { cc.Close() })
		start(func(wire []byte) bool { return s.call(r, cc, wire) })
	}
	early.Wait()
}

func (s *startingSenders) post(r *accessRig, c *http.Client, url string, wire []byte) bool {
	resp, err := c.Post(url, "application/x-protobuf", bytes.NewReader(wire))
	if err != nil {
		r.t.Errorf("a connection was broken: %v", err)
		return false
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		r.t.Error(err)
	}
	switch {
	case resp.StatusCode == 200:
		return true
	case resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "5":
		r.t.Errorf("answered with %s, Retry-After %q", resp.Status, resp.Header.Get("Retry-After"))
	}
	s.refused.Add(1)
	return false
}

func (s *startingSenders) call(r *accessRig, cc *grpc.ClientConn, wire []byte) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var answer []byte
	err := cc.Invoke(ctx, "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export", &wire, &answer,
		grpc.ForceCodecV2(wireCodec{}), grpc.WaitForReady(true))
	st := grpcstatus.Convert(err)
	switch {
	case err == nil:
		return true
	case st.Code() != codes.Unavailable:
		r.t.Errorf("answered with %v", err)
	}
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok && info.GetRetryDelay().AsDuration() == 5*time.Second {
			s.refused.Add(1)
		}
	}
	return false
}
