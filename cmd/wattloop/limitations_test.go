package main

import (
	"os"
	"strings"
	"testing"
)

// What the checklist wants said and nobody can prove by code: each by the words
// that say it, in the paragraph that begins with the first of them.
func TestLimitationsAreSaid(t *testing.T) {
	b, err := os.ReadFile("../../docs/limitations.md")
	if err != nil {
		t.Fatal(err)
	}
	var paragraphs []string
	for p := range strings.SplitSeq(string(b), "\n\n") {
		paragraphs = append(paragraphs, strings.Join(strings.Fields(p), " "))
	}
	for id, words := range map[string][]string{
		"S2-8":  {"Telemetry that an actor has not sent is lost with it", "paused without its data"},
		"S2-26": {"The environment is frozen in a snapshot", "its golden snapshot must be made anew"},
		"S2-57": {"Exemplars join only if the actor sets them"},
		"S2-58": {"Exemplars join only if the actor sets them", "do not bill by them", "`ate_actor_atespace`"},
		"S2-62": {"Enrichment downstream goes by attribute", "by the address of the connection names the wrong one", "a rule on the resource attribute"},
		"S2-70": {"A socket of its own tells two kinds of telemetry apart; it proves no sender", "Who may is a matter of `mode`"},
		"S2-81": {"No gauges per actor", "the last value wins"},
		"S2-82": {"No gauges per actor", "send a log record or an event", "use counters and histograms"},
		"S2-83": {"No gauges per actor", "an asynchronous one may come as delta, which backends handle unevenly"},
		"S2-84": {"No gauges per actor", "`gauge: min`, `max` or `avg`"},
	} {
		said := false
		for _, p := range paragraphs {
			if strings.HasPrefix(strings.TrimPrefix(p, "**"), words[0]) {
				said = true
				for _, w := range words[1:] {
					if !strings.Contains(p, w) {
						t.Errorf("%s: docs/limitations.md does not say %q under %q", id, w, words[0])
					}
				}
			}
		}
		if !said {
			t.Errorf("%s: docs/limitations.md has no paragraph %q", id, words[0])
		}
	}
}
