package remote

import (
	"errors"
	"net/url"
	"strings"
	"unicode"
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
