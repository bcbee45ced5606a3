package ingest

import (
	"context"
	"net"
	"net/http"

	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"

	"github.com/wattloop/wattloop/access"
)

// door is the way in to this server. To push needs no credential on a loopback
// address or a unix socket until one is configured for it, and on a workload
// channel never: who sends there is trusted with nothing, and what arrives is
// the identity's that the channel was activated with.
func (s *Server) door() access.Door {
	return access.Door{Guard: s.r.o.Guard, Open: access.Push, Sockets: true, Always: s.a.c.o.Class == Workload}
}

// protect lets in who may push, whatever the path.
func (s *Server) protect(next http.Handler) http.Handler {
	d := s.door()
	return d.HTTP(d.Need(access.Push, next, s.Refuse), s.Refuse)
}

// Refuse answers an OTLP request that was not let in, in the request's encoding.
func (s *Server) Refuse(w http.ResponseWriter, req *http.Request, no *access.Refusal) {
	s.refuse(w, req, encodingOf(req.Header), refusalAnswer(no), "otlp: "+no.Error())
}

func refusalAnswer(no *access.Refusal) answer {
	switch {
	case no.Later:
		return answerOverLimit
	case no.Unauthenticated:
		return answerUnauthenticated
	}
	return answerForbidden
}

// letIn decides on a gRPC call by its headers. A method that is not one of those
// served is refused here, whatever its path looks like.
func (s *Server) letIn(ctx context.Context, call *tap.Info) error {
	if !servesMethod(call.FullMethodName) {
		s.countRefused("grpc", answerUnknownType, "")
		return answerUnknownType.grpcStatus("otlp: no such method").Err()
	}
	var local net.Addr
	if p, ok := peer.FromContext(ctx); ok {
		local = p.LocalAddr
	}
	no := s.door().Call(access.Push, local, call.Header.Get(":authority"), call.Header.Get("authorization"))
	if no == nil {
		return nil
	}
	a := refusalAnswer(no)
	s.countRefused("grpc", a, "")
	return a.grpcStatus("otlp: " + no.Error()).Err()
}

func servesMethod(full string) bool {
	for _, g := range signals {
		if full == "/"+g.service+"/Export" {
			return true
		}
	}
	return false
}
