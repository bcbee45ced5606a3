package sim_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wattloop/wattloop/actuate"
	"github.com/wattloop/wattloop/actuate/rapl"
	"github.com/wattloop/wattloop/ingest/host"
	"github.com/wattloop/wattloop/sim"
	"github.com/wattloop/wattloop/sysfs"
	"github.com/wattloop/wattloop/sysfs/sysfstest"
)

// What the product finds in the tree, and that New brings a tree back to its
// beginning.
func TestTreeIsTheKernels(t *testing.T) {
	dir := t.TempDir()
	n := newNode(t, sim.Config{Dir: dir, GPUs: 1})
	devices, err := rapl.Open(n.FS())
	if err != nil || len(devices) != 2 {
		t.Fatalf("rapl.Open = %d devices, %v", len(devices), err)
	}
	want := actuate.Description{
		ID: "rapl:package-0", Name: "cpu0", Action: actuate.ActionRAPLCap, Unit: "W", Labels: map[string]string{"hw_type": "cpu", "hw_id": "cpu0"},
		Max: 250, Default: 250, Tolerance: 1, Writable: true,
		Files: []string{limit0, "class/powercap/intel-rapl:0/constraint_1_power_limit_uw"},
	}
	if diff := cmp.Diff(want, devices[0].Describe()); diff != "" {
		t.Errorf("Describe (-want +got):\n%s", diff)
	}
	meters, err := host.Find(n.FS())
	var ids []string
	for _, m := range meters {
		ids = append(ids, m.ID)
	}
	if diff := cmp.Diff([]string{"cpu0", "dram0", "cpu1", "dram1"}, ids); diff != "" || err != nil {
		t.Errorf("meters, %v (-want +got):\n%s", err, diff)
	}
	if _, err := sysfs.NewDry(dir); err != nil {
		t.Errorf("the tree counts as a real one: %v", err)
	}

	before := sysfstest.Dump(t, n.FS())
	tick(t, n, 0)
	tick(t, n, 10)
	if err := devices[1].Write(actuate.Setting{Value: 100, Strict: true}); err != nil {
		t.Fatal(err)
	}
	again := newNode(t, sim.Config{Dir: dir, GPUs: 1})
	if diff := cmp.Diff(before, sysfstest.Dump(t, again.FS())); diff != "" {
		t.Errorf("a second New over the tree (-first +second):\n%s", diff)
	}
}

// The whole arc under a budget, with a controller as plain as the shipped one:
// engaged after the load rose, the node under its budget while it lasts, given
// back within 360 s. The warden's floor, 40 % of the default, leaves room for it.
func TestBudgetHasAnArc(t *testing.T) {
	for _, gpus := range []int{0, 1, 2, 8, 16} {
		n := newNode(t, sim.Config{GPUs: gpus})
		devices, err := rapl.Open(n.FS())
		if err != nil {
			t.Fatal(err)
		}
		budget := sim.Budget(gpus)
		original := devices[0].Describe().Max
		floor := 0.4 * devices[0].Describe().Default
		var node, cpus []float64 // one a second
		limit, over, under, engaged := original, 0, 0, false
		engagedAt, keptFor, releasedAt := 0, 0, 0
		for second := range 360 {
			tick(t, n, float64(second))
			p := n.Power()
			node, cpus = append(node, total(n)), append(cpus, p["cpu0"]+p["cpu1"])
			power, cpu := mean(node, 30), mean(cpus, 30)
			over, under = count(over, power > budget), count(under, power < 0.95*budget)
			if engaged && power <= budget && second < 125 {
				keptFor++
			}
			if second%10 != 0 {
				continue
			}
			next := limit
			switch {
			case !engaged && over >= 15:
				engaged, engagedAt = true, second
				fallthrough
			case engaged && under < 60:
				next = math.Max(math.Max((budget-(power-cpu))/2, floor), limit-60)
				next = math.Min(math.Min(next, limit+15), original)
			case engaged:
				next = math.Min(limit+15, original)
				if next == original {
					engaged, releasedAt = false, second
				}
			}
			if next == limit {
				continue
			}
			limit = next
			for _, d := range devices {
				if err := d.Write(actuate.Setting{Value: limit}); err != nil {
					t.Fatal(err)
				}
			}
		}
		t.Logf("%d GPUs, %g W: engaged at %d s, under for %d s, given back at %d s", gpus, budget, engagedAt, keptFor, releasedAt)
		if engagedAt == 0 || engagedAt > 60 || keptFor < 10 || releasedAt < 120 || releasedAt > 330 {
			t.Errorf("%d GPUs, %g W: engaged at %d s, under the budget for %d s of the load, given back at %d s", gpus, budget, engagedAt, keptFor, releasedAt)
		}
	}
}

func mean(v []float64, last int) float64 {
	v = v[max(0, len(v)-last):]
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

func count(n int, holds bool) int {
	if holds {
		return n + 1
	}
	return 0
}
