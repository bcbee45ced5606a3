package ingest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// answer is one row of the table of OTLP answers: what a failed request is told
// over each transport. A sender may repeat a request exactly when retry is
// above zero or the gRPC code is itself one that OTLP lets it retry.
type answer struct {
	code  codes.Code
	http  int
	retry time.Duration
}

// What an OTLP sender does next hangs on these numbers alone: it repeats 429,
// 502, 503 and 504, and in gRPC UNAVAILABLE and RESOURCE_EXHAUSTED with a
// RetryInfo; everything else makes it drop the data.
var (
	answerUndecodable     = answer{codes.InvalidArgument, http.StatusBadRequest, 0}
	answerTooLarge        = answer{codes.ResourceExhausted, http.StatusRequestEntityTooLarge, 0}
	answerOverLimit       = answer{codes.Unavailable, http.StatusTooManyRequests, time.Second} // of the channel's own
	answerUnavailable     = answer{codes.Unavailable, http.StatusServiceUnavailable, 5 * time.Second}
	answerSlow            = answer{codes.DeadlineExceeded, http.StatusServiceUnavailable, time.Second}
	answerCancelled       = answer{codes.Canceled, http.StatusServiceUnavailable, time.Second}
	answerUnknownType     = answer{codes.Unimplemented, http.StatusUnsupportedMediaType, 0}
	answerMethod          = answer{codes.Unimplemented, http.StatusMethodNotAllowed, 0}
	answerNoPath          = answer{codes.NotFound, http.StatusNotFound, 0}
	answerForbidden       = answer{codes.PermissionDenied, http.StatusForbidden, 0}
	answerUnauthenticated = answer{codes.Unauthenticated, http.StatusUnauthorized, 0}
	answerInternal        = answer{codes.Internal, http.StatusInternalServerError, 0}
)

// What the limits of this side refuse with.
var (
	errTooLarge = errors.New("too large")
	errSlow     = errors.New("otlp: the request did not arrive in time: send it again")
)

// answerTo finds the row for a failed export or a refused body.
func (r *Receiver) answerTo(err error) answer {
	var over *limitError
	var undecodable *DecodeError
	var unavailable *UnavailableError
	var passed *passedError
	switch {
	case errors.As(err, &passed):
		return passed.a
	case errors.As(err, &undecodable):
		return answerUndecodable
	case errors.As(err, &unavailable):
		a := answerUnavailable
		if r.o.RetryAfter != nil {
			a.retry = cmp.Or(r.o.RetryAfter(err), a.retry)
		}
		return a
	case errors.Is(err, errTooLarge):
		return answerTooLarge
	case errors.As(err, &over):
		return answerOverLimit
	case errors.Is(err, errBusy):
		return answerUnavailable
	case errors.Is(err, errSlow), errors.Is(err, context.DeadlineExceeded):
		return answerSlow
	case errors.Is(err, context.Canceled):
		return answerCancelled
	}
	return answerInternal
}

// told is what a sender reads of an error. What goes wrong on this machine, with
// the names of its files, is no business of one that nobody trusts.
func (s *Server) told(err error) string {
	var cause *UnavailableError
	switch {
	case s.a.c.o.Class != Workload, !errors.As(err, &cause):
		return err.Error()
	case errors.Is(err, errEnded), errors.Is(err, errIdle), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err.Error()
	}
	return "otlp: nothing can be kept at present: send it again later"
}

// refusalOf is the word for a limit of this side, empty for other errors.
func refusalOf(err error) string {
	if over, ok := errors.AsType[*limitError](err); ok {
		return over.refusal
	}
	switch {
	case errors.Is(err, errBusy):
		return refusedMemory
	case errors.Is(err, errStarting):
		return refusedStart
	}
	return ""
}

// grpcStatus is the answer as a gRPC status. RetryInfo goes with UNAVAILABLE
// only: beside RESOURCE_EXHAUSTED it would make a sender repeat a request that
// can never fit.
func (a answer) grpcStatus(message string) *status.Status {
	st := status.New(a.code, strings.ToValidUTF8(message, "\uFFFD"))
	if a.code != codes.Unavailable || a.retry == 0 {
		return st
	}
	with, err := st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(a.retry)})
	if err != nil {
		panic("BUG: ingest: RetryInfo cannot be attached to a status: " + err.Error())
	}
	return with
}

// writeHTTP answers with a google.rpc.Status in the request's own encoding.
func (a answer) writeHTTP(w http.ResponseWriter, enc encoding, message string) {
	message = strings.ToValidUTF8(message, "\uFFFD")
	if a.retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(a.retry/time.Second)))
	}
	if enc == encodingProtobuf {
		body, err := proto.Marshal(&statuspb.Status{Code: int32(a.code), Message: message})
		if err != nil {
			panic("BUG: ingest: a status cannot be encoded: " + err.Error())
		}
		writeBody(w, enc, a.http, body)
		return
	}
	writeBody(w, enc, a.http, mustJSON(struct {
		Code    codes.Code `json:"code"`
		Message string     `json:"message"`
	}{a.code, message}))
}

// partial is the partial_success of an export response. The zero value is a
// full success, for which the field stays unset.
type partial struct {
	rejected int64
	message  string
	raw      string // of an upstream, in protobuf: it stands for the rest
}

// wire encodes an Export{Metrics,Trace,Logs}ServiceResponse: the three have the
// same fields under the same numbers.
func (p partial) wire() []byte {
	if p == (partial{}) {
		return nil
	}
	if p.raw != "" {
		return []byte(p.raw)
	}
	var inner []byte
	inner = protowire.AppendTag(inner, 1, protowire.VarintType)
	inner = protowire.AppendVarint(inner, uint64(p.rejected))
	inner = protowire.AppendTag(inner, 2, protowire.BytesType)
	inner = protowire.AppendString(inner, strings.ToValidUTF8(p.message, "\uFFFD"))
	out := protowire.AppendTag(nil, 1, protowire.BytesType)
	return protowire.AppendBytes(out, inner)
}

// json is wire in OTLP's JSON mapping, in which a 64-bit integer is a string.
// field names what was rejected, which differs between the three responses.
func (p partial) json(field string) []byte {
	if p == (partial{}) {
		return []byte("{}")
	}
	return mustJSON(map[string]map[string]string{"partialSuccess": {
		field:          strconv.FormatInt(p.rejected, 10),
		"errorMessage": strings.ToValidUTF8(p.message, "\uFFFD"),
	}})
}

// writeHTTP answers 200 in the request's own encoding.
func (p partial) writeHTTP(w http.ResponseWriter, enc encoding, field string) {
	if enc == encodingProtobuf {
		writeBody(w, enc, http.StatusOK, p.wire())
		return
	}
	writeBody(w, enc, http.StatusOK, p.json(field))
}

func writeBody(w http.ResponseWriter, enc encoding, code int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", enc.mediaType())
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(body) // a client that is gone learns nothing more
}

func mustJSON(v any) []byte {
	body, err := json.Marshal(v)
	if err != nil {
		panic("BUG: ingest: an answer cannot be encoded: " + err.Error())
	}
	return body
}
