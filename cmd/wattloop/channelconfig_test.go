package main

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wattloop/wattloop/api"
	"github.com/wattloop/wattloop/ingest"
)

func TestChannelConfig(t *testing.T) {
	text := `channels:
  - name: worker-1
    listen: {grpc: 169.254.17.1:4317, http: 169.254.17.1:4318}
    limits: {points: 5000, bytes: 4MiB, new_series: 600, conns: 8}
    gauge: max
  - {name: a, listen: /run/a/s.sock, mode: 0600, group: wattloop, identity: {actor_uid: 7f2c, node: "${env:N:-worker-01}"}}
  - name: exporters
    class: node
    listen: "[::1]:5317"
    nodes: [worker-01, worker-02]
`
	c, err := loaded(t, text, "", noEnv)
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"class":"workload","gauge":"max","limits":{"bytes":4194304,"conns":8,"new_series":600,"points":5000},"listen":{"grpc":"169.254.17.1:4317","http":"169.254.17.1:4318"},"name":"worker-1"},` +
		`{"class":"workload","group":"wattloop","identity":{"actor_uid":"7f2c","node":"worker-01"},"listen":"unix:/run/a/s.sock","mode":"0600","name":"a"},` +
		`{"class":"node","listen":"[::1]:5317","name":"exporters","nodes":["worker-01","worker-02"]}]`
	if diff := cmp.Diff(want, c.Channels.String()); diff != "" {
		t.Error(diff)
	}
	// What config show prints, and a flag or a variable gives, is the same again.
	again, err := loaded(t, "", "", func(name string) (string, bool) { return want, name == "WATTLOOP_CHANNELS" })
	if err != nil || again.Channels.String() != want {
		t.Errorf("%s, %v", again.Channels.String(), err)
	}
}

func TestChannelConfigErrors(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		_, err := loaded(t, "channels:\n"+text, "", noEnv)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
	f("  {}", "c.yaml:2:3: error: channels: want a list")
	f("- x", "c.yaml:2:3: error: channels: want a map of keys")
	f("- {listen: /a/b}", "c.yaml:2:3: error: channels: a channel has no name")
	f("- {name: a}", "c.yaml:2:3: error: channels: a channel has no listen")
	f("- {name: a, lisen: /a/b}", `c.yaml:2:13: error: channels: unknown key lisen (did you mean "listen"?)`)
	f("- {name: a, name: b}", "c.yaml:2:13: error: channels: key name is already set in line 2")
	f("- {name: a, listen: {grp: /a/b}}", `channels: listen: unknown key grp (did you mean "grpc"?)`)
	f("- {name: a, listen: nowhere}", `c.yaml:2:21: error: channels: listen: "nowhere" is no address`)
	f("- {name: a, listen: 0.0.0.0:1}", "c.yaml:2:21: error: channels: a: listen: 0.0.0.0:1 is neither a loopback nor a link-local address")
	f("- {name: a, listen: /a/b, class: root}", `c.yaml:2:34: error: channels: a: class "root": want node or workload`)
	f("- {name: a, listen: /a/b, gauge: sum}", `c.yaml:2:34: error: channels: a: gauge "sum": want last, min, max or avg`)
	f("- {name: ../a, listen: /a/b}", "a name is 1 to 63 letters")
	f("- {name: default, listen: /a/b}", "is a channel of the program itself")
	f("- {name: a, listen: /a/b, class: node, identity: {node: x}}", "c.yaml:2:50: error: channels: a: a channel of class node has no identity")
	f("- {name: a, listen: /a/b, identity: {actor: x}}", `channels: identity: unknown key actor`)
	f("- {name: a, listen: /a/b, identity: {}}", "the identity is empty")
	f("- {name: a, listen: /a/b, limits: {points: many}}", `c.yaml:2:44: error: channels: limits: points: "many" is no number`)
	f("- {name: a, listen: /a/b, limits: {conns: -1}}", "is no whole number")
	f("- {name: a, listen: /a/b, limits: {bytes: .nan}}", "is no number")
	f("- {name: a, listen: /a/b, mode: 999}", `mode: "999": want permissions like 0660`)
	f("- {name: a, listen: 127.0.0.1:5, group: root}", "c.yaml:2:41: error: channels: a: mode and group")
	f("- {name: a, listen: /a/b, limits: {conns: 2}}", "c.yaml:2:35: error: channels: a: limits: conns: 2: at least 8")
	f("- {name: a, listen: /a/b, mode: 0444}", "c.yaml:2:33: error: channels: a: mode: 0444: want permissions like 0660; who may connect is who may write")
	f("- {name: a, listen: {grpc: 127.0.0.1:4317, http: 127.0.0.1:5318}}", "channels (file ")
	f("- {name: a, listen: {grpc: 127.0.0.1:4317, http: 127.0.0.1:5318}}", "a: 127.0.0.1:4317 is otlp.grpc.listen already")
	f("- {name: a, listen: /a/b, nodes: [x]}", "c.yaml:2:34: error: channels: a: nodes: what a workload says of its node is deleted")
	// Two of one name, or of one address, name both lines.
	f("- {name: a, listen: /a/b}\n- {name: a, listen: /a/c}", "c.yaml:3:10: error: channels: a is the name of the channel in line 2 already")
	f("- {name: a, listen: 127.0.0.1:5}\n- name: b\n  listen: {http: 127.0.0.1:05}", "c.yaml:4:11: error: channels: b: 127.0.0.1:5 is the address of the channel in line 2 already")
}

// The example of config init, and those of docs/channels.md, are right.
func TestChannelExamples(t *testing.T) {
	text := regexp.MustCompile(`(?m)^#`).ReplaceAllString(channelsExample, "")
	if c, err := loaded(t, "channels:\n"+text, "", noEnv); err != nil || len(c.Channels) != 2 {
		t.Errorf("%s: %v", text, err)
	}
	page, err := os.ReadFile("../../docs/channels.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) == 0 {
		t.Error("docs/channels.md has no example")
	}
	for _, b := range blocks {
		if _, err := loaded(t, b[1], "", noEnv); err != nil {
			t.Errorf("%s: %v", b[1], err)
		}
	}
	// The environment on the page is the one that is printed (S2-19 to S2-22).
	vars, err := actorEnv(api.Channel{Name: "worker-1", Addresses: []string{"169.254.17.1:4317", "169.254.17.1:4318"}}, "app")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range vars[:4] {
		if !strings.Contains(string(page), "\n"+v.name+"="+v.value+"\n") {
			t.Errorf("docs/channels.md has no line %s=%s", v.name, v.value)
		}
	}
}

