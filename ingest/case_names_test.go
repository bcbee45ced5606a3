package ingest_test

import "testing"

// C14: names and units as the field's translation has them; the value is the
// row's number.
func TestUnitSuffixesC14(t *testing.T) {
	r := newRig(t, nil)
	r.at(60)
	r.rejected(r.postJSON(caseFile(t, "C14-otlp-unit-suffix-table/req1.json")), "")
	for i, name := range []string{
		"hw_energy_joules_total",
		"hw_energy2_joule_total",
		"hw_power_watts",
		"hw_temperature_celsius",
		"gpu_util_ratio",
		"jobs_done_total",
		"jobs_total",
		"net_io_bytes_per_second",
		"clock_speed_hertz",
		"mem_used_mebibytes",
		"queue_depth",
		"_5xx_count_total",
		"power_share_percent",
		"fan_duty_ratio",
		"energy_joules_total",
		"page_faults_per_second",
	} {
		r.check(name, 60, i+1)
	}
	r.check(`count({__name__=~".+",__name__!="target_info"})`, 60, 16)
}
