package ingest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/wattloop/wattloop/ingest"
)

// partial is what a sender reads of a success.
type partial struct {
	rejected int64
	message  string
}

// decodePartial reads an answer with the library that clients use.
func decodePartial(t *testing.T, body string) partial {
	t.Helper()
	resp := pmetricotlp.NewExportResponse()
	if err := resp.UnmarshalProto([]byte(body)); err != nil {
		t.Fatal(err)
	}
	return partial{resp.PartialSuccess().RejectedDataPoints(), resp.PartialSuccess().ErrorMessage()}
}

func decodePartialJSON(t *testing.T, body string) partial {
	t.Helper()
	resp := pmetricotlp.NewExportResponse()
	if err := resp.UnmarshalJSON([]byte(body)); err != nil {
		t.Fatalf("%q: %v", body, err)
	}
	return partial{resp.PartialSuccess().RejectedDataPoints(), resp.PartialSuccess().ErrorMessage()}
}

// answer is one row of the table of OTLP answers in reliability.md.
type answer struct {
	grpc     codes.Code
	http     int
	rejected int64
	retry    time.Duration // in RetryInfo and Retry-After; 0 means neither
}

// The table of answers: every failure that one channel without credentials has,
// over gRPC, HTTP protobuf and HTTP JSON.
func TestAnswers(t *testing.T) {
	full := answer{codes.OK, 200, 0, 0}
	undecodable := answer{codes.InvalidArgument, 400, 0, 0}
	tooLarge := answer{codes.ResourceExhausted, 413, 0, 0}

	normal := func(t *testing.T) *rig { r := newRig(t, nil); r.at(60); return r }
	f := func(name string, start func(*testing.T) *rig, wire, body []byte, want answer) {
		t.Run(name, func(t *testing.T) {
			r := start(t)
			if wire != nil {
				r.checkGRPC(wire, want)
				r.checkHTTP(wire, "application/x-protobuf", want)
			}
			if body != nil {
				r.checkHTTP(body, "application/json", want)
			}
			if n := r.server.InFlight(); name != "64 MiB in flight" && n != 0 {
				t.Errorf("%d bytes still count as in flight", n)
			}
		})
	}
	f("empty request", normal, []byte{}, []byte(`{}`), full)
	f("all stored", normal, gauge(60), gaugeJSON(60), full)
	f("the same again", func(t *testing.T) *rig {
		r := normal(t)
		r.checkGRPC(gauge(60), full)
		return r
	}, gauge(60), gaugeJSON(60), full)
	f("one point in the future", normal, gauge(60, 121), gaugeJSON(60, 121), answer{codes.OK, 200, 1, 0})
	f("another value at that time", func(t *testing.T) *rig {
		r := normal(t)
		r.checkGRPC(gaugeOf(2, 60), full)
		return r
	}, gauge(60), gaugeJSON(60), answer{codes.OK, 200, 1, 0})
	f("all points too old", normal, gauge(-3600, -3601), gaugeJSON(-3600, -3601), answer{codes.OK, 200, 2, 0})

	f("a label that is too long, and a text that is none", normal, badPoints(true), badPoints(false), answer{codes.OK, 200, 2, 0})

	f("not a message", normal, []byte("\x0a\xff"), []byte(`{"resourceMetrics":`), undecodable)
	f("empty body", normal, nil, []byte(``), undecodable)
	f("other JSON", normal, nil, []byte(`[]`), undecodable)
	f("nesting of 31, and of 32", normal, nested(13), nestedJSON(14), full)
	f("nesting of 33, and of 34", normal, nested(14), nestedJSON(15), undecodable)
	f("nesting of 300000", normal, nested(300_000), nestedJSON(300_000), undecodable)
	f("invalid UTF-8 in the resource", normal, resourceValue("\xff\xfe"), resourceValueJSON("\xff\xfe"), undecodable)

	f("invalid UTF-8 in a scope", normal, lengths([]byte("\xff\xfe"), 1, 1, 2, 1), []byte("{\"resourceMetrics\":[{\"scopeMetrics\":[{\"scope\":{\"name\":\"\xff\xfe\"}}]}]}"), undecodable)

	f("more than the limit", normal, make([]byte, 20<<20+1), bytes.Repeat([]byte(" "), 20<<20+1), tooLarge)

	f("64 MiB in flight", func(t *testing.T) *rig {
		r := normal(t)
		t.Cleanup(r.server.Occupy(64 << 20))
		return r
	}, gauge(60), gaugeJSON(60), answer{codes.Unavailable, 503, 0, 5 * time.Second})

	failing := func(change func(*ingest.Options)) func(*testing.T) *rig {
		return func(t *testing.T) *rig { r := newRig(t, change); r.at(60); return r }
	}
	unavailable := answer{codes.Unavailable, 503, 0, 5 * time.Second}
	f("commit failed", failing(func(o *ingest.Options) {
		o.Appendable = failingCommit{o.Appendable}
	}), gauge(60), gaugeJSON(60), unavailable)
	f("the disk is full, or the log is opened anew", failing(func(o *ingest.Options) {
		o.Appendable = failingCommit{o.Appendable}
		o.RetryAfter = func(error) time.Duration { return 30 * time.Second }
	}), gauge(60), gaugeJSON(60), answer{codes.Unavailable, 503, 0, 30 * time.Second})
	f("fsync failed", failing(func(o *ingest.Options) {
		o.Sync = func(context.Context) error { return errors.New("store: wal: fsync: input/output error") }
	}), gauge(60), gaugeJSON(60), unavailable)
}

