package doubt

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// withoutGPU finds the nodes of which Kepler reports packages and no GPU, while
// somebody else reports a GPU there.
func (l Looker) withoutGPU(ctx context.Context, ts int64) ([]Doubt, error) {
	var out []Doubt
	for _, k := range []struct{ label, cpu, gpu string }{
		{"node_name", "kepler_node_cpu_active_joules_total", "kepler_node_gpu_joules_total"},
		{"exported_instance", "kepler_node_package_joules_total", "kepler_node_gpu_joules_total"},
	} {
		nodes, err := l.values(ctx, ts, k.label, fmt.Sprintf("%s unless on (%s) %s", selector(k.cpu), k.label, selector(k.gpu)))
		if err != nil {
			return nil, err
		}
		for _, s := range l.signsOfGPU() {
			if len(nodes) == 0 {
				break
			}
			there, err := l.values(ctx, ts, s.label, s.expr)
			if err != nil {
				return nil, err
			}
			for _, node := range nodes {
				if slices.Contains(there, node) {
					out = append(out, Doubt{NoGPUEnergy, node, "Kepler reports no GPU energy of a node with GPUs (" + s.of + "): its power is that of the packages alone, and its headroom is overstated"})
				}
			}
			nodes = slices.DeleteFunc(nodes, func(n string) bool { return slices.Contains(there, n) })
		}
	}
	return out, nil
}

// sign is an expression whose elements tell of GPUs, and the label that names the
// node.
type sign struct{ of, label, expr string }

// signsOfGPU are what others say of GPUs: by the node's own label, or by instance,
// which the scrape source sets to the node's name.
func (l Looker) signsOfGPU() []sign {
	gpu := fmt.Sprintf(`%q="gpu"`, l.label("hw.type"))
	const (
		dcgm = `{__name__=~"DCGM_FI_DEV_(GPU_TEMP|POWER_USAGE|GPU_UTIL|SM_CLOCK|FB_USED)",channel=""}`
		amd  = `{__name__=~"(amd_)?gpu_(package_power|average_package_power|junction_temperature|edge_temperature)",channel=""}`
	)
	return []sign{
		{"hw.type gpu", l.label("k8s.node.name"), selector(l.stored("hw.power"), gpu) + " or " + selector(l.stored("hw.energy"), gpu)},
		{"DCGM exporter", "Hostname", dcgm},
		{"DCGM exporter", "instance", dcgm},
		{"AMD device metrics exporter", "hostname", amd},
		{"AMD device metrics exporter", "instance", amd},
	}
}

// values are the values of one label over the elements of an expression, sorted.
func (l Looker) values(ctx context.Context, ts int64, label, expr string) ([]string, error) {
	got, err := l.Query(ctx, fmt.Sprintf("count by (%q) (%s)", label, expr), ts)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, s := range got {
		if v := s.Metric.Get(label); v != "" {
			out = append(out, v)
		}
	}
	slices.SortFunc(out, strings.Compare)
	return out, nil
}
