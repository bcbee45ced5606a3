package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wattloop/wattloop/access"
)

// client asks the running engine, over its socket or at a URL.
type client struct {
	url       string // --url or WATTLOOP_URL
	socket    string
	tokenFile string // --token.file or WATTLOOP_TOKEN_FILE
}

func (cl *client) addFlags(cmd *cobra.Command) {
	socket := os.Getenv("WATTLOOP_API_SOCKET")
	if socket == "" {
		socket = defaultSocket()
	}
	cmd.Flags().StringVar(&cl.url, "url", os.Getenv("WATTLOOP_URL"), "address of the running engine, http://HOST:PORT (WATTLOOP_URL)")
	cmd.Flags().StringVar(&cl.socket, "api.socket", socket, "socket of the running engine, used without --url (WATTLOOP_API_SOCKET)")
	cmd.Flags().StringVar(&cl.tokenFile, "token.file", os.Getenv("WATTLOOP_TOKEN_FILE"), "file with the token for --url (WATTLOOP_TOKEN_FILE, or the token itself in WATTLOOP_TOKEN)")
}

// defaultSocket is where this user's own serve would listen, or else the
// machine's when that is there.
func defaultSocket() string {
	c := defaultConfig()
	c.derive()
	machine := filepath.Join(machineRun, "wattloop.sock")
	if _, err := os.Stat(c.APISocket); err != nil {
		if _, err := os.Stat(machine); err == nil {
			return machine
		}
	}
	return c.APISocket
}

// httpClient and base say where requests go.
func (cl *client) httpClient() (*http.Client, string) {
	if cl.url != "" { // a redirect would carry the token elsewhere
		stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		return &http.Client{Timeout: time.Minute, CheckRedirect: stay}, strings.TrimSuffix(cl.url, "/")
	}
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", cl.socket)
	}}
	return &http.Client{Timeout: time.Minute, Transport: tr}, "http://wattloop"
}

func (cl *client) where() string {
	if cl.url != "" {
		return cl.url
	}
	return cl.socket
}

// do sends one request and reads the whole answer. An engine that cannot be
// reached is exit code 3.
func (cl *client) do(ctx context.Context, method, path string, form url.Values) ([]byte, int, error) {
	if form == nil {
		return cl.send(ctx, method, path, "", nil)
	}
	return cl.send(ctx, method, path, "application/x-www-form-urlencoded", strings.NewReader(form.Encode()))
}

// doJSON is do with a document of ours, or none.
func (cl *client) doJSON(ctx context.Context, method, path string, document any) ([]byte, int, error) {
	if document == nil {
		return cl.send(ctx, method, path, "", nil)
	}
	b, err := json.Marshal(document)
	if err != nil {
		return nil, 0, withCode(exitUsage, err)
	}
	return cl.send(ctx, method, path, "application/json", bytes.NewReader(b))
}

func (cl *client) send(ctx context.Context, method, path, contentType string, body io.Reader) ([]byte, int, error) {
	hc, base := cl.httpClient()
	defer hc.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, method, base+path, body)
	if err != nil {
		return nil, 0, withCode(exitUsage, fmt.Errorf("--url %q: %w", cl.url, err))
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if err := cl.authorize(req); err != nil {
		return nil, 0, withCode(exitUsage, err)
	}
	resp, err := hc.Do(req)
	if err != nil {
		return nil, 0, withCode(exitCannot, cl.unreachable(err))
	}
	defer resp.Body.Close()
	const most = 64 << 20
	b, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err != nil {
		return nil, 0, withCode(exitCannot, fmt.Errorf("%s: read the answer: %w", cl.where(), err))
	}
	return b, resp.StatusCode, cl.refused(resp.StatusCode, b)
}

// authorize sends the token where there is one, and never where others could
// read it on the way.
func (cl *client) authorize(req *http.Request) error {
	token := strings.TrimSpace(os.Getenv("WATTLOOP_TOKEN"))
	switch {
	case cl.url == "":
		return nil // a socket says who we are
	case cl.tokenFile != "":
		var err error
		if token, err = readToken(cl.tokenFile); err != nil {
			return fmt.Errorf("--token.file: %w", err)
		}
	case token == "":
		return nil
	}
	if req.URL.Scheme != "https" && !access.LoopbackName(req.URL.Host) {
		return fmt.Errorf("--url %s: a token goes over https, or to this machine alone", cl.url)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	return nil
}

// refused is an answer to whoever may not ask, with the role that is missing, or
// to whoever asks too early.
func (cl *client) refused(code int, body []byte) error {
	if code == http.StatusServiceUnavailable {
		var early struct{ ErrorType, Error string }
		if json.Unmarshal(body, &early) == nil && early.ErrorType == "unavailable" {
			return withCode(exitCannot, fmt.Errorf("%s: %s", cl.where(), early.Error))
		}
	}
	if code != http.StatusUnauthorized && code != http.StatusForbidden {
		return nil
	}
	hint := "; --token.file names the file of one"
	if cl.url == "" || cl.tokenFile != "" || os.Getenv("WATTLOOP_TOKEN") != "" {
		hint = ""
	}
	return withCode(exitCannot, fmt.Errorf("%s: %d: %s%s", cl.where(), code, strings.TrimSpace(string(body)), hint))
}

// getJSON reads one of our own documents.
func (cl *client) getJSON(ctx context.Context, path string, into any) error {
	b, code, err := cl.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	if code != http.StatusOK {
		return withCode(exitCannot, fmt.Errorf("%s%s: %d: %s", cl.where(), path, code, strings.TrimSpace(string(b))))
	}
	if err := json.Unmarshal(b, into); err != nil {
		return withCode(exitCannot, fmt.Errorf("%s%s: not an answer of wattloop: %w", cl.where(), path, err))
	}
	return nil
}

// unreachable says what to do about an engine that does not answer.
func (cl *client) unreachable(err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted")
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: user %d may not open it; ask as root, or at the web address with --url http://%s", cl.where(), os.Geteuid(), defaultConfig().WebListen)
	}
	return fmt.Errorf("no engine at %s: %w; start one with wattloop serve, or name it with --url or --api.socket", cl.where(), bare(err))
}
