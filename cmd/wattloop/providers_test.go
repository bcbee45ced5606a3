package main

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The variables that Joulie's agent and controller would have.
const (
	cpuFrom, powerFrom   = "TELEMETRY_CPU_SOURCE", "NODE_POWER_SOURCE"
	cpuAt, powerAt       = "TELEMETRY_CPU_HTTP_ENDPOINT", "NODE_POWER_HTTP_ENDPOINT"
	storyWindow          = 30 * time.Second
	storyStale           = 30 * time.Second // stale_after at this interval
	inputFormat, oldJSON = "{at}/otlp/telemetry/{node}", "{at}/telemetry/{node}?format=legacy"
)

// The ways in which one machine is read.
var (
	hostFiles  = wiring{name: "host files", env: map[string]string{cpuFrom: "host"}}
	agentHTTP  = wiring{name: "agent over HTTP", env: map[string]string{cpuFrom: "http", cpuAt: inputFormat}}
	bothHTTP   = wiring{name: "agent and controller over HTTP", env: map[string]string{cpuFrom: "http", cpuAt: inputFormat, powerFrom: "http", powerAt: inputFormat}}
	powerHTTP  = wiring{name: "controller over HTTP", env: map[string]string{cpuFrom: "host", powerFrom: "http", powerAt: inputFormat}}
	legacyHTTP = wiring{name: "legacy JSON", legacy: true, env: map[string]string{cpuFrom: "http", cpuAt: oldJSON, powerFrom: "http", powerAt: oldJSON}}
)

// guard caps both packages while the node draws over 400 W. Its readings are the
// shipped ones, so that the wiring alone says where they come from.
const guard = `version: 1
controls:
  guard:
    mode: %s
    key: [k8s_node_name]
    engage: {when: node_power > 400, for: 10s}
    release: {when: node_power < 380, for: 30s}
    action: rapl.set_power_cap_watts
    target: {hw_type: cpu}
    value: 600 / cpu_packages - 105
    limits: {min: 60, max: 250}
    slew: {down: 60, up: 30, every: 5s}
    ttl: 30s
    purpose: efficiency
`

// overBudget is load up over the budget, throttled, and released.
var overBudget = []chapter{{seconds: 15, load: 100}, {seconds: 75, load: 240}, {seconds: 80, load: 90}}

func lived(t *testing.T, w wiring, mode string, story []chapter) []view {
	t.Helper()
	w.env = maps.Clone(w.env)
	w.env["PROMETHEUS_RATE_WINDOW"] = storyWindow.String()
	rules := fmt.Sprintf(guard, mode)
	if w.legacy { // which says nothing of packages
		rules = strings.Replace(rules, "600 / cpu_packages - 105", "195", 1)
	}
	return newStoryRig(t, w, rules).tell(story)
}

// turn is the step at which the control came into a phase.
type turn struct {
	phase string
	at    time.Duration
}

func turns(vs []view) []turn {
	var out []turn
	for _, v := range vs {
		if len(out) == 0 || out[len(out)-1].phase != v.Phase {
			out = append(out, turn{v.Phase, v.At})
		}
	}
	return out
}

// throttled is what every wiring must come through: the tests are of what decides,
// not of a machine at rest.
func throttled(t *testing.T, w wiring, vs []view) {
	t.Helper()
	var phases, caps []string
	for _, turn := range turns(vs) {
		phases = append(phases, turn.phase)
	}
	for _, v := range vs {
		if len(caps) == 0 || caps[len(caps)-1] != v.Caps {
			caps = append(caps, v.Caps)
		}
	}
	if got := strings.Join(phases, ", "); got != "idle, engaged 195, releasing 195, idle" {
		t.Errorf("%s: %s", w.name, got)
	}
	if got := strings.Join(caps, ", "); got != "250 250 , 195 195 , 225 225 , 250 250 " {
		t.Errorf("%s: the packages held %s", w.name, got)
	}
}

// S0-1, S0-6, S0-24, S0-25: the same rules and the same engine, as serve builds them, come to the same
// readings and the same decisions whether a machine is read by its own files or
// over HTTP. Rules and controls cannot know: they see readings by name.
//
// What is covered is telemetry: the files of a tree that the machine moves, the
// HTTP input format and the legacy JSON from a real endpoint, through ingest, the
// store, the presets and the engine. The caps go to packages in memory, and what
// the machine draws follows them, so that each decision comes back as a reading.
func TestProviders(t *testing.T) {
	byFiles, byAgent := lived(t, hostFiles, "enforce", overBudget), lived(t, agentHTTP, "enforce", overBudget)
	throttled(t, hostFiles, byFiles)
	throttled(t, agentHTTP, byAgent)
	// The document's counters are stored as the machine's own are, and node_power is
	// read from the store: every step is the same, over a counter's wrap as well.
	for i, v := range byFiles {
		got := byAgent[i]
		got.CPU = v.CPU // TestProvidersReadTheSamePower
		if diff := cmp.Diff(v, got, cmp.AllowUnexported(view{})); diff != "" {
			t.Errorf("the agent over HTTP differs from the host's files:\n%s", diff)
		}
	}

	// The reader of documents gives a power for each, and what a control sees of it
	// hangs neither on the document's form nor on where the rest is read.
	inForm, onlyPower, legacy := lived(t, bothHTTP, "enforce", overBudget), lived(t, powerHTTP, "enforce", overBudget), lived(t, legacyHTTP, "enforce", overBudget)
	for w, vs := range map[*wiring][]view{&bothHTTP: inForm, &powerHTTP: onlyPower, &legacyHTTP: legacy} {
		throttled(t, *w, vs)
		for i, v := range inForm {
			got := vs[i]
			got.CPU, got.Packages = v.CPU, v.Packages // from the host's files, or not in the legacy JSON
			if v.At == storyEvery*time.Second && w.legacy {
				// The first document gives a power, where a counter gives none yet.
				got.Power, got.watts, got.valid = v.Power, v.watts, v.valid
				got.Intents = v.Intents
			}
			if diff := cmp.Diff(v, got, cmp.AllowUnexported(view{})); diff != "" {
				t.Errorf("%s differs from the input format:\n%s", w.name, diff)
			}
		}
	}

	// A document's power is that of its last interval, a counter's that of the rate
	// window: every decision is the same one, and later by no more than the window.
	files, form := turns(byFiles), turns(inForm)
	for i := range min(len(files), len(form)) {
		if late := files[i].at - form[i].at; files[i].phase != form[i].phase || late < 0 || late > storyWindow {
			t.Errorf("by its files %+v, over HTTP %+v: want the same, at most %s later", files[i], form[i], storyWindow)
		}
	}
}

