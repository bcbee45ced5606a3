package twin

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wattloop/wattloop/actuate"
	"github.com/wattloop/wattloop/engine"
	"github.com/wattloop/wattloop/rules"
)

func reading(name string, k rules.KeyReading) *engine.ReadingReport {
	return &engine.ReadingReport{Name: name, KeyReading: k}
}

// S0-89, S0-90, S0-177, S0-52, S0-69, X4, X5: the source word and the watts that go
// with it. Only an HTTP source that warms up is 0 W.
func TestPowerMeasurement(t *testing.T) {
	stale := fresh("a", 350)
	stale.Quality, stale.Why = rules.Stale, "cpu0 is 40 s old"
	partial := fresh("a", 250)
	partial.Partial = true
	warming := rules.KeyReading{Key: keyOf("a"), Quality: rules.Warming, Why: "one sample so far"}
	broken := rules.KeyReading{Key: keyOf("a"), Quality: rules.Fresh, Err: "comes back 2 times"}
	f := func(source string, k *rules.KeyReading, failed, want string) {
		t.Helper()
		rep := &engine.Report{}
		if k != nil {
			rep.Readings = append(rep.Readings, reading(NodePower, *k), reading(cpuPower, fresh("a", 100)), reading(NodePower, fresh("b", 999)))
		}
		w := Wiring{Source: source, Scope: "components", Preset: "otel", Failed: func(string) string { return failed }}
		b, err := json.Marshal(New("a", rep, w, Local{}).Status.PowerMeasurement)
		if err != nil || !strings.HasPrefix(string(b), want) {
			t.Errorf("%s %v %q: %s, %v; want %s", source, k, failed, b, err, want)
		}
	}
	ok, zero := fresh("a", 350), fresh("a", 0)
	f(SourceStore, &ok, "", `{"source":"prometheus","measuredNodePowerW":350,"cpuPowerW":100,"scope":"components","preset":"otel","quality":"fresh","partial":false,"ageSeconds":0}`)
	f(SourceStore, &zero, "", `{"source":"prometheus","measuredNodePowerW":0,`)
	f(SourceStore, &partial, "", `{"source":"prometheus","measuredNodePowerW":250,"cpuPowerW":100,"scope":"components","preset":"otel","quality":"fresh","partial":true,`)
	for _, k := range []*rules.KeyReading{&stale, &warming, &broken} {
		f(SourceStore, k, "", `{"source":"prometheus-no-data","cpuPowerW":100,`)
	}
	f(SourceStore, nil, "", `{"source":"prometheus-no-data","scope":"components","preset":"otel","quality":"missing","partial":false,"message":"no series matches"}`)
	f(SourceHTTP, &ok, "", `{"source":"http","measuredNodePowerW":350,`)
	f(SourceHTTP, &warming, "", `{"source":"http","measuredNodePowerW":0,`)
	f(SourceHTTP, &warming, "more than 8 MiB", `{"source":"http-error","cpuPowerW":100,`)
	f(SourceHTTP, &ok, "more than 8 MiB", `{"source":"http-error","cpuPowerW":100,`)
	f(SourceHTTP, &stale, "", `{"source":"http-error","cpuPowerW":100,`)
	f(SourceHTTP, nil, "", `{"source":"http-error","scope"`)
	f(SourceNone, &ok, "", `{"source":"none","quality":"missing","partial":false,"message":"no source of node power is configured"}`)
}

// A query that failed for every node is no store without series.
func TestErrorOfEveryNode(t *testing.T) {
	const err = "storage.remote: connection refused"
	rep := &engine.Report{Readings: []*engine.ReadingReport{{Name: NodePower, Keyless: true, KeyReading: rules.KeyReading{Quality: rules.Missing, Err: err}}}}
	got := New("a", rep, Wiring{Source: SourceStore}, Local{}).Status.PowerMeasurement
	if got.Source != SourceNoData || got.Message != err || got.MeasuredNodePowerW != nil {
		t.Errorf("%+v; want no data, because of %s", got, err)
	}
}

// S0-69, X4, X6: what is no series of the rules' is said by the source itself: 0 W on
// this wire while it warms up, an error before that, and the producer's own scope.
func TestPowerOverHTTP(t *testing.T) {
	f := func(k *rules.KeyReading, warming bool, failed, scope, want string) {
		t.Helper()
		rep := &engine.Report{}
		if k != nil {
			rep.Readings = append(rep.Readings, reading(NodePower, *k))
		}
		w := Wiring{Source: SourceHTTP, Scope: "components", Failed: func(string) string { return failed },
			Warming: func(string) bool { return warming }, ScopeOf: func(string) string { return scope }}
		b, err := json.Marshal(New("a", rep, w, Local{}).Status.PowerMeasurement)
		if err != nil || !strings.HasPrefix(string(b), want) {
			t.Errorf("%s, %v; want %s", b, err, want)
		}
	}
	ok := fresh("a", 350)
	f(&ok, false, "", "", `{"source":"http","measuredNodePowerW":350,"scope":"components","quality":"fresh",`)
	f(&ok, false, "", "producer-defined", `{"source":"http","measuredNodePowerW":350,"scope":"producer-defined",`)
	f(nil, true, "", "", `{"source":"http","measuredNodePowerW":0,"scope":"components","quality":"warming",`)
	f(nil, false, "answers 500", "", `{"source":"http-error","scope":"components","quality":"missing","partial":false,"message":"answers 500"}`)
	f(nil, false, "", "", `{"source":"http-error","scope":"components","quality":"missing",`)
}

