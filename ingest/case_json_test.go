package ingest_test

import (
	"math"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// C07: 64-bit integers as numbers and as strings, to the nanosecond.
func TestJSONIntegersC07(t *testing.T) {
	r := newRig(t, nil)
	r.at(60)
	for _, file := range []string{"req1-numbers.json", "req2-strings.json"} {
		r.rejected(r.postJSON(caseFile(t, "C07-otlp-json-int64-forms/"+file)), "")
	}
	series := func(node string) string {
		return `{__name__="hw_power_watts", hw_id="cpu0", hw_socket="0", hw_type="cpu", instance="` + node +
			`", job="hwexp", k8s_node_name="` + node + `"}`
	}
	want := map[string]float64{series("edge-a"): 250, series("edge-b"): 250}
	if diff := cmp.Diff(want, r.query(`hw_power_watts`, 59.999)); diff != "" {
		t.Errorf("@T0+59.999 (-want +got):\n%s", diff)
	}
	r.check(`hw_power_watts`, 59.998, none)
	r.check(`count(count_over_time(hw_power_watts[1h]) == 1)`, 3600, 2)
}

// C08: a temporality by its name is understood; any other word is refused. There
// is never a 200 without the sample.
func TestJSONEnumNamesC08(t *testing.T) {
	r := newRig(t, nil)
	r.at(120)
	if got := r.postJSON(caseFile(t, "C08-otlp-json-enum-names/req1-enum-name.json")); got.code != http.StatusOK {
		t.Errorf("%d %s; want 200", got.code, got.body)
	}
	r.check(`hw_energy_joules_total`, 60, 15000)
	if got := r.postJSON(caseFile(t, "C08-otlp-json-enum-names/req2-unknown-word.json")); got.code != http.StatusBadRequest {
		t.Errorf("%d %s; want 400", got.code, got.body)
	}
	r.check(`timestamp(hw_energy_joules_total)`, 120, t0+60)
}

// C09: a time that is an object is no integer, and no time is guessed.
func TestJSONLongObjectC09(t *testing.T) {
	r := newRig(t, nil)
	r.at(60)
	if got := r.postJSON(caseFile(t, "C09-otlp-json-long-object/req1.json")); got.code != http.StatusBadRequest {
		t.Errorf("%d %s; want 400", got.code, got.body)
	}
	if stats := r.db.Stats(); stats.Series != 0 {
		t.Errorf("%d series are stored; want none", stats.Series)
	}
}

// C10: numbers that JSON cannot write come as strings; a NaN is stored as an
// ordinary one, not as the marker that ends a series.
func TestJSONNotFiniteC10(t *testing.T) {
	r := newRig(t, nil)
	r.at(60)
	r.rejected(r.postJSON(caseFile(t, "C10-otlp-json-nan-infinity/req1.json")), "")
	r.check(`hw_power_watts{hw_id="cpu0",k8s_node_name="edge-a"}`, 60, math.NaN())
	r.check(`hw_power_watts{hw_id="gpu0"}`, 60, 300)
	r.check(`hw_power_watts{k8s_node_name="edge-b"}`, 60, 250.5)
	r.check(`joulie_facility_ambient_temperature_celsius`, 60, math.Inf(1))
	r.check(`(`+nodePower+`) unless on (k8s_node_name) hw_power_watts{k8s_node_name="edge-b"}`, 60, math.NaN())
	r.check(`(`+nodePower+`) and on (k8s_node_name) hw_power_watts{k8s_node_name="edge-b"}`, 60, 250.5)
	r.check(`(`+nodePower+`) > 400`, 60, none)
	r.check(`(`+nodePower+`) <= 200`, 60, none)
}
