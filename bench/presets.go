package main

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"golang.org/x/sys/unix"

	"github.com/wattloop/wattloop/rules"
	"github.com/wattloop/wattloop/store"
)

const (
	componentsANode = 10
	presetSpan      = 300 // seconds
	presetEvery     = 5
	goalDirtyKey    = 0.4
)

// presetEval measures what a preset's reading of node power costs: in process,
// the processor time of the process, nodes of ten components, five minutes of
// samples every 5 s in its window. Beside it runs S0-116 by Prometheus's engine on the same
// store, which answers the value and says nothing of how far to trust it.
func presetEval(r run) error {
	for _, nodes := range []int{1, 100, 1000} {
		if r.short && nodes == 1000 {
			nodes = 300
		}
		if err := presetsOf(r, nodes); err != nil {
			return err
		}
	}
	return nil
}

func presetsOf(r run, nodes int) error {
	db, err := store.Open(store.Options{Path: filepath.Join(r.dir, fmt.Sprint("preset-", nodes)), Durability: store.DurabilityOS})
	if err != nil {
		return err
	}
	defer db.Close()
	times := 10
	if nodes < 1000 {
		times = 200 / max(1, nodes/20)
	}
	span := int64(presetSpan + times*presetEvery) // the rule's timer comes as often as samples do
	start := time.Now().UnixMilli() - span*1000
	if err := fillNodes(r.ctx, db, nodes, start, span); err != nil {
		return err
	}
	set, err := shippedRules("")
	if err != nil {
		return err
	}
	reading := set.Reading("node_power")
	eval := &rules.Evaluator{Interval: db.Interval, Query: queries(db)}
	now := start + presetSpan*1000
	var last []rules.KeyReading
	whole := func() error {
		last, err = eval.Reading(r.ctx, reading, now)
		now += presetEvery * 1000
		return err
	}
	if err := whole(); err != nil { // the first looks an hour back
		return err
	}
	note := fmt.Sprintf("%d nodes, %d components, %d s every %d s, n=%d", nodes, componentsANode, presetSpan, presetEvery, times)
	name := fmt.Sprintf("%dnode", nodes)
	if nodes != 1 {
		name += "s"
	}
	ours, err := cpuTime(times, whole)
	if err != nil {
		return err
	}
	for _, k := range last {
		if !k.Valid || k.Quality != rules.Fresh || math.Abs(k.Value-100*componentsANode) > 1e-6 {
			return fmt.Errorf("%s reads %v, %s; want %d W, fresh", k.Key, k.Value, k.Quality, 100*componentsANode)
		}
	}
	figure("preset_eval_ms_"+name, ours.mid, "ms", fmt.Sprintf("%s; by the rule's timer, quality and age included, all inputs asked for anew each 15 s; %s", ours, note))
	theirs, err := cpuTime(times, func() error {
		now -= presetEvery * 1000
		_, err := db.Instant(r.ctx, nodePowerQuery, now)
		return err
	})
	if err != nil {
		return err
	}
	figure("preset_eval_vs_prometheus_"+name, ours.mid/theirs.mid, "x", fmt.Sprintf("of S0-116 by Prometheus's engine on the same store, %.3g ms, the value alone", theirs.mid))
	now = start + span*1000
	if err := whole(); err != nil {
		return err
	}
	now = start + span*1000
	key := last[len(last)/2].Key
	near, err := cpuTime(500, func() error {
		_, ok, err := eval.ReadingOf(r.ctx, reading, key, now)
		if err == nil && !ok {
			err = fmt.Errorf("%s was not evaluated alone", key)
		}
		return err
	})
	if err != nil {
		return err
	}
	figure("dirty_key_eval_ms_"+name, near.mid, "ms", fmt.Sprintf("%s; node power of the node that an arrival is of, evaluated alone, quality and age included; goal %g; %s", near, goalDirtyKey, note))
	return arrivals(r, db, name, now, key)
}

func queries(db *store.DB) rules.QueryFunc {
	return func(ctx context.Context, expr string, ts int64) ([]rules.Sample, error) {
		got, err := db.Instant(ctx, expr, ts)
		out := make([]rules.Sample, len(got))
		for i, s := range got {
			out[i] = rules.Sample(s)
		}
		return out, err
	}
}

// nodePowerQuery is S0-116.
const nodePowerQuery = `sum by (k8s_node_name) (max by (k8s_node_name, hw_type, hw_id) (rate(hw_energy_joules_total{hw_type=~"cpu|gpu"}[5m])) or on (k8s_node_name, hw_type, hw_id) max by (k8s_node_name, hw_type, hw_id) (hw_power_watts{hw_type=~"cpu|gpu"}))`

func fillNodes(ctx context.Context, db *store.DB, nodes int, start, span int64) error {
	for n := range nodes {
		app := db.Appender(ctx)
		for i := range componentsANode {
			kind := "gpu"
			if i < 2 {
				kind = "cpu"
			}
			name := fmt.Sprintf("node-%04d", n)
			ls := labels.FromStrings("__name__", "hw_energy_joules_total", "hw_id", fmt.Sprint(kind, i), "hw_type", kind,
				"instance", name, "job", "bench", "k8s_node_name", name)
			for s := int64(0); s <= span; s += presetEvery {
				if _, err := app.Append(0, ls, start+s*1000, float64(1e6+100*s)); err != nil {
					return err
				}
			}
		}
		if err := app.Commit(); err != nil {
			return err
		}
	}
	return nil
}

// cpuTime runs f that often and gives the milliseconds of processor time of
// the process that each took.
func cpuTime(times int, f func() error) (spread, error) {
	var all []float64
	for range times {
		before := processTime()
		if err := f(); err != nil {
			return spread{}, err
		}
		all = append(all, ms(processTime()-before))
	}
	return spreadOf(all), nil
}

func processTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
		panic("BUG: " + err.Error())
	}
	return time.Duration(ts.Nano())
}
