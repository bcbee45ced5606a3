package sim_test

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/wattloop/wattloop/sim"
	"github.com/wattloop/wattloop/sysfs/sysfstest"
)

var start = time.Unix(1760000000, 0)

const limit0 = "class/powercap/intel-rapl:0/constraint_0_power_limit_uw"

func newNode(t testing.TB, c sim.Config) *sim.Node {
	t.Helper()
	if c.Dir == "" {
		c.Dir = t.TempDir()
	}
	if c.Start.IsZero() {
		c.Start = start
	}
	n, err := sim.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func tick(t testing.TB, n *sim.Node, second float64) {
	t.Helper()
	if err := n.Tick(start.Add(time.Duration(second * float64(time.Second)))); err != nil {
		t.Fatal(err)
	}
}

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if math.Abs(got-want) > within {
		t.Errorf("%s is %.2f; want %g within %g", what, got, want, within)
	}
}

func total(n *sim.Node) float64 {
	sum := 0.0
	for _, w := range n.Power() {
		sum += w
	}
	return sum
}

// The script: 318 W idle, 560 W under load, idle again, and over again.
func TestLoadWithoutCaps(t *testing.T) {
	n := newNode(t, sim.Config{GPUs: 1})
	for second := -60.0; second < 1200; second++ {
		tick(t, n, second)
		switch s := math.Mod(second+600, 600); {
		case second < 15 || s < 15 || s > 137 && s < 600:
			near(t, "idle power", total(n), 318, 6)
		case s > 30 && s < 125:
			near(t, "power under load", total(n), 560, 8)
		}
	}
	tick(t, n, 1205)
	for id, want := range map[string]float64{"cpu0": 99, "cpu1": 99, "gpu0": 120} {
		near(t, id, n.Power()[id], want, 3)
	}
}

