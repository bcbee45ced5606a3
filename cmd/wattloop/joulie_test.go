package main

import (
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/wattloop/wattloop/actuate"
	semconv "github.com/wattloop/wattloop/presets/names"
	"github.com/wattloop/wattloop/twin"
)

// S0-189, S0-4, S0-8, S0-125, S0-129, S0-144, S0-80: every variable of Joulie sets the key
// that it names, as config show prints it, and says what it takes.
func TestJoulieVariables(t *testing.T) {
	page, err := os.ReadFile("../../docs/joulie.md")
	if err != nil {
		t.Fatal(err)
	}
	f := func(name, key, value, wrong, wrongError string) {
		t.Helper()
		env := func(v string) func(string) (string, bool) {
			return func(n string) (string, bool) { return v, n == name }
		}
		c, err := loaded(t, "", "", env(value))
		if err != nil {
			t.Fatalf("%s=%s: %v", name, value, err)
		}
		found := false
		for _, s := range c.settings() {
			if s.key == key {
				found = true
				if got := s.value.String(); got != value || c.origin[key] != "variable "+name {
					t.Errorf("%s=%s: %s is %s, from %s", name, value, key, got, c.origin[key])
				}
			}
		}
		if !found {
			t.Errorf("%s: no key %s", name, key)
		}
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/joulie.md has no %s", name)
		}
		if wrong == "" {
			return
		}
		if _, err := loaded(t, "", "", env(wrong)); err == nil || !strings.Contains(err.Error(), wrongError) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%s: %v; want %s", name, wrong, err, wrongError)
		}
	}
	f("PROMETHEUS_RATE_WINDOW", "rate_window", "3m", "five", `"five" is no duration`)
	for _, strategy := range []string{"UnderscoreEscapingWithSuffixes", "UnderscoreEscapingWithoutSuffixes", "NoUTF8EscapingWithSuffixes", "NoTranslation"} {
		f("PROMETHEUS_NAME_TRANSLATION", "naming", strategy, "None", "is none of UnderscoreEscapingWithSuffixes")
	}
	for _, preset := range []string{"otel", "kepler", "kepler-legacy"} {
		f("NODE_POWER_PRESET", "presets.node_power.use", preset, "scaphandre", "is none of otel, kepler, kepler-legacy")
	}
	for _, scope := range []string{"components", "host"} {
		f("NODE_POWER_SCOPE", "presets.node_power.scope", scope, "rack", "is none of components, host")
	}
	for _, form := range []string{"labels", "target_info", "auto"} {
		f("PROMETHEUS_RESOURCE_ATTRIBUTES", "presets.node_power.attributes", form, "promoted", "is none of auto, labels, target_info")
	}
	f("NODE_POWER_SOURCE", "presets.node_power.source", "none", "kepler", "is none of prometheus, http, none")
	f("NODE_POWER_HTTP_ENDPOINT", "pull.controller", "http://sim:1/otlp/telemetry/{node}", "sim:1", "is no endpoint")
	f("TELEMETRY_CPU_HTTP_ENDPOINT", "pull.agent", "https://sim/telemetry/{node}?format=legacy", "http://u:p@sim/", "has no credentials")
	f("ENABLE_FACILITY_METRICS", "presets.facility.enabled", "true", "yes", "is neither true nor false")
	for _, path := range []string{"CPU", "GPU"} {
		for _, backend := range []string{"host", "none"} {
			f("TELEMETRY_"+path+"_CONTROL", "control."+strings.ToLower(path), backend, "rapl", "is none of host, none")
		}
		f("TELEMETRY_"+path+"_CONTROL", "control."+strings.ToLower(path), "host", "http", "intents over HTTP are not in this version; want host, or none")
	}
}

// S0-4, S0-189: where the agent's telemetry comes from. The key is a switch, so that
// its value is another word than the variable's.
func TestTelemetrySource(t *testing.T) {
	for value, want := range map[string]bool{"host": true, "none": false, "http": false} {
		c, err := loaded(t, "", "", func(n string) (string, bool) {
			if n == "TELEMETRY_CPU_HTTP_ENDPOINT" {
				return "http://sim:1/otlp/telemetry/{node}", true
			}
			return value, n == "TELEMETRY_CPU_SOURCE"
		})
		if (c.CPUSource == "http") != (value == "http") || len(c.pulls()) != map[bool]int{true: 1}[value == "http"] {
			t.Errorf("%s: %s, %v", value, c.CPUSource, c.pulls())
		}
		if err != nil || c.HostEnabled != want || c.origin["host.enabled"] != "variable TELEMETRY_CPU_SOURCE" {
			t.Errorf("%s: %v, from %s, %v", value, c.HostEnabled, c.origin["host.enabled"], err)
		}
	}
	if _, err := loaded(t, "", "", func(n string) (string, bool) { return "ipmi", n == "TELEMETRY_CPU_SOURCE" }); err == nil || !strings.Contains(err.Error(), `TELEMETRY_CPU_SOURCE: "ipmi"`) {
		t.Errorf("ipmi: %v", err)
	}
}

