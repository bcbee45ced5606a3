package relay

import (
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// verdict is what an error of the upstream means for the request.
type verdict struct {
	retry  bool
	after  time.Duration // what the upstream asks to wait, where it asks
	asked  bool
	reason string // the gRPC code, as a label value
}

// judge reads an error as OTLP's specification has it: what may be repeated, and
// when. RESOURCE_EXHAUSTED may be only where the upstream says that it recovers.
func judge(err error) verdict {
	st := status.Convert(err)
	v := verdict{reason: word(st.Code())}
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			v.after, v.asked = max(info.GetRetryDelay().AsDuration(), 0), true
		}
	}
	switch st.Code() {
	case codes.Unavailable, codes.Aborted, codes.Canceled, codes.DeadlineExceeded, codes.OutOfRange, codes.DataLoss:
		v.retry = true
	case codes.ResourceExhausted:
		v.retry = v.asked
	}
	return v
}

// The delays between attempts when the upstream asks for none: they double.
const (
	firstDelay = 500 * time.Millisecond
	maxDelay   = 30 * time.Second
)

// delay is how long to wait after attempt number try, which counts from 0.
// jitter, in [0,1), takes up to half of it off, so that many senders do not come
// back at once.
func delay(try int, jitter float64) time.Duration {
	d := time.Duration(maxDelay)
	if try < 6 { // beyond it the doubled delay is above maxDelay
		d = firstDelay << try
	}
	return d - time.Duration(jitter*float64(d)/2)
}

// word is a gRPC code as a label value.
func word(c codes.Code) string {
	words := [...]string{
		codes.OK: "ok", codes.Canceled: "cancelled", codes.Unknown: "unknown", codes.InvalidArgument: "invalid_argument",
		codes.DeadlineExceeded: "deadline_exceeded", codes.NotFound: "not_found", codes.AlreadyExists: "already_exists",
		codes.PermissionDenied: "permission_denied", codes.ResourceExhausted: "resource_exhausted",
		codes.FailedPrecondition: "failed_precondition", codes.Aborted: "aborted", codes.OutOfRange: "out_of_range",
		codes.Unimplemented: "unimplemented", codes.Internal: "internal", codes.Unavailable: "unavailable",
		codes.DataLoss: "data_loss", codes.Unauthenticated: "unauthenticated",
	}
	if int(c) < len(words) {
		return words[c]
	}
	return "unknown" // a code that gRPC does not have
}
