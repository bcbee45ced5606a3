// Package httpfile makes an HTTP client of a file in the words of Prometheus's HTTP
// client configuration. Whoever asks another server has its credentials there.
package httpfile

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/prometheus/common/config"
)

// quoted is what the YAML library repeats of a file.
var quoted = regexp.MustCompile("`[^`]*`?")

// New makes a client of a file in the words of Prometheus's HTTP client
// configuration: basic_auth, authorization, oauth2, tls_config, http_headers,
// proxy_url. An empty path is a client without any of them. What the file names
// by path, like a token or a CA, is read again as it changes; the file itself is
// read once. A redirect is not followed: it would take the credentials along. No
// error repeats what the file says. dial is nil but for tests.
func New(path string, dial func(ctx context.Context, network, address string) (net.Conn, error)) (*http.Client, error) {
	cfg := config.DefaultHTTPClientConfig
	if path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, pathError(path, err)
		}
		read, err := config.LoadHTTPConfig(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: no HTTP client configuration: %s; docs/remote.md has an example", path, hidden(err.Error()))
		}
		read.SetDirectory(filepath.Dir(path))
		cfg = *read
	}
	cfg.FollowRedirects = false
	var options []config.HTTPClientOption
	if dial != nil {
		options = append(options, config.WithDialContextFunc(dial))
	}
	c, err := config.NewClientFromConfig(cfg, "wattloop", options...)
	if err != nil {
		return nil, hiddenError{fmt.Sprintf("%s: %s", path, hidden(err.Error())), err}
	}
	return c, nil
}

func pathError(path string, err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// hiddenError says less than the error that it is of.
type hiddenError struct {
	text string
	of   error
}

func (e hiddenError) Error() string { return e.text }
func (e hiddenError) Unwrap() error { return e.of }

// hidden is a library's message on one line, without what it quotes of a file.
func hidden(s string) string {
	s = quoted.ReplaceAllString(s, "a value")
	return strings.Join(strings.Fields(s), " ")
}