// S0-154: PROMETHEUS_ADDRESS is taken as it stands in a chart, used where the store
// is elsewhere, and else said to have no part.
func TestPrometheusAddress(t *testing.T) {
	const addr = "http://prometheus-operated.monitoring:9090"
	env := func(n string) (string, bool) { return addr, n == "PROMETHEUS_ADDRESS" }
	c, err := loaded(t, "", "", env)
	if err != nil || c.Remote != "" || !strings.Contains(c.unusedAddress(addr), "PROMETHEUS_ADDRESS is not used") {
		t.Errorf("%v, remote %q, %q", err, c.Remote, c.unusedAddress(addr))
	}
	c, err = loaded(t, "storage.remote: prometheus", "", env)
	if err != nil || c.Remote != addr || c.unusedAddress(addr) != "" {
		t.Errorf("%v, remote %q, %q", err, c.Remote, c.unusedAddress(addr))
	}
}

// S0-9: a path that is none is shown as not writable and never written; what was
// there before comes back all the same.
func TestPathOfNone(t *testing.T) {
	dev := &recordingDevice{}
	c := defaultConfig()
	c.ControlCPU = backendNone
	var said strings.Builder
	got := c.wired([]actuate.Device{dev}, slog.New(slog.NewTextHandler(&said, nil)))[0]
	if d := got.Describe(); d.Writable || d.Reason != "control.cpu is none, nothing is written" || d.ID != "rapl:package-0" {
		t.Errorf("%+v", d)
	}
	if err := got.Write(actuate.Setting{Value: 100}); err == nil || !strings.Contains(err.Error(), "control.cpu is none") {
		t.Errorf("Write: %v", err)
	}
	if err := got.Restore(actuate.State{Value: 250}); err != nil {
		t.Errorf("Restore: %v", err)
	}
	if strings.Join(dev.calls, " ") != "restore" {
		t.Errorf("the device was asked to %v", dev.calls)
	}
	if strings.Count(said.String(), "key=control.cpu") != 1 {
		t.Errorf("said %q", said.String())
	}
	c.ControlCPU, c.ControlGPU = backendHost, backendNone
	if got := c.wired([]actuate.Device{dev}, slog.New(slog.NewTextHandler(io.Discard, nil)))[0]; got != actuate.Device(dev) {
		t.Error("a CPU package is wrapped because of control.gpu")
	}
}

// recordingDevice is a package that notes what is done to it.
type recordingDevice struct{ calls []string }

func (d *recordingDevice) Describe() actuate.Description {
	return actuate.Description{ID: "rapl:package-0", Action: actuate.ActionRAPLCap, Writable: true}
}
func (d *recordingDevice) Read() (actuate.State, error) { return actuate.State{Value: 250}, nil }
func (d *recordingDevice) Write(actuate.Setting) error {
	d.calls = append(d.calls, "write")
	return nil
}
func (d *recordingDevice) Restore(actuate.State) error {
	d.calls = append(d.calls, "restore")
	return nil
}

// S0-102 to S0-106: the page names what a facility sends, as the names table has it,
// and the readings that it becomes.
func TestFacilityNamesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/joulie.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	f := func(all ...string) {
		n++
		for _, name := range all {
			if !strings.Contains(string(page), "`"+name+"`") {
				t.Errorf("docs/joulie.md has no %s", name)
			}
		}
	}
	for _, m := range semconv.Metrics() {
		if strings.HasPrefix(m.Name, "joulie.") || m.Name == "hw.host.ambient_temperature" {
			f(m.Name, m.Stored(semconv.UnderscoreEscapingWithSuffixes))
		}
	}
	for _, a := range semconv.Attributes() {
		if strings.HasPrefix(a.Name, "joulie.") {
			f(a.Name)
		}
	}
	for _, in := range twin.Inputs() {
		if in.Reading != twin.NodePower {
			f(in.Reading)
		}
	}
	if n != 9+2+6 {
		t.Errorf("%d names; want 17", n)
	}
}