// checkGRPC exports wire over gRPC and compares the answer with its row.
func (r *rig) checkGRPC(wire []byte, want answer) {
	r.t.Helper()
	out, err := r.call(context.Background(), exportMethod, wire, grpc.MaxCallSendMsgSize(64<<20))
	st := status.Convert(err)
	if st.Code() != want.grpc {
		r.t.Errorf("gRPC: %v; want %v", err, want.grpc)
		return
	}
	var retry time.Duration
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			retry = info.GetRetryDelay().AsDuration()
		}
	}
	if retry != want.retry {
		r.t.Errorf("gRPC: RetryInfo %v; want %v", retry, want.retry)
	}
	if err != nil {
		if st.Message() == "" {
			r.t.Error("gRPC: no message")
		}
		return
	}
	if want.rejected == 0 && len(out) != 0 {
		r.t.Errorf("gRPC: answer %x; want partial_success unset", out)
	}
	r.checkPartial("gRPC", decodePartial(r.t, string(out)), want.rejected)
}

// checkHTTP posts a body and compares the answer with its row.
func (r *rig) checkHTTP(body []byte, media string, want answer) {
	r.t.Helper()
	got := r.post(body, "Content-Type", media)
	if got.code != want.http {
		r.t.Errorf("%s: %d %q; want %d", media, got.code, got.body, want.http)
		return
	}
	if ct := got.header.Get("Content-Type"); ct != media {
		r.t.Errorf("%s: answered as %s", media, ct)
	}
	retry := ""
	if want.retry > 0 {
		retry = strconv.Itoa(int(want.retry / time.Second))
	}
	if after := got.header.Get("Retry-After"); after != retry {
		r.t.Errorf("%s: Retry-After %q; want %q", media, after, retry)
	}
	if want.http == http.StatusOK {
		decode := decodePartial
		if media == "application/json" {
			decode = decodePartialJSON
		}
		r.checkPartial(media, decode(r.t, got.body), want.rejected)
		return
	}
	code, message := decodeStatus(r.t, got)
	if message == "" || code != want.grpc {
		r.t.Errorf("%s: status %v %q; want %v and a message", media, code, message, want.grpc)
	}
}

func (r *rig) checkPartial(where string, got partial, rejected int64) {
	r.t.Helper()
	if got.rejected != rejected || (got.message == "") != (rejected == 0) {
		r.t.Errorf("%s: partial success %+v; want %d rejected, and why", where, got, rejected)
	}
}

// decodeStatus reads a google.rpc.Status in the answer's own encoding.
func decodeStatus(t *testing.T, got reply) (codes.Code, string) {
	t.Helper()
	if got.header.Get("Content-Type") == "application/x-protobuf" {
		var st statuspb.Status
		if err := proto.Unmarshal([]byte(got.body), &st); err != nil {
			t.Fatalf("%q: %v", got.body, err)
		}
		return codes.Code(st.GetCode()), st.GetMessage()
	}
	var st struct {
		Code    uint32
		Message string
	}
	if err := json.Unmarshal([]byte(got.body), &st); err != nil {
		t.Fatalf("%q: %v", got.body, err)
	}
	return codes.Code(st.Code), st.Message
}

