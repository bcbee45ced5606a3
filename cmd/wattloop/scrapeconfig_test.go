package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestScrapeConfig(t *testing.T) {
	text := `scrape:
  - url: http://127.0.0.1:28282
    interval: 5s
    timeout: 2s
    node: "${env:N:-worker-01}"
    labels: {job: kepler, rack: "7"}
    honor_labels: false
  - {url: "https://[::1]:9100/m?collect[]=rapl", http: /etc/wattloop/exporter.yaml, sample_limit: 10, body_size_limit: 1MiB}
`
	c, err := loaded(t, text, "", noEnv)
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"interval":"5s","labels":{"job":"kepler","rack":"7"},"node":"worker-01","timeout":"2s","url":"http://127.0.0.1:28282/metrics"},` +
		`{"body_size_limit":"1MiB","http":"/etc/wattloop/exporter.yaml","sample_limit":10,"url":"https://[::1]:9100/m?collect[]=rapl"}]`
	if diff := cmp.Diff(want, c.Scrape.String()); diff != "" {
		t.Error(diff)
	}
	// What config show prints, and a flag or a variable gives, is the same again.
	again, err := loaded(t, "", "", func(name string) (string, bool) { return want, name == "WATTLOOP_SCRAPE" })
	if err != nil || again.Scrape.String() != want {
		t.Errorf("%s, %v", again.Scrape.String(), err)
	}
}

func TestScrapeConfigErrors(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		_, err := loaded(t, "scrape:\n"+text, "", noEnv)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
	f("  url: http://a", "c.yaml:2:3: error: scrape: want a list of targets")
	f("- http://a", "c.yaml:2:3: error: scrape: want a map of keys")
	f("- {interval: 5s}", "c.yaml:2:3: error: scrape: has no url")
	f("- {url: 127.0.0.1:9100}", `c.yaml:2:9: error: scrape: url: "127.0.0.1:9100" is no address of a page; write it like`)
	f("- {url: ftp://a/metrics}", "is no address of a page")
	f("- {url: http://a:b@c/metrics}", "credentials in a URL would show")
	f("- {url: http://a, intervall: 5s}", `c.yaml:2:19: error: scrape: unknown key intervall (did you mean "interval"?)`)
	f("- {url: http://a, url: http://b}", "c.yaml:2:19: error: scrape: key url is already set in line 2")
	f("- {url: http://a, interval: soon}", `c.yaml:2:29: error: scrape: interval: "soon" is no duration`)
	f("- url: http://a\n  labels: {job: x}\n  timeout: 16s", "c.yaml:4:12: error: scrape: timeout 16s is longer than the interval 15s")
	f("- {url: http://a, interval: 0s}", "scrape: interval: 0 is no time")
	f("- {url: http://a, interval: 10ms}", "c.yaml:2:29: error: scrape: interval 10ms: at least 100ms")
	f("- {url: http://a, interval: 5s, timeout: 6s}", "c.yaml:2:42: error: scrape: timeout 6s is longer than the interval 5s")
	f("- {url: http://a, node: ''}", "scrape: node: is empty")
	f("- {url: http://a, http: ''}", "c.yaml:2:25: error: scrape: http: is empty; name the file")
	f("- {url: http://a, labels: [a]}", "scrape: labels: want a map")
	f("- {url: http://a, labels: {a-b: x}}", `c.yaml:2:28: error: scrape: labels: "a-b" is no name of a label`)
	f("- {url: http://a, labels: {channel: x}}", "scrape: labels: channel: says which workload")
	f("- {url: http://a, labels: {instance: x}}", "scrape: labels: instance: is set by node")
	f("- {url: http://a, labels: {__name__: x}}", "scrape: labels: __name__: names that begin with __")
	f("- {url: http://a, labels: {job: ''}}", "scrape: labels: job: an empty value is no label")
	f("- {url: http://a, sample_limit: 0}", "sample_limit: \"0\" is no whole number of 1 or more")
	f("- {url: http://a, body_size_limit: 0B}", "body_size_limit: \"0B\" is no size")
	f("- {url: http://a, honor_labels: true}", "honor_labels: the target's own labels always stand")
	// Two whose series would be one name both lines.
	f("- {url: http://a/x}\n- {url: http://a/y}", `c.yaml:3:9: error: scrape: the target in line 2 has the labels {instance="a", job="scrape"} too`)
	f("- {url: http://a, node: n}\n- {url: http://b, node: n}", `{instance="n", job="scrape"} too`)
}

// The example of docs/scrape.md loads.
func TestScrapePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/scrape.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(examples) != 1 {
		t.Fatalf("%d examples", len(examples))
	}
	c, err := loaded(t, examples[0][1], "", noEnv)
	if err != nil || len(c.Scrape) != 4 {
		t.Errorf("%d targets, %v", len(c.Scrape), err)
	}
	for _, target := range c.Scrape {
		own := target.Own()
		if own.Get("instance") != "worker-01" || !strings.Contains(string(page), "job: "+own.Get("job")) {
			t.Errorf("%s: %s", target.URL, own)
		}
	}
}
