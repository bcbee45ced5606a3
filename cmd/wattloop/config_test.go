package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

func noEnv(string) (string, bool) { return "", false }

// loaded is a configuration from a file's text and flags; neither of the
// machine's own files is read.
func loaded(t *testing.T, text, warden string, env func(string) (string, bool), args ...string) (*config, error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"c.yaml": text, "w.yaml": warden} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := defaultConfig()
	fl := pflag.NewFlagSet("test", pflag.ContinueOnError)
	c.addFlags(fl)
	args = append(args, "--config.file", filepath.Join(dir, "c.yaml"), "--warden.file", filepath.Join(dir, "w.yaml"))
	if err := fl.Parse(args); err != nil {
		t.Fatal(err)
	}
	return c, c.load(fl, env)
}

func TestConfigValues(t *testing.T) {
	f := func(text string, get func(*config) any, want any) {
		t.Helper()
		c, err := loaded(t, text, "", noEnv)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			return
		}
		if diff := cmp.Diff(want, get(c)); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
	node := func(c *config) any { return c.Node }
	f("node: a", node, "a")
	f("\ufeffnode: a\r\nsysfs: /x\r\n", node, "a")
	f("node: 'no'", node, "no")
	f("node: 007", node, "007") // as written, not as a number
	f("node: off", node, "off")
	f("---\nnode: a\n...\n", node, "a")
	retention := func(c *config) any { return c.RetentionTime }
	f("storage.retention.time: 3d", retention, 72*time.Hour)
	f("storage: {retention: {time: 1h30m}}", retention, 90*time.Minute)
	f("storage.retention: {time: 90m}", retention, 90*time.Minute)
	f("storage.retention.size: 512MiB", func(c *config) any { return int64(c.RetentionSize) }, int64(512<<20))
	rules := func(c *config) any { return c.Rules }
	f("rules: one", rules, []string{"one"})
	f("rules: [one, 'two, three']", rules, []string{"one", "two, three"})
	f("rules: []", rules, []string(nil))
	f("state.path: /s", func(c *config) any { return c.StoragePath }, "/s/data")
	f("run.path: /r", func(c *config) any { return c.APISocket }, "/r/wattloop.sock")
	f("api.socket: ''", func(c *config) any { return c.APISocket }, "")
	for _, empty := range []string{"", "\n", "# nothing\n", "---\n", "{}"} {
		f(empty, func(c *config) any { return c.origin["node"] }, originDefault)
	}
}

func TestConfigRelay(t *testing.T) {
	f := func(text, wantErr string) {
		t.Helper()
		_, err := loaded(t, text, "", noEnv)
		if got := err == nil; got != (wantErr == "") || err != nil && !strings.Contains(err.Error(), wantErr) {
			t.Errorf("%s: %v; want %q", text, err, wantErr)
		}
	}
	f("relay.upstream: collector:4317", "")
	f("relay: {upstream: unix:/run/otel.sock, fallback: 'collector:4317', queue: 1MiB}", "")
	f("relay.upstream: ''", "")
	f("relay.upstream: http://collector:4317", "neither HOST:PORT nor unix:PATH")
	f("relay.fallback: collector:4317", "there is no relay.upstream to fall back from")
	f("relay.queue: 1KiB", "1KiB: at least 1MiB")
	f("attribute_prefix: acme.run", "")
	for _, bad := range []string{"Acme", "a..b", ".a", "1a", "a_b", "k8s", "host.acme", "service", strings.Repeat("a", 33)} {
		f("attribute_prefix: "+bad, "attribute_prefix: \""+bad+"\": ")
	}
}

