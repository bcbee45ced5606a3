package api

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/wattloop/wattloop/actuate"
	"github.com/wattloop/wattloop/engine"
	"github.com/wattloop/wattloop/rules"
)

var update = flag.Bool("update", false, "rewrite the golden files; read the diff before you accept it")

var nan, inf = math.NaN(), math.Inf(1)

// full is a report in which every field says something.
func full() (*engine.Report, Facts) {
	node := labels.FromStrings("k8s_node_name", "worker-01")
	const ts = 1760000000250
	outcome := actuate.Outcome{
		Control: "node_power_budget", Device: "rapl:package-0", Name: "cpu0", Action: actuate.ActionRAPLCap,
		Desired: 75, Granted: 100, Applied: 100, Result: actuate.Applied, Reason: "ramping", Message: "one step of 60 W", Clamped: true, TS: ts,
	}
	desc := actuate.Description{ID: "rapl:package-0", Name: "cpu0", Action: actuate.ActionRAPLCap, Unit: "W"}
	rep := &engine.Report{
		TS: ts, Steps: 7,
		Rules: []engine.RuleReport{
			{Name: "node_power", Kind: "reading", Took: 900 * time.Microsecond, File: "presets/otel/preset.yaml", Line: 12},
			{Name: "node_power_budget", Kind: "control", Took: 2 * time.Millisecond, Err: "a key came back twice", File: "60-local.yaml", Line: 6},
		},
		Readings: []*engine.ReadingReport{
			{Name: "node_power", Unit: "W", KeyReading: rules.KeyReading{Key: node, Value: 400.5, Valid: true, Quality: rules.Fresh, Partial: true, Age: 1500 * time.Millisecond, Why: "cpu1 is absent"}},
			{Name: "node_power", Unit: "W", KeyReading: rules.KeyReading{Key: labels.FromStrings("k8s_node_name", "worker-02"), Quality: rules.Missing, Err: "boom"}},
			{Name: "ratio", Note: "what to know of it", KeyReading: rules.KeyReading{Value: inf, Valid: true, Quality: rules.Fresh}},
		},
		Controls: []*engine.ControlReport{{
			Name: "node_power_budget", Mode: "enforce", Purpose: "efficiency", Action: actuate.ActionRAPLCap, Key: node, Phase: engine.Engaged,
			Value: 75, Quality: rules.Fresh, Partial: true, Err: "err", Why: "why", Result: actuate.Applied, Outcomes: []actuate.Outcome{outcome},
		}, {
			Name: "idle_one", Mode: "observe", Phase: engine.Idle, Value: 12, Quality: rules.Stale,
		}},
		Outcomes: []actuate.Outcome{outcome},
		Devices: []actuate.DeviceStatus{
			{DeviceState: actuate.DeviceState{Description: desc, Low: 100, High: 250, Current: 100, Original: 250, Granted: 100, Owner: "node_power_budget",
				State: actuate.StateApplied, LeaseMillis: 29500, Latched: true, Enabled: true, Reason: "drifted"}, Known: true, Desired: 75, Reason: "ramping"},
			{DeviceState: actuate.DeviceState{Description: actuate.Description{ID: "rapl:package-1", Name: "cpu1", Action: actuate.ActionRAPLCap, Unit: "W"}, State: actuate.StateArmed}},
		},
	}
	at := time.Unix(1760000000, 0).UTC()
	return rep, Facts{
		Version: "v1", Node: "worker-01", WardenPID: 10, EnginePID: 11, Started: at.Add(-time.Hour), Durability: "fsync", Series: 42,
		StoreError: "store: /data: disk is nearly full",
		Integrity:  []Loss{{at.Add(-time.Minute), at, "points were refused: disk full"}},
		Channels: []Channel{
			{Name: "default", Class: "node", Addresses: []string{"127.0.0.1:4317", "127.0.0.1:4318"}, Live: true, Accepted: 100, Folded: 1, Rejected: 2, LagSeconds: 0.25, Windows: Windows{1, 2, 3, 4, 5}},
			{Name: "worker-1", Class: "workload", Addresses: []string{"169.254.17.1:4317"}, Live: true, Started: &at, Since: &at, LagSeconds: -1,
				Identity: &Identity{ActorUID: "7f2c", Node: "worker-01"}},
			{Name: "worker-2", Class: "workload", Addresses: []string{"unix:/run/w2.sock"}, Error: "listen: address already in use", LagSeconds: -1},
		},
		Targets: []Target{
			{URL: "http://127.0.0.1:9400/metrics", Job: "dcgm", Instance: "worker-01", Health: "up", IntervalSeconds: 30, LastScrape: &at, ScrapeSeconds: 0.25, Samples: 14, Stored: 7, NotStored: 7},
			{URL: "http://127.0.0.1:28282/metrics", Job: "kepler", Instance: "worker-01", Health: "unknown", IntervalSeconds: 5},
		},
		Pulls: []Pull{
			{URL: "http://10.0.0.1:9464/otlp/telemetry/worker-01", Role: "controller", Node: "worker-01", Quality: "fresh", Watts: number(412.5), Scope: "components", IntervalSeconds: 5, LastPoll: &at},
			{URL: "http://10.0.0.1:9464/otlp/telemetry/worker-02", Role: "controller", Node: "worker-02", Quality: "failed", IntervalSeconds: 5, LastPoll: &at, Error: "answers 404 Not Found"},
		},
		Unused: map[string]string{"node_power": "presets.node_power.source is none"},
		Relay: []Relay{
			{Plane: "platform", Upstream: "unix:/run/otel.sock", QueueLimit: 64 << 20, Sent: 9, Answering: true},
			{Plane: "workload", Upstream: "unix:/run/otel.sock", QueueBytes: 1000, QueueLimit: 192 << 20, Sent: 8, Dropped: 1, Refused: 2, Rejected: 3, LostBytes: 4, Error: "unavailable: no", ErrorAt: &at},
		},
		Doubts:     []Doubt{{"no_gpu_energy", "worker-02", "Kepler reports no GPU energy"}},
		RulesError: "rules: 1 error", TargetError: "spec.yaml:1:7: error: unknown key",
	}
}

