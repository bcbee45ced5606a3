package twin

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func num(v float64) *float64 { return &v }

// S0-187, S0-188: a target is read as it stands or refused with its place.
func TestParseSpec(t *testing.T) {
	f := func(text string, want any) {
		t.Helper()
		got, err := ParseSpec([]byte(text), "worker-01")
		switch want := want.(type) {
		case string:
			var e *SpecError
			if !errors.As(err, &e) || got != nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, %v; want %s", text, got, err, want)
			}
		case *Spec:
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%q: %v %s", text, err, diff)
			}
		}
	}
	whole := &Spec{NodeName: "worker-01", Profile: "eco", CPU: &SpecCPU{PackagePowerCapPctOfMax: num(60)},
		GPU: &SpecGPU{&SpecPowerCap{Scope: "perGpu", CapWattsPerGPU: num(210), CapPctOfMax: num(60)}}, Policy: &SpecPolicy{"static-partition-v1"}}
	f(`
apiVersion: joulie.io/v1alpha1
kind: NodeTwin
metadata: {name: worker-01, resourceVersion: "7", labels: {a: b}}
spec:
  nodeName: worker-01
  profile: eco
  cpu: {packagePowerCapPctOfMax: 60}
  gpu:
    powerCap: {scope: perGpu, capPctOfMax: 60, capWattsPerGpu: 210}
  policy: {name: static-partition-v1}
status: {schedulableClass: eco, x: [1]}
`, whole)
	f("{\n\t\"nodeName\": \"worker-01\",\n\t\"cpu\": {\"packagePowerCapWatts\": 1.5e2}\n}\n", &Spec{NodeName: "worker-01", CPU: &SpecCPU{PackagePowerCapWatts: num(150)}})
	f("nodeName: worker-01", &Spec{NodeName: "worker-01"})
	f("\ufeffnodeName: worker-01\ncpu: {}", &Spec{NodeName: "worker-01", CPU: &SpecCPU{}})

	const base = "nodeName: worker-01\n"
	f("", "the document is empty")
	f("# nothing\n", "the document is empty")
	f("[]", "line 1, column 1: want keys and their values")
	f("x", "line 1, column 1: want keys and their values")
	f("{}", "line 1, column 1: nodeName is missing; this is worker-01")
	f("nodeName: worker-02", `line 1, column 11: nodeName: "worker-02" is another node; this is worker-01`)
	f("nodeName: 1", "line 1, column 11: nodeName: want a text")
	f("metadata: {name: w2}\nspec: {nodeName: worker-01}", `line 1, column 18: metadata.name: "w2" is another node`)
	f("kind: Node\nspec: {nodeName: worker-01}", `line 1, column 7: kind: "Node" is not NodeTwin`)
	f("apiVersion: v1\nspec: {nodeName: worker-01}", `apiVersion: "v1" is not joulie.io/v1alpha1`)
	f("spec: {nodeName: worker-01}\nspek: {}", `line 2, column 1: unknown key "spek"; known are apiVersion, kind, metadata, spec, status`)
	f(base+"profile: fast", `line 2, column 10: profile: "fast" is not performance or eco`)
	f(base+"cpu: {packagePowerCapWats: 1}", `line 2, column 7: cpu: unknown key "packagePowerCapWats"; known are packagePowerCapWatts, packagePowerCapPctOfMax`)
	f(base+"cpu: {packagePowerCapWatts: 1, packagePowerCapWatts: 2}", "line 2, column 32: cpu: key packagePowerCapWatts stands in line 2 already")
	f(base+"nodeName: worker-01", "line 2, column 1: key nodeName stands in line 1 already")
	for _, bad := range []string{"0", "0.9", "-1", "010", "100001", "-.inf", ".nan", "\"60\"", "60W", "[60]", "{a: 1}", "true", "0x1p3", "1_0", "0b1"} {
		f(base+"cpu: {packagePowerCapWatts: "+bad+"}", "line 2, column 29: cpu.packagePowerCapWatts: ")
		f(base+"gpu: {powerCap: {capWattsPerGpu: "+bad+"}}", "line 2, column 34: gpu.powerCap.capWattsPerGpu: ")
	}
	f(base+"cpu: {packagePowerCapPctOfMax: 100.5}", "100.5 is not between 1 and 100 percent")
	f(base+"cpu: {packagePowerCapPctOfMax: 0}", "to ask for no cap, leave the key out")
	f(base+"cpu: {packagePowerCapWatts: null}", "cpu: packagePowerCapWatts has no value; leave the key out")
	f(base+"cpu:", "cpu has no value; leave the key out")
	f(base+"cpu: 60", "line 2, column 6: cpu: want keys and their values")
	f(base+"gpu: {powerCap: {scope: total}}", `gpu.powerCap.scope: "total" is not perGpu`)
	f(base+"policy: {name: \"\"}", "policy.name is empty")
	f(base+"policy: {name: "+strings.Repeat("x", 254)+"}", "policy.name: more than 253 bytes")
	f(base+"cpu: &a {packagePowerCapWatts: 5}\ngpu: *a", "line 3, column 6: gpu: aliases are not read here")
	f(base+"<<: {profile: eco}", "line 2, column 1: want a plain key")
	f(base+"---\n"+base, "a second document")
	f(base+"cpu: {", "neither YAML nor JSON: ")
	f("{\"nodeName\": \"a\\ud800\"}", "neither YAML nor JSON: ")
	f("nodeName: \xff", "no UTF-8")
	f(base+strings.Repeat("#", MaxSpec), "more than 64 KiB")
	f(strings.Repeat("[", 20000), "neither YAML nor JSON: ")
}

