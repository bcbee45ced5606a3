// Package actuatetest holds what every backend must do, whatever its hardware:
// Run proves it over a machine that the backend's test makes. Tests alone
// import it.
package actuatetest

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/wattloop/wattloop/actuate"
)

// Machine is a device that nobody has touched yet, and its hardware as somebody
// outside the program sees it.
type Machine struct {
	Device actuate.Device
	// Files returns the contents of everything on the machine, by name, the
	// device's own files among it as its Description names them.
	Files func() map[string]string
	// Fail makes writes to a file fail, or heals it. The error that the device
	// returns must name the file.
	Fail func(file string, broken bool)
}

// Run checks the contract of actuate.Device. open returns a fresh machine each
// time; its device is writable, holds a value above 1, and states a Max.
func Run(t *testing.T, open func(t *testing.T) Machine) {
	for name, check := range map[string]func(*testing.T, Machine){
		"describes itself":        describes,
		"reads what it holds":     reads,
		"writes its files alone":  writesItsFiles,
		"stays inside its limits": staysInside,
		"refuses what is no cap":  refuses,
		"strict raises nothing":   strictRaisesNothing,
		"restores byte for byte":  restores,
		"restores its files only": restoresOwn,
		"says what failed":        fails,
		"heals after a failure":   heals,
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) { check(t, open(t)) })
	}
	t.Run("same_identity_each_time", func(t *testing.T) {
		a, b := open(t).Device.Describe(), open(t).Device.Describe()
		if a.ID != b.ID || a.Name != b.Name {
			t.Errorf("Describe = %s %s, then %s %s", a.ID, a.Name, b.ID, b.Name)
		}
	})
}

func describes(t *testing.T, m Machine) {
	before := m.Files()
	d := m.Device.Describe()
	if d.ID == "" || d.Name == "" || d.Unit == "" || len(d.Files) == 0 {
		t.Errorf("Describe = %+v; want an id, a name, a unit and files", d)
	}
	if !slices.Contains([]string{actuate.ActionRAPLCap, actuate.ActionThrottle, actuate.ActionGPUCap}, d.Action) {
		t.Errorf("Action = %q; want one of the contract's", d.Action)
	}
	if d.Labels["hw_type"] == "" || d.Labels["hw_id"] != d.Name {
		t.Errorf("Labels = %v; want hw_type, and the name %q as hw_id", d.Labels, d.Name)
	}
	if !d.Writable || d.Reason != "" {
		t.Errorf("Writable = %v because of %q; this machine can be written", d.Writable, d.Reason)
	}
	if d.Min < 0 || d.Max <= d.Min || d.Default < 0 || d.Default > d.Max || !(d.Tolerance > 0) {
		t.Errorf("Min %g, Max %g, Default %g, Tolerance %g", d.Min, d.Max, d.Default, d.Tolerance)
	}
	for _, file := range d.Files {
		if _, ok := before[file]; !ok {
			t.Errorf("Files names %s, which the machine has not", file)
		}
	}
	d.Files[0], d.Labels["hw_id"] = "scribbled", "scribbled"
	if again := m.Device.Describe(); again.Files[0] == "scribbled" || again.Labels["hw_id"] == "scribbled" {
		t.Error("a caller can change the device's Description")
	}
	same(t, before, m.Files(), "Describe")
}

func reads(t *testing.T, m Machine) {
	before := m.Files()
	state := read(t, m)
	if !(state.Value > 0) || math.IsInf(state.Value, 0) {
		t.Errorf("Value = %g; want what the device holds", state.Value)
	}
	if len(state.Files) == 0 {
		t.Error("a state without files cannot be restored")
	}
	files := m.Device.Describe().Files
	for file, contents := range state.Files {
		if !slices.Contains(files, file) {
			t.Errorf("%s is in the state and not in the Description", file)
		}
		if got := strings.TrimRight(before[file], "\n\x00"); strings.TrimRight(contents, "\n\x00") != got {
			t.Errorf("%s: the state holds %q, the machine %q", file, contents, got)
		}
	}
	again := read(t, m)
	if again.Value != state.Value || !maps.Equal(again.Files, state.Files) {
		t.Errorf("read twice: %v, then %v", state, again)
	}
	same(t, before, m.Files(), "Read")
}

func writesItsFiles(t *testing.T, m Machine) {
	d := m.Device.Describe()
	for _, strict := range []bool{false, true} {
		before := m.Files()
		value := math.Round(read(t, m).Value * 0.8)
		write(t, m, actuate.Setting{Value: value, Strict: strict})
		if got := read(t, m).Value; math.Abs(got-value) > d.Tolerance {
			t.Errorf("Write(%g, strict %v), then Read = %g; want it within %g", value, strict, got, d.Tolerance)
		}
		changed := 0
		for file, contents := range m.Files() {
			if before[file] == contents {
				continue
			}
			changed++
			if !slices.Contains(d.Files, file) {
				t.Errorf("Write changed %s, which is none of the device's files", file)
			}
		}
		if changed == 0 {
			t.Errorf("Write(%g) changed nothing", value)
		}
	}
}

func staysInside(t *testing.T, m Machine) {
	d := m.Device.Describe()
	for _, value := range []float64{d.Max, d.Max + 2*d.Tolerance, d.Max * 1.5, d.Max * 1e6, d.Min, d.Min / 2, d.Min + 2*d.Tolerance} {
		if value <= 0 {
			continue
		}
		before := m.Files()
		if err := m.Device.Write(actuate.Setting{Value: value}); err != nil {
			same(t, before, m.Files(), "a refused Write")
			continue
		}
		if got := read(t, m).Value; got > d.Max+d.Tolerance || got < d.Min-d.Tolerance {
			t.Errorf("Write(%g), then Read = %g; want it inside %g..%g", value, got, d.Min, d.Max)
		}
	}
}

