package ingest

import (
	"context"
	"math"
	"net/http"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// PassFunc sends one request on, byte for byte, and returns the response as it
// came. What an error says as a gRPC status is the sender's answer, details and
// all. The bytes are the caller's again once it returns.
type PassFunc func(ctx context.Context, s Signal, wire []byte) (response []byte, err error)

// passedError is an answer that this side hands back and did not find.
type passedError struct {
	a  answer // for HTTP
	st *status.Status
}

func (e *passedError) Error() string { return e.st.Message() }

// pass hands a request to Options.Pass, and the answer back.
func (s *Server) pass(ctx context.Context, g Signal, enc encoding, body []byte) (partial, error) {
	if enc == encodingJSON {
		return partial{}, &passedError{answerUnknownType, status.New(codes.Unimplemented,
			"otlp: requests go on here as they are, and onward in protobuf alone: send application/x-protobuf")}
	}
	if len(body) > maxMessage { // which no gRPC upstream is expected to take
		return partial{}, tooLarge(maxMessage, "")
	}
	if !s.a.enter() {
		return partial{}, &UnavailableError{errEnded}
	}
	defer s.a.leave()
	response, err := s.r.o.Pass(ctx, g, body)
	if err != nil {
		st := status.Convert(err)
		return partial{}, &passedError{passedAnswer(st), st}
	}
	return partial{raw: string(response)}, nil
}

// passedAnswer is a gRPC status as an OTLP/HTTP sender understands it: it repeats
// 429 and 503, after Retry-After where the upstream asks for that, and drops what
// is answered with anything else.
func passedAnswer(st *status.Status) answer {
	a := answer{code: st.Code()}
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			// Whole seconds, never less than was asked for.
			a.retry = time.Duration(math.Ceil(max(info.GetRetryDelay().AsDuration().Seconds(), 1))) * time.Second
		}
	}
	switch a.code {
	case codes.Unavailable, codes.Aborted, codes.Canceled, codes.DeadlineExceeded, codes.OutOfRange, codes.DataLoss:
		a.http = http.StatusServiceUnavailable
	case codes.ResourceExhausted:
		a.http = http.StatusTooManyRequests
		if a.retry == 0 {
			a.http = http.StatusRequestEntityTooLarge
		}
	case codes.InvalidArgument:
		a.http, a.retry = http.StatusBadRequest, 0
	case codes.Unauthenticated:
		a.http, a.retry = http.StatusUnauthorized, 0
	case codes.PermissionDenied:
		a.http, a.retry = http.StatusForbidden, 0
	case codes.Unimplemented, codes.NotFound:
		a.http, a.retry = http.StatusNotFound, 0
	default:
		a.http, a.retry = http.StatusInternalServerError, 0
	}
	return a
}
