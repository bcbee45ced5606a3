package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"
	"golang.org/x/sync/errgroup"

	"github.com/wattloop/wattloop/api"
	"github.com/wattloop/wattloop/ingest"
)

// tokenOf is the token of a role in the tests: never a real one.
func tokenOf(role string) string { return strings.Repeat(role+"-", 8)[:32] + "-token" }

// foreigner is a user who is neither root nor the engine's.
const foreigner = 65534

// accessRig is the engine's own servers, on ports and a socket of its own,
// without a warden.
type accessRig struct {
	t    *testing.T
	p    *parts
	l    *listeners
	s    *servers
	dir  string
	pool *x509.CertPool
}

// newAccessRig serves with what a configuration says of access. users puts alice
// into the web file, secure a certificate.
func newAccessRig(t *testing.T, access string, users, secure bool) *accessRig {
	t.Helper()
	return newAccessRigAfter(t, access, users, secure, func(*accessRig) {})
}

// newAccessRigAfter is newAccessRig; starting is called while it is starting.
func newAccessRigAfter(t *testing.T, access string, users, secure bool, starting func(*accessRig)) *accessRig {
	t.Helper()
	r := &accessRig{t: t, dir: t.TempDir(), pool: x509.NewCertPool()}
	if err := openUp(r.dir); err != nil {
		t.Fatal(err)
	}
	args := []string{
		"--storage.path", r.at("data"), "--state.path", r.at("state"), "--run.path", r.at("run"), "--rules", r.at("rules"),
		"--api.socket", r.at("s"), "--host.enabled=false", "--storage.durability=os", "--log.level=error",
		"--web.listen-address=127.0.0.1:0", "--otlp.grpc.listen-address=127.0.0.1:0", "--otlp.http.listen-address=127.0.0.1:0",
	}
	if err := os.Mkdir(r.at("rules"), 0o755); err != nil {
		t.Fatal(err)
	}
	if users || secure {
		args = append(args, "--web.config-file", r.webFile(users, secure))
	}
	c, err := loaded(t, access, "", noEnv, args...)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	set, _, err := c.loadRules()
	if err != nil {
		t.Fatal(err)
	}
	in, err := c.entry(wallClock(), log)
	if err != nil {
		t.Fatal(err)
	}
	if r.l, err = c.listen(); err != nil {
		t.Fatal(err)
	}
	step := standAt(r.l, in, log)
	t.Cleanup(func() {
		step.leave()
		if err := step.wait(); err != nil {
			t.Error(err)
		}
	})
	starting(r)
	if r.p, err = build(c, wallClock(), log, set, dryPackages(1), nil, in); err != nil {
		t.Fatal(err)
	}
	step.leave()
	r.p.reread = func() (*config, error) { return c, nil }
	r.serve()
	return r
}

func (r *accessRig) at(name string) string { return filepath.Join(r.dir, name) }

func (r *accessRig) serve() {
	r.s = r.p.servers(r.p.apiHandler(func() api.Facts { return r.p.factsAt(time.Now()) }, r.p.reload), r.p.otlp, r.p.log)
	var g errgroup.Group
	r.s.serve(&g, r.l.with(ingest.LimitListener))
	r.t.Cleanup(func() {
		r.s.grpc.Stop()
		r.s.web.Close()
		r.s.otlp.Close()
		if err := g.Wait(); err != nil {
			r.t.Error(err)
		}
		r.p.doors.Close()
		if err := r.p.close(); err != nil {
			r.t.Error(err)
		}
	})
}

// webFile writes a web.config_file; its certificate is for localhost.
func (r *accessRig) webFile(users, secure bool) string {
	r.t.Helper()
	var text string
	if users {
		hash, err := bcrypt.GenerateFromPassword([]byte("wonderland"), bcrypt.MinCost)
		if err != nil {
			r.t.Fatal(err)
		}
		text += "basic_auth_users:\n  alice: " + string(hash) + "\n"
	}
	if secure {
		r.certificate(1)
		text += "tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n"
	}
	if err := os.WriteFile(r.at("web.yml"), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return r.at("web.yml")
}

// certificate writes cert.pem and key.pem, and trusts them.
func (r *accessRig) certificate(serial int64) {
	r.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		r.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "wattloop test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		r.t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		r.t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(r.at(name), pem.EncodeToMemory(block), 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		r.t.Fatal(err)
	}
	r.pool.AddCert(cert)
}

// client speaks HTTP over TCP.
func (r *accessRig) client() *http.Client {
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: r.pool}, ForceAttemptHTTP2: true}
	r.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// socketClient speaks HTTP over the API socket as another user.
func (r *accessRig) socketClient(uid int) *http.Client {
	tr := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return dialAs(uid, r.at("s")) }}
	r.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// dialAs connects as the user uid, on a thread of its own that ends with it: in
// Linux a user ID is a thread's (setresuid(2), the note on the C library).
func dialAs(uid int, path string) (conn net.Conn, err error) {
	if uid == os.Geteuid() {
		return net.Dial("unix", path)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		const same = ^uintptr(0)
		for _, call := range [][4]uintptr{
			{syscall.SYS_SETGROUPS}, {syscall.SYS_SETRESGID, same, uintptr(uid), same}, {syscall.SYS_SETRESUID, same, uintptr(uid), same},
		} {
			if _, _, errno := syscall.RawSyscall(call[0], call[1], call[2], call[3]); errno != 0 {
				err = errno
				return
			}
		}
		conn, err = net.Dial("unix", path)
	}()
	<-done
	return conn, err
}