func TestConfigEnvReferences(t *testing.T) {
	env := func(name string) (string, bool) {
		v, ok := map[string]string{"A": "x", "EMPTY": ""}[name]
		return v, ok
	}
	f := func(value, want, wantErr string) {
		t.Helper()
		c, err := loaded(t, "sysfs: "+value, "", env)
		if wantErr != "" {
			if err == nil || !strings.Contains(err.Error(), wantErr) {
				t.Errorf("%s: %v; want %s", value, err, wantErr)
			}
			return
		}
		if err != nil || c.Sysfs != want {
			t.Errorf("%s: %q, %v; want %q", value, c.Sysfs, err, want)
		}
	}
	f("${env:A}", "x", "")
	f("'${env:A}'", "x", "")
	f("${env:B:-d}", "d", "")
	f("${env:A:-d}", "x", "")
	f("${env:B}", "", "variable B is not set; give a default with ${env:B:-DEFAULT}")
	f("${env:EMPTY}", "", "sysfs (file")
	// There is no expansion inside a longer text, and no other provider: a $ is a $.
	f("a${env:A}", "a${env:A}", "")
	f("$A", "$A", "")
	f("${A}", "${A}", "")
	f("pa$$word", "pa$$word", "")
}

func TestConfigClamps(t *testing.T) {
	f := func(text, wantErr string) {
		t.Helper()
		_, err := loaded(t, "", "actuation.clamps: "+text, noEnv)
		if got := err == nil; got != (wantErr == "") || err != nil && !strings.Contains(err.Error(), wantErr) {
			t.Errorf("%s: %v; want %q", text, err, wantErr)
		}
	}
	f(`{"rapl:package-0": {min: 60, max: 200, floor: 0.5}}`, "")
	f(`{"": {floor: 0}}`, "")
	f(`{}`, "")
	f(`{a: {min: 2, max: 1}}`, "device a: want 0 <= min <= max")
	f(`{a: {floor: 1.5}}`, "device a: want 0 <= min <= max and 0 <= floor <= 1")
	f(`{a: {min: .nan}}`, "device a: want 0 <= min")
	f(`{a: {max: .inf}}`, "device a: want 0 <= min")
	f(`{a: {watts: 1}}`, "device a: unknown key watts; want min, max, floor")
	f(`{a: 60}`, "want {DEVICE: {min: WATTS")
	f(`{a: {min: many}}`, "want {DEVICE: {min: WATTS")
}

// The engine is told what the warden decided by flags, and reads nothing of the
// warden's file.
func TestEngineArgs(t *testing.T) {
	dir := t.TempDir()
	c := defaultConfig()
	fl := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	c.addFlags(fl)
	args := []string{"--rules", "a,b", "--rules", "c", "--state.path", dir, "--actuation.enabled", "--engine.user", "x", "--host.enabled=false", "--rate-window", "2m"}
	if err := fl.Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := c.load(fl, noEnv); err != nil {
		t.Fatal(err)
	}
	got := c.engineArgs(fl)
	for _, a := range got {
		if strings.Contains(a, "actuation") || strings.Contains(a, "engine.user") {
			t.Errorf("the engine is told %s", a)
		}
	}
	e := defaultConfig()
	e.engineOnly = true
	efl := pflag.NewFlagSet("engine", pflag.ContinueOnError)
	e.addFlags(efl)
	if err := efl.Parse(got[1:]); err != nil {
		t.Fatal(err)
	}
	again, err := reread(efl, noEnv)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.load(efl, noEnv); err != nil {
		t.Fatal(err)
	}
	for i, s := range c.settings() {
		if s.change == changeWarden {
			continue
		}
		if got, want := e.settings()[i].value.String(), s.value.String(); got != want {
			t.Errorf("%s: the engine has %s, the warden %s", s.key, got, want)
		}
		if got, want := again.settings()[i].value.String(), s.value.String(); got != want {
			t.Errorf("%s: after a reload the engine has %s, the warden %s", s.key, got, want)
		}
	}
	if diff := cmp.Diff([]string{"a,b", "c"}, e.Rules); diff != "" {
		t.Error(diff)
	}
}