// Writing the cap file by hand lowers the power of that package alone, and giving
// the limit back raises it.
func TestCapByHand(t *testing.T) {
	n := newNode(t, sim.Config{GPUs: 1})
	tick(t, n, 0)
	tick(t, n, 40)
	near(t, "cpu0 under load", n.Power()["cpu0"], 190, 3)

	set := func(path, contents string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(n.FS().Root, path), []byte(contents), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	set(limit0, "120000000\n")
	tick(t, n, 40.5)
	if w := n.Power()["cpu0"]; w > 160 || w < 121 {
		t.Errorf("half a second after the cap cpu0 draws %.1f W; want it on the way from 190 to 120", w)
	}
	tick(t, n, 50)
	near(t, "capped cpu0", n.Power()["cpu0"], 119, 1)
	near(t, "uncapped cpu1", n.Power()["cpu1"], 190, 3)
	if diff := cmp.Diff(map[string]float64{"cpu0": 120, "cpu1": 250}, n.Caps()); diff != "" {
		t.Errorf("Caps (-want +got):\n%s", diff)
	}
	near(t, "frequency of cpu0", value(t, n, "hw.cpu.speed", "cpu0")/1e9, 2.4, 0.2)

	for _, garbage := range []string{"", "much\n", "-5\n", "0\n"} {
		set(limit0, garbage)
		tick(t, n, 52)
		if got := n.Caps()["cpu0"]; got != 120 {
			t.Errorf("a limit of %q caps at %g; the last one was 120", garbage, got)
		}
	}
	set(limit0, "1000000\n")
	tick(t, n, 60)
	if w := n.Power()["cpu0"]; w < 36 || w > 50 {
		t.Errorf("under a cap of 1 W cpu0 draws %.1f W; want what it draws at its lowest frequency", w)
	}
	set(limit0, "250000000\n")
	set("class/powercap/intel-rapl:0/constraint_1_power_limit_uw", "130000000\n")
	tick(t, n, 70)
	near(t, "cpu0 under its short-term limit", n.Power()["cpu0"], 128.7, 1)
	set("class/powercap/intel-rapl:0/enabled", "0\n")
	tick(t, n, 80)
	near(t, "cpu0 with limits switched off", n.Power()["cpu0"], 190, 3)
	if err := os.Remove(filepath.Join(n.FS().Root, limit0)); err != nil {
		t.Fatal(err)
	}
	set("class/powercap/intel-rapl:0/enabled", "1\n")
	if err := n.Tick(start.Add(81 * time.Second)); err == nil {
		t.Error("a tree without its limit is no error")
	}
}

// Energy is the integral of power, in the metrics and, over the wrap, in the tree.
func TestEnergyIsTheIntegral(t *testing.T) {
	n := newNode(t, sim.Config{GPUs: 2, Seed: 3})
	tick(t, n, 0)
	ids := []string{"cpu0", "cpu1", "gpu0", "gpu1"}
	raw := func() uint64 {
		uj, err := strconv.ParseUint(sysfstest.Read(t, n.FS(), "class/powercap/intel-rapl:0/energy_uj"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return uj
	}
	const wraps = 262143328850
	sums := map[string]float64{}
	last, used, wrapped := raw(), uint64(0), 0
	const dt = 0.02
	for i := 1; i <= 2000; i++ {
		before := n.Power()
		tick(t, n, float64(i)*dt)
		for id, w := range n.Power() {
			sums[id] += dt * (w + before[id]) / 2
		}
	}
	for _, id := range ids {
		if got := value(t, n, "hw.energy", id); math.Abs(got-sums[id]) > 1e-3*sums[id] {
			t.Errorf("%s used %.3f J; the integral of its power is %.3f J", id, got, sums[id])
		}
	}
	for second := 600.0; second <= 4*3600; second += 600 { // at most half the range between two
		tick(t, n, second)
		now := raw()
		if now < last {
			used += wraps
			wrapped++
		}
		used, last = used+now-last, now
	}
	if wrapped == 0 {
		t.Error("the counter of a package never wrapped in 4 hours")
	}
	near(t, "energy of cpu0 in the tree less that in the metrics, J", float64(used)/1e6-value(t, n, "hw.energy", "cpu0"), 0, 1e-3)
}

// The same seed is the same node, however its time is cut; another one differs.
func TestDeterminism(t *testing.T) {
	run := func(seed uint64, steps ...float64) map[string]float64 {
		n := newNode(t, sim.Config{GPUs: 1, Seed: seed})
		tick(t, n, -100)
		for at, i := -100.0, 0; at < 100; i++ {
			at = math.Min(at+steps[i%len(steps)], 100)
			tick(t, n, at)
		}
		p := n.Power()
		p["energy"] = value(t, n, "hw.energy", "gpu0")
		p["heat"] = value(t, n, "hw.temperature", "cpu1")
		return p
	}
	if diff := cmp.Diff(run(7, 5), run(7, 5)); diff != "" {
		t.Errorf("two runs differ:\n%s", diff)
	}
	near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 1e-3*math.Abs(a) })
	if diff := cmp.Diff(run(7, 5), run(7, 0.25, 1, 0.033), near); diff != "" {
		t.Errorf("it matters how time is cut:\n%s", diff)
	}
	if cmp.Equal(run(7, 5), run(8, 5)) {
		t.Error("another seed gives the same node")
	}
}

func TestHeat(t *testing.T) {
	n := newNode(t, sim.Config{GPUs: 1})
	tick(t, n, 0)
	idle := value(t, n, "hw.temperature", "gpu0")
	tick(t, n, 25)
	rising := value(t, n, "hw.temperature", "gpu0")
	tick(t, n, 109)
	hot := value(t, n, "hw.temperature", "gpu0")
	tick(t, n, 595)
	cold := value(t, n, "hw.temperature", "gpu0")
	if !(idle < rising && rising < hot-2 && hot > 60 && hot < 90) {
		t.Errorf("gpu0 goes from %.1f by %.1f to %.1f °C; want a slow rise under load", idle, rising, hot)
	}
	near(t, "gpu0 after the load", cold, idle, 2)
}

// History has the times at which it happened.
func TestBackfill(t *testing.T) {
	n := newNode(t, sim.Config{GPUs: 1})
	var times []time.Time
	var joules []float64
	send := func(_ context.Context, m *metricdata.ResourceMetrics) error {
		p := find(t, m, "hw.energy", "cpu0")
		if !p.StartTime.Equal(start.Add(-20 * time.Minute)) {
			t.Errorf("the counter starts at %s", p.StartTime)
		}
		times, joules = append(times, p.Time), append(joules, p.Value)
		return nil
	}
	if err := n.Backfill(t.Context(), start.Add(-20*time.Minute), start, 7*time.Second, send); err != nil {
		t.Fatal(err)
	}
	if len(times) != 173 || !times[0].Equal(start.Add(-20*time.Minute)) || !times[172].Equal(start) {
		t.Errorf("%d points from %s to %s", len(times), times[0], times[len(times)-1])
	}
	for i := 1; i < len(times); i++ {
		w := (joules[i] - joules[i-1]) / times[i].Sub(times[i-1]).Seconds()
		near(t, "power of cpu0 in history", w, 99, 3)
	}
	gone := errors.New("gone")
	err := n.Backfill(t.Context(), start, start.Add(time.Minute), time.Second, func(context.Context, *metricdata.ResourceMetrics) error { return gone })
	if !errors.Is(err, gone) {
		t.Errorf("Backfill with a receiver that is gone = %v", err)
	}
	if err := n.Tick(start.Add(-time.Second)); err == nil {
		t.Error("time went back")
	}
	if err := n.Backfill(t.Context(), start, start, 0, send); err == nil {
		t.Error("a backfill in steps of nothing")
	}
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []sim.Config{{}, {Dir: "/sys"}, {Dir: t.TempDir(), GPUs: -1}, {Dir: t.TempDir(), GPUs: 17}} {
		if c.Dir == "/sys" {
			if _, err := os.Stat("/sys/class"); err != nil {
				continue
			}
		}
		if _, err := sim.New(c); err == nil {
			t.Errorf("New(%+v) succeeded", c)
		}
	}
}

// value is the newest value of a metric for one component.
func value(t testing.TB, n *sim.Node, metric, id string) float64 {
	t.Helper()
	return find(t, n.Metrics(), metric, id).Value
}

func find(t testing.TB, rm *metricdata.ResourceMetrics, metric, id string) metricdata.DataPoint[float64] {
	t.Helper()
	for _, m := range rm.ScopeMetrics[0].Metrics {
		if m.Name != metric {
			continue
		}
		var points []metricdata.DataPoint[float64]
		switch d := m.Data.(type) {
		case metricdata.Sum[float64]:
			points = d.DataPoints
		case metricdata.Gauge[float64]:
			points = d.DataPoints
		}
		for _, p := range points {
			if v, _ := p.Attributes.Value("hw.id"); v.AsString() == id {
				return p
			}
		}
	}
	t.Fatalf("no %s of %s", metric, id)
	return metricdata.DataPoint[float64]{}
}
