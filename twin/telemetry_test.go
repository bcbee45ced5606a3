package twin

import (
	"math"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/wattloop/wattloop/engine"
	"github.com/wattloop/wattloop/presets/names"
	"github.com/wattloop/wattloop/rules"
)

// S0-23, S0-46 to S0-48: the document has what is fresh, under the names it was sent
// by, whatever the naming; the page shows one.
func TestTelemetry(t *testing.T) {
	const at = 1760000060_000
	energy := labels.FromStrings("__name__", "hw_energy_joules_total", "hw_id", "cpu0", "hw_type", "cpu", "instance", "worker-01", "k8s_node_name", "worker-01")
	f := func(naming names.Strategy, now int64, want string, meters ...Meter) {
		t.Helper()
		got, err := Telemetry(meters, naming, now)
		if err != nil || string(got) != want {
			t.Errorf("%s, %v\nwant %s", got, err, want)
		}
	}
	const head = `{"resourceMetrics":[{"resource":{"attributes":[{"key":"service.instance.id","value":{"stringValue":"worker-01"}},{"key":"k8s.node.name","value":{"stringValue":"worker-01"}}]},"scopeMetrics":[{"metrics":[`
	const sum = head + `{"name":"hw.energy","unit":"J","sum":{"aggregationTemporality":2,"isMonotonic":true,"dataPoints":[{"attributes":[{"key":"hw.id","value":{"stringValue":"cpu0"}},{"key":"hw.type","value":{"stringValue":"cpu"}}],"timeUnixNano":"1760000060000000000","asDouble":15000}]}}]}]}]}`
	const none = `{"resourceMetrics":[]}`
	m := Meter{Labels: energy, T: at, Interval: 5000, V: 15000}
	f(names.UnderscoreEscapingWithSuffixes, at, sum, m)
	f(names.UnderscoreEscapingWithSuffixes, at+15_000, sum, m)
	f(names.UnderscoreEscapingWithSuffixes, at+15_001, none, m)
	slow := m
	slow.Interval = 60_000
	f(names.UnderscoreEscapingWithSuffixes, at+180_000, sum, slow)
	slow.Interval = 600_000
	f(names.UnderscoreEscapingWithSuffixes, at+300_001, none, slow)
	f(names.NoTranslation, at, none, m)
	bad := m
	bad.V = math.NaN()
	f(names.UnderscoreEscapingWithSuffixes, at, none, bad, Meter{Labels: labels.FromStrings("__name__", "up"), T: at})
	dotted := Meter{Labels: labels.FromStrings("__name__", "hw.host.power", "instance", "worker-01", "job", "a/b", "k8s.node.name", "worker-01"), T: at, V: 1200}
	f(names.NoTranslation, at, `{"resourceMetrics":[{"resource":{"attributes":[{"key":"service.instance.id","value":{"stringValue":"worker-01"}},{"key":"service.namespace","value":{"stringValue":"a"}},{"key":"service.name","value":{"stringValue":"b"}},{"key":"k8s.node.name","value":{"stringValue":"worker-01"}}]},"scopeMetrics":[{"metrics":[`+
		`{"name":"hw.host.power","unit":"W","gauge":{"dataPoints":[{"attributes":[],"timeUnixNano":"1760000060000000000","asDouble":1200}]}}]}]}]}`, dotted)
	page, err := os.ReadFile("../docs/api.md")
	if err != nil || !strings.Contains(string(page), sum) {
		t.Errorf("docs/api.md shows another document: %v", err)
	}
}

// S0-28, S0-37, S0-38: a power that was not read is absent, never 0.
func TestLegacy(t *testing.T) {
	stale := fresh("a", 350)
	stale.Quality = rules.Stale
	f := func(power, cpu *rules.KeyReading, scope, want string, known bool) {
		t.Helper()
		rep := &engine.Report{}
		if power != nil {
			rep.Readings = append(rep.Readings, reading(NodePower, *power))
		}
		if cpu != nil {
			rep.Readings = append(rep.Readings, reading(cpuPower, *cpu))
		}
		got, has, err := Legacy("a", rep, Wiring{Scope: scope})
		if err != nil || string(got) != want || has != known {
			t.Errorf("%s, %v, %v; want %s, %v", got, has, err, want, known)
		}
	}
	all, packages, other := fresh("a", 350), fresh("a", 100.5), fresh("b", 1)
	f(&all, &packages, "components", `{"packagePowerWatts":350,"cpu":{"packagePowerWatts":100.5}}`, true)
	f(&all, &packages, "host", `{"cpu":{"packagePowerWatts":100.5}}`, true)
	f(&stale, nil, "components", `{}`, true)
	f(&other, nil, "components", `{}`, false)
	f(nil, nil, "components", `{}`, false)
}
