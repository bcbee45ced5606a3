package doubt

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/wattloop/wattloop/presets/names"
	"github.com/wattloop/wattloop/store"
)

const base = 1_760_000_000_000

type world struct {
	t  *testing.T
	db *store.DB
}

func newWorld(t *testing.T) *world {
	db, err := store.Open(store.Options{Path: t.TempDir(), Durability: "os"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return &world{t, db}
}

// counter appends samples from 0 to 600 s; value says what stands at a second.
func (w *world) counter(series string, every int, value func(s float64) float64) {
	w.t.Helper()
	ls, err := parser.NewParser(parser.Options{}).ParseMetric(series)
	if err != nil {
		w.t.Fatal(err)
	}
	app := w.db.Appender(context.Background())
	for s := 0; s <= 600; s += every {
		if _, err := app.Append(0, ls, base+int64(s)*1000, value(float64(s))); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := app.Commit(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) look(kepler bool, strategy names.Strategy) string {
	w.t.Helper()
	l := Looker{Naming: strategy, Kepler: kepler, Query: func(ctx context.Context, expr string, ts int64) ([]Sample, error) {
		got, err := w.db.Instant(ctx, expr, ts)
		out := make([]Sample, len(got))
		for i, s := range got {
			out[i] = Sample{s.Metric, s.V}
		}
		return out, err
	}}
	got, err := l.Look(context.Background(), base+600_000)
	if err != nil {
		w.t.Fatal(err)
	}
	var b strings.Builder
	for _, d := range got {
		fmt.Fprintf(&b, "%s %s: %s\n", d.Kind, d.Node, d.What)
	}
	return b.String()
}

// watts is a counter of a power that wanders, as of a package of its own.
func watts(p, wander, phase float64) func(float64) float64 {
	return func(s float64) float64 { return 1000 + p*s + wander*math.Sin(s/37+phase) }
}

// X11: zones of a multi-die package that show one counter are told, and so are two
// components of hw.energy; packages of their own are not, nor are two at rest.
func TestMirroredCounters(t *testing.T) {
	kepler := func(part, zone, node string) string {
		return fmt.Sprintf(`kepler_node_cpu_%s_joules_total{zone=%q,node_name=%q}`, part, zone, node)
	}
	for _, every := range []int{5, 60} {
		w := newWorld(t)
		for i, zone := range []string{"package-0-die-0", "package-0-die-1"} {
			// Read some milliseconds apart: 0.3 J.
			late := func(f func(float64) float64) func(float64) float64 {
				return func(s float64) float64 { return f(s) + 0.3*float64(i) }
			}
			w.counter(kepler("active", zone, "twin"), every, late(watts(80, 900, 0)))
			w.counter(kepler("idle", zone, "twin"), every, late(watts(40, 0, 0)))
			w.counter(kepler("active", zone, "own"), every, watts(80, 900, float64(i)))
			w.counter(kepler("idle", zone, "own"), every, watts(40, 0, 0))
		}
		want := "mirrored_energy_counter twin: the energy counters of package-0-die-0 and package-0-die-1 move as one: their sum counts the same joules twice\n"
		if got := w.look(true, names.UnderscoreEscapingWithSuffixes); got != want {
			t.Errorf("every %d s:\n%swant\n%s", every, got, want)
		}
	}

	w := newWorld(t)
	energy := func(node, typ, id string) string {
		return fmt.Sprintf(`hw_energy_joules_total{k8s_node_name=%q,hw_type=%q,hw_id=%q}`, node, typ, id)
	}
	for i, id := range []string{"cpu0", "cpu1"} {
		w.counter(energy("same", "cpu", id), 5, watts(100, 900, 0))
		w.counter(energy("rest", "cpu", id), 5, func(float64) float64 { return 500 })
		w.counter(energy("far", "cpu", id), 5, func(s float64) float64 { return watts(100, 900, 0)(s) + float64(i)*1e6 })
		w.counter(energy("gpus", "gpu", id), 5, watts(250, 0, 0)) // a simulator's GPUs of constant power
		w.counter(energy(id, "cpu", "cpu0"), 5, watts(100, 900, 0))
	}
	if got := w.look(false, names.UnderscoreEscapingWithSuffixes); strings.Count(got, "\n") != 1 ||
		!strings.HasPrefix(got, "mirrored_energy_counter same: the energy counters of cpu0 and cpu1") {
		t.Errorf("got\n%swant node same alone", got)
	}
}

// S0-168: a node of which Kepler counts no GPU, and others do.
func TestKeplerWithoutGPU(t *testing.T) {
	w := newWorld(t)
	for i, node := range []string{"dcgm", "scraped", "otel", "amd", "counted", "bare", "foreign"} {
		w.counter(fmt.Sprintf(`kepler_node_cpu_active_joules_total{zone="package",node_name=%q}`, node), 15, watts(80, 900, float64(i)))
	}
	one := func(float64) float64 { return 1 }
	w.counter(`kepler_node_gpu_joules_total{node_name="counted"}`, 15, watts(200, 0, 0))
	for _, series := range []string{
		`DCGM_FI_DEV_GPU_TEMP{Hostname="dcgm",gpu="0"}`, `DCGM_FI_DEV_POWER_USAGE{instance="scraped",gpu="0"}`,
		`DCGM_FI_DEV_GPU_TEMP{Hostname="counted",gpu="0"}`, `hw_power_watts{k8s_node_name="otel",hw_type="gpu",hw_id="gpu0"}`,
		`gpu_package_power{hostname="amd",gpu_id="0"}`, `DCGM_FI_DEV_GPU_TEMP{Hostname="elsewhere",gpu="0"}`,
		`hw_power_watts{k8s_node_name="bare",hw_type="cpu",hw_id="cpu0"}`,
		`hw_power_watts{k8s_node_name="foreign",hw_type="gpu",hw_id="gpu0",channel="actor"}`,
	} {
		w.counter(series, 15, one)
	}
	var nodes []string
	for line := range strings.Lines(w.look(true, names.UnderscoreEscapingWithSuffixes)) {
		kind, node, _ := strings.Cut(strings.SplitN(line, ":", 2)[0], " ")
		if kind != NoGPUEnergy || !strings.Contains(line, "headroom is overstated") {
			t.Errorf("got %s", line)
		}
		nodes = append(nodes, node)
	}
	if got := strings.Join(nodes, " "); got != "amd dcgm otel scraped" {
		t.Errorf("nodes %q; want amd dcgm otel scraped", got)
	}
	if got := w.look(false, names.UnderscoreEscapingWithSuffixes); got != "" {
		t.Errorf("where Kepler is not read: %s", got)
	}
}

// The names are spelt as the store has them.
func TestStrategies(t *testing.T) {
	for _, s := range names.Strategies() {
		w := newWorld(t)
		l := Looker{Naming: s}
		for _, id := range []string{"cpu0", "cpu1"} {
			ls := labels.FromStrings("__name__", l.stored("hw.energy"), l.label("k8s.node.name"), "a", l.label("hw.type"), "cpu", l.label("hw.id"), id)
			app := w.db.Appender(context.Background())
			for at := 0; at <= 600; at += 5 {
				if _, err := app.Append(0, ls, base+int64(at)*1000, watts(100, 900, 0)(float64(at))); err != nil {
					t.Fatal(err)
				}
			}
			if err := app.Commit(); err != nil {
				t.Fatal(err)
			}
		}
		if got := w.look(false, s); !strings.HasPrefix(got, "mirrored_energy_counter a: ") {
			t.Errorf("%s: %q; want a doubt of node a", s, got)
		}
	}
}
