package rules

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
)

// benchWorld is one node with ten components, five minutes at one second:
// CPU packages with counters, the others with gauges.
func benchWorld(b *testing.B, counters int) *world {
	w := newWorld(b)
	app := w.db.Appender(context.Background())
	for i := range 10 {
		name, typ := "hw_energy_joules_total", "cpu"
		if i >= counters {
			name, typ = "hw_power_watts", "gpu"
		}
		ls := labels.FromStrings("__name__", name, "hw_type", typ, "hw_id", fmt.Sprint(typ, i), "k8s_node_name", "a", "job", "agent", "instance", "a-1")
		for s := range 301 {
			if _, err := app.Append(0, ls, at(float64(s)), float64(100*s)); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := app.Commit(); err != nil {
		b.Fatal(err)
	}
	return w
}

// BenchmarkReading is S0-116 on one node with ten components, five minutes at
// one second: the value alone, as PromQL answers it, and the reading with its
// quality.
func BenchmarkReading(b *testing.B) {
	for _, counters := range []int{2, 10} {
		w := benchWorld(b, counters)
		r := reading(b, RateCovered, nodePower, "k8s_node_name")
		b.Run(fmt.Sprintf("value/counters=%d", counters), func(b *testing.B) {
			for b.Loop() {
				if _, err := w.eval.Query(context.Background(), r.Query, at(300)); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("reading/counters=%d", counters), func(b *testing.B) {
			for b.Loop() {
				if _, err := w.eval.Reading(context.Background(), r, at(300)); err != nil {
					b.Fatal(err)
				}
			}
		})
		c, err := r.plan.compile(nil, valueOf(r))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("whole/counters=%d", counters), func(b *testing.B) {
			for b.Loop() {
				if _, err := w.eval.Query(context.Background(), c.all, at(300)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkControl is the shipped budget over 30 s on the same node, its three
// readings judged.
func BenchmarkControl(b *testing.B) {
	w := benchWorld(b, 2)
	c := budget(b, 400)
	short := func(p *plan) *plan {
		tree, err := dialect.ParseExpr(strings.ReplaceAll(p.text, "[5m]", "[30s]"))
		if err != nil {
			b.Fatal(err)
		}
		if p, err = newPlan(tree, p.key, true); err != nil {
			b.Fatal(err)
		}
		return p
	}
	c.engage, c.release, c.value = short(c.engage), short(c.release), short(c.value)
	for _, r := range c.Uses {
		r.plan = short(r.plan)
	}
	for b.Loop() {
		if _, err := w.eval.Control(context.Background(), c, at(300)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFirst is the first reading after a start: it looks an hour back.
func BenchmarkFirst(b *testing.B) {
	w := benchWorld(b, 2)
	r := reading(b, RateCovered, strings.ReplaceAll(nodePower, "[5m]", "[30s]"), "k8s_node_name")
	for b.Loop() {
		w.restart()
		if _, err := w.eval.Reading(context.Background(), r, at(300)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkBesideWorkloads is node_power while workload channels have series of
// the same name, which every evaluation passes over.
func BenchmarkBesideWorkloads(b *testing.B) {
	for _, n := range []int{0, 10_000, 100_000} {
		b.Run(fmt.Sprintf("series=%d", n), func(b *testing.B) {
			w := newWorld(b)
			set, messages := Load(shipped(b), Settings{})
			if set == nil {
				b.Fatal(printed(messages))
			}
			w.add(`hw_power_watts{k8s_node_name="a", hw_type="gpu", hw_id="gpu0"}`, 10, 250)
			app := w.db.Appender(b.Context())
			for i := range n {
				ls := labels.FromStrings("__name__", "hw_power_watts", "channel", fmt.Sprintf("ch%d", i%8), "hw_type", "gpu", "hw_id", fmt.Sprint(i))
				if _, err := app.Append(0, ls, at(10), 1); err != nil {
					b.Fatal(err)
				}
			}
			if err := app.Commit(); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				got, err := w.db.Instant(b.Context(), set.Reading("node_power").Query, at(10))
				if err != nil || len(got) != 1 || got[0].V != 250 {
					b.Fatal(got, err)
				}
			}
		})
	}
}

// BenchmarkForms is node_power of a fleet under auto, each node with ten
// components and five minutes at 5 s: by labels, and where no node is promoted by
// target_info as well.
func BenchmarkForms(b *testing.B) {
	for _, nodes := range []int{1, 100} {
		for _, promoted := range []bool{true, false} {
			b.Run(fmt.Sprintf("nodes=%d/promoted=%v", nodes, promoted), func(b *testing.B) {
				w := newWorld(b)
				for n := range nodes {
					w.fleetNode(fmt.Sprint("node-", n), promoted)
				}
				r := forms(b, AttributesAuto).Reading("node_power")
				for b.Loop() {
					got, err := w.eval.Reading(b.Context(), r, at(300))
					if err != nil || len(got) != nodes || got[0].Quality != Fresh {
						b.Fatal(got, err)
					}
				}
			})
		}
	}
}

func (w *world) fleetNode(node string, promoted bool) {
	app := w.db.Appender(w.t.Context())
	add := func(ls labels.Labels, t, v float64) {
		if _, err := app.Append(0, ls, at(t), v); err != nil {
			w.t.Fatal(err)
		}
	}
	for t := 0.0; t <= 300; t += 5 {
		for i := range 10 {
			b := labels.NewBuilder(labels.FromStrings("job", "agent", "instance", node, "hw_id", fmt.Sprint(i)))
			if promoted {
				b.Set("k8s_node_name", node)
			}
			if i < 2 {
				add(b.Set(nameLabel, "hw_energy_joules_total").Set("hw_type", "cpu").Labels(), t, 100*t)
			} else {
				add(b.Set(nameLabel, "hw_power_watts").Set("hw_type", "gpu").Labels(), t, 250)
			}
		}
		if int(t)%150 == 0 {
			add(labels.FromStrings(nameLabel, targetInfo, "job", "agent", "instance", node, "k8s_node_name", node), t, 1)
		}
	}
	if err := app.Commit(); err != nil {
		w.t.Fatal(err)
	}
}
