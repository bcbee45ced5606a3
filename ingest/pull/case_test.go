package pull

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"
)

// read takes the next document of a file to each reader; NaN is no reading.
func read(t *testing.T, r *Reader, name string) (float64, Reading) {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return readBody(r, b)
}

func readBody(r *Reader, b []byte) (float64, Reading) {
	d, err := Parse(b, "worker-01")
	if err != nil {
		return math.NaN(), Reading{Why: err.Error()}
	}
	got, err := r.Read(d)
	if err != nil {
		return math.NaN(), Reading{Why: err.Error()}
	}
	if got.Quality != Fresh {
		return math.NaN(), got
	}
	return got.Watts, got
}

// S0-56 to S0-58, S0-61, S0-68: three kinds of reset, each one gap long.
func TestC32ResetAndWarmUp(t *testing.T) {
	none := math.NaN()
	for _, role := range []Role{Agent, Controller} {
		r := &Reader{Role: role}
		for i, want := range []float64{none, 250, none, 250, none, 250, none, 250} {
			got, all := read(t, r, fmt.Sprintf("C32/poll%d.json", i+1))
			if got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
				t.Errorf("%s, poll %d: %g (%s); want %g", role, i+1, got, all.Why, want)
			}
			if math.IsNaN(want) && (all.Quality != Warming || all.Watts != 0 || !strings.Contains(all.Why, "cpu")) {
				t.Errorf("%s, poll %d: %+v; want warming, and what is", role, i+1, all)
			}
		}
	}
}

// S0-53 to S0-55, S0-64 to S0-67.
func TestC34DuplicatesAndNodeFilter(t *testing.T) {
	for _, c := range []struct {
		r    Reader
		want float64
	}{{Reader{Role: Agent}, 230}, {Reader{Role: Controller}, 480}, {Reader{Role: Controller, Host: true}, 1200}} {
		if got, all := read(t, &c.r, "C34/poll1.json"); got != c.want {
			t.Errorf("%s, host %t: %g (%s); want %g", c.r.Role, c.r.Host, got, all.Why, c.want)
		}
	}
}

// S0-33 to S0-37, S0-42, S0-50, X6. The scope says that the producer chose it.
func TestC35LegacyJSON(t *testing.T) {
	none := math.NaN()
	for i, want := range []float64{245.3, 245.3, 180, none, 300, none, none, none} {
		for _, r := range []*Reader{{Role: Agent}, {Role: Controller}, {Role: Controller, Host: true}} {
			got, all := read(t, r, fmt.Sprintf("C35/%d.json", i+1))
			if got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
				t.Errorf("%d.json: %s: %g (%s); want %g", i+1, r.Role, got, all.Why, want)
			}
			switch {
			case math.IsNaN(want) && (all.Why == "" || all.Watts != 0):
				t.Errorf("%d.json: %+v; want a reason and no value", i+1, all)
			case !math.IsNaN(want) && all.Scope != ScopeProducerDefined:
				t.Errorf("%d.json: scope %s", i+1, all.Scope)
			}
		}
	}
}

// S0-39 to S0-42: each field that the simulator's legacy JSON has beside the minimal
// ones changes no reading, whether it is there, missing or no number at all.
func TestLegacyFieldsThatAreObserved(t *testing.T) {
	fields := map[string][]string{
		"":    {"instantPackagePowerWatts", "gpu"},
		"cpu": {"instantPowerWatts", "utilization", "memoryIntensity", "ioIntensity", "freqScale", "temperatureC", "thermalThrottlePct"},
		"gpu": {"powerWattsTotal", "avgPowerWattsTotal", "utilization", "memoryIntensity", "cpuFeedIntensity", "devices"},
	}
	for part, names := range fields {
		for _, name := range names {
			for _, v := range []string{"999", "-1", "1e400", `"999"`, "null", "[]", "{}", "true"} {
				field := fmt.Sprintf("%q: %s", name, v)
				whole := map[string]string{
					"":    `{"packagePowerWatts": 445, ` + field + `, "cpu": {"packagePowerWatts": 245}}`,
					"cpu": `{"packagePowerWatts": 445, "cpu": {` + field + `, "packagePowerWatts": 245}}`,
					"gpu": `{"packagePowerWatts": 445, "cpu": {"packagePowerWatts": 245}, "gpu": {` + field + `}}`,
				}[part]
				for body, want := range map[string]float64{whole: 445, strings.Replace(whole, `"packagePowerWatts": 445, `, "", 1): 245} {
					if got, all := readBody(&Reader{Role: Controller}, []byte(body)); got != want {
						t.Errorf("%s: %g, %s; want %g", body, got, all.Why, want)
					}
				}
			}
		}
	}
}

