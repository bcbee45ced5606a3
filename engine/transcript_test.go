package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/wattloop/wattloop/actuate"
	"github.com/wattloop/wattloop/engine"
	"github.com/wattloop/wattloop/ingest"
	"github.com/wattloop/wattloop/rules"
)

// otlp is one export request of node worker-01: hw.power of its components.
func otlp(t testing.TB, seconds float64, watts map[string]float64) []byte {
	t.Helper()
	type attr map[string]any
	str := func(k, v string) attr { return attr{"key": k, "value": attr{"stringValue": v}} }
	var points []attr
	for _, id := range []string{"cpu0", "cpu1", "gpu0"} {
		if v, ok := watts[id]; ok {
			points = append(points, attr{
				"timeUnixNano": fmt.Sprint(at(seconds) * 1e6), "asDouble": v,
				"attributes": []attr{str("hw.id", id), str("hw.type", strings.TrimRight(id, "01"))},
			})
		}
	}
	b, err := json.Marshal(attr{"resourceMetrics": []attr{{
		"resource":     attr{"attributes": []attr{str("k8s.node.name", "worker-01")}},
		"scopeMetrics": []attr{{"metrics": []attr{{"name": "hw.power", "unit": "W", "gauge": attr{"dataPoints": points}}}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// receiver takes OTLP into the world's store, and tells its engine.
func (w *world) receiver() *ingest.Receiver {
	return ingest.NewReceiver(ingest.Options{
		Appendable: w.db, Clock: w.clock, NoTimeGate: true,
		Watch: ingest.Watch{Gen: w.eng.Generation, Rules: w.eng.Touched, Grew: w.eng.Grew},
	})
}

// The example of docs/transcript.md is what OTLP in, the shipped rules and two
// packages print.
func TestTranscriptExample(t *testing.T) {
	page, err := os.ReadFile("../docs/transcript.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```\n")
	want, _, ok := strings.Cut(rest, "```\n")
	if !ok {
		t.Fatal("docs/transcript.md has no example")
	}
	w := newWorld(t, enforce, "version: 1\ncontrols: {node_power_budget: {slew: {down: 90, up: 90}}}\n")
	recv := w.receiver()
	var out bytes.Buffer
	script := engine.Transcript{W: &out, Start: at(0)}
	for s := 0.; s <= 150; s += 5 {
		cpu, gpu := 100., 118.
		switch {
		case s >= 50:
			cpu, gpu = 40, 200
		case s >= 20:
			cpu, gpu = math.Min(180, w.eng.Report().Devices[0].Current), 200
		}
		if res, err := recv.ExportJSON(context.Background(), otlp(t, s, map[string]float64{"cpu0": cpu, "cpu1": cpu, "gpu0": gpu})); err != nil || res.Accepted != 3 {
			t.Fatalf("export at %g: %+v, %v", s, res, err)
		}
		if err := script.Observe(w.step(s)); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("docs/transcript.md (-page +true):\n%s\nthe true example:\n%s", d, &out)
	}
}

// Each kind of line, and what has no value is never a zero (X4).
func TestTranscriptLines(t *testing.T) {
	node := labels.FromStrings("k8s_node_name", "a")
	reading := func(kr rules.KeyReading) *engine.Report {
		kr.Key = node
		return &engine.Report{Readings: []*engine.ReadingReport{{Name: "p", Unit: "W", KeyReading: kr}}}
	}
	unitless := reading(rules.KeyReading{Valid: true, Value: 2, Quality: rules.Fresh})
	unitless.Readings[0].Unit = "1"
	device := func(known bool) *engine.Report {
		d := actuate.DeviceStatus{Known: known}
		d.Name, d.Unit, d.Current = "cpu0", "W", 250
		return &engine.Report{Devices: []engine.Device{d}}
	}
	for _, tt := range []struct {
		name string
		rep  *engine.Report
		want string
	}{
		{"fresh", reading(rules.KeyReading{Valid: true, Value: 123.456, Quality: rules.Fresh}), `reading  p{k8s_node_name="a"}  123.5 W fresh`},
		{"a large one", reading(rules.KeyReading{Valid: true, Value: 1234567, Quality: rules.Fresh}), `reading  p{k8s_node_name="a"}  1235000 W fresh`},
		{"a small one", reading(rules.KeyReading{Valid: true, Value: 0.0000123456, Quality: rules.Fresh}), `reading  p{k8s_node_name="a"}  0.00001235 W fresh`},
		{"zero", reading(rules.KeyReading{Valid: true, Value: math.Copysign(0, -1), Quality: rules.Fresh}), `reading  p{k8s_node_name="a"}  0 W fresh`},
		{"partial", reading(rules.KeyReading{Valid: true, Value: 7, Quality: rules.Fresh, Partial: true}), `reading  p{k8s_node_name="a"}  7 W fresh partial`},
		{"unitless", unitless, `reading  p{k8s_node_name="a"}  2 fresh`},
		{"stale", reading(rules.KeyReading{Valid: true, Value: 7, Quality: rules.Stale}), `reading  p{k8s_node_name="a"}  7 W stale`},
		{"warming", reading(rules.KeyReading{Quality: rules.Warming}), `reading  p{k8s_node_name="a"}  warming`},
		{"missing", reading(rules.KeyReading{Quality: rules.Missing}), `reading  p{k8s_node_name="a"}  missing`},
		{"error", reading(rules.KeyReading{Quality: rules.Fresh, Err: "answers NaN"}), `reading  p{k8s_node_name="a"}  fresh error: answers NaN`},
		{"idle", &engine.Report{Controls: []*engine.ControlReport{{Name: "c", Key: node, Phase: engine.Idle}}}, `control  c{k8s_node_name="a"}  idle`},
		{"holding", &engine.Report{Controls: []*engine.ControlReport{{Name: "c", Key: node, Phase: engine.Holding, Value: 80}}}, `control  c{k8s_node_name="a"}  holding 80`},
		{"no device", &engine.Report{Outcomes: []actuate.Outcome{{Control: "c", Key: `{k8s_node_name="a"}`, Desired: 90, Result: "blocked", Reason: "no_device"}}},
			`outcome  c{k8s_node_name="a"}  desired 90 blocked (no_device)`},
		{"outcome", &engine.Report{Outcomes: []actuate.Outcome{{Control: "c", Device: "rapl:package-0", Name: "cpu0", Desired: 90, Applied: 100, Result: "applied"}}},
			`outcome  c cpu0  desired 90 applied 100 applied`},
		{"device", device(true), `device   cpu0  250 W`},
		{"a device that was not read", device(false), ``},
	} {
		var out bytes.Buffer
		script := engine.Transcript{W: &out, Start: -90_500}
		for range 2 { // what does not change is not printed again
			if err := script.Observe(tt.rep); err != nil {
				t.Fatal(err)
			}
		}
		want := ""
		if tt.want != "" {
			want = "1m30.5s   " + tt.want + "\n"
		}
		if got := out.String(); got != want {
			t.Errorf("%s: got %q, want %q", tt.name, got, want)
		}
		if err := script.Observe(&engine.Report{}); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); tt.want != "" && !strings.HasSuffix(got, "  gone\n") {
			t.Errorf("%s: its end is %q", tt.name, got)
		}
	}
}

// Two keys of one control do not share a line.
func TestTranscriptKeysApart(t *testing.T) {
	rep := &engine.Report{Outcomes: []actuate.Outcome{
		{Control: "c", Key: `{n="a"}`, Device: "d", Name: "cpu0", Result: "applied", Desired: 1, Applied: 1},
		{Control: "c", Key: `{n="b"}`, Device: "d", Name: "cpu0", Result: "blocked", Desired: 2, Applied: 1, Reason: "overridden_by"},
	}}
	var out bytes.Buffer
	if err := (&engine.Transcript{W: &out}).Observe(rep); err != nil {
		t.Fatal(err)
	}
	want := `0s        outcome  c{n="a"} cpu0  desired 1 applied 1 applied
0s        outcome  c{n="b"} cpu0  desired 2 applied 1 blocked (overridden_by)
`
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestTranscriptTellsAWriteError(t *testing.T) {
	rep := &engine.Report{Controls: []*engine.ControlReport{{Name: "c", Phase: engine.Idle}}}
	if err := (&engine.Transcript{W: brokenPipe{}}).Observe(rep); err == nil {
		t.Error("no error")
	}
}
