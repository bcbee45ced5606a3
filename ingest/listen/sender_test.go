package listen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// sender is a program that has one connection for ever.
type sender struct {
	name         string
	acked, tried int
	send         func(ctx context.Context, r pmetricotlp.ExportRequest) error
}

var errOnce = errors.New("this sender has one connection")

// once dials a single time.
func once(a Address) func(ctx context.Context) (net.Conn, error) {
	var used atomic.Bool
	return func(ctx context.Context) (net.Conn, error) {
		if used.Swap(true) {
			return nil, errOnce
		}
		return (&net.Dialer{}).DialContext(ctx, a.Network, a.Addr)
	}
}

func httpSender(t *testing.T, name string, a Address) *sender {
	dial := once(a)
	tr := &http.Transport{MaxConnsPerHost: 1, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}
	t.Cleanup(tr.CloseIdleConnections)
	hc := &http.Client{Transport: tr}
	return &sender{name: name, send: func(ctx context.Context, r pmetricotlp.ExportRequest) error {
		wire, err := r.MarshalProto()
		if err != nil {
			return err
		}
		req, err := http.NewRequestWithContext(ctx, "POST", "http://localhost/v1/metrics", bytes.NewReader(wire))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/x-protobuf")
		req.GetBody = nil // never sent again by the library
		resp, err := hc.Do(req)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	}}
}

func grpcSender(t *testing.T, name string, a Address) *sender {
	dial := once(a)
	conn, err := grpc.NewClient("passthrough:///localhost", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c := pmetricotlp.NewGRPCClient(conn)
	return &sender{name: name, send: func(ctx context.Context, r pmetricotlp.ExportRequest) error {
		_, err := c.Export(ctx, r)
		return err
	}}
}

// run sends until the connection is gone.
func (s *sender) run(b *bed, began func()) {
	ctx, done := context.WithTimeout(context.Background(), time.Minute)
	defer done()
	for {
		s.tried++
		err := s.send(ctx, b.from(s.name, 1))
		if err != nil {
			return
		}
		s.acked++
		began()
	}
}

// half is a request of which one half has been sent.
type half struct {
	conn net.Conn
	rest []byte
}

func startHalf(t *testing.T, b *bed, name string, a Address) half {
	t.Helper()
	conn, err := net.Dial(a.Network, a.Addr)
	if err != nil {
		t.Fatal(err)
	}
	wire, err := b.from(name, 1).MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	head := fmt.Sprintf("POST /v1/metrics HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\nContent-Length: %d\r\n\r\n", len(wire))
	if _, err := conn.Write(append([]byte(head), wire[:len(wire)/2]...)); err != nil {
		t.Fatal(err)
	}
	return half{conn, wire[len(wire)/2:]}
}
