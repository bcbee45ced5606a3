package ingest

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
)

// Server answers OTLP over HTTP and gRPC under one activation of a channel: all
// that comes on a connection that it has accepted belongs to that activation,
// or is refused. Both transports meet in Activation.Export and share, with all
// other Servers of the Receiver, one bound on the bytes in flight. It opens no
// listener itself, and is safe for concurrent use.
type Server struct {
	a *Activation
	r *Receiver
}

// transports is what the Servers of one Receiver share.
type transports struct {
	inFlight  admission
	requests  *prometheus.CounterVec // these two also of the receiver before, see Options.After
	refused   *prometheus.CounterVec
	buffers   sync.Pool // *[]byte
	inflaters sync.Pool // *gzip.Reader
	drains    sync.Pool // *[64 << 10]byte
}

func newTransports(reg prometheus.Registerer) *transports {
	t := &transports{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "wattloop_ingest_requests_total",
			Help: "OTLP requests by channel, transport and answer: ok, partial, or the gRPC code of the refusal.",
		}, []string{"channel", "transport", "answer"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "wattloop_ingest_refused_requests_total",
			Help: "OTLP requests that were refused as a whole, by channel and by why: a limit of this side, or the gRPC code of the answer.",
		}, []string{"channel", "reason"}),
	}
	if reg != nil {
		reg.MustRegister(t.requests, t.refused)
	}
	return t
}

func (t *transports) remove(channel string) {
	t.requests.DeletePartialMatch(prometheus.Labels{"channel": channel})
	t.refused.DeletePartialMatch(prometheus.Labels{"channel": channel})
}

// NewServer returns the transports of an activation.
func NewServer(a *Activation) *Server { return &Server{a: a, r: a.c.r} }

// HTTP returns a server for OTLP/HTTP with bounded headers and bounded patience
// for slow clients. The caller gives it a listener, see LimitListener.
func (s *Server) HTTP() *http.Server {
	return &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second,
		// Longer than ReadTimeout, since it starts with it and the ack waits for
		// an fsync; it ends a client that sends and never reads its answers.
		WriteTimeout:   30 * time.Second,
		IdleTimeout:    60 * time.Second,
		MaxHeaderBytes: 16 << 10,
		ErrorLog:       slog.NewLogLogger(s.r.o.Logger.Handler(), slog.LevelDebug),
	}
}

// Handler serves POST /v1/metrics and POST /api/v1/otlp/v1/metrics, OTLP/HTTP in
// protobuf and JSON, and traces and logs under the same paths, which go to the
// upstream: without one they are answered with a partial success that rejects
// everything and says why. Other paths are answered with 404, who may not push
// with 401 or 403, and what a web page may have sent with 403. Every answer is in
// the request's encoding, and an error is a google.rpc.Status.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for path, g := range paths() {
		mux.HandleFunc(path, func(w http.ResponseWriter, req *http.Request) { s.serveHTTP(w, req, g) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, req *http.Request) {
		s.refuse(w, req, encodingOf(req.Header), answerNoPath,
			"otlp: no such path: OTLP goes to /v1/metrics, /v1/traces and /v1/logs")
	})
	return s.protect(mux)
}

// paths are all that OTLP/HTTP is taken at.
func paths() map[string]signal {
	all := map[string]signal{}
	for _, g := range signals {
		all[g.path], all["/api/v1/otlp"+g.path] = g, g
	}
	return all
}

// Paths are where Handler takes OTLP/HTTP, sorted.
func Paths() []string { return slices.Sorted(maps.Keys(paths())) }

func (s *Server) serveHTTP(w http.ResponseWriter, req *http.Request, g signal) {
	enc := encodingOf(req.Header)
	if req.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		s.refuse(w, req, enc, answerMethod, fmt.Sprintf("otlp: %s: only POST is served", g.path))
		return
	}
	if enc == encodingUnknown {
		w.Header().Set("Accept-Post", "application/x-protobuf, application/json")
		s.refuse(w, req, enc, answerUnknownType, "otlp: Content-Type: want application/x-protobuf or application/json")
		return
	}
	gzipped, ok := compressed(req.Header)
	if !ok {
		w.Header().Set("Accept-Encoding", "gzip")
		s.refuse(w, req, enc, answerUnknownType, "otlp: Content-Encoding: want gzip or identity, once")
		return
	}
	size := max(0, req.ContentLength)
	if gzipped {
		size = 0 // what matters is what it inflates to
	}
	if err := s.a.c.enter(size); err != nil {
		s.fail(w, req, enc, err)
		return
	}
	defer s.a.c.leave()
	b, err := s.read(req.Body, req.ContentLength, gzipped, limitsHTTP(gzipped))
	if err != nil {
		s.fail(w, req, enc, err)
		return
	}
	defer s.release(b)
	p, err := g.export(s, req.Context(), enc, b.b)
	if err != nil {
		s.fail(w, req, enc, err)
		return
	}
	s.count("http", p.answer())
	p.writeHTTP(w, enc, g.rejected)
}

// fail refuses a request with the row of its error.
func (s *Server) fail(w http.ResponseWriter, req *http.Request, enc encoding, err error) {
	s.turnAway(w, req, enc, s.r.answerTo(err), s.told(err), refusalOf(err))
}

// refuse answers a request that was not taken, and counts it.
func (s *Server) refuse(w http.ResponseWriter, req *http.Request, enc encoding, a answer, message string) {
	s.turnAway(w, req, enc, a, message, "")
}

// turnAway answers a request that was not taken, and counts it with why, which may
// be empty. It reads on first, within bounds: a client that is still sending when
// its connection is closed sees a broken connection in place of its answer, and
// sends the same again.
func (s *Server) turnAway(w http.ResponseWriter, req *http.Request, enc encoding, a answer, message, why string) {
	if req.Header.Get("Expect") == "" { // else the body comes only if it is asked for
		s.r.drain(req.Body)
	}
	s.countRefused("http", a, why)
	a.writeHTTP(w, enc, message)
}

// drain reads on to the end of a body, or to the limit of one.
func (t *transports) drain(body io.Reader) {
	buf, _ := t.drains.Get().(*[64 << 10]byte) // few reads: who is refused must cost little
	if buf == nil {
		buf = new([64 << 10]byte)
	}
	defer t.drains.Put(buf)
	for n := 0; n < maxBody; {
		more, err := body.Read(buf[:])
		if n += more; err != nil {
			return
		}
	}
}

func (s *Server) countRefused(transport string, a answer, why string) {
	word := wordOf(a.code)
	s.count(transport, word)
	s.r.refused.WithLabelValues(s.a.c.o.Name, cmp.Or(why, word)).Inc()
}

func (s *Server) count(transport, answer string) {
	s.r.requests.WithLabelValues(s.a.c.o.Name, transport, answer).Inc()
}

// wordOf is a gRPC code as a label value.
func wordOf(c codes.Code) string {
	switch c {
	case codes.InvalidArgument:
		return "invalid_argument"
	case codes.ResourceExhausted:
		return "resource_exhausted"
	case codes.Unavailable:
		return "unavailable"
	case codes.DeadlineExceeded:
		return "deadline_exceeded"
	case codes.Aborted:
		return "aborted"
	case codes.OutOfRange:
		return "out_of_range"
	case codes.DataLoss:
		return "data_loss"
	case codes.Canceled:
		return "cancelled"
	case codes.Unimplemented:
		return "unimplemented"
	case codes.NotFound:
		return "not_found"
	case codes.PermissionDenied:
		return "permission_denied"
	case codes.Unauthenticated:
		return "unauthenticated"
	}
	return "internal"
}
