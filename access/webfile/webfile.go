// Package webfile reads a web configuration file as all programs of Prometheus
// have it: TLS and basic authentication, by the exporter-toolkit.
package webfile

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/exporter-toolkit/web"
	"gopkg.in/yaml.v3"
)

// File is one such file. It and what it names are read again as they change: the
// certificate for each connection, the users for each request. A file that has
// become unreadable is told to Failed once, and what was read last goes on. It is
// safe for concurrent use. A nil File has neither a certificate nor users.
type File struct {
	Failed func(error) // may be nil

	path  string
	base  *tls.Config // of the first reading; nil without TLS
	http2 bool
	users []string

	mu     sync.Mutex
	stamp  stamp
	read   *web.Config
	tls    *tls.Config // of the last handshake that could read it
	failed string
	passwords
}

// stamp tells whether a file may have changed.
type stamp struct {
	mod  time.Time
	size int64
}

// Open reads the file and all that it names.
func Open(path string) (*File, error) {
	if err := web.Validate(path); err != nil {
		return nil, broken(path, err)
	}
	f := &File{path: path, passwords: newPasswords()}
	c, err := f.load()
	if err != nil {
		return nil, err
	}
	if c.RateLimiterConfig.Interval != 0 {
		return nil, fmt.Errorf("%s: rate_limit is not in this version", path)
	}
	f.read, f.http2, f.users = c, c.HTTPConfig.HTTP2, slices.Sorted(maps.Keys(c.Users))
	if c.TLSConfig.IsEnabled() {
		if f.base, err = f.handshake(); err != nil {
			return nil, err
		}
		f.tls = f.base
	}
	return f, nil
}

// quoted is what the YAML library shows of a file, which has passwords in it.
var quoted = regexp.MustCompile("`[^`]*`|'[^']{2,}'")

// broken is an error of the file at path, without passwords.
func broken(path string, err error) error {
	if text := err.Error(); strings.HasPrefix(text, "yaml: ") {
		return fmt.Errorf("%s: %s", path, quoted.ReplaceAllString(text, "<secret>"))
	}
	return fmt.Errorf("%s: %w", path, err)
}

// load reads the file whatever was read before.
func (f *File) load() (*web.Config, error) {
	b, err := os.ReadFile(f.path)
	if err != nil {
		return nil, err
	}
	c := &web.Config{
		TLSConfig:  web.TLSConfig{MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS13},
		HTTPConfig: web.HTTPConfig{HTTP2: true},
	}
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	if err := dec.Decode(c); err != nil && !errors.Is(err, io.EOF) { // EOF: it is empty
		return nil, broken(f.path, err)
	}
	c.TLSConfig.SetDirectory(filepath.Dir(f.path))
	return c, nil
}

// now is the file as it stands; after an error as it stood.
func (f *File) now() *web.Config {
	f.mu.Lock()
	defer f.mu.Unlock()
	fi, err := os.Stat(f.path)
	if err == nil {
		s := stamp{fi.ModTime(), fi.Size()}
		if s == f.stamp {
			return f.read
		}
		var c *web.Config
		if c, err = f.load(); err == nil {
			f.read, f.stamp, f.failed = c, s, ""
			return c
		}
	}
	f.tell(err)
	return f.read
}

// tell reports an error that is new. f.mu is held.
func (f *File) tell(err error) {
	if text := err.Error(); f.failed != text {
		f.failed = text
		if f.Failed != nil {
			f.Failed(fmt.Errorf("%w; what was read before goes on", err))
		}
	}
}

// TLS is how a listener speaks, nil for without; protocols are what it offers by
// ALPN. Each connection has the certificate as its files stand then.
func (f *File) TLS(protocols ...string) *tls.Config {
	if f == nil || f.base == nil {
		return nil
	}
	c := f.base.Clone()
	c.NextProtos = protocols
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		fresh, err := f.handshake()
		f.mu.Lock()
		defer f.mu.Unlock()
		if err != nil {
			f.tell(err)
			fresh = f.tls
		} else {
			f.tls = fresh
		}
		fresh = fresh.Clone()
		fresh.NextProtos = protocols
		return fresh, nil
	}
	return c
}

// handshake reads the file, the certificate and its key as they stand.
func (f *File) handshake() (*tls.Config, error) {
	c, err := f.load()
	if err != nil {
		return nil, err
	}
	t, err := web.ConfigToTLSConfig(&c.TLSConfig)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	cert, err := t.GetCertificate(nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	t.Certificates, t.GetCertificate = []tls.Certificate{*cert}, nil
	return t, nil
}

// HTTP2 says whether the file lets HTTP/2 be spoken.
func (f *File) HTTP2() bool { return f.http2 }

// Header are those that the file puts on each answer.
func (f *File) Header() map[string]string {
	if f == nil {
		return nil
	}
	return f.now().HTTPConfig.Header
}

// Users are the names of basic authentication when the file was opened.
func (f *File) Users() []string {
	if f == nil {
		return nil
	}
	return f.users
}