func refuses(t *testing.T, m Machine) {
	before := m.Files()
	for _, value := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 0, math.Copysign(0, -1), -math.MaxFloat64} {
		for _, strict := range []bool{false, true} {
			if err := m.Device.Write(actuate.Setting{Value: value, Strict: strict}); err == nil {
				t.Errorf("Write(%g) succeeded", value)
			}
			same(t, before, m.Files(), "a refused Write")
		}
	}
}

func strictRaisesNothing(t *testing.T, m Machine) {
	start := numbers(m)
	value := read(t, m).Value
	for _, factor := range []float64{0.8, 0.5, 0.6, 0.9, 0.4, 1} {
		want := math.Round(value * factor)
		write(t, m, actuate.Setting{Value: want, Strict: true})
		if got := read(t, m).Value; math.Abs(got-want) > m.Device.Describe().Tolerance {
			t.Errorf("strict Write(%g), then Read = %g", want, got)
		}
		for _, file := range m.Device.Describe().Files {
			if now := numbers(m)[file]; now > start[file] {
				t.Errorf("strict Write(%g) raised %s from %g to %g", want, file, start[file], now)
			}
		}
	}
}

func restores(t *testing.T, m Machine) {
	before := m.Files()
	original := read(t, m)
	for _, s := range []actuate.Setting{{Value: 0.5 * original.Value}, {Value: 0.7 * original.Value, Strict: true}, {Value: 0.31 * original.Value}} {
		write(t, m, s)
	}
	for range 2 {
		if err := m.Device.Restore(original); err != nil {
			t.Fatalf("Restore = %v", err)
		}
		same(t, before, m.Files(), "Restore")
	}
	write(t, m, actuate.Setting{Value: 0.5 * original.Value, Strict: true})
	if err := m.Device.Restore(original); err != nil {
		t.Fatalf("Restore after a strict Write = %v", err)
	}
	same(t, before, m.Files(), "Restore after a strict Write")
}

func restoresOwn(t *testing.T, m Machine) {
	original := read(t, m)
	before := m.Files()
	foreign := ""
	for file := range before {
		if !slices.Contains(m.Device.Describe().Files, file) {
			foreign = file
		}
	}
	for _, bad := range []actuate.State{
		{},
		with(original, foreign, "1"),
		with(original, "../../outside", "1"),
		with(original, m.Device.Describe().Files[0], ""),
		with(original, m.Device.Describe().Files[0], "many watts"),
		with(original, m.Device.Describe().Files[0], "-1"),
	} {
		if err := m.Device.Restore(bad); err == nil {
			t.Errorf("Restore(%v) succeeded", bad.Files)
		}
		same(t, before, m.Files(), "a refused Restore")
	}
}

func fails(t *testing.T, m Machine) {
	original := read(t, m)
	for _, file := range m.Device.Describe().Files {
		m.Fail(file, true)
		err := m.Device.Write(actuate.Setting{Value: 0.5 * original.Value, Strict: true})
		if err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("Write with %s broken = %v; want an error that names the file", file, err)
		}
		if _, err := m.Device.Read(); err != nil {
			t.Errorf("Read after a failed Write = %v", err)
		}
		m.Fail(file, false)
		if err := m.Device.Restore(original); err != nil {
			t.Errorf("Restore after a failed Write = %v", err)
		}
	}
}

func heals(t *testing.T, m Machine) {
	before := m.Files()
	original := read(t, m)
	write(t, m, actuate.Setting{Value: 0.5 * original.Value, Strict: true})
	files := m.Device.Describe().Files
	m.Fail(files[0], true)
	if err := m.Device.Restore(original); err == nil || !strings.Contains(err.Error(), files[0]) {
		t.Errorf("Restore with %s broken = %v; want an error that names the file", files[0], err)
	}
	for _, file := range files[1:] {
		if got := m.Files()[file]; got != before[file] {
			t.Errorf("%s was not restored beside a broken one: it holds %q; want %q", file, got, before[file])
		}
	}
	m.Fail(files[0], false)
	if err := m.Device.Restore(original); err != nil {
		t.Errorf("Restore after healing = %v", err)
	}
	same(t, before, m.Files(), "Restore after healing")
}

func read(t *testing.T, m Machine) actuate.State {
	t.Helper()
	state, err := m.Device.Read()
	if err != nil {
		t.Fatalf("Read = %v", err)
	}
	return state
}

func write(t *testing.T, m Machine, s actuate.Setting) {
	t.Helper()
	if err := m.Device.Write(s); err != nil {
		t.Fatalf("Write(%+v) = %v", s, err)
	}
}

func with(s actuate.State, file, contents string) actuate.State {
	files := maps.Clone(s.Files)
	files[file] = contents
	return actuate.State{Value: s.Value, Files: files}
}

func same(t *testing.T, want, got map[string]string, after string) {
	t.Helper()
	for file := range want {
		if got[file] != want[file] {
			t.Errorf("after %s, %s holds %q; want %q", after, file, got[file], want[file])
		}
	}
	for file := range got {
		if _, ok := want[file]; !ok {
			t.Errorf("%s made %s", after, file)
		}
	}
}

// numbers are the contents of the machine's files that are numbers.
func numbers(m Machine) map[string]float64 {
	out := map[string]float64{}
	for file, contents := range m.Files() {
		if v, err := strconv.ParseFloat(strings.TrimSpace(contents), 64); err == nil {
			out[file] = v
		}
	}
	return out
}
