package remote_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/wattloop/wattloop/presets"
	"github.com/wattloop/wattloop/rules"
	"github.com/wattloop/wattloop/store"
	"github.com/wattloop/wattloop/store/remote"
)

// evaluator reads presets over a store.
func evaluator(db *store.DB) *rules.Evaluator {
	return &rules.Evaluator{Interval: db.Interval, Query: func(ctx context.Context, expr string, ts int64) ([]rules.Sample, error) {
		got, err := db.Instant(ctx, expr, ts)
		out := make([]rules.Sample, len(got))
		for i, s := range got {
			out[i] = rules.Sample{Metric: s.Metric, T: s.T, V: s.V}
		}
		return out, err
	}}
}

func presetReadings(t *testing.T) []*rules.Reading {
	t.Helper()
	b, err := presets.Files.ReadFile("otel/preset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	set, msgs := rules.Load([]rules.Source{{Name: "otel/preset.yaml", Data: b}}, rules.Settings{})
	if set == nil || len(set.Readings) < 4 {
		t.Fatalf("%v", msgs)
	}
	return set.Readings
}

// components are two nodes whose counters begin late, end early, end with a marker
// and go back, and gauges beside them.
func components(t *testing.T, to ...storage.Appendable) {
	for _, db := range to {
		for node := range 2 {
			for i := range 4 {
				typ := []string{"cpu", "gpu"}[i%2]
				ls := func(name string) labels.Labels {
					return labels.FromStrings("__name__", name, "k8s_node_name", fmt.Sprint("n", node), "hw_type", typ, "hw_id", fmt.Sprint(i), "job", "x", "instance", "y")
				}
				from, until := float64(i*100), 1200-float64(node*i*120)
				ss := floats(from, until, 5, 90.5+float64(i))
				if i == 2 {
					ss = append(ss, sample{at: until + 1, v: stale})
				}
				if i == 1 {
					for k := 60; k < len(ss); k++ {
						ss[k].v -= ss[60].v // a reset
					}
				}
				put(t, db, ls("hw_energy_joules_total"), ss...)
				put(t, db, ls("hw_power_watts"), floats(0, 1200, 15, 0.1)...)
			}
		}
	}
}

// The presets' readings, with their quality, partial marks and ages, are those of
// the embedded store, whichever way the samples are read.
func TestPresetsTheSame(t *testing.T) {
	for _, read := range []bool{true, false} {
		server := newPrometheus(t)
		server.read = read
		embedded := openStore(t, store.Options{})
		components(t, embedded, server.db)
		db, _ := beside(t, remote.Options{}, server.URL)
		here, there := evaluator(embedded), evaluator(db)
		qualities := map[rules.Quality]int{}
		for at := 3.0; at < 1900; at += 13.7 {
			here.Begin()
			there.Begin()
			for _, r := range presetReadings(t) {
				want, werr := here.Reading(t.Context(), r, second(at))
				got, err := there.Reading(t.Context(), r, second(at))
				if err != nil || werr != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
					t.Fatalf("remote read %v, %s at %g:\n%+v, %v; want\n%+v, %v", read, r.Name, at, got, err, want, werr)
				}
				for i := range want {
					if math.Float64bits(got[i].Value) != math.Float64bits(want[i].Value) {
						t.Fatalf("%s at %g: %v; want %v", r.Name, at, got[i].Value, want[i].Value)
					}
					qualities[want[i].Quality]++
				}
			}
		}
		if len(qualities) < 3 || qualities[rules.Fresh] < 200 {
			t.Errorf("compared %v; want some of each quality", qualities)
		}
	}
}

// A server that goes away leaves no value, at once, and stale keys after the third
// error in a row; what it answered before is not said again.
func TestQualityWithoutAnswer(t *testing.T) {
	server := newPrometheus(t)
	components(t, server.db)
	now := time.UnixMilli(epoch)
	db, _ := beside(t, remote.Options{Clock: func() time.Time { return now }}, server.URL)
	eval := evaluator(db)
	read := func(at float64) rules.KeyReading {
		t.Helper()
		now = time.UnixMilli(second(at))
		eval.Begin()
		for _, r := range presetReadings(t) {
			if r.Name == "node_power" {
				got, err := eval.Reading(t.Context(), r, second(at))
				if err != nil || len(got) != 2 {
					t.Fatal(got, err)
				}
				return got[0]
			}
		}
		t.Fatal("no node_power")
		return rules.KeyReading{}
	}
	if r := read(600); !r.Valid || r.Quality != rules.Fresh {
		t.Fatalf("%+v", r)
	}
	server.before = func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusBadGateway)
		return true
	}
	for i := range 3 {
		r := read(605 + 5*float64(i))
		if r.Valid || r.Err == "" || i == 2 && r.Quality != rules.Stale {
			t.Errorf("error %d: %+v", i+1, r)
		}
	}
	server.before = nil
	if r := read(620); !r.Valid || r.Quality != rules.Fresh {
		t.Errorf("afterwards: %+v", r)
	}
}