func TestNodes(t *testing.T) {
	rep := &engine.Report{Readings: []*engine.ReadingReport{
		reading(NodePower, fresh("w3", 1)), reading(NodePower, missing("w1")), reading(NodePower, fresh("", 1)), reading("rack_power", fresh("r", 1)), {Name: NodePower, Keyless: true},
	}}
	if got := strings.Join(Nodes(rep, "w2"), " "); got != "w1 w2 w3" {
		t.Errorf("%s; want w1 w2 w3", got)
	}
}

// S0-10, S0-11, S0-12, S0-22, S0-184, S0-190: each path says what was wanted and
// what is there.
func TestControlStatus(t *testing.T) {
	const key = `{k8s_node_name="a"}`
	outcome := func(control, device string, desired, applied float64, result, reason string) actuate.Outcome {
		return actuate.Outcome{Control: control, Key: key, Device: device, Action: actuate.ActionRAPLCap,
			Desired: desired, Granted: applied, Applied: applied, Result: result, Reason: reason, TS: 1760000000000}
	}
	owned := func(id, owner string) engine.Device {
		return engine.Device{DeviceState: actuate.DeviceState{Description: actuate.Description{ID: id}, Owner: owner, Key: key}}
	}
	f := func(node, backend string, rep *engine.Report, targets map[string]Target, cpu, gpu string) {
		t.Helper()
		w := Wiring{Source: SourceStore, Backend: map[string]string{PathCPU: backend, PathGPU: "host"}}
		s := New(node, rep, w, Local{Node: "a", Targets: targets}).Status.ControlStatus
		for _, c := range []struct {
			got  ControlPath
			want string
		}{{s.CPU, cpu}, {s.GPU, gpu}} {
			if b, err := json.Marshal(c.got); err != nil || string(b) != c.want {
				t.Errorf("%s, %v; want %s", b, err, c.want)
			}
		}
	}
	const idle = `{"backend":"host","result":"none","devices":[]}`
	f("a", "host", &engine.Report{}, nil, idle, idle)
	both := &engine.Report{
		Outcomes: []actuate.Outcome{
			outcome("budget", "p0", 120, 120, "applied", "unchanged"), outcome("budget", "p1", 120, 130, "applied", "ramping"),
			outcome("twin", "p0", 150, 120, "blocked", "overridden_by"), outcome("twin", "p1", 150, 130, "blocked", "overridden_by"),
			outcome("idle", "p1", 0, 0, "none", "not_engaged"),
		},
		Devices: []engine.Device{owned("p0", "budget"), owned("p1", "budget")},
	}
	f("a", "host", both, nil, `{"backend":"host","control":"budget","action":"rapl.set_power_cap_watts","desired":120,"granted":120,"applied":120,"result":"applied","reason":"unchanged","devices":[`+
		`{"id":"p0","desired":120,"granted":120,"applied":120,"result":"applied","reason":"unchanged"},{"id":"p1","desired":120,"granted":130,"applied":130,"result":"applied","reason":"ramping"}],"ts":"2025-10-09T08:53:20Z"}`, idle)
	f("b", "host", both, nil, idle, idle) // its devices are not this machine's

	both.Outcomes[1].Result, both.Outcomes[1].Reason, both.Outcomes[1].Message = "error", "readback_mismatch", "want 120 W, reads 250 W"
	f("a", "host", both, nil, `{"backend":"host","control":"budget","action":"rapl.set_power_cap_watts","desired":120,"granted":120,"applied":120,"result":"error","reason":"readback_mismatch","message":"want 120 W, reads 250 W","devices":[`+
		`{"id":"p0","desired":120,"granted":120,"applied":120,"result":"applied","reason":"unchanged"},{"id":"p1","desired":120,"granted":130,"applied":130,"result":"error","reason":"readback_mismatch","message":"want 120 W, reads 250 W"}],"ts":"2025-10-09T08:53:20Z"}`, idle)

	none := &engine.Report{Outcomes: []actuate.Outcome{outcome("twin", "", 150, 0, "blocked", "no_device")}}
	f("a", "host", none, nil, `{"backend":"host","control":"twin","action":"rapl.set_power_cap_watts","desired":150,"result":"blocked","reason":"no_device","devices":[],"ts":"2025-10-09T08:53:20Z"}`, idle)
	f("a", "none", none, nil, `{"backend":"none","control":"twin","action":"rapl.set_power_cap_watts","desired":150,"result":"blocked","reason":"control_none","message":"control.cpu is none: nothing is written","devices":[],"ts":"2025-10-09T08:53:20Z"}`, idle)

	targets := map[string]Target{PathCPU: {Watts: 150}, PathGPU: {Watts: 210}}
	f("a", "none", &engine.Report{}, targets, `{"backend":"none","desired":150,"result":"blocked","reason":"control_none","message":"control.cpu is none: nothing is written","devices":[]}`,
		`{"backend":"host","action":"gpu.set_power_cap_watts","desired":210,"result":"blocked","reason":"no_device","message":"this version has no actuator of GPUs","devices":[]}`)
}

