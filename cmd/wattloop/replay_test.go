package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wattloop/wattloop/actuate"
	"github.com/wattloop/wattloop/rules"
)

// replayed plays one recording with the shipped rules and keeps the store open.
func replayed(t *testing.T, file string) (*replay, error) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	c := defaultConfig()
	c.Rules = nil
	set, _, err := c.loadRules()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	r, err := newReplay(c, set, 2, &out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.close)
	return r, r.run(t.Context(), []string{file}, strings.NewReader(""), &out)
}

// C71: what of a recording is ingested, and what node power reads at its end.
func TestC71(t *testing.T) {
	f := func(file string, documents, joules float64, cut bool) {
		t.Helper()
		r, err := replayed(t, filepath.Join("../../testdata/cases/C71-replay-truncated-file", file))
		if (err != nil) != cut {
			t.Errorf("%s: %v; cut: %v", file, err, cut)
		}
		at := r.first + (240 * time.Second).Milliseconds()
		q := func(expr string, want float64) {
			t.Helper()
			got, err := r.db.Instant(t.Context(), expr, at)
			if err != nil || len(got) != 1 || got[0].V != want {
				t.Errorf("%s: %s: %v, %v; want %g", file, expr, got, err, want)
			}
		}
		q("count_over_time(hw_energy_joules_total[10m])", documents)
		q("hw_energy_joules_total", joules)
		if !cut {
			// The window is 300 s, the counter has covered 240 s of it.
			q("rate(hw_energy_joules_total[5m])", 200)
			q("covered_rate(hw_energy_joules_total[5m])", 250)
		}
	}
	f("no-newline.jsonl", 5, 60000, false)
	f("bom-crlf-blank.jsonl", 5, 60000, false)
	f("cut.jsonl", 4, 45000, true)
}

// A replay's devices are in memory; it links no backend to the machine and its
// folder goes with it.
func TestReplayLeavesNothing(t *testing.T) {
	r, err := replayed(t, "../../testdata/cases/C71-replay-truncated-file/no-newline.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(r.dir); err != nil {
		t.Fatal(err)
	}
	r.close()
	if entries, err := os.ReadDir(filepath.Dir(r.dir)); err != nil || len(entries) != 0 {
		t.Errorf("left over: %v, %v", entries, err)
	}
	dry := dryPackages(3)
	if ds := dry.Devices(); len(ds) != 3 || ds[2].ID != "rapl:package-2" || ds[0].Original != 250 {
		t.Errorf("devices in memory: %+v", ds)
	}
	var _ actuate.Link = dry
}

// The rules of this binary load without a message.
func TestShippedRulesLoadClean(t *testing.T) {
	sources, err := shippedRules()
	if err != nil {
		t.Fatal(err)
	}
	set, msgs := rules.Load(sources, rules.Settings{})
	if set == nil || len(msgs) != 0 {
		t.Errorf("%v", msgs)
	}
}
