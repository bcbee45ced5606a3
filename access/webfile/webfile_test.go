package webfile

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// certificate writes NAME.pem and NAME.key with a serial number.
func certificate(t *testing.T, dir, name string, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, name+".pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	write(t, dir, name+".key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})))
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func hashOf(t *testing.T, password string) string {
	t.Helper()
	b, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

const secure = "tls_server_config: {cert_file: a.pem, key_file: a.key}\n"

// A renewed certificate is taken for the next connection; one that cannot be
// read leaves the one before, and is told once.
func TestCertificateIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	certificate(t, dir, "a", 1)
	f, err := Open(write(t, dir, "web.yml", secure))
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	f.Failed = func(err error) { told = append(told, err.Error()) }
	l, err := tls.Listen("tcp", "127.0.0.1:0", f.TLS("h2", "http/1.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	serial := func() int64 {
		t.Helper()
		go func() {
			if c, err := l.Accept(); err == nil {
				c.(*tls.Conn).Handshake()
				c.Close()
			}
		}()
		c, err := tls.Dial("tcp", l.Addr().(*net.TCPAddr).String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if got := c.ConnectionState().NegotiatedProtocol; got != "h2" {
			t.Errorf("protocol %q; want h2", got)
		}
		return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	want := func(n int64, after string) {
		t.Helper()
		if got := serial(); got != n {
			t.Errorf("after %s: certificate %d; want %d", after, got, n)
		}
	}
	want(1, "the start")
	certificate(t, dir, "a", 2)
	want(2, "a renewal")
	write(t, dir, "a.key", "no key")
	want(2, "a broken key")
	want(2, "a broken key")
	write(t, dir, "web.yml", "tls_server_config: {cert_fil: x}")
	want(2, "a broken file")
	certificate(t, dir, "a", 3)
	write(t, dir, "web.yml", secure)
	want(3, "a repair")
	if len(told) != 2 || !strings.Contains(told[0], "what was read before goes on") || strings.Contains(strings.Join(told, ""), "no key\n") {
		t.Errorf("told %q; want two errors", told)
	}
}

// Users are those of the file as it stands, and each password is right or wrong
// however often it is asked for.
func TestUsersAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	f, err := Open(write(t, dir, "web.yml", "basic_auth_users:\n  alice: "+hashOf(t, "one")+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	if f.TLS() != nil || len(f.Users()) != 1 || f.Users()[0] != "alice" {
		t.Fatalf("TLS %v, users %q", f.TLS() != nil, f.Users())
	}
	want := func(user, password string, fits bool) {
		t.Helper()
		for range 2 { // the second from memory
			if got, err := f.Password(user, password); got != fits || err != nil {
				t.Errorf("%s with %q fits: %v, %v", user, password, got, err)
			}
		}
	}
	want("alice", "one", true)
	want("alice", "two", false)
	want("alice", "", false)
	want("bob", "one", false)
	write(t, dir, "web.yml", "basic_auth_users:\n  alice: "+hashOf(t, "three")+"\n  bob: "+hashOf(t, "two")+"\n")
	want("alice", "one", false)
	want("alice", "three", true)
	want("bob", "two", true)
	var told int
	f.Failed = func(error) { told++ }
	if err := os.Remove(filepath.Join(dir, "web.yml")); err != nil {
		t.Fatal(err)
	}
	want("bob", "two", true)
	if told != 1 {
		t.Errorf("told %d times that the file is gone; want once", told)
	}
	for i := range 600 {
		f.remember([32]byte{byte(i), byte(i >> 8)}, true)
	}
	if len(f.proven) > 256 {
		t.Errorf("%d passwords are remembered", len(f.proven))
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	bad := func(text, want string) {
		t.Helper()
		_, err := Open(write(t, dir, "web.yml", text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %s", text, err, want)
		}
	}
	bad("tls_server_config: {cert_file: nowhere.pem, key_file: nowhere.key}", "nowhere.pem")
	bad("basic_auth_users: {alice: plain}", "bcrypt")
	bad("basic_auth_user: {}", "basic_auth_user")
	bad("rate_limit: {burst: 1, interval: 1s}", "rate_limit is not in this version")
	for _, text := range []string{"basic_auth_users: hunter2pass\n", "basic_auth_users:\n  alice: *hunter2pass\n", "basic_auth_users: [hunter2pass]\n"} {
		if _, err := Open(write(t, dir, "web.yml", text)); err == nil || strings.Contains(err.Error(), "hunter") {
			t.Errorf("%q: %v; want an error without what may be a password", text, err)
		}
	}
	if f, err := Open(write(t, dir, "web.yml", "")); err != nil || f.TLS() != nil || len(f.Users()) > 0 || len(f.Header()) > 0 {
		t.Errorf("an empty file: %v", err)
	}
	var none *File
	if none.TLS() != nil || none.Users() != nil || none.Header() != nil {
		t.Error("no file has something")
	}
}