// What only HTTP has: paths, methods, media types, encodings, sizes of what
// arrives.
func TestAnswersHTTP(t *testing.T) {
	r := newRig(t, nil)
	r.at(60)
	f := func(name, method, path string, body io.Reader, want int, headers ...string) reply {
		t.Helper()
		got := r.do(method, path, body, headers...)
		if got.code != want {
			t.Errorf("%s: %d %q; want %d", name, got.code, got.body, want)
			return got
		}
		if want != http.StatusOK {
			if _, message := decodeStatus(t, got); message == "" {
				t.Errorf("%s: no message", name)
			}
		}
		return got
	}
	pb := []string{"Content-Type", "application/x-protobuf"}
	js := []string{"Content-Type", "application/json"}
	one := func() io.Reader { return bytes.NewReader(gauge(60)) }

	f("the other path", "POST", "/api/v1/otlp/v1/metrics", one(), 200, pb...)
	f("another path", "POST", "/v1/metric", one(), 404, pb...)
	if got := f("GET", "GET", "/v1/metrics", nil, 405); got.header.Get("Allow") != "POST" {
		t.Errorf("Allow: %q; want POST", got.header.Get("Allow"))
	}
	f("no type", "POST", "/v1/metrics", one(), 415)
	f("two types", "POST", "/v1/metrics", one(), 415, append(pb, js...)...)
	f("unreadable type", "POST", "/v1/metrics", one(), 415, "Content-Type", ";;")
	f("unreadable parameter", "POST", "/v1/metrics", one(), 200, "Content-Type", "application/x-protobuf; charset=\"")
	f("grpc type", "POST", "/v1/metrics", one(), 415, "Content-Type", "application/grpc")
	f("snappy", "POST", "/v1/metrics", one(), 415, append(pb, "Content-Encoding", "snappy")...)
	f("zstd", "POST", "/v1/metrics", one(), 415, append(pb, "Content-Encoding", "zstd")...)
	f("two encodings in one", "POST", "/v1/metrics", one(), 415, append(pb, "Content-Encoding", "gzip, gzip")...)
	f("two encodings", "POST", "/v1/metrics", one(), 415, append(pb, "Content-Encoding", "identity", "Content-Encoding", "gzip")...)
	f("GZIP", "POST", "/v1/metrics", bytes.NewReader(zip(gauge(60))), 200, append(pb, "Content-Encoding", "GZIP")...)
	f("not gzip", "POST", "/v1/metrics", one(), 400, append(pb, "Content-Encoding", "gzip")...)
	f("gzip of nothing", "POST", "/v1/metrics", bytes.NewReader(nil), 400, append(pb, "Content-Encoding", "gzip")...)
	f("cut gzip", "POST", "/v1/metrics", bytes.NewReader(zip(gauge(60))[:30]), 400, append(pb, "Content-Encoding", "gzip")...)
	f("gzip and more", "POST", "/v1/metrics", bytes.NewReader(append(zip(gauge(60)), "more"...)), 400, append(pb, "Content-Encoding", "gzip")...)

	unsized := func(b []byte) io.Reader { return io.MultiReader(bytes.NewReader(b)) }
	f("too large, in chunks", "POST", "/v1/metrics", unsized(make([]byte, 20<<20+1)), 413, pb...)
	noise := make([]byte, 4<<20+1)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise) // never fails
	zipped := zip(noise)
	f("too large as it comes", "POST", "/v1/metrics", bytes.NewReader(zipped), 413, append(pb, "Content-Encoding", "gzip")...)
	f("too large as it comes, in chunks", "POST", "/v1/metrics", unsized(zipped), 413, append(pb, "Content-Encoding", "gzip")...)
	// Members of 1 MiB at about 20:1, so that it is their sum that is too large.
	member := zip(append(noise[:50<<10:50<<10], make([]byte, 1<<20)...))
	f("too large when inflated", "POST", "/v1/metrics", bytes.NewReader(bytes.Repeat(member, 20)), 413, append(js, "Content-Encoding", "gzip")...)
	f("as large as it may be", "POST", "/v1/metrics", bytes.NewReader(bytes.Repeat(member, 15)), 400, append(js, "Content-Encoding", "gzip")...)
	if n := r.server.InFlight(); n != 0 {
		t.Errorf("%d bytes still count as in flight", n)
	}
	r.check(`hw_power_watts`, 60, 1)
}

// A body that stops coming in time is the network's fault: the sender may send
// it again.
func TestAnswerToSlowBody(t *testing.T) {
	r := newRig(t, nil)
	slow := io.MultiReader(bytes.NewReader([]byte{0x0a}), iotestErr{os.ErrDeadlineExceeded})
	req := httptest.NewRequest("POST", "http://localhost/v1/metrics", slow)
	req.Header.Set("Content-Type", "application/x-protobuf")
	req = toLoopback(req)
	w := httptest.NewRecorder()
	r.server.Handler().ServeHTTP(w, req)
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" {
		t.Errorf("%d, Retry-After %q; want 503 and 1", w.Code, w.Header().Get("Retry-After"))
	}
}

