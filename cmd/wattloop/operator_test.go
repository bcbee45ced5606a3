package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"
)

// S0-150 to S0-153: the values of the Prometheus Operator stand on the page as the
// contract has them, under the versions that they are for, and a wattloop that is
// told nothing is set the same.
func TestOperatorValuesAreOurDefaults(t *testing.T) {
	page, err := os.ReadFile("../../docs/joulie.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "## Prometheus Operator")
	head, text, _ := strings.Cut(text, "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	var values struct {
		Prometheus struct {
			PrometheusSpec struct {
				EnableOTLPReceiver bool `yaml:"enableOTLPReceiver"`
				OTLP               struct {
					PromoteResourceAttributes []string `yaml:"promoteResourceAttributes"`
					TranslationStrategy       string   `yaml:"translationStrategy"`
				} `yaml:"otlp"`
				TSDB struct {
					OutOfOrderTimeWindow string `yaml:"outOfOrderTimeWindow"`
				} `yaml:"tsdb"`
			} `yaml:"prometheusSpec"`
		}
	}
	strict := yaml.NewDecoder(strings.NewReader(text))
	strict.KnownFields(true)
	if err := strict.Decode(&values); err != nil {
		t.Fatal(err)
	}
	spec := values.Prometheus.PrometheusSpec
	if !spec.EnableOTLPReceiver || spec.TSDB.OutOfOrderTimeWindow != "30m" || spec.OTLP.TranslationStrategy != "UnderscoreEscapingWithSuffixes" ||
		!slices.Equal(spec.OTLP.PromoteResourceAttributes, []string{"k8s.node.name", "host.name"}) {
		t.Errorf("the page has %+v", spec)
	}
	if !strings.Contains(head, "91.9.0") || !strings.Contains(head, "v0.94.1") {
		t.Errorf("the page says %q of the versions", head)
	}
	c := defaultConfig()
	if c.Naming != spec.OTLP.TranslationStrategy || !slices.Equal(c.Promote, spec.OTLP.PromoteResourceAttributes) || c.OutOfOrder != 30*time.Minute {
		t.Errorf("unless set: %s, %v, %s; the page has %+v", c.Naming, c.Promote, c.OutOfOrder, spec)
	}
}
