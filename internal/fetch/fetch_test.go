package fetch

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

const limit = 1 << 20

// asked gets the page that serve answers with.
func asked(t *testing.T, serve http.HandlerFunc, change func(*Page)) (string, string, error) {
	t.Helper()
	server := httptest.NewServer(serve)
	defer server.Close()
	p := &Page{URL: server.URL + "/page", Timeout: time.Minute, Limit: limit, Client: NewClient(nil)}
	if change != nil {
		change(p)
	}
	defer p.Close()
	body, contentType, err := p.Get(t.Context())
	return string(body), contentType, err
}

func zipped(b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	z.Write(b)
	z.Close()
	return out.Bytes()
}

// answer is a page with these headers, given as key, value, and so on.
func answer(status int, body []byte, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		w.Write(body)
	}
}

func TestGet(t *testing.T) {
	f := func(name string, serve http.HandlerFunc, want string) {
		t.Helper()
		if got, _, err := asked(t, serve, nil); err != nil || got != want {
			t.Errorf("%s: %.40q, %v; want %.40q", name, got, err, want)
		}
	}
	full := strings.Repeat("x", limit)
	f("plain", answer(200, []byte("a 1\n")), "a 1\n")
	f("as large as may be", answer(200, []byte(full)), full)
	f("gzip", answer(200, zipped([]byte(full)), "Content-Encoding", "gzip"), full)
	f("gzip in two members", answer(200, append(zipped([]byte("a")), zipped([]byte("b"))...), "Content-Encoding", "gzip"), "ab")
	f("called identity", answer(200, []byte("a"), "Content-Encoding", "identity"), "a")

	var header http.Header
	_, contentType, err := asked(t, func(w http.ResponseWriter, r *http.Request) {
		header = r.Header
		w.Header().Set("Content-Type", "text/x")
	}, func(p *Page) { p.Header = http.Header{"Accept": {"text/x"}, "User-Agent": {"us"}} })
	if err != nil || contentType != "text/x" || header.Get("Accept") != "text/x" || header.Get("User-Agent") != "us" || header.Get("Accept-Encoding") != "gzip" {
		t.Errorf("%q, %v; asked %v", contentType, err, header)
	}
}

// Each failure says what to do about it, and shows nothing of the page.
func TestFailures(t *testing.T) {
	f := func(name string, serve http.HandlerFunc, want string) {
		t.Helper()
		body, _, err := asked(t, serve, func(p *Page) { p.LimitKey = "a_limit" })
		if err == nil || !strings.HasPrefix(err.Error(), want) || body != "" || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %.40q, %v; want %s", name, body, err, want)
		}
	}
	secret := []byte("secret")
	long := bytes.Repeat([]byte("secret"), limit/3)
	const large = "the answer has more than 1048576 bytes (a_limit)"
	f("longer, and says so", answer(200, long), large)
	f("longer, in chunks", func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		w.Write(long)
	}, large)
	f("longer once inflated", answer(200, zipped(long), "Content-Encoding", "gzip"), large)
	f("a member of nothing for ever", answer(200, bytes.Repeat(zipped(nil), limit/20), "Content-Encoding", "gzip"), large)
	f("no gzip", answer(200, secret, "Content-Encoding", "gzip"), "the answer says gzip: ")
	f("gzip cut off", answer(200, zipped(long)[:500], "Content-Encoding", "gzip"), "the answer broke off after ")
	f("another encoding", answer(200, secret, "Content-Encoding", "zstd"), "the answer is in the encoding zstd; gzip and none are read")
	f("cut off", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		w.Write(secret)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}, "the answer broke off after 6 bytes")
	f("a redirect", answer(302, secret, "Location", "/elsewhere"), "answers 302 Found to /elsewhere, and redirects are not followed; give that address")
	f("a long redirect", answer(302, secret, "Location", "/"+strings.Repeat("x", 999)), "answers 302 Found to /"+strings.Repeat("x", 199)+", and")
	f("a redirect to nowhere", answer(302, secret), "answers 302 Found")
	f("an error", answer(503, secret), "answers 503 Service Unavailable")
	f("a status without a name", answer(599, secret), "answers 599")
	f("another success", answer(206, secret), "answers 206 Partial Content")
}

func TestSuccess(t *testing.T) {
	for status, want := range map[int]bool{200: true, 206: true, 299: true, 300: false, 404: false} {
		body, _, err := asked(t, answer(status, []byte("x")), func(p *Page) { p.Any2xx = true })
		if (err == nil) != want || want && body != "x" {
			t.Errorf("%d: %q, %v; taken is right: %v", status, body, err, want)
		}
	}
	if _, _, err := asked(t, answer(200, make([]byte, limit+1)), nil); err == nil || err.Error() != "the answer has more than 1048576 bytes" {
		t.Errorf("%v", err)
	}
}

// An address that nobody serves, and one that is none, are named once, by whom
// they belong to.
func TestNobodyAnswers(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	for _, url := range []string{server.URL, "http://[::1"} {
		p := &Page{URL: url, Timeout: time.Minute, Limit: limit, Client: NewClient(nil)}
		if _, _, err := p.Get(t.Context()); err == nil || strings.Contains(err.Error(), "Get ") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// A page that is not whole in time is none, and the end of the caller is not
// taken for that.
func TestSlow(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	begun := make(chan struct{}, 2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte("half"))
		w.(http.Flusher).Flush()
		begun <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	p := &Page{URL: server.URL, Timeout: 20 * time.Millisecond, Limit: limit, Client: NewClient(nil)}
	if _, _, err := p.Get(t.Context()); err == nil || err.Error() != "no whole answer within 20ms" {
		t.Errorf("%v", err)
	}
	p.Timeout = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	if _, _, err := p.Get(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v; want that the caller ended it", err)
	}
}
