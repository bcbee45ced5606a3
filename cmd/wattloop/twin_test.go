package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/wattloop/wattloop/api"
	"github.com/wattloop/wattloop/twin"
)

// S0-187, S0-188: a target goes into the store when it changes and every five
// seconds, and its end is the end of the series, never a 0.
func TestTargetSeries(t *testing.T) {
	p := newAccessRig(t, "", false, false).p
	start := time.Now().Truncate(time.Second)
	tell := func(second int) {
		t.Helper()
		if err := p.twins.targets.tell(t.Context(), start.Add(time.Duration(second)*time.Second), p.twins.local().Targets); err != nil {
			t.Fatal(err)
		}
	}
	holds := func(second int, expr, want string) {
		t.Helper()
		got, err := p.db.Instant(t.Context(), expr, start.Add(time.Duration(second)*time.Second).UnixMilli())
		if err != nil {
			t.Fatal(err)
		}
		text := "none"
		if len(got) == 1 {
			text = fmt.Sprint(got[0].V)
		}
		if text != want {
			t.Errorf("%s at %d s: %s; want %s", expr, second, text, want)
		}
	}
	const cpu, gpu = "wattloop_twin_spec_cpu_cap_watts", "wattloop_twin_spec_gpu_cap_watts"
	put := func(spec string) {
		t.Helper()
		if _, err := p.twins.ops().PutSpec(p.c.Node, []byte(`{"nodeName": "`+p.c.Node+`", `+spec+`}`)); err != nil {
			t.Fatal(err)
		}
	}
	tell(0)
	holds(0, cpu, "none")
	put(`"cpu": {"packagePowerCapWatts": 120}, "gpu": {"powerCap": {"capWattsPerGpu": 210}}`)
	for s := 1; s <= 6; s++ {
		tell(s)
	}
	holds(6, cpu, "120")
	holds(6, gpu, "210")
	holds(6, "count_over_time("+cpu+"[10s])", "2") // at 1 s and at 6 s
	put(`"cpu": {"packagePowerCapWatts": 150}`)
	tell(7)
	holds(7, cpu, "150")
	holds(7, gpu, "none")
	doc, err := p.twins.ops().DeleteSpec(p.c.Node)
	if err != nil || doc.Spec != nil {
		t.Fatalf("%+v, %v", doc, err)
	}
	tell(8)
	tell(9)
	holds(9, cpu, "none")
	holds(9, "min_over_time("+cpu+"[10s])", "120") // no 0 anywhere
}

// The API knows this machine's node, and refuses a target for another.
func TestNodesOfTheAPI(t *testing.T) {
	p := newAccessRig(t, "", false, false).p
	ops := p.twins.ops()
	code := func(err error) int {
		var e *api.CodedError
		if !errors.As(err, &e) {
			return 0
		}
		return e.Code
	}
	if doc, known := ops.Twin(p.c.Node); !known || doc.Status.PowerMeasurement.Source != twin.SourceNoData || doc.Status.PowerMeasurement.MeasuredNodePowerW != nil {
		t.Errorf("%+v, %v", doc, known)
	}
	if _, known := ops.Twin("other"); known {
		t.Error("a node that nothing is known of is known")
	}
	if _, err := ops.PutSpec("other", []byte(`{"nodeName": "other"}`)); code(err) != 404 {
		t.Errorf("%v", err)
	}
	if _, err := ops.DeleteSpec("other"); code(err) != 404 {
		t.Errorf("%v", err)
	}
	if _, err := ops.PutSpec(p.c.Node, []byte(`{}`)); code(err) != 422 {
		t.Errorf("%v", err)
	}
	if err := p.twins.keeper.Watch("/nowhere/spec.yaml"); err != nil {
		t.Fatal(err)
	}
	if _, err := ops.PutSpec(p.c.Node, []byte(`{"nodeName": "`+p.c.Node+`"}`)); code(err) != 409 {
		t.Errorf("%v", err)
	}
}

// S0-2, S0-3: no setting of the wiring changes a word of NodeHardware.
func TestHardwareIsNotTheWiring(t *testing.T) {
	text := func(change func(*config)) string {
		p := newAccessRig(t, "", false, false).p
		p.c.Node = "w1"
		change(p.c)
		set, _, err := p.c.loadRules()
		if err != nil {
			t.Fatal(err)
		}
		p.twins.rewire(p.c, set)
		p.twins.discover(time.Now())
		doc, known := p.twins.ops().Hardware("w1")
		b, err := json.Marshal(doc)
		if err != nil || !known {
			t.Fatal(err, known)
		}
		return string(b)
	}
	plain := text(func(*config) {})
	other := text(func(c *config) {
		c.ControlCPU, c.ControlGPU, c.HostEnabled = backendNone, backendNone, false
		c.PowerPreset, c.PowerScope, c.Facility = "kepler-legacy", "host", true
	})
	if plain != other {
		t.Errorf("%s\n%s", plain, other)
	}
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil && cpuinfo("/sys") != "" && cpuinfo("/sys") != string(b) || cpuinfo(t.TempDir()) != "" {
		t.Error("the model of this machine in the document of another tree")
	}
}
