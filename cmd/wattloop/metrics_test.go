package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
)

// docs/metrics.md and /metrics name the same metrics of ours, with the same
// labels.
func TestMetricsAreDocumented(t *testing.T) {
	b, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, page, ok := strings.Cut(string(b), "## Metrics at")
	if !ok {
		t.Fatal("docs/metrics.md has no section on /metrics")
	}
	documented := map[string]string{} // name -> labels, as the page writes them
	for _, m := range regexp.MustCompile("`(wattloop_[a-z_]+)(?:\\{([a-z_,]+)\\})?`").FindAllStringSubmatch(page, -1) {
		documented[m[1]] = m[2]
	}
	// An engine that has no series, and keeps nothing that is received here.
	empty := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse")
	}))
	defer empty.Close()
	n := startNode(t, killRules, "--relay.upstream=unix:/nonexistent/relay.sock", "--scrape=[{url: http://127.0.0.1:1}]", "--presets.cpu-power.source=http", "--pull.agent=http://127.0.0.1:1/{node}", "--storage.remote="+empty.URL, "--storage.remote-otlp=none", "--storage.remote-write="+empty.URL+"/api/v1/write")
	feed := n.feed(t, 170)
	n.await(t, "a cap", n.ours)
	// What is counted only once it happens: a span, and a refusal.
	for _, body := range []string{"\x0a\x04\x12\x02\x12\x00", "\xff"} {
		resp, err := http.Post("http://"+n.addr+"/v1/traces", "application/x-protobuf", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	var text string
	served := map[string]string{}
	n.await(t, "every documented metric", func() bool {
		text, served = n.metrics(t), map[string]string{}
		for _, m := range regexp.MustCompile(`(?m)^(wattloop_[a-z_]+?)(?:_bucket|_sum|_count)?(?:\{(.*)\})? `).FindAllStringSubmatch(text, -1) {
			var names []string
			for _, l := range regexp.MustCompile(`([a-z_]+)="`).FindAllStringSubmatch(m[2], -1) {
				if l[1] != "le" {
					names = append(names, l[1])
				}
			}
			served[m[1]] = strings.Join(names, ",")
		}
		return len(served) >= len(documented)
	})
	feed.stop()
	for name, labels := range documented {
		got, ok := served[name]
		if !ok || sortedWords(got) != sortedWords(labels) {
			t.Errorf("docs/metrics.md has %s{%s}; /metrics has it: %v, {%s}", name, labels, ok, got)
		}
	}
	for name := range served {
		if _, ok := documented[name]; !ok {
			t.Errorf("/metrics has %s, docs/metrics.md does not", name)
		}
	}
	n.stop(t)
}

func sortedWords(list string) string {
	set := map[string]bool{}
	for _, w := range strings.Split(list, ",") {
		set[w] = true
	}
	return strings.Join(sortedKeys(set), ",")
}

func (n *testNode) metrics(t *testing.T) string {
	t.Helper()
	resp, err := http.Get("http://" + n.web + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