// S0-187: the target of the machine is shown on its own node alone.
func TestTwinShowsTheTarget(t *testing.T) {
	local := Local{Node: "a", Spec: &Spec{NodeName: "a", CPU: &SpecCPU{PackagePowerCapPctOfMax: num(60)}},
		Targets: map[string]Target{PathCPU: {Why: "no maximum"}}}
	own, other := New("a", &engine.Report{TS: 1760000000000}, Wiring{}, local), New("b", &engine.Report{}, Wiring{}, local)
	if own.Spec == nil || own.Status.SpecError != "no maximum" || own.Kind != "NodeTwin" || own.Metadata.Name != "a" || own.Status.LastUpdated.Unix() != 1760000000 {
		t.Errorf("%+v", own)
	}
	if other.Spec != nil || other.Status.SpecError != "" || other.Status.LastUpdated != nil {
		t.Errorf("%+v", other)
	}
}

// agentStatus is what a program of Joulie's reads of a NodeTwin's status, and all
// that it may hang on.
type agentStatus struct{ CPU, GPU agentPath }

type agentPath struct {
	Backend, Control, Action  *string
	Desired, Granted, Applied *float64
	Result, Reason, Message   *string
	Devices                   []agentDevice
	TS                        *time.Time
}

type agentDevice struct {
	ID                        *string
	Desired, Granted, Applied *float64
	Result, Reason, Message   *string
}

// S0-191: controlStatus is the one stable part of the status. It is there whatever
// else is known, has each field that its readers know and no other, and the page
// says so of it and that the rest is auxiliary.
func TestControlStatusIsTheContract(t *testing.T) {
	full := &engine.Report{TS: 1760000000000, Outcomes: []actuate.Outcome{
		{Control: "c", Device: "p0", Action: actuate.ActionRAPLCap, Desired: 1, Granted: 1, Applied: 1, Result: "applied", Reason: "clamped", Message: "m", TS: 1},
		{Control: "c", Device: "g0", Action: actuate.ActionGPUCap, Desired: 1, Granted: 1, Applied: 1, Result: "error", Reason: "r", Message: "m", TS: 1},
	}}
	broken := &engine.Report{Readings: []*engine.ReadingReport{{Name: NodePower, Keyless: true, KeyReading: rules.KeyReading{Err: "no store"}}}}
	wiring := Wiring{Source: SourceStore, Backend: map[string]string{PathCPU: "host", PathGPU: "none"}}
	whole := 0
	for _, rep := range []*engine.Report{{}, broken, full} {
		for _, node := range []string{"own", "other"} {
			b, err := json.Marshal(New(node, rep, wiring, Local{Node: "own", SpecError: "line 1"}))
			if err != nil {
				t.Fatal(err)
			}
			var doc struct {
				Status map[string]json.RawMessage
			}
			if err := json.Unmarshal(b, &doc); err != nil {
				t.Fatal(err)
			}
			var got agentStatus
			strict := json.NewDecoder(bytes.NewReader(doc.Status["controlStatus"]))
			strict.DisallowUnknownFields()
			if err := strict.Decode(&got); err != nil {
				t.Fatalf("%s: %v", b, err)
			}
			for _, p := range []agentPath{got.CPU, got.GPU} {
				if p.Backend == nil || p.Result == nil || p.Devices == nil || !slices.Contains([]string{"applied", "blocked", "error", "none"}, *p.Result) {
					t.Errorf("%s", b)
				}
			}
			if len(got.CPU.Devices) > 0 && complete(reflect.ValueOf(got)) {
				whole++
			}
			page(t, doc.Status)
		}
	}
	if whole != 1 {
		t.Errorf("%d of the documents had every field of the contract; want that of the machine's own node with a cap", whole)
	}
}

// complete says that no field of a reader is left out.
func complete(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer:
		return !v.IsNil()
	case reflect.Slice:
		return v.Len() > 0 && complete(v.Index(0))
	}
	for i := range v.NumField() {
		if !complete(v.Field(i)) {
			return false
		}
	}
	return true
}

// page wants each part of a status in its sentence of docs/joulie.md.
func page(t *testing.T, status map[string]json.RawMessage) {
	t.Helper()
	b, err := os.ReadFile("../docs/joulie.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(b)), " ")
	stable, rest, _ := strings.Cut(text, " alone is the stable contract of the status")
	rest, _, _ = strings.Cut(rest, "is auxiliary")
	for part := range status {
		if part == "controlStatus" && strings.HasSuffix(stable, "`controlStatus`") {
			continue
		}
		if part == "controlStatus" || !strings.Contains(rest, "`"+part+"`") {
			t.Errorf("docs/joulie.md does not say of status.%s whether it is stable", part)
		}
	}
}
