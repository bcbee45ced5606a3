package relay

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/wattloop/wattloop/ingest"
)

// Passer sends requests to an upstream while their senders wait, over one
// connection of its own: the upstream's answer is theirs. It keeps nothing and
// knows no other way. It is safe for concurrent use.
type Passer struct {
	cc   *grpc.ClientConn
	log  *slog.Logger
	down atomic.Bool
}

// passTimeout bounds one request: less than a client of ours is given to read its
// answer.
const passTimeout = 20 * time.Second

// passRetry is when to come again while the upstream cannot be reached.
const passRetry = 5 * time.Second

// NewPasser prepares a connection to upstream; it is opened by the first request.
// dial may be nil, see Dial, and log too.
func NewPasser(upstream Address, dial Dial, log *slog.Logger) (*Passer, error) {
	cc, err := connect(upstream, dial)
	if err != nil {
		return nil, err
	}
	return &Passer{cc: cc, log: quiet(log).With("upstream", upstream.String())}, nil
}

// Pass is an ingest.PassFunc. While the upstream cannot be reached the error is
// UNAVAILABLE with a RetryInfo, so that the sender keeps its request.
func (p *Passer) Pass(ctx context.Context, s ingest.Signal, wire []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	response, reached, err := export(ctx, p.cc, s, wire)
	if err == nil || reached || status.Code(err) != codes.Unavailable {
		if reached && p.down.Swap(false) {
			p.log.Info("upstream is reached again")
		}
		return response, err
	}
	if !p.down.Swap(true) {
		p.log.Warn("upstream cannot be reached, senders are told to come again", "error", errorText(err))
	}
	st, detail := status.New(codes.Unavailable, "relay: the upstream cannot be reached: send again later").
		WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(passRetry)})
	if detail != nil {
		panic("BUG: relay: RetryInfo cannot be attached to a status: " + detail.Error())
	}
	return nil, st.Err()
}

// Close ends the connection; what is on its way fails.
func (p *Passer) Close() error { return p.cc.Close() }
