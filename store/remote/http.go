package remote

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"

	"github.com/prometheus/common/config"
)

// ParseURL reads the address of a server: http or https, a host, and where it is
// served under one a path. Credentials do not belong in it.
func ParseURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("want a URL like http://prometheus:9090")
	case u.User != nil:
		return nil, errors.New("a user and a password in a URL are shown wherever it is: put them into the HTTP file as basic_auth")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("want a URL without ? and #, like http://prometheus:9090")
	}
	u.Path = strings.TrimRight(u.Path, "/")
	return u, nil
}

// quoted is what the YAML library repeats of a file.
var quoted = regexp.MustCompile("`[^`]*`?")

// NewHTTP makes a client of a file in the words of Prometheus's HTTP client
// configuration: basic_auth, authorization, oauth2, tls_config, http_headers,
// proxy_url. An empty path is a client without any of them. What the file names
// by path, like a token or a CA, is read again as it changes; the file itself is
// read once. A redirect is not followed: it would take the credentials along. No
// error repeats what the file says.
func NewHTTP(path string) (*http.Client, error) {
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
	c, err := config.NewClientFromConfig(cfg, "wattloop")
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

// clip makes words of the other side safe to log and to show.
func clip(s string) string {
	const most = 200
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	s = strings.TrimSpace(s)
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}
