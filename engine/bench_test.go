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

// fleet is so many nodes of ten components each, five minutes at 5 s, every rule
// evaluated once.
func fleet(b *testing.B, nodes int) *world {
	w := bareWorld(b)
	for n := range nodes {
		app := w.db.Appender(context.Background())
		for i := range 10 {
			kind := "gpu"
			if i < 2 {
				kind = "cpu"
			}
			ls := metric(b, fmt.Sprintf(`hw_energy_joules_total{hw_type="%s",hw_id="%s%d",k8s_node_name="n%d",job="agent",instance="n%d"}`, kind, kind, i, n, n))
			for s := 0; s <= 300; s += 5 {
				if _, err := app.Append(0, ls, at(float64(s)), float64(100*s)); err != nil {
					b.Fatal(err)
				}
			}
		}
		if err := app.Commit(); err != nil {
			b.Fatal(err)
		}
	}
	w.restart()
	w.step(300)
	return w
}

// BenchmarkArrival is the step that an arrival for one node causes, among 1,000
// and alone, with the presets and the shipped controls: evaluated, acted upon,
// reported, logged and stored.
func BenchmarkArrival(b *testing.B) {
	for _, nodes := range []int{1, 1000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			w := fleet(b, nodes)
			touched := w.eng.Touched(metric(b, fmt.Sprintf(`hw_energy_joules_total{hw_type="cpu",hw_id="cpu0",k8s_node_name="n%d"}`, nodes/2)))
			ts := at(300)
			w.queries = 0
			for b.Loop() {
				ts++
				w.eng.Grew(touched, ts)
				if _, err := w.eng.Step(context.Background(), ts); err != nil {
					b.Fatal(err)
				}
				if ts == at(304) {
					b.Fatal("the timers come")
				}
			}
			b.ReportMetric(float64(w.queries)/float64(b.N), "queries/op")
		})
	}
}
