package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// maxMessage bounds one gRPC message as it comes and when it is inflated.
const maxMessage = 4 << 20

// GRPC returns a server for OTLP/gRPC: the three Export methods and nothing
// else, no reflection. The caller gives it a listener, see LimitListener, and
// ends it with GracefulStop or Stop. more are further options of the library,
// such as the certificate that it speaks TLS with.
func (s *Server) GRPC(more ...grpc.ServerOption) *grpc.Server {
	g := grpc.NewServer(append([]grpc.ServerOption{
		grpc.ForceServerCodecV2(rawCodec{}),
		//lint:ignore SA1019 the registry that replaces it belongs to the whole process
		grpc.RPCDecompressor(keepGzip{}),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxConcurrentStreams(16),
		grpc.InTapHandle(s.tap),
		grpc.MaxHeaderListSize(16 << 10),
		grpc.ConnectionTimeout(5 * time.Second),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime:             10 * time.Second,
			PermitWithoutStream: true,
		}),
		// The grace ends a stream that was opened and never sends its message.
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle:     5 * time.Minute,
			MaxConnectionAge:      30 * time.Minute,
			MaxConnectionAgeGrace: 15 * time.Second,
		}),
		grpc.WaitForHandlers(true),
	}, more...)...)
	for _, sig := range signals {
		g.RegisterService(&grpc.ServiceDesc{
			ServiceName: sig.service,
			HandlerType: (*any)(nil),
			Methods: []grpc.MethodDesc{{
				MethodName: "Export",
				Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
					return s.serveGRPC(ctx, decode, sig)
				},
			}},
		}, s)
	}
	return g
}

func (s *Server) serveGRPC(ctx context.Context, decode func(any) error, g signal) (any, error) {
	call, ok := ctx.Value(callKey{}).(*call)
	if !ok || !call.begin() {
		return nil, s.failGRPC(context.Canceled)
	}
	defer call.end()
	var req rawMessage
	if err := decode(&req); err != nil { // and the library has answered
		s.countRefused("grpc", answer{code: status.Code(err)}, "")
		return nil, err
	}
	call.arrived()
	defer req.buf.Free()
	p, err := s.exportGRPC(ctx, req.buf.ReadOnlyData(), g)
	if passed, ok := errors.AsType[*passedError](err); ok {
		s.count("grpc", wordOf(passed.a.code))
		return nil, passed.st.Err()
	}
	if err != nil {
		return nil, s.failGRPC(err)
	}
	s.count("grpc", p.answer())
	return p.wire(), nil
}

func (s *Server) failGRPC(err error) error {
	a := s.r.answerTo(err)
	s.countRefused("grpc", a, refusalOf(err))
	return a.grpcStatus(s.told(err)).Err()
}

// exportGRPC counts the message as in flight, and what it inflates to.
func (s *Server) exportGRPC(ctx context.Context, wire []byte, g signal) (partial, error) {
	if len(wire) > 0 && wire[0] == gzipMark {
		b, err := s.read(bytes.NewReader(wire[1:]), int64(len(wire)-1), true, limitsGRPC)
		if err != nil {
			return partial{}, err
		}
		defer s.release(b)
		return g.export(s, ctx, encodingProtobuf, b.b)
	}
	c, n := s.a.c, int64(len(wire))
	c.spendBytes(n)
	if err := s.r.inFlight.take(c, n); err != nil {
		return partial{}, err
	}
	defer s.r.inFlight.give(c, n)
	return g.export(s, ctx, encodingProtobuf, wire)
}

// gzipMark stands before a message that is still compressed. No request begins
// with it, since it would be the tag of a field 0.
const gzipMark = 0

// keepGzip takes the part of a decompressor in the library and decompresses
// nothing: what fails there is answered with INTERNAL before a handler is asked,
// and it knows of no ratio. exportGRPC inflates as HTTP does.
type keepGzip struct{}

func (keepGzip) Type() string { return "gzip" }

func (keepGzip) Do(r io.Reader) ([]byte, error) {
	buf := bytes.NewBuffer([]byte{gzipMark})
	_, err := buf.ReadFrom(r)
	return buf.Bytes(), err
}

// answer is p as a label value.
func (p partial) answer() string {
	if p == (partial{}) {
		return "ok"
	}
	return "partial"
}

// rawMessage holds the bytes of one request as they came.
type rawMessage struct{ buf mem.Buffer }

// rawCodec hands requests on without decoding them and takes answers that are
// encoded already. It goes by the name of the codec that it stands for.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

// Unmarshal keeps a reference to the bytes; who holds the message frees it.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*rawMessage)
	if !ok {
		return fmt.Errorf("ingest: BUG: cannot receive into %T", v)
	}
	m.buf = data.MaterializeToBuffer(mem.DefaultBufferPool())
	return nil
}

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	wire, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("ingest: BUG: cannot send a %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(wire)}, nil
}
