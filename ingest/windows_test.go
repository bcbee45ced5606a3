package ingest_test

import (
	"fmt"
	"testing"

	"github.com/wattloop/wattloop/ingest"
)

// S2-78: what is lost for good is counted, where an operator sees it.
func TestWindowsAreShown(t *testing.T) {
	r := newRigOn(t, nil, workload(t, ingest.Limits{}))
	r.at(600)
	delta := func(start, end int) {
		t.Helper()
		r.rejected(r.postJSON(fmt.Appendf(nil, `{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"jobs","sum":{"isMonotonic":true,"aggregationTemporality":1,`+
			`"dataPoints":[{"asInt":"1","startTimeUnixNano":"%d","timeUnixNano":"%d"}]}}]}]}]}`, (t0+start)*1e9, (t0+end)*1e9)), "")
	}
	delta(0, 10)
	delta(30, 40) // and nothing of the time between
	delta(40, 50)
	delta(40, 50)
	for what, want := range map[string]float64{"lost": 1, "repeated": 1, "late": 0} {
		if got := r.metric("wattloop_ingest_windows_total", `channel="w"`, fmt.Sprintf("what=%q", what)); got != want {
			t.Errorf("%g windows count as %s; want %g", got, what, want)
		}
	}
	r.check(`jobs_total`, 50, 3)
}
