package ingest_test

import (
	"net/http"
	"testing"
)

// send posts the JSON files of a case in order, each at its time, and wants 200
// and a full success for each.
func (r *rig) send(files map[float64]string, order ...float64) {
	r.t.Helper()
	for _, seconds := range order {
		r.at(seconds)
		got := r.postJSON(caseFile(r.t, files[seconds]))
		if got.code != http.StatusOK || got.body != "{}" {
			r.t.Errorf("%s: %d %s; want 200 {}", files[seconds], got.code, got.body)
		}
	}
}

// C01: a delta sum beside cumulative ones takes nothing away from them and
// becomes a running sum of its own.
func TestDeltaInMixedBatchC01(t *testing.T) {
	r := newRig(t, nil)
	const dir = "C01-otlp-delta-in-mixed-batch/"
	r.send(map[float64]string{60: dir + "req1.json", 120: dir + "req2.json", 180: dir + "req3.json"}, 60, 120, 180)
	r.check(`hw_energy_joules_total{hw_id="cpu0",k8s_node_name="edge-a"}`, 180, 45000)
	r.check(`hw_power_watts{hw_id="cpu0"}`, 180, 250)
	r.check(`app_requests_total`, 60, 5)
	r.check(`app_requests_total`, 120, 12)
	r.check(`app_requests_total`, 180, 21)
	r.check(`count_over_time(app_requests_total[10m])`, 180, 3)
	r.check(`resets(app_requests_total[10m])`, 180, 0)
}

// C03: each delta has a new start, and one interval is lost: neither is a reset.
func TestDeltaAdvancingStartC03(t *testing.T) {
	r := newRig(t, nil)
	const dir = "C03-otlp-delta-advancing-start/"
	r.send(map[float64]string{
		60: dir + "req1.json", 120: dir + "req2.json", 240: dir + "req3.json", 300: dir + "req4.json",
	}, 60, 120, 240, 300)
	r.check(`app_jobs_total`, 60, 100)
	r.check(`app_jobs_total`, 120, 200)
	r.check(`app_jobs_total`, 240, 300)
	r.check(`app_jobs_total`, 300, 400)
	r.check(`resets(app_jobs_total[10m])`, 300, 0)
}
