package engine_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/wattloop/wattloop/engine"
)

// A step that goes over the keys of its arrivals alone reports, logs, counts and
// stores what one that goes over all keys does, whatever came before: nodes that
// come, end and come back, controls that engage, hold, ramp and let go, failed
// queries, reloads, a clock that is set back.
func TestPropertyStepOfOneKeyIsTheWhole(t *testing.T) {
	narrow, steps := 0, 0
	phases := map[engine.Phase]int{}
	for seed := range uint64(2) {
		r := rand.New(rand.NewPCG(0xd117, seed))
		near, whole := newWorld(t, enforce, breaker), newWorld(t, enforce, breaker)
		both := [2]*world{near, whole}
		nodes, now, busy := 3, 0.0, false
		feed := func(n int) {
			watts := []float64{20, 60}[r.IntN(2)]
			if busy && n%2 == 0 {
				watts += 150
			}
			for _, c := range []string{"cpu0", "cpu1", "gpu0"} {
				series := fmt.Sprintf(`hw_power_watts{hw_type=%q,hw_id=%q,k8s_node_name="n%d"}`, c[:3], c, n)
				ends := r.IntN(30) == 0
				for _, w := range both {
					if ends {
						w.end(series, now)
					} else {
						w.add(series, now, watts)
					}
				}
			}
		}
		for n := range nodes {
			feed(n)
		}
		for i := range 140 {
			busy = 20 <= i && i < 60
			failing, reload := i%35 < 9 && r.IntN(3) > 0, r.IntN(60) == 0
			var reps [2]*engine.Report
			for i, w := range both {
				if i == 1 {
					w.eng.StepWhole()
				}
				if failing {
					w.failWith(errors.New("the disk is on fire"))
				}
				before := w.eng.Report()
				reps[i] = w.step(now)
				w.failWith(nil)
				if i == 0 && sharesARow(before, reps[i]) {
					narrow++
				}
				if reload {
					if err := w.eng.Reload(loadRules(t, enforce, breaker), true); err != nil {
						t.Fatal(err)
					}
				}
			}
			steps++
			for _, c := range reps[0].Controls {
				phases[c.Phase]++
			}
			if d := cmp.Diff(wholeReport(t, reps[1]), wholeReport(t, reps[0])); d != "" {
				t.Fatalf("seed %d at %g: the report (-whole +by keys):\n%s", seed, now, d)
			}
			switch r.IntN(40) {
			case 0:
				nodes++
				now++
			case 1:
				now -= 3.001 // and no instant twice
			default:
				now += []float64{0.25, 0.5, 0.5, 1, 3, 7}[r.IntN(6)]
			}
			for _, n := range r.Perm(nodes)[:1+r.IntN(2)] {
				feed(n)
			}
		}
		if d := cmp.Diff(logged(whole), logged(near)); d != "" {
			t.Errorf("seed %d: the log (-whole +by keys):\n%s", seed, d)
		}
		if d := cmp.Diff(stored(t, whole), stored(t, near)); d != "" {
			t.Errorf("seed %d: the store (-whole +by keys):\n%s", seed, d)
		}
		if a, b := near.metric("wattloop_outcomes_total"), whole.metric("wattloop_outcomes_total"); a != b {
			t.Errorf("seed %d: %g outcomes counted by keys, %g whole", seed, a, b)
		}
	}
	t.Logf("%d of %d steps went over single keys; phases %v", narrow, steps, phases)
	if narrow < steps/5 {
		t.Error("want a fifth of the steps to go over single keys")
	}
	for _, p := range []engine.Phase{engine.Idle, engine.Engaged, engine.Releasing, engine.Holding} {
		if phases[p] == 0 {
			t.Errorf("no control was ever %s", p)
		}
	}
}

// sharesARow says whether a control's row is that of the report before, as it is
// only where a step did not go over all.
func sharesARow(before, after *engine.Report) bool {
	return slices.ContainsFunc(after.Controls, func(c *engine.ControlReport) bool {
		return !c.Keyless && slices.Contains(before.Controls, c)
	})
}

func wholeReport(t testing.TB, rep *engine.Report) string {
	t.Helper()
	flat := *rep
	for i := range flat.Rules {
		flat.Rules[i].Took = 0
	}
	var b strings.Builder
	for _, r := range rep.Readings {
		fmt.Fprintf(&b, "%+v\n", *r)
	}
	for _, c := range rep.Controls {
		fmt.Fprintf(&b, "%+v\n", *c)
	}
	flat.Readings, flat.Controls = nil, nil
	rest, err := json.Marshal(flat)
	if err != nil {
		t.Fatal(err)
	}
	return b.String() + string(rest)
}

var stamp = regexp.MustCompile(`(?m)^time=\S+ `)

// logged is what the engine has logged, without the times.
func logged(w *world) string { return stamp.ReplaceAllString(w.log.String(), "") }

// stored are all samples of the engine's own series, markers included.
func stored(t testing.TB, w *world) string {
	t.Helper()
	q, err := w.db.Querier(math.MinInt64, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	var lines []string
	set := q.Select(t.Context(), true, nil, labels.MustNewMatcher(labels.MatchRegexp, "__name__", "wattloop_.*"))
	for set.Next() {
		it := set.At().Iterator(nil)
		for it.Next() == chunkenc.ValFloat {
			at, v := it.At()
			lines = append(lines, fmt.Sprintf("%s %g %g", set.At().Labels(), after(at), v))
		}
	}
	if set.Err() != nil {
		t.Fatal(set.Err())
	}
	return strings.Join(lines, "\n")
}
