package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/wattloop/wattloop/api"
)

// S0-82, S0-154: PROMETHEUS_ADDRESS is used where storage.remote says so, has a
// default, and must be a URL.
func TestRemoteAddress(t *testing.T) {
	f := func(remote, variable, want, unused string) {
		t.Helper()
		c := defaultConfig()
		c.Remote = remote
		err := c.deriveRemote(func(name string) (string, bool) { return variable, name == "PROMETHEUS_ADDRESS" })
		if bad, ok := strings.CutPrefix(want, "!"); ok {
			if err == nil || !strings.Contains(err.Error(), bad) {
				t.Errorf("%q, %q: %v; want %s", remote, variable, err, bad)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if c.Remote != want || !strings.HasPrefix(c.unusedAddress(variable), unused) || unused == "" && c.unusedAddress(variable) != "" {
			t.Errorf("%q, %q: %q, %q; want %q, %q", remote, variable, c.Remote, c.unusedAddress(variable), want, unused)
		}
	}
	f("", "", "", "")
	f("", "http://p:9090", "", "PROMETHEUS_ADDRESS is not used")
	f("prometheus", "", "http://prometheus-operated.monitoring:9090", "")
	f("prometheus", "http://p:9090/", "http://p:9090", "")
	f("http://other:9090", "http://p:9090", "http://other:9090", "")
	f("prometheus", "p:9090", "!PROMETHEUS_ADDRESS: storage.remote", "")
}

// One node that reads a remote engine, and sends on what it commits; what is
// received goes to the engine's OTLP receiver.
func TestBeyondOneMachine(t *testing.T) {
	var otlp, written, asked atomic.Int64
	there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		switch r.URL.Path {
		case "/api/v1/read":
			asked.Add(1)
			w.Header().Set("Content-Type", "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse")
		case "/api/v1/otlp/v1/metrics":
			otlp.Add(1)
		case "/api/v1/write":
			written.Add(1)
			w.Header().Set("X-Prometheus-Remote-Write-Samples-Written", "1")
			w.WriteHeader(http.StatusNoContent)
		default:
			http.NotFound(w, r)
		}
	}))
	defer there.Close()
	n := startNode(t, killRules, "--storage.remote="+there.URL, "--storage.remote-write="+there.URL+"/api/v1/write")
	feed := n.feed(t, 170)
	n.await(t, "all three ways", func() bool { return otlp.Load() > 3 && written.Load() > 0 && asked.Load() > 3 })
	feed.stop()
	var st api.Status
	n.await(t, "their counts", func() bool {
		resp, err := http.Get("http://" + n.web + "/api/v1/status/wattloop")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		st = api.Status{}
		if err := json.NewDecoder(resp.Body).Decode(&st); err != nil {
			t.Fatal(err)
		}
		return st.RemoteWrite != nil && st.RemoteWrite.Sent > 0 && st.Remote != nil && len(st.Remote.OTLP) == 2 && st.Remote.OTLP[0].Sent > 3
	})
	var screen strings.Builder
	if err := printStatus(&screen, &st); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"reads " + there.URL + " by remote read: ", "writes to " + there.URL + "/api/v1/write by Remote Write 2.0: ", "REMOTE OTLP"} {
		if !strings.Contains(screen.String(), want) {
			t.Errorf("status lacks %q:\n%s", want, screen.String())
		}
	}
	if strings.Contains(screen.String(), "170.0 W") {
		t.Error("a reading of what went elsewhere")
	}
	n.stop(t)
}

// A remote engine that is away is one cause: one line of the log with how many rules
// it hits, one in the status, and one line when it is back.
func TestRemoteAwayIsOneCause(t *testing.T) {
	var back atomic.Bool
	there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if !back.Load() {
			http.Error(w, "away", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse")
	}))
	defer there.Close()
	n := startNode(t, "version: 1\n", "--storage.remote="+there.URL, "--storage.remote-otlp=none")
	screen := func() string {
		resp, err := http.Get("http://" + n.web + "/api/v1/status/wattloop")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var st api.Status
		if err := json.NewDecoder(resp.Body).Decode(&st); err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := printStatus(&b, &st); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	const cause = ": HTTP 503 Service Unavailable: away"
	const rules = "  cpu_packages, cpu_power, node_power, node_power_host, twin_spec_cpu_cap_watts, twin_spec_gpu_cap_watts, node_power_budget, twin_spec_cpu_cap\n"
	n.await(t, "the cause in the status", func() bool {
		return strings.Contains(screen(), "no answer of 8 rules, for one cause: storage.remote: "+there.URL+cause+"\n"+rules)
	})
	if s := screen(); strings.Count(s, cause) != 2 { // and of the last question, with its time
		t.Errorf("not one line for one cause:\n%s", s)
	}
	back.Store(true)
	n.await(t, "answers", func() bool { return !strings.Contains(screen(), "no answer of") })
	n.await(t, "the line when it is back", func() bool { return strings.Contains(n.said.String(), "rules are evaluated again") })
	n.stop(t)
	said := n.said.String()
	for text, want := range map[string]int{
		"level=WARN": 1, `msg="rules not evaluated, for one cause" part=engine rules=8 of=8 cause="storage.remote: ` + there.URL + cause: 1,
		"rules are evaluated again": 1, "the remote engine answers": 0, "rule not evaluated": 0,
	} {
		if got := strings.Count(said, text); got != want {
			t.Errorf("%d times %q; want %d in\n%s", got, text, want, said)
		}
	}
}