func TestLoopback(t *testing.T) {
	f := func(addr string, ok bool) {
		t.Helper()
		if got := loopback(addr); got != ok {
			t.Errorf("%q: %v", addr, got)
		}
	}
	f("127.0.0.1:0", true)
	f("127.8.9.10:65535", true)
	f("[::1]:9464", true)
	f("localhost:9464", true)
	f(":9464", false)
	f("0.0.0.0:9464", false)
	f("[::]:9464", false)
	f("192.0.2.1:9464", false)
	f("[::ffff:192.0.2.1]:1", false)
	f("example.com:1", false)
	f("127.0.0.1", false)
	for _, bad := range []string{"127.0.0.1", "127.0.0.1:65536", "127.0.0.1:http", "http://127.0.0.1", "http://127.0.0.1:9464/x"} {
		if err := hostPort(bad); err == nil || strings.Contains(bad, "/") && !strings.Contains(err.Error(), "write it like") {
			t.Errorf("%q: %v; want an error that says how it is written", bad, err)
		}
	}
}

// Every value that config show prints is read back as itself.
func TestValuesReadBack(t *testing.T) {
	f := func(key, in, want string) {
		t.Helper()
		c := defaultConfig()
		for _, s := range c.settings() {
			if s.key != key {
				continue
			}
			for _, text := range []string{in, want} {
				if err := s.value.Set(text); err != nil || s.value.String() != want {
					t.Errorf("%s=%s: %q, %v; want %q", key, text, s.value, err, want)
				}
			}
		}
	}
	f("storage.retention.time", "360h", "15d")
	f("storage.retention.time", "90m", "1h30m")
	f("storage.retention.time", "3600s", "1h")
	f("storage.retention.time", "0s", "0s")
	f("host.interval", "1500ms", "1.5s")
	f("storage.retention.size", "1024MiB", "1GiB")
	f("storage.retention.size", "1000B", "1000B")
	f("storage.retention.size", "0B", "0B")
	f("storage.durability", "interval:1s", "interval:1s")
	f("actuation.clamps", "{a: {min: 1}}", "a:\n    min: 1\n    max: 0\n    floor: 0")
}

// FuzzConfig: no text makes the reader panic, and what it refuses it refuses
// with a place in the file.
func FuzzConfig(f *testing.F) {
	f.Add("node: x\nstorage: {path: /x}\n", false)
	f.Add("actuation:\n  clamps: {a: {min: 1}}\n", true)
	f.Add("a: &a [*a]\n<<: {node: x}\n", false)
	f.Add("node: ${env:A:-b}\n---\nnode: y\n", false)
	f.Add("\ufeff---\n", false)
	f.Add("rules: [[x]]\nnode:\n\tx", false)
	f.Add("channels:\n- {name: a, listen: {grpc: 127.0.0.1:1, http: unix:/a/b}, limits: {bytes: 4MiB}, identity: {actor_uid: x}}\n", false)
	f.Add(configTemplate(false), false)
	f.Add("access: [{role: push, token: 0123456789abcdef0123456789abcdef}, {roles: [read], peer: {uid: 7}}]", false)
	f.Fuzz(func(t *testing.T, text string, warden bool) {
		c := defaultConfig()
		err := c.apply("f.yaml", []byte(text), warden, noEnv)
		kindOf("f.yaml", []byte(text))
		if err == nil {
			return
		}
		if strings.Contains(err.Error(), "token: 0123456789abcdef") {
			t.Errorf("%q: a token is shown: %v", text, err)
		}
		if !strings.HasPrefix(err.Error(), "f.yaml") {
			t.Errorf("%q: %v; want the file's name first", text, err)
		}
	})
}

