package relay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/wattloop/wattloop/ingest"
)

// Post is the way to an upstream over OTLP/HTTP, in protobuf. A redirect is for
// Client to follow or not.
type Post struct {
	URL    *url.URL // of the one signal that is sent there
	Client *http.Client
}

// maxResponse bounds what is read of an answer.
const maxResponse = 64 << 10

// send sends one request as it is and returns the response as it came. The error
// is a gRPC status, as over the other transport. reached says that the upstream
// answered.
func (p *Post) send(ctx context.Context, _ ingest.Signal, wire []byte) (response []byte, reached bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL.String(), bytes.NewReader(wire))
	if err != nil {
		return nil, false, status.Error(codes.Internal, err.Error())
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("User-Agent", "wattloop")
	resp, err := p.Client.Do(req)
	if err != nil {
		if ue, ok := errors.AsType[*url.Error](err); ok {
			err = ue.Err // the URL is said beside it
		}
		return nil, false, status.Error(codes.Unavailable, err.Error())
	}
	defer resp.Body.Close()
	response, err = io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	if resp.StatusCode/100 == 2 {
		return response, true, nil // what of the answer is missing changes nothing
	}
	if err != nil {
		response = nil
	}
	return nil, true, httpStatus(resp, response)
}

// httpStatus is an answer over HTTP as the status that it would be over gRPC:
// 429, 502, 503 and 504 may be repeated, after Retry-After where there is one,
// and nothing else.
func httpStatus(resp *http.Response, body []byte) error {
	code := codes.InvalidArgument
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		code = codes.Unavailable
	case http.StatusUnauthorized:
		code = codes.Unauthenticated
	case http.StatusForbidden:
		code = codes.PermissionDenied
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		code = codes.Unimplemented
	case http.StatusRequestEntityTooLarge:
		code = codes.ResourceExhausted
	case http.StatusInternalServerError:
		code = codes.Internal
	}
	text := strings.TrimSpace(string(body))
	var own statuspb.Status
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/x-protobuf") && proto.Unmarshal(body, &own) == nil {
		text = own.GetMessage()
	}
	st := status.New(code, "HTTP "+resp.Status+": "+clip(text))
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if code != codes.Unavailable || err != nil || seconds < 0 || seconds > 3600 {
		return st.Err()
	}
	detailed, err := st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Duration(seconds) * time.Second)})
	if err != nil {
		panic("BUG: relay: RetryInfo cannot be attached to a status: " + err.Error())
	}
	return detailed.Err()
}
