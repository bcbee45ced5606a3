package ingest_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// success is OTLP/HTTP's answer in JSON, in which a count is a string.
type success struct {
	PartialSuccess struct {
		RejectedDataPoints string `json:"rejectedDataPoints"`
		ErrorMessage       string `json:"errorMessage"`
	} `json:"partialSuccess"`
}

// rejected wants 200 and the count, with a reason when it is not "0".
func (r *rig) rejected(got reply, count string) {
	r.t.Helper()
	var s success
	if err := json.Unmarshal([]byte(got.body), &s); got.code != http.StatusOK || err != nil {
		r.t.Fatalf("%d %s; want 200 with %s rejected", got.code, got.body, count)
	}
	if s.PartialSuccess.RejectedDataPoints != count || (s.PartialSuccess.ErrorMessage == "") != (count == "") {
		r.t.Errorf("answer %s; want %q rejected, and why", got.body, count)
	}
}

// C05: one point outside the out-of-order window costs itself and nothing else.
func TestTooOldPointInBatchC05(t *testing.T) {
	r := newRig(t, nil)
	const dir = "C05-otlp-too-old-point-in-batch/"
	r.at(3600)
	r.rejected(r.postJSON(caseFile(t, dir+"req1.json")), "")
	r.at(3660)
	r.rejected(r.postJSON(caseFile(t, dir+"req2.json")), "1")
	r.check(`hw_power_watts{hw_id="cpu0"}`, 3660, 210)
	r.check(`hw_power_watts{hw_id="gpu0"}`, 3660, 300)
	r.check(`hw_power_watts{hw_id="cpu1"}`, 3660, 180)
	r.check(nodePower, 3660, 690)
	if got := r.metric("wattloop_ingest_points_total", `result="rejected"`, `reason="too_old"`); got != 1 {
		t.Errorf("points counted as too old: %v; want 1", got)
	}
}

// C06: a point without a recorded value ends its series; it is no zero.
func TestNoRecordedValueC06(t *testing.T) {
	r := newRig(t, nil)
	const dir = "C06-otlp-no-recorded-value/"
	r.send(map[float64]string{60: dir + "req1.json", 120: dir + "req2.json"}, 60, 120)
	r.check(`hw_power_watts`, 119, 250)
	r.check(`hw_power_watts`, 120, none)
	r.check(nodePower, 180, none)
	r.check(`hw_power_watts == 0`, 180, none)
}

// C11: metrics without data or points are skipped, and the good one is stored.
func TestEmptyMetricsC11(t *testing.T) {
	r := newRig(t, nil)
	r.at(60)
	for _, file := range []string{"req1.json", "req2.json", "req3.json"} {
		r.rejected(r.postJSON(caseFile(t, "C11-otlp-empty-metrics/"+file)), "")
	}
	want := map[string]float64{
		`{__name__="hw_power_watts", hw_id="cpu0", hw_type="cpu", instance="edge-a", job="hwexp", k8s_node_name="edge-a"}`: 250,
		`{__name__="target_info", instance="edge-a", job="hwexp", k8s_node_name="edge-a"}`:                                 1,
	}
	if diff := cmp.Diff(want, r.query(`{__name__=~".+"}`, 60)); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
}

// C12: one resource in several batches with times that go back has one
// target_info, and every sample is stored.
func TestTargetInfoSplitBatchesC12(t *testing.T) {
	r := newRig(t, nil)
	r.at(60)
	for _, file := range []string{"req1.json", "req2.json", "req3.json"} {
		r.rejected(r.postJSON(caseFile(t, "C12-otlp-target-info-split-batches/"+file)), "")
	}
	r.check(`hw_power_watts{hw_id="cpu0"}`, 60, 250)
	r.check(`hw_power_watts{hw_id="cpu1"}`, 60, 240)
	r.check(`timestamp(hw_power_watts{hw_id="cpu1"})`, 60, t0+30)
	r.check(`hw_power_watts{hw_id="gpu0"}`, 60, 300)
	r.check(nodePower, 60, 790)
	r.check(`target_info`, 30, 1)
	want := map[string]float64{
		`{__name__="target_info", host_arch="amd64", instance="edge-a", job="hwexp", k8s_node_name="edge-a"}`: 1,
	}
	if diff := cmp.Diff(want, r.query(`target_info`, 60)); diff != "" {
		t.Errorf("target_info (-want +got):\n%s", diff)
	}
}

// C20: a point whose attribute is no UTF-8 is rejected and counted; the batch
// around it is stored.
func TestInvalidUTF8C20(t *testing.T) {
	r := newRig(t, nil)
	r.at(60)
	got := r.post(caseFile(t, "C20-otlp-invalid-utf8-protobuf/req1.bin"), "Content-Type", "application/x-protobuf")
	if got.code != http.StatusOK {
		t.Fatalf("%d %q; want 200", got.code, got.body)
	}
	if p := decodePartial(t, got.body); p.rejected != 1 || p.message == "" {
		t.Errorf("partial success %+v; want 1 rejected, and why", p)
	}
	r.check(`hw_power_watts{hw_id="cpu0"}`, 60, 250)
	r.check(`count(hw_power_watts)`, 60, 1)
	r.check(nodePower, 60, 250)
}
