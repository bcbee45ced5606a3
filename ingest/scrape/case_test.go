package scrape

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

const second = time.Second

// replay scrapes the pages of a case in their order.
func (r *rig) replay(t Target, pages map[time.Duration]string) {
	r.t.Helper()
	for _, at := range slices.Sorted(maps.Keys(pages)) {
		r.scrape(t, at, pages[at])
	}
}

// The exporter's own instance is kept beside the target's: two nodes, 180 W and
// 150 W, and never one of 330 W.
func TestC30ExportedInstance(t *testing.T) {
	r := newRig(t)
	a, b := Target{URL: "http://10.0.0.5:9102/metrics"}, Target{URL: "http://10.0.0.6:9102/metrics"}
	pagesA, pagesB := casePages(t, "C30/edge-a"), casePages(t, "C30/edge-b")
	for _, at := range slices.Sorted(maps.Keys(pagesA)) {
		r.scrape(a, at, pagesA[at])
		r.scrape(b, at, pagesB[at])
	}
	wantLines(t, "the contract's query of kepler-legacy at T0+300", r.query(
		`sum by (exported_instance) (label_replace(rate(kepler_node_package_joules_total[5m]), "component", "package", "", "") or label_replace(rate(kepler_node_gpu_joules_total[5m]), "component", "gpu", "", ""))`, 300*second),
		`{exported_instance="edge-a"} 180`, `{exported_instance="edge-b"} 150`)
	wantLines(t, "own instance", r.query(`count by (instance) (kepler_node_package_joules_total)`, 300*second),
		`{instance="10.0.0.5:9102"} 2`, `{instance="10.0.0.6:9102"} 2`)
}

// GPU 1 is blank from T0+30 on: a gap in each of its fields, and GPU 0 goes on.
func TestC36DCGMBlankValues(t *testing.T) {
	r := newRig(t)
	r.replay(Target{URL: "http://127.0.0.1:9400", Node: "edge-a"}, casePages(t, "C36"))
	for _, c := range []struct{ metric, healthy string }{
		{"DCGM_FI_DEV_POWER_USAGE", "310.5"}, {"DCGM_FI_DEV_GPU_TEMP", "61"}, {"DCGM_FI_DEV_GPU_UTIL", "97"},
		{"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "0.41"}, {"DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "0"},
		{"DCGM_FI_DEV_FB_USED", "40000"}, {"DCGM_FI_DEV_MEMORY_TEMP", "70"},
	} {
		label := `{Hostname="edge-a", UUID="GPU-aaaa", __name__="` + c.metric + `", `
		got := r.of(c.metric)
		if len(got) != 2 || !strings.HasPrefix(got[0], label) {
			t.Fatalf("%s: %q", c.metric, got)
		}
		healthy := fmt.Sprintf("0=%[1]s 30=%[1]s 60=%[1]s", c.healthy)
		if !strings.HasSuffix(got[0], `gpu="0", instance="edge-a", job="scrape", modelName="NVIDIA H100 80GB HBM3"} `+healthy) {
			t.Errorf("%s of gpu 0: %s; want %s", c.metric, got[0], healthy)
		}
		if want := "0=" + c.healthy + " 30=end"; !strings.HasSuffix(got[1], "} "+want) {
			t.Errorf("%s of gpu 1: %s; want %s", c.metric, got[1], want)
		}
	}
	wantLines(t, "GPU power at T0+60", r.query(`sum(DCGM_FI_DEV_POWER_USAGE)`, 60*second), `{} 310.5`)
	wantLines(t, "no jump", r.query(`increase(DCGM_FI_DEV_PCIE_REPLAY_COUNTER[90s]) > 0`, 60*second))
	if got := strings.Count(r.said.String(), "reason=dcgm_blank"); got != 1 {
		t.Errorf("said %d times that values are blank; want once:\n%s", got, r.said.String())
	}
}