// S0-1: the reading of a counter is the mean of what the reader of documents gave
// over the rate window, at every step, and equal once the power has stood so long.
// Nothing else lies between the two.
func TestProvidersReadTheSamePower(t *testing.T) {
	const intervals = int(storyWindow/time.Second)/storyEvery - 1 // a window is open to the left
	byFiles, inForm, byAgent := lived(t, hostFiles, "observe", overBudget), lived(t, bothHTTP, "observe", overBudget), lived(t, agentHTTP, "observe", overBudget)
	stood := 0
	for i, v := range byFiles {
		got := inForm[i]
		if mixed := byAgent[i]; mixed.CPU != got.CPU || mixed.Power != v.Power {
			t.Errorf("at %s: the agent over HTTP reads %s and %s; want cpu_power %s of the document and node_power %s of the store", v.At, mixed.CPU, mixed.Power, got.CPU, v.Power)
		}
		if i == 0 { // one sample of a counter is no power, and nobody takes it for 0
			if v.Power != "warming" || got.Power != "missing" {
				t.Errorf("after one sample: %s by its files, %s over HTTP", v.Power, got.Power)
			}
			continue
		}
		sum, n, steady := 0.0, 0, true
		for _, past := range inForm[max(1, i-intervals+1) : i+1] {
			sum, n, steady = sum+past.watts, n+1, steady && past.watts == got.watts
		}
		if mean := sum / float64(n); !v.valid || v.watts != mean {
			t.Errorf("at %s: %s by its files; want %g, the mean of %d intervals", v.At, v.Power, mean, n)
		}
		if steady {
			stood++
			if v.Power != got.Power || v.CPU != got.CPU || v.Packages != got.Packages {
				t.Errorf("at %s: %s, %s, %s by its files; %s, %s, %s over HTTP", v.At, v.Power, v.CPU, v.Packages, got.Power, got.CPU, got.Packages)
			}
		}
	}
	if want := len(byFiles) - 1 - 2*(intervals-1); stood != want {
		t.Errorf("the power stood at %d steps; want %d", stood, want)
	}
}

// S0-1, S0-7: when nothing can be read any more, every wiring lets go of the cap,
// and reads right again as soon as the machine can be read. Over HTTP that is known
// at once; a file that cannot be read leaves a gap, and what was read before it
// counts until its window or stale_after has gone by, no longer.
func TestProvidersLoseTheMachine(t *testing.T) {
	const last, back, end = 85 * time.Second, 125 * time.Second, 165 * time.Second
	story := []chapter{{seconds: 10, load: 100}, {seconds: 75, load: 240}, {seconds: 40, load: 240, dark: true}, {seconds: 40, load: 240}}
	f := func(w wiring, patience time.Duration) {
		t.Helper()
		for _, v := range lived(t, w, "enforce", story) {
			dark := v.At > last && v.At <= back
			switch gone := v.At - last; {
			case v.valid && v.watts < 200:
				t.Errorf("%s at %s: node power is %s", w.name, v.At, v.Power)
			case dark && gone <= patience && (v.Power != "390 fresh" || v.Phase != "engaged 195" || v.Caps != "195 195 "):
				t.Errorf("%s at %s: node power %s, %s, packages %s; want what was known", w.name, v.At, v.Power, v.Phase, v.Caps)
			case dark && gone > patience && (v.valid || v.Phase != "idle" || v.Caps != "250 250 "):
				t.Errorf("%s at %s: node power %s, %s, packages %s; want none, and the originals", w.name, v.At, v.Power, v.Phase, v.Caps)
			case v.At >= back+2*storyEvery*time.Second && !v.valid:
				t.Errorf("%s at %s: node power is %s", w.name, v.At, v.Power)
			case v.At == end && v.Phase != "engaged 195":
				t.Errorf("%s at %s: %s", w.name, v.At, v.Phase)
			}
		}
	}
	// The window holds two samples until 20 s after the last.
	f(hostFiles, storyStale-2*storyEvery*time.Second)
	f(agentHTTP, storyStale-2*storyEvery*time.Second)
	f(bothHTTP, 0)
	f(legacyHTTP, 0)
}