// S0-49, S0-50: resourceMetrics at the top makes a body OTLP, whatever else is
// there; anywhere else it does not.
func TestWhatMakesABodyOTLP(t *testing.T) {
	f := func(body string, legacy bool) {
		t.Helper()
		if d, err := Parse([]byte(body), "worker-01"); err != nil || d.Legacy != legacy {
			t.Errorf("%s: %+v, %v; want legacy %v", body, d, err, legacy)
		}
	}
	f(`{"resourceMetrics": []}`, false)
	f(`{"packagePowerWatts": 245.3, "resourceMetrics": []}`, false)
	f(`{"packagePowerWatts": 245.3}`, true)
	f(`{"packagePowerWatts": 245.3, "cpu": {"resourceMetrics": []}}`, true)
	f(`{"resource_metrics": [], "packagePowerWatts": 245.3}`, true)
	f(`{"ResourceMetrics": [], "packagePowerWatts": 245.3}`, true)
	f(`{}`, true)
}

// S0-42: nothing else of the legacy JSON changes the reading.
func TestLegacyOptionalFields(t *testing.T) {
	got, all := readBody(&Reader{Role: Agent}, []byte(`{"instantPackagePowerWatts": "x", "gpu": 7, "cpu": {"packagePowerWatts": 80, "utilization": [], "temperatureC": null}, "packagePowerWatts": null}`))
	if got != 80 {
		t.Errorf("%g, %s", got, all.Why)
	}
	got, all = readBody(&Reader{Role: Agent}, []byte(`{"packagePowerWatts": 81, "cpu": "none"}`))
	if got != 81 {
		t.Errorf("%g, %s", got, all.Why)
	}
}

// doc is a document of one cpu0 with a counter and a gauge; "" leaves one out.
func doc(energy, gauge string) []byte {
	attrs := `"attributes":[{"key":"hw.id","value":{"stringValue":"cpu0"}},{"key":"hw.type","value":{"stringValue":"cpu"}}],`
	var ms []string
	if energy != "" {
		ms = append(ms, `{"name":"hw.energy","unit":"J","sum":{"isMonotonic":true,`+strings.ReplaceAll(energy, "@", attrs)+`}}`)
	}
	if gauge != "" {
		ms = append(ms, `{"name":"hw.power","unit":"W","gauge":{"dataPoints":[{`+attrs+gauge+`}]}}`)
	}
	return []byte(`{"resourceMetrics":[{"scopeMetrics":[{"metrics":[` + strings.Join(ms, ",") + `]}]}]}`)
}

func cumulative(start, at, joules string) string {
	return fmt.Sprintf(`"aggregationTemporality":2,"dataPoints":[{@"startTimeUnixNano":"%s000000000","timeUnixNano":"%s000000000","asDouble":%s}]`, start, at, joules)
}

func gauge(at, watts string) string {
	return fmt.Sprintf(`"timeUnixNano":"%s000000000","asDouble":%s`, at, watts)
}