func TestGoldenStatus(t *testing.T) {
	rep, facts := full()
	o := options()
	o.Report, o.Facts = func() *engine.Report { return rep }, func() Facts { return facts }
	var got bytes.Buffer
	if err := json.Indent(&got, ask(Handler(o), "GET", "/api/v1/status/wattloop", nil).Body.Bytes(), "", "  "); err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/status.json"
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("make golden rewrites %s; read the diff:\n%s", golden, diff)
	}
}

// A client reads back what was sent, infinite values included.
func TestStatusReadsBack(t *testing.T) {
	rep, facts := full()
	sent := NewStatus(rep, facts, time.Unix(1760000000, 0))
	b, err := json.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	var back Status
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sent, back); diff != "" {
		t.Error(diff)
	}
}

// Before the first step lists are empty, not null, and the step is null.
func TestStatusOfNothing(t *testing.T) {
	w := ask(Handler(options()), "GET", "/api/v1/status/wattloop", nil)
	for _, want := range []string{`"step":null`, `"rules":[]`, `"readings":[]`, `"controls":[]`, `"devices":[]`, `"integrity":[]`, `"channels":[]`, `"relay":[]`} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("no %s in %s", want, w.Body)
		}
	}
	if strings.Contains(w.Body.String(), "rules_error") {
		t.Errorf("a reload that was not refused: %s", w.Body)
	}
}

func TestNumber(t *testing.T) {
	f := func(v float64, want string) {
		t.Helper()
		b, err := json.Marshal(Number(v))
		if err != nil || string(b) != want {
			t.Errorf("%g: %s, %v; want %s", v, b, err, want)
		}
		var back Number
		if err := json.Unmarshal(b, &back); err != nil || !(float64(back) == v || math.IsNaN(v) && math.IsNaN(float64(back))) {
			t.Errorf("%s reads back as %g, %v", b, float64(back), err)
		}
	}
	f(0, "0")
	f(-0.5, "-0.5")
	f(1e21, "1e+21")
	f(nan, `"NaN"`)
	f(inf, `"+Inf"`)
	f(-inf, `"-Inf"`)
	var n Number
	for _, bad := range []string{`"Infinity"`, `""`, `true`, `[]`} {
		if json.Unmarshal([]byte(bad), &n) == nil {
			t.Errorf("%s is taken for a number", bad)
		}
	}
}

// docs/api.md has every field of the report.
func TestStatusIsDocumented(t *testing.T) {
	b, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, page, ok := strings.Cut(string(b), "## /api/v1/status/wattloop")
	if !ok {
		t.Fatal("docs/api.md has no section on the status")
	}
	rows := map[string]string{"": page}
	for line := range strings.Lines(page) {
		if field, meaning, ok := strings.Cut(strings.TrimPrefix(line, "| "), " | "); ok {
			rows[strings.Trim(field, "`")] = meaning
		}
	}
	var walk func(prefix string, typ reflect.Type)
	walk = func(prefix string, typ reflect.Type) {
		where, ok := rows[prefix]
		if !ok {
			t.Errorf("docs/api.md has no row %s", prefix)
			return
		}
		for i := range typ.NumField() {
			f := typ.Field(i)
			if f.Anonymous {
				walk(prefix, f.Type)
				continue
			}
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !strings.Contains(where, "`"+name+"`") {
				t.Errorf("docs/api.md, row %q: no %s", prefix, name)
			}
			if f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct {
				next := name
				if prefix != "" {
					next = prefix + "[]." + name
				}
				walk(next, f.Type.Elem())
			}
		}
	}
	walk("", reflect.TypeFor[Status]())
}