// Every code of the three ranges, and the numbers beside them.
func TestC36EveryVariant(t *testing.T) {
	for _, from := range []uint64{2147483632, 140737488355328, 9223372036854775792} {
		for i := range uint64(16) {
			if got := dcgm.blank(float64(from + i)); got != dcgmBlank {
				t.Errorf("%d is %q; want dcgm_blank", from+i, reasonWords[got].name)
			}
			if got := anyVendor.blank(float64(from + i)); got != fine {
				t.Errorf("%d of another exporter is %q", from+i, reasonWords[got].name)
			}
		}
	}
	for _, c := range []struct {
		v    vendor
		x    float64
		want reason
	}{
		{dcgm, 2147483631, fine}, {dcgm, 140737488355327, fine}, {dcgm, 140737488355344, fine}, {dcgm, 2147483648, fine},
		{dcgm, 9.223372036854776e+18, dcgmBlank}, {dcgm, 0, fine}, {dcgm, 101, fine},
		{dcgmPercent, 0, fine}, {dcgmPercent, 100, fine}, {dcgmPercent, 100.5, dcgmRange}, {dcgmPercent, -1, dcgmRange},
		{dcgmMemTemp, 0, noSensor}, {dcgmMemTemp, 70, fine}, {dcgmMemTemp, 2147483634, dcgmBlank},
		{amd, 4294967295, amdBlank}, {amd, 4294967295000, amdBlank}, {amd, 4294967294, fine}, {amd, 0, fine},
		{amdHwmon, 4294967.295, amdBlank}, {amdHwmon, 87, fine}, {anyVendor, 4294967295, fine},
	} {
		if got := c.v.blank(c.x); got != c.want {
			t.Errorf("vendor %d: blank(%g) = %q; want %q", c.v, c.x, reasonWords[got].name, reasonWords[c.want].name)
		}
	}
}

// The zero UUID makes no two series one, and 4294967295 is no temperature.
func TestC44AMDPartitionsAndSentinels(t *testing.T) {
	r := newRig(t)
	r.replay(Target{URL: "http://127.0.0.1:5000", Node: "edge-a"}, casePages(t, "C44"))
	wantLines(t, "power by GPU", r.query(`max by (gpu_id) (amd_gpu_package_power)`, 0), `{gpu_id="0"} 600`, `{gpu_id="1"} 610`)
	wantLines(t, "power of the node", r.query(`sum(max by (gpu_id) (amd_gpu_package_power))`, 0), `{} 1210`)
	wantLines(t, "series of power", r.query(`count(amd_gpu_package_power)`, 0), `{} 3`)
	wantLines(t, "temperature", r.query(`sum by (gpu_id) (amd_gpu_edge_temperature)`, 0), `{gpu_id="1"} 65`)
	wantLines(t, "no alarm", r.query(`amd_gpu_edge_temperature >= 83`, 0))
}

// A page with one broken line is no page: up 0, nothing of it stored, the series
// of the one before at an end.
func TestC46BrokenExposition(t *testing.T) {
	r := newRig(t)
	r.replay(Target{URL: "http://127.0.0.1:9400", Node: "edge-a"}, casePages(t, "C46"))
	for metric, want := range map[string]string{
		"up":                      `{__name__="up", instance="edge-a", job="scrape"} 0=1 30=0`,
		"DCGM_FI_DEV_POWER_USAGE": `{Hostname="edge-a", UUID="GPU-aaaa", __name__="DCGM_FI_DEV_POWER_USAGE", gpu="0", instance="edge-a", job="scrape"} 0=300 30=end`,
		"scrape_samples_scraped":  `{__name__="scrape_samples_scraped", instance="edge-a", job="scrape"} 0=1 30=1`,
		"scrape_series_added":     `{__name__="scrape_series_added", instance="edge-a", job="scrape"} 0=1 30=0`,
	} {
		wantLines(t, metric, r.of(metric), want)
	}
	for _, metric := range []string{"DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "DCGM_FI_DEV_GPU_TEMP"} {
		wantLines(t, metric, r.of(metric))
	}
	st := *r.loops["http://127.0.0.1:9400"].status.Load()
	if st.Up || !strings.Contains(st.Err, "page: sample 2: ") {
		t.Errorf("status: %+v", st)
	}
}