func TestReader(t *testing.T) {
	none := math.NaN()
	f := func(name string, r Reader, bodies [][]byte, want ...float64) {
		t.Helper()
		for i, b := range bodies {
			got, all := readBody(&r, b)
			if got != want[i] && !(math.IsNaN(got) && math.IsNaN(want[i])) {
				t.Errorf("%s: document %d: %g (%s %s); want %g", name, i+1, got, all.Quality, all.Why, want[i])
			}
		}
	}
	first, second := cumulative("1760000000", "1760000060", "15000"), cumulative("1760000000", "1760000120", "30000")
	f("S0-70, S0-71", Reader{Role: Agent}, [][]byte{doc(first, gauge("1760000060", "250")), doc(second, gauge("1760000120", "1"))}, 250, 250)
	f("S0-63: the gauge after a reset", Reader{Role: Agent}, [][]byte{
		doc(first, ""), doc(second, ""), doc(cumulative("1760000000", "1760000180", "10"), gauge("1760000180", "99")),
	}, none, 250, 99)
	f("S0-59: the agent's window", Reader{Role: Agent}, [][]byte{doc(first, ""), doc(cumulative("1760000000", "1760000360", "90000"), ""), doc(cumulative("1760000000", "1760000661", "165250"), ""), doc(cumulative("1760000000", "1760000671", "167750"), "")}, none, 250, none, 250)
	f("S0-60: the controller's window", Reader{Role: Controller, Window: 59 * time.Second}, [][]byte{doc(first, ""), doc(second, "")}, none, none)
	f("S0-62: delta", Reader{Role: Agent}, [][]byte{
		doc(`"aggregationTemporality":1,"dataPoints":[{@"startTimeUnixNano":"1760000000000000000","timeUnixNano":"1760000010000000000","asInt":"1200"}]`, gauge("1760000010", "7")),
		doc(`"aggregationTemporality":1,"dataPoints":[{@"timeUnixNano":"1760000020000000000","asInt":"1200"}]`, ""),
	}, 120, none)
	f("a document once more is no new reading", Reader{Role: Agent}, [][]byte{doc(first, ""), doc(second, ""), doc(second, ""), doc(cumulative("1760000000", "1760000180", "45000"), "")}, none, 250, none, 250)
	f("a gauge of a meter that has died", Reader{Role: Agent}, [][]byte{doc(first, gauge("1759999000", "250"))}, none)
	f("not a number", Reader{Role: Agent}, [][]byte{doc("", gauge("1760000060", `"NaN"`)), doc("", gauge("1760000061", "-3")), doc("", gauge("1760000062", `"Infinity"`))}, none, none, none)
	// A component whose value is no number takes the sum with it: the others alone
	// would read low.
	for _, odd := range []string{`"NaN"`, `"Infinity"`, "-50"} {
		two := func(odd string) []byte {
			return []byte(strings.Replace(string(doc("", gauge("1760000060", "100"))), `"dataPoints":[`, `"dataPoints":[{"attributes":[{"key":"hw.id","value":{"stringValue":"cpu1"}},`+
				`{"key":"hw.type","value":{"stringValue":"cpu"}}],`+gauge("1760000060", odd)+`},`, 1))
		}
		f("one of two is "+odd, Reader{Role: Agent}, [][]byte{two(odd)}, none)
		f("both are numbers", Reader{Role: Agent}, [][]byte{two("50")}, 150)
	}
	f("a gauge that is none beside a counter", Reader{Role: Agent}, [][]byte{doc(first, gauge("1760000060", "-3")), doc(second, gauge("1760000120", "-3"))}, none, 250)
	f("the agent reads no gpu", Reader{Role: Agent}, [][]byte{[]byte(strings.ReplaceAll(string(doc("", gauge("1760000060", "250"))), `"cpu"`, `"gpu"`))}, none)
	f("no document", Reader{Role: Agent}, [][]byte{nil, []byte("[]"), []byte("null"), []byte(`"x"`), []byte(`{"resourceMetrics":{}}`), []byte("{\"a\":\xff}"), []byte(`{"resourceMetrics":[]} x`)},
		none, none, none, none, none, none, none)
}

// What is not the contract's is an error that names it.
func TestErrors(t *testing.T) {
	f := func(body, want string) {
		t.Helper()
		if _, all := readBody(&Reader{Role: Agent}, []byte(body)); !strings.Contains(all.Why, want) {
			t.Errorf("%s: %q; want %q", body, all.Why, want)
		}
	}
	good := string(doc(cumulative("1", "2", "3"), gauge("2", "4")))
	f(strings.Replace(good, `"J"`, `"kJ"`, 1), `hw.energy: its unit is "kJ", want J`)
	f(strings.Replace(good, `"aggregationTemporality":2`, `"aggregationTemporality":0`, 1), "neither 1 (delta) nor 2 (cumulative)")
	f(strings.Replace(good, `"gauge":{`, `"sum":{"aggregationTemporality":2,`, 1), "hw.power: is a sum, want a gauge")
	f(strings.Replace(good, `"2000000000"`, `{"low":1,"high":2}`, 1), "json: byte ")
	f(`{"packagePowerWatts": "245.3"}`, "packagePowerWatts is not a number")
	f(`<html>`, "byte 1")
	f(`7`, "it is a JSON number")
}
