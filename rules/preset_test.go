package rules

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/wattloop/wattloop/store"
)

// recorded is a store that holds one sample every 5 s, from 0 to 600 s.
type recorded struct {
	t  *testing.T
	db *store.DB
}

const recordedFrom = 1_760_000_000_000 // Unix milliseconds

func (r recorded) series(name string, rises bool, watts float64, pairs ...string) {
	r.t.Helper()
	app := r.db.Appender(context.Background())
	metric := labels.FromStrings(append([]string{"__name__", name}, pairs...)...)
	for s := int64(0); s <= 600; s += 5 {
		v := watts
		if rises {
			v = 1000 + watts*float64(s)
		}
		if _, err := app.Append(0, metric, recordedFrom+s*1000, v); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := app.Commit(); err != nil {
		r.t.Fatal(err)
	}
}

// energy is a counter of joules, power a gauge of watts, of one component.
func (r recorded) energy(watts float64, node, kind, id, job string) {
	r.series("hw_energy_joules_total", true, watts, "k8s_node_name", node, "hw_type", kind, "hw_id", id, "job", job)
}

func (r recorded) power(watts float64, node, kind, id, job string) {
	r.series("hw_power_watts", false, watts, "k8s_node_name", node, "hw_type", kind, "hw_id", id, "job", job)
}

// TestPresetReadings runs the shipped queries over a real store, under both
// readings of rate(.
func TestPresetReadings(t *testing.T) {
	for _, rate := range []string{RateCovered, RatePrometheus} {
		set := mustLoad(t, Settings{Rate: rate}, shipped(t)...)
		f := func(id, name, want string, fill func(recorded)) {
			t.Helper()
			t.Run(fmt.Sprintf("%s %s %s", id, rate, name), func(t *testing.T) {
				db, err := store.Open(store.Options{Path: t.TempDir(), Durability: "os"})
				if err != nil {
					t.Fatal(err)
				}
				defer db.Close()
				fill(recorded{t, db})
				samples, err := db.Instant(t.Context(), set.Reading(name).Query, recordedFrom+600_000)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, s := range samples {
					got = append(got, fmt.Sprintf("%s %.2f", s.Metric, s.V))
				}
				slices.Sort(got)
				if strings.Join(got, ", ") != want {
					t.Errorf("%s answers %s; want %s", name, strings.Join(got, ", "), want)
				}
			})
		}
		f("S0-126", "node_power", `{k8s_node_name="a"} 350.00`, func(r recorded) {
			r.energy(100, "a", "cpu", "cpu0", "host")
			r.power(130, "a", "cpu", "cpu0", "host") // its counter is read instead
			r.power(250, "a", "gpu", "gpu0", "host") // it has none
			r.power(900, "a", "fan", "fan0", "host") // neither package nor GPU
		})
		f("S0-127", "node_power", `{k8s_node_name="a"} 100.00`, func(r recorded) {
			r.energy(100, "a", "cpu", "cpu0", "host")
			r.energy(100, "a", "cpu", "cpu0", "exporter")
		})
		f("S0-128", "node_power", `{k8s_node_name="a"} 350.00`, func(r recorded) {
			r.energy(100, "a", "cpu", "0", "host")
			r.power(250, "a", "gpu", "0", "host")
		})
		f("S0-86, S0-87", "node_power", `{k8s_node_name="a"} 610.00, {k8s_node_name="b"} 61.00`, func(r recorded) {
			for i, watts := range []float64{10, 100, 500} { // whichever is first, all are in the sum
				r.energy(watts/10, "b", "gpu", fmt.Sprint("gpu", i), "host")
				r.energy(watts, "a", "gpu", fmt.Sprint("gpu", i), "host")
			}
		})
		f("S0-135", "node_power", `{k8s_node_name="a"} 100.00, {k8s_node_name="b"} 40.00`, func(r recorded) {
			r.energy(100, "a", "cpu", "cpu0", "host")
			r.energy(40, "b", "cpu", "cpu0", "host")
		})
		f("beside S0-116", "cpu_power", `{k8s_node_name="a"} 180.00`, func(r recorded) {
			r.energy(100, "a", "cpu", "cpu0", "host")
			r.power(80, "a", "cpu", "cpu1", "host")
			r.power(250, "a", "gpu", "gpu0", "host")
		})
		f("beside S0-116", "cpu_packages", `{k8s_node_name="a"} 2.00`, func(r recorded) {
			r.energy(100, "a", "cpu", "cpu0", "host")
			r.energy(100, "a", "cpu", "cpu0", "exporter")
			r.power(80, "a", "cpu", "cpu0", "host")
			r.power(80, "a", "cpu", "cpu1", "host")
			r.power(250, "a", "gpu", "gpu0", "host")
		})
		f("S0-118, counter", "node_power_host", `{k8s_node_name="a"} 500.00`, func(r recorded) {
			r.series("hw_host_energy_joules_total", true, 500, "k8s_node_name", "a")
			r.series("hw_host_power_watts", false, 480, "k8s_node_name", "a")
		})
		f("S0-118, gauge", "node_power_host", `{k8s_node_name="a"} 480.00`, func(r recorded) {
			r.series("hw_host_power_watts", false, 480, "k8s_node_name", "a")
		})
	}
}