func TestSpecErrorNamesTheFile(t *testing.T) {
	for want, e := range map[string]*SpecError{
		"/x/spec.yaml:3:7: error: no": {3, 7, "no"},
		"/x/spec.yaml: error: no":     {0, 0, "no"},
	} {
		if got := e.In("/x/spec.yaml"); got != want {
			t.Errorf("%s; want %s", got, want)
		}
	}
}

// FuzzSpec: whatever is sent is taken with every number inside its range, or
// refused with a reason; what is taken is the same when it is written and read.
func FuzzSpec(f *testing.F) {
	f.Add([]byte("nodeName: worker-01\ncpu: {packagePowerCapWatts: 120}\ngpu: {powerCap: {capPctOfMax: 60}}\n"))
	f.Add([]byte(`{"kind":"NodeTwin","spec":{"nodeName":"worker-01","policy":{"name":"a"}},"status":{}}`))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseSpec(data, "worker-01")
		if err != nil {
			if err.Error() == "" || s != nil {
				t.Fatalf("%v, %q", s, err)
			}
			return
		}
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseSpec(text, "worker-01")
		if diff := cmp.Diff(s, again); diff != "" || err != nil {
			t.Fatalf("%s: %v %s", text, err, diff)
		}
		for _, path := range []string{PathCPU, PathGPU} {
			watts, percent := s.asked(path)
			if got := s.Target(path, 250); got.Why != "" || (watts != nil || percent != nil) != (got.Watts > 0) || got.Watts > maxWatts {
				t.Fatalf("%s: %+v", text, got)
			}
		}
	})
}

func TestTarget(t *testing.T) {
	f := func(s *Spec, path string, highest float64, want Target) {
		t.Helper()
		if got := s.Target(path, highest); got != want {
			t.Errorf("%s, %g: %+v; want %+v", path, highest, got, want)
		}
	}
	s := &Spec{CPU: &SpecCPU{PackagePowerCapPctOfMax: num(60)}, GPU: &SpecGPU{&SpecPowerCap{CapWattsPerGPU: num(210), CapPctOfMax: num(60)}}}
	f(s, PathCPU, 250, Target{Watts: 150})
	f(s, PathCPU, 0, Target{Why: "60 percent of the maximum is asked for, and no maximum of the cpus is known: ask for watts"})
	f(s, PathGPU, 0, Target{Watts: 210})
	f(&Spec{GPU: &SpecGPU{}}, PathGPU, 300, Target{})
	f(&Spec{CPU: &SpecCPU{}}, PathCPU, 300, Target{})
	f(nil, PathCPU, 300, Target{})
}