// toLoopback is a request as it comes in on the loopback.
func toLoopback(req *http.Request) *http.Request {
	return req.WithContext(context.WithValue(req.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}))
}

type iotestErr struct{ err error }

func (r iotestErr) Read([]byte) (int, error) { return 0, r.err }

// What only gRPC has: methods, and what is said of compression.
func TestAnswersGRPC(t *testing.T) {
	r := newRig(t, nil)
	r.at(60)
	f := func(name, method string, want codes.Code, opts ...grpc.CallOption) {
		t.Helper()
		if _, err := r.call(context.Background(), method, gauge(60), opts...); status.Code(err) != want {
			t.Errorf("%s: %v; want %v", name, err, want)
		}
	}
	f("export", exportMethod, codes.OK)
	f("gzip", exportMethod, codes.OK, grpc.UseCompressor("gzip"))
	f("another method", "/opentelemetry.proto.collector.metrics.v1.MetricsService/Import", codes.Unimplemented)
	f("another service", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", codes.Unimplemented)
	f("no slash before", "opentelemetry.proto.collector.metrics.v1.MetricsService/Export", codes.Unimplemented)

	for encoding, want := range map[misnamed]codes.Code{"gzip": codes.InvalidArgument, "snappy": codes.Unimplemented} {
		//lint:ignore SA1019 the only way to say gzip and send something else
		conn := r.dial(grpc.WithCompressor(encoding))
		err := conn.Invoke(context.Background(), exportMethod, gauge(60), new([]byte), grpc.ForceCodecV2(plainBytes{}))
		if status.Code(err) != want {
			t.Errorf("said to be %s: %v; want %v", encoding, err, want)
		}
		conn.Close()
	}

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := r.call(ctx, exportMethod, gauge(60)); status.Code(err) != codes.Canceled {
		t.Errorf("cancelled: %v", err)
	}
}

// misnamed gives the bytes an encoding's name and leaves them as they are.
type misnamed string

func (m misnamed) Type() string                    { return string(m) }
func (misnamed) Do(w io.Writer, wire []byte) error { _, err := w.Write(wire); return err }

// Spans and log records have nowhere to go: all of them are rejected, by count.
func TestAnswersToOtherSignals(t *testing.T) {
	r := newRig(t, nil)
	// Two resources; one scope with two records, one with none, one with one.
	wire := []byte("\x0a\x06\x12\x04\x12\x00\x12\x00" + "\x0a\x06\x12\x00\x12\x02\x12\x00")
	f := func(path, media, body string, code int, want string) {
		t.Helper()
		got := r.do("POST", path, strings.NewReader(body), "Content-Type", media)
		if got.code != code || !strings.Contains(got.body, want) {
			t.Errorf("%s: %d %q; want %d and %q", path, got.code, got.body, code, want)
		}
	}
	f("/v1/traces", "application/json",
		`{"resourceSpans":[{"scopeSpans":[{"spans":[{},{}]},{}]},{"scopeSpans":[{"spans":[{}]}]},{}]}`,
		200, `{"partialSuccess":{"errorMessage":"no upstream takes spans: only metrics are stored here","rejectedSpans":"3"}}`)
	f("/v1/logs", "application/json",
		`{"resourceLogs":[{"scopeLogs":[{"logRecords":[{}]},{"logRecords":null}]}]}`,
		200, `"rejectedLogRecords":"1"`)
	f("/v1/traces", "application/json", `{}`, 200, `{}`)
	f("/v1/traces", "application/json", `{"resourceSpans":{}}`, 400, `"code":3`)
	f("/v1/logs", "application/json", `null`, 400, `"code":3`)
	f("/v1/logs", "application/x-protobuf", "\x0a\xff", 400, "")
	f("/v1/traces", "text/plain", "", 415, "")

	for _, path := range []string{"/v1/traces", "/v1/logs", "/api/v1/otlp/v1/traces"} {
		got := r.do("POST", path, bytes.NewReader(wire), "Content-Type", "application/x-protobuf")
		if p := decodePartial(t, got.body); got.code != 200 || p.rejected != 3 || p.message == "" {
			t.Errorf("%s: %d %+v; want 200 and 3 rejected", path, got.code, p)
		}
	}
	for _, service := range []string{"trace.v1.TraceService", "logs.v1.LogsService"} {
		out, err := r.call(context.Background(), "/opentelemetry.proto.collector."+service+"/Export", wire)
		if p := decodePartial(t, string(out)); err != nil || p.rejected != 3 {
			t.Errorf("%s: %+v, %v; want 3 rejected", service, p, err)
		}
	}
}
