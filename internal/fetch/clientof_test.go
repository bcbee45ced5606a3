package fetch

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A page behind TLS of its own CA and a password is got as the file says; what it
// names by path is read again as it changes, and no error shows a secret.
func TestClientOf(t *testing.T) {
	const secret = "hunter2hunter2"
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch user, password, _ := r.BasicAuth(); {
		case r.URL.Path == "/moved":
			http.Redirect(w, r, "/page", http.StatusFound)
		case user != "wattloop" || password != secret:
			w.WriteHeader(http.StatusUnauthorized)
		default:
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(zipped([]byte("a 1\n")))
		}
	}))
	defer server.Close()
	dir := t.TempDir()
	put := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	put("ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	put("password", "wrong")
	get := func(file, path string) (string, error) {
		p := &Page{URL: server.URL + path, Timeout: time.Minute, Limit: limit, Client: ClientOf(file, nil)}
		defer p.Close()
		body, _, err := p.Get(t.Context())
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("a secret is shown: %v", err)
		}
		return string(body), err
	}
	f := func(name, file, path, want string) {
		t.Helper()
		got, err := get(file, path)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %q; want %q", name, got, want)
		}
	}
	whole := put("http.yaml", "tls_config: {ca_file: ca.pem}\nbasic_auth: {username: wattloop, password_file: password}\n")
	f("without a file", "", "/page", "certificate")
	f("with the wrong password", whole, "/page", "answers 401 Unauthorized")
	put("password", secret)
	f("with all", whole, "/page", "a 1\n")
	f("elsewhere", whole, "/moved", "redirects are not followed")
	f("under another name", put("name.yaml", "tls_config: {ca_file: ca.pem, server_name: other}\n"), "/page", "certificate is valid for")
	f("without a look", put("skip.yaml", "tls_config: {insecure_skip_verify: true}\n"), "/page", "answers 401")
	f("no such file", filepath.Join(dir, "none.yaml"), "/page", "none.yaml: no such file or directory")
	f("a mistyped key", put("typo.yaml", "basic_auth: {username: u, pasword: "+secret+"}\n"), "/page", "no HTTP client configuration")
}
