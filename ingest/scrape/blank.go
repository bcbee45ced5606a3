package scrape

import (
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// vendor says by which rules a series shows that it has no value.
type vendor uint8

const (
	anyVendor   vendor = iota
	dcgm               // a field of NVIDIA's DCGM
	dcgmPercent        // one whose value is a percentage
	dcgmMemTemp        // the temperature of the memory
	amd                // of AMD's device-metrics-exporter or amd_smi_exporter
	amdHwmon           // power of a hwmon chip, in watts, as node_exporter has it
)

// percentFields are DCGM's percentages (dcgm_fields.h). A fan's speed, which may
// lie above 100, is none, and PROF fields are ratios.
var percentFields = []string{
	"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_MEM_COPY_UTIL", "DCGM_FI_DEV_ENC_UTIL", "DCGM_FI_DEV_DEC_UTIL",
	"DCGM_FI_DEV_CPU_UTIL_TOTAL", "DCGM_FI_DEV_CPU_UTIL_USER", "DCGM_FI_DEV_CPU_UTIL_NICE", "DCGM_FI_DEV_CPU_UTIL_SYS", "DCGM_FI_DEV_CPU_UTIL_IRQ",
}

// vendorOf reads it off the name and the labels. The fields of AMD's exporter
// begin with amd_, or with nothing, by its configuration.
func vendorOf(ls labels.Labels) vendor {
	name := ls.Get(model.MetricNameLabel)
	begins := func(with ...string) bool {
		return slices.ContainsFunc(with, func(p string) bool { return strings.HasPrefix(name, p) })
	}
	switch {
	case name == "DCGM_FI_DEV_MEMORY_TEMP", name == "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS":
		return dcgmMemTemp
	case slices.Contains(percentFields, name):
		return dcgmPercent
	case begins("DCGM_"):
		return dcgm
	case begins("node_hwmon_power_"):
		return amdHwmon
	case begins("amd_", "gpu_", "pcie_"), ls.Has("gpu_partition_id"):
		return amd
	}
	return anyVendor
}

// blank says why a value is none, or fine. DCGM writes one of sixteen codes from
// 2^31-16, from 2^47 and from 2^63-16 on where it could not read a field (blank,
// not found, not supported, not permitted and reserved ones); as a float the last
// sixteen are one number, and a re-exporter's rounding lies below it. Some boards
// without a sensor at the memory say 0 °C there. AMD's say 2^32-1, and its driver
// the same in milliwatts.
func (v vendor) blank(x float64) reason {
	switch v {
	case dcgm, dcgmPercent, dcgmMemTemp:
		switch {
		case x >= 9.2e18, x >= 140737488355328 && x <= 140737488355343, x >= 2147483632 && x <= 2147483647:
			return dcgmBlank
		case v == dcgmPercent && !(x >= 0 && x <= 100):
			return dcgmRange
		case v == dcgmMemTemp && x == 0:
			return noSensor
		}
	case amd:
		if x == 4294967295 || x == 4294967295000 {
			return amdBlank
		}
	case amdHwmon:
		if x == 4294967.295 || x == 4294967295000 {
			return amdBlank
		}
	}
	return fine
}