// S2-19, S2-20, S2-21, S2-22, S2-24, S2-25: constants, the same for every actor; only the container's line
// names anything.
func TestActorEnv(t *testing.T) {
	f := func(addr, container, want string) {
		t.Helper()
		c := api.Channel{Name: "w", Addresses: []string{addr}}
		bare, err := actorEnv(c, container)
		c.Identity = &api.Identity{ActorUID: "7f2c", TemplateName: "web", Container: "sidecar"}
		live, err2 := actorEnv(c, container)
		if diff := cmp.Diff(bare, live, cmp.AllowUnexported(variable{})); diff != "" {
			t.Errorf("%s: the environment depends on the actor: %s", addr, diff)
		}
		var lines []string
		for _, v := range bare {
			lines = append(lines, v.name+"="+v.value)
		}
		got := strings.Join(lines, "\n")
		for _, e := range []error{err, err2} {
			if e != nil {
				got = e.Error()
			}
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s; want %s", addr, got, want)
		}
	}
	rest := "\nOTEL_EXPORTER_OTLP_PROTOCOL=grpc\nOTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE=delta\nOTEL_METRIC_EXPORT_INTERVAL=10000"
	f("169.254.17.1:4317", "", "OTEL_EXPORTER_OTLP_ENDPOINT=http://169.254.17.1:4317"+rest)
	f("[fe80::1%eth0]:4317", "", "OTEL_EXPORTER_OTLP_ENDPOINT=http://[fe80::1%eth0]:4317"+rest)
	f("unix:/run/w.sock", "app", "OTEL_EXPORTER_OTLP_ENDPOINT=unix:///run/w.sock"+rest+"\nOTEL_RESOURCE_ATTRIBUTES=container.name=app")
	f("127.0.0.1:0", "", "the port is picked at the first activation")
	for _, name := range []string{"a,service.name=x", "$(id)", "`id`", "a;id", "a b", "a\nb", "a\x1b[0m", "é", "%41"} { // people eval this
		f("127.0.0.1:1", name, "want letters, digits and - _ . alone")
	}
}

// An identity has the same keys in the configuration, in the API and in ingest.
func TestIdentityKeys(t *testing.T) {
	var id ingest.Identity
	for _, f := range identityFields(&id) {
		*f.p = f.name
	}
	b, err := json.Marshal(id)
	if err != nil {
		t.Fatal(err)
	}
	var a api.Identity
	if err := api.DecodeStrict(b, &a); err != nil || ingest.Identity(a) != id {
		t.Errorf("%s: %+v, %v", b, a, err)
	}
	if n := strings.Count(string(b), ":"); n != len(identityFields(&id)) || bytes.Contains(b, []byte(`""`)) {
		t.Errorf("%s: %d keys", b, n)
	}
	cmd, _, err := newRoot().Find([]string{"channels", "activate"})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range identityFields(&id) {
		if cmd.Flags().Lookup(identityFlag(f.name)) == nil {
			t.Errorf("channels activate has no --%s", identityFlag(f.name))
		}
	}
}