// The key access, from the file to what is said of it: no token is ever shown.
func TestConfigAccess(t *testing.T) {
	const token = "0123456789abcdef0123456789abcdef"
	env := func(name string) (string, bool) { return token, name == "TOKEN" }
	f := func(text, want, wantErr string) {
		t.Helper()
		c, err := loaded(t, text, "", env)
		shown := c.Access.String() + fmt.Sprint(err)
		if strings.Contains(shown, token) || strings.Contains(shown, "s3cret") {
			t.Errorf("%s: a token is shown: %s", text, shown)
		}
		if wantErr != "" {
			if err == nil || !strings.Contains(err.Error(), wantErr) {
				t.Errorf("%s: %v; want %q", text, err, wantErr)
			}
			return
		}
		if err != nil || c.Access.String() != want {
			t.Errorf("%s: %s, %v; want %s", text, c.Access.String(), err, want)
		}
	}
	f("access: []", "[]", "")
	f("access: [{role: push, token: "+token+"}]", "[{roles: [push], token: <secret>}]", "")
	f("access: [{role: push, token: '${env:TOKEN}'}]", "[{roles: [push], token: <secret>}]", "")
	f("access:\n- roles: [read, admin]\n  token_file: /x\n- {role: read, user: alice}\n- {role: admin, peer: {group: ops, uid: 7}}",
		"[{roles: [read, admin], token_file: /x}, {roles: [read], user: alice}, {roles: [admin], peer group: ops, peer uid: 7}]", "")
	f("access: [{role: push, token: '${env:NOPE}'}]", "", "variable NOPE is not set")
	f("access: s3cret", "", "want a list like")
	f("access: {role: push, token: s3cret}", "", "want a list like")
	f("access: [s3cret]", "", "entry 1: want keys")
	f("access: [{role: pusher, token: s3cret}]", "", `entry 1: role "pusher"`)
	f("access: [{token: s3cret}]", "", "entry 1: has no role")
	f("access: [{role: push}]", "", "entry 1: want one of token_file, token, user and peer")
	f("access: [{role: push, token: s3cret, user: alice}]", "", "entry 1: want one of")
	f("access: [{role: push, roles: [read], token: s3cret}]", "", "has role and roles")
	f("access: [{role: push, token: [s3cret]}]", "", "token has no value")
	f("access: [{role: push, secret: s3cret, token: s3cret}]", "", "unknown key secret")
	f("access: [{role: push, peer: {name: x}}]", "", "peer: key name")
	f("access: [{role: push, peer: []}]", "", "peer: want")
	// A line with a token is shown without it, whatever is wrong with the file.
	f("tokne: x\ntoken: s3cret", "", "unknown key token")
	f("access: [{role: push, token: \"s3cret\"}", "", "not YAML")
	f("{access: [], token: 's3cret'}", "", "unknown key token")

	dir := t.TempDir()
	g := func(name, text string, mode os.FileMode, wantErr string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		got, err := readToken(path)
		if wantErr == "" && (err != nil || got != token) || wantErr != "" && (err == nil || !strings.Contains(err.Error(), wantErr)) {
			t.Errorf("%s: %v; want %q", name, err, wantErr)
		}
	}
	g("fine", token+"\nmore\n", 0o600, "")
	g("read only", "  "+token, 0o400, "")
	g("open", token, 0o640, "others may read the token (mode 0640): chmod 600")
	g("empty", "\n"+token, 0o600, "its first line is empty")
	if _, err := readToken(filepath.Join(dir, "nowhere")); err == nil || !strings.Contains(err.Error(), "nowhere: no such file") {
		t.Errorf("no file: %v", err)
	}
}

// S0-185: a container reads the host's sysfs at /host-sys where it is mounted;
// an empty folder there is no mount.
func TestFindSysfs(t *testing.T) {
	dir := t.TempDir()
	places := []string{filepath.Join(dir, "host-sys"), "/sys"}
	is := func(want string) {
		t.Helper()
		if got := findSysfs(places); got != want {
			t.Errorf("findSysfs = %s; want %s", got, want)
		}
	}
	is("/sys")
	if err := os.Mkdir(places[0], 0o755); err != nil {
		t.Fatal(err)
	}
	is("/sys")
	if err := os.Mkdir(filepath.Join(places[0], "devices"), 0o755); err != nil {
		t.Fatal(err)
	}
	is(places[0])
	for sys, want := range map[string]string{"/sys": "/proc", "/host-sys/": "/proc", "/tmp/x/sys": "/tmp/x/proc"} {
		if got := (&config{Sysfs: sys}).proc(); got != want {
			t.Errorf("proc of %s = %s; want %s", sys, got, want)
		}
	}
	if strings.Join(mounts, " ") != "/host-sys /sys" {
		t.Errorf("looked for at %v", mounts)
	}
}
