package engine_test

import (
	"context"
	"fmt"
	"testing"
)

// benchWorld is one node with ten components: two packages with energy counters
// and eight GPUs, with counters too or with gauges, five minutes at one second.
func benchWorld(b *testing.B, gpus string) *world {
	w := bareWorld(b)
	app := w.db.Appender(context.Background())
	for i := range 10 {
		ls := metric(b, fmt.Sprintf(`hw_energy_joules_total{hw_type="cpu",hw_id="cpu%d",k8s_node_name="a",job="agent",instance="a-1"}`, i))
		if i >= 2 {
			ls = metric(b, fmt.Sprintf(`%s{hw_type="gpu",hw_id="gpu%d",k8s_node_name="a",job="agent",instance="a-1"}`, gpus, i-2))
		}
		for s := range 301 {
			if _, err := app.Append(0, ls, at(float64(s)), float64(100*s)); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := app.Commit(); err != nil {
		b.Fatal(err)
	}
	w.restart(enforce)
	return w
}

// BenchmarkStep is one step of the shipped rules on one node with ten
// components, every rule of it evaluated.
func BenchmarkStep(b *testing.B) {
	for _, gpus := range []string{"hw_energy_joules_total", "hw_power_watts"} {
		b.Run(gpus, func(b *testing.B) {
			w := benchWorld(b, gpus)
			cpu := metric(b, `hw_energy_joules_total{hw_type="cpu",hw_id="cpu0",k8s_node_name="a"}`)
			gpu := metric(b, gpus+`{hw_type="gpu",hw_id="gpu0",k8s_node_name="a"}`)
			host := metric(b, `hw_host_power_watts{k8s_node_name="a"}`)
			ts := at(300)
			w.queries = 0
			for b.Loop() {
				w.eng.Grew(append(w.eng.Touched(cpu), append(w.eng.Touched(gpu), w.eng.Touched(host)...)...), ts)
				if _, err := w.eng.Step(context.Background(), ts); err != nil {
					b.Fatal(err)
				}
				ts++
			}
			b.ReportMetric(float64(w.queries)/float64(b.N), "queries/op")
		})
	}
}
