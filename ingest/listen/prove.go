package listen

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// provePath answers a nonce with what only this door can make of it. It is asked
// by the self-test of an activation, and by whoever tests from where an actor is.
const provePath = "/.well-known/wattloop-channel"

// Proof is a question to the address of a channel and its right answer: who asks
// from where the actor is finds out whether its connections get here (S2-12).
type Proof struct {
	Path   string `json:"path"`   // to GET from each address
	Answer string `json:"answer"` // the body, if it is this door that answers
}

// proof makes a question that was not asked before.
func (d *door) proof() Proof {
	nonce := strings.ToLower(rand.Text())
	return Proof{provePath + "?nonce=" + nonce, d.answer(nonce)}
}

func (d *door) answer(nonce string) string {
	mac := hmac.New(sha256.New, d.key)
	mac.Write([]byte(nonce))
	return hex.EncodeToString(mac.Sum(nil))
}

// prove answers a question of proof. It tells nothing about the channel: its key
// is of this activation and serves nothing else.
func (d *door) prove(w http.ResponseWriter, req *http.Request) {
	nonce := req.URL.Query().Get("nonce")
	if req.Method != http.MethodGet || nonce == "" || len(nonce) > 64 {
		http.Error(w, "want GET with a nonce of 1 to 64 bytes", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	io.WriteString(w, d.answer(nonce))
}

// errElsewhere says that an address is answered by somebody else.
var errElsewhere = errors.New("another program answers there")

// Dial opens a connection, as net.Dialer does.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Ask puts the question of p to the address. The error says who did not answer,
// and what to do about it.
func Ask(ctx context.Context, dial Dial, a Address, p Proof) error {
	hc := &http.Client{
		Transport: &http.Transport{
			DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, a.Network, a.Addr) },
			DisableKeepAlives:      true,
			MaxResponseHeaderBytes: 16 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	host := "localhost"
	if a.Network == "tcp" {
		host = strings.ReplaceAll(a.Addr, "%", "%25") // the zone of an IPv6 address
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+p.Path, nil)
	if err != nil {
		return fmt.Errorf("%s: self-test: %w", a, err)
	}
	resp, err := hc.Do(req)
	if err == nil {
		defer resp.Body.Close()
		var body []byte
		body, err = io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		if err == nil && !hmac.Equal(body, []byte(p.Answer)) {
			err = errElsewhere
		}
	}
	if err == nil {
		return nil
	}
	return a.untested(err)
}

// untested says why nobody knows that connections to a get here.
func (a Address) untested(err error) error {
	return fmt.Errorf("%s: self-test: %w: %s", a, plain(err), a.advice())
}

// plain is what went wrong without the call that it went wrong in.
func plain(err error) error {
	var e unix.Errno
	var u *url.Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return errors.New("no answer")
	case errors.Is(err, errElsewhere):
		return err
	case errors.Is(err, context.Canceled):
		return context.Canceled
	}
	if errors.As(err, &u) {
		err = u.Err
	}
	return fmt.Errorf("%w (%w)", errElsewhere, err)
}

// advice is what to do when connections to a do not get here.
func (a Address) advice() string {
	if a.Network == "unix" {
		return "see what lies at that path, and that nothing is mounted over it"
	}
	return "if a transparent redirect takes TCP connections, exempt this destination from it; else see who listens there"
}
