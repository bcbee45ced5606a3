package relay

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/wattloop/wattloop/ingest"
)

// method is the Export method of a signal.
func method(s ingest.Signal) string {
	switch s {
	case ingest.SignalTraces:
		return "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
	case ingest.SignalLogs:
		return "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
	}
	return "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
}

// export sends one request as it is and returns the response as it came.
// reached says that there was a connection to send it on.
func export(ctx context.Context, cc *grpc.ClientConn, s ingest.Signal, wire []byte) (response []byte, reached bool, err error) {
	var p peer.Peer
	err = cc.Invoke(ctx, method(s), wire, &response, grpc.ForceCodecV2(bytesCodec{}), grpc.Peer(&p))
	return response, p.Addr != nil, err
}

// bytesCodec sends and receives messages without knowing what is in them, under
// the name of the codec that it stands for.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("relay: BUG: cannot send a %T", v)
	}
	// A copy that is counted: the library may still be reading when a call that
	// was cancelled has returned, and the bytes are the caller's by then.
	return mem.BufferSlice{mem.Copy(b, mem.DefaultBufferPool())}, nil
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("relay: BUG: cannot receive into %T", v)
	}
	*b = data.Materialize()
	return nil
}

// partialSuccess reads field 1 of an export response: how many points, spans or
// log records were rejected (its field 1) and why (its field 2). A response that
// is no protobuf says nothing.
func partialSuccess(response []byte) (rejected int64, message string) {
	walk(response, func(num protowire.Number, _ uint64, inner []byte) {
		if num != 1 {
			return
		}
		walk(inner, func(num protowire.Number, n uint64, text []byte) {
			switch num {
			case 1:
				rejected = max(int64(n), 0)
			case 2:
				message = string(text)
			}
		})
	})
	return rejected, message
}

// walk calls f for each field of a message: with its number, and with n for a
// varint or b for bytes. It ends at what is no protobuf.
func walk(msg []byte, f func(num protowire.Number, n uint64, b []byte)) {
	for len(msg) > 0 {
		num, typ, n := protowire.ConsumeTag(msg)
		if n < 0 {
			return
		}
		msg = msg[n:]
		var v uint64
		var b []byte
		switch typ {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(msg)
		case protowire.BytesType:
			b, n = protowire.ConsumeBytes(msg)
		default:
			n = protowire.ConsumeFieldValue(num, typ, msg)
		}
		if n < 0 {
			return
		}
		if typ == protowire.VarintType || typ == protowire.BytesType {
			f(num, v, b)
		}
		msg = msg[n:]
	}
}
