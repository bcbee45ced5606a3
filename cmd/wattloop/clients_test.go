package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestJSExporters sends through the OpenTelemetry JS SDK's three exporters, in
// both temporalities, and reads back by PromQL what the program itself counted.
// `make js` installs them; WATTLOOP_REQUIRE_JS=1, as CI sets it, makes their
// absence an error.
func TestJSExporters(t *testing.T) {
	js, err := filepath.Abs("../../testdata/js")
	if err != nil {
		t.Fatal(err)
	}
	missing := ""
	if _, err := exec.LookPath("node"); err != nil {
		missing = "node is missing"
	} else if _, err := os.Stat(filepath.Join(js, "node_modules")); errors.Is(err, fs.ErrNotExist) {
		missing = "run make js, which needs npm and the network"
	}
	if missing != "" && os.Getenv("WATTLOOP_REQUIRE_JS") != "" {
		t.Fatal("JS exporters: " + missing)
	}
	if missing != "" {
		t.Skip("JS exporters: " + missing)
	}
	n := startNode(t, killRules)
	for _, kind := range []string{"grpc", "proto", "json"} {
		for _, temporality := range []string{"delta", "cumulative"} {
			to := "http://" + n.addr + "/v1/metrics"
			if kind == "grpc" {
				to = "http://" + n.door("otlp-grpc")
			}
			cmd := exec.Command("node", filepath.Join(js, "send.mjs"), kind, to, temporality, "3")
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			var sent struct{ Joules, Rounds, Watts float64 }
			if err == nil {
				err = json.Unmarshal(out, &sent)
			}
			if err != nil || stderr.Len() > 0 {
				t.Errorf("%s %s: %v\n%s%s", kind, temporality, err, out, stderr.String())
				continue
			}
			job := fmt.Sprintf(`{job="js-%s-%s",k8s_node_name="js-node"}`, kind, temporality)
			for expr, want := range map[string]float64{
				"hw_energy_joules_total" + job: sent.Joules, "hw_power_watts" + job: sent.Watts,
				"app_latency_seconds_count" + job: sent.Rounds, "app_latency_seconds_sum" + job: sent.Rounds / 2,
				fmt.Sprintf(`app_latency_seconds_bucket{job="js-%s-%s",le="1"}`, kind, temporality):   sent.Rounds,
				fmt.Sprintf(`app_latency_seconds_bucket{job="js-%s-%s",le="0.1"}`, kind, temporality): 0,
			} {
				if got, err := n.value(expr); err != nil || math.Abs(got-want) > 1e-9 {
					t.Errorf("%s = %v, %v; want %v", expr, got, err, want)
				}
			}
		}
	}
	n.stop(t)
}

// value is the one value of an instant query.
func (n *testNode) value(expr string) (float64, error) {
	resp, err := http.Get("http://" + n.web + "/api/v1/query?" + url.Values{"query": {expr}}.Encode())
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var a struct {
		Data struct{ Result []struct{ Value [2]any } }
	}
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		return 0, err
	}
	if len(a.Data.Result) != 1 {
		return 0, fmt.Errorf("%d series, want one", len(a.Data.Result))
	}
	return strconv.ParseFloat(fmt.Sprint(a.Data.Result[0].Value[1]), 64)
}
