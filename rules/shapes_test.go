package rules

import (
	"strings"
	"testing"
	"time"
)

// The reading of rate( is changed on the parsed tree alone: S0-116 comes back
// byte for byte, and irate, strings and label names stay.
func TestPlanReadsRateOnTheTree(t *testing.T) {
	f := func(rate, expr, want string) {
		t.Helper()
		if got := mustPlan(t, rate, expr).query; got != want {
			t.Errorf("%s: %s\ngot  %s\nwant %s", rate, expr, got, want)
		}
	}
	f(RatePrometheus, nodePower, nodePower)
	f(RateCovered, nodePower, strings.ReplaceAll(nodePower, "rate(", "covered_rate("))
	f(RateCovered, `irate(x[5m])`, `irate(x[5m])`)
	f(RateCovered, `rate(rate_total{rate="rate(x[5m])"}[5m])`, `covered_rate(rate_total{rate="rate(x[5m])"}[5m])`)
	f(RateCovered, `increase(increase{increase="increase("}[2m])`, `covered_increase(increase{increase="increase("}[2m])`)
	f(RateCovered, `label_replace(rate(x[5m]), "rate", "rate($1)", "x", "(.*)")`, `label_replace(covered_rate(x[5m]), "rate", "rate($1)", "x", "(.*)")`)
	f(RatePrometheus, `increase(x[2m])`, `increase(x[2m])`)
	f(RateCovered, `max_over_time(rate(x[5m])[1h:1m])`, `max_over_time(covered_rate(x[5m])[1h:1m])`)
}

func TestPlanRefusesWhatHasNoInstantValue(t *testing.T) {
	for _, expr := range []string{`x[5m]`, `"text"`} {
		tree, err := dialect.ParseExpr(expr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := newPlan(tree, nil, true); err == nil || !strings.HasPrefix(err.Error(), expr) {
			t.Errorf("newPlan(%s) = %v; want an error that begins with the expression", expr, err)
		}
	}
}

// A window shorter than two measured export intervals and a quarter is widened
// to that, and said once. The store's own interval decides, series by series of a selector.
func TestWindowIsWidened(t *testing.T) {
	w := newWorld(t)
	r := reading(t, RateCovered, `sum by (n) (rate(joules[30s]))`, "n")
	w.counter(`joules{n="a"}`, 100, 0, 600, 60)
	w.want(r, 600, `{n="a"} 100.00 fresh`)
	w.want(r, 630, `{n="a"} 100.00 fresh`)
	want := "r: joules[30s] read over 2m15s"
	if got := strings.Join(w.widened, "; "); got != want {
		t.Errorf("widened: %q; want %q once", got, want)
	}
	p := reading(t, RatePrometheus, `sum by (n) (rate(joules[30s]))`, "n")
	w.want(p, 630, `{n="a"} - missing partial`)

	// A longer window stays, and so does an increase.
	w.widened = nil
	exact := reading(t, RateCovered, `sum by (n) (rate(joules[135s]) + increase(joules[30s]))`, "n")
	w.want(exact, 600, `{n="a"} 6100.00 fresh`)
	if w.widened != nil {
		t.Errorf("widened: %v; want nothing", w.widened)
	}
}

// The interval is measured again at most once a minute of the caller's time.
func TestIntervalIsMeasuredOnceAMinute(t *testing.T) {
	w, r := nodeWorld(t, 600, 600, 600)
	measured := 0
	inner := w.eval.Interval
	w.eval.Interval = func(ctx ctx, sel string, ts int64) (time.Duration, error) {
		measured++
		return inner(ctx, sel, ts)
	}
	for s := 500.0; s <= 559; s++ {
		w.read(r, s)
	}
	if measured != 2 {
		t.Errorf("%d measurements in a minute; want one for each of 2 selectors", measured)
	}
	w.read(r, 560)
	if measured != 4 {
		t.Errorf("%d measurements in the next minute; want 4", measured)
	}
	w.read(r, 100) // a clock that was set back
	if measured != 6 {
		t.Errorf("%d measurements after a step back; want 6", measured)
	}
}

const (
	hostPower    = `max by (k8s_node_name) (rate(hw_host_energy_joules_total[5m])) or on (k8s_node_name) max by (k8s_node_name) (hw_host_power_watts)`
	rackPower    = `sum by (rack) (rate(rack_joules_total[5m])) or on (rack) sum by (rack) (rack_watts)`
	itPower      = `sum(rate(it_joules_total[5m])) or sum(it_watts)`
	inlet        = `max by (k8s_node_name) (ambient{k8s_node_name!=""} or ambient{k8s_node_name=""} * on (job, instance) group_left (k8s_node_name) max by (job, instance, k8s_node_name) (target_info and on (job, instance) ambient{k8s_node_name=""}))`
	keplerPower  = `sum by (node_name) (label_replace(rate(active[5m]), "joulie_component", "cpu_active", "", "") or label_replace(rate(idle[5m]), "joulie_component", "cpu_idle", "", ""))`
	joinedJoules = `(hw_energy_joules_total * on (job, instance) group_left (k8s_node_name) max by (job, instance, k8s_node_name) (target_info and on (job, instance) hw_energy_joules_total))`
)

// The `or` outside of the aggregations (S0-118): the counter answers for the
// node, and the gauge behind it neither makes it stale nor partial.
func TestOrOutsideTheAggregation(t *testing.T) {
	w := newWorld(t)
	r := reading(t, RateCovered, hostPower, "k8s_node_name")
	joules, watts := `hw_host_energy_joules_total{k8s_node_name="a",instance="1"}`, `hw_host_power_watts{k8s_node_name="a",instance="2"}`
	w.gauge(watts, 510, 0, 0, 5)
	w.want(r, 0, `{k8s_node_name="a"} 510.00 fresh`)
	w.gauge(watts, 510, 5, 100, 5)
	w.counter(joules, 500, 60, 1000, 5)
	w.want(r, 60, `{k8s_node_name="a"} 510.00 fresh`) // one sample of the counter does not matter
	w.want(r, 65, `{k8s_node_name="a"} 500.00 fresh`)
	w.want(r, 150, `{k8s_node_name="a"} 500.00 fresh`) // the dead gauge is not read
	w.want(r, 1000, `{k8s_node_name="a"} 500.00 fresh`)
	w.gauge(watts, 510, 1305, 1305, 5)
	w.want(r, 1305, `{k8s_node_name="a"} 510.00 fresh`) // and now it is, for a counter that is gone
	w.want(r, 1700, `{k8s_node_name="a"} - missing partial`)
}

// Two meters of one host are two components: a live one does not hide the dead.
func TestHostMetersAreComponents(t *testing.T) {
	w := newWorld(t)
	r := reading(t, RateCovered, hostPower, "k8s_node_name")
	one, two := `hw_host_power_watts{k8s_node_name="a",instance="1"}`, `hw_host_power_watts{k8s_node_name="a",instance="2"}`
	for s := 0.0; s <= 600; s += 5 {
		w.add(one, s, 500)
		if s <= 200 {
			w.add(two, s, 490)
		}
	}
	w.want(r, 200, `{k8s_node_name="a"} 500.00 fresh`)
	w.want(r, 300, `{k8s_node_name="a"} 500.00 stale`)
	w.want(r, 600, `{k8s_node_name="a"} 500.00 fresh partial`)
}

func TestOrOfWholeAggregations(t *testing.T) {
	w := newWorld(t)
	r := reading(t, RateCovered, itPower)
	w.want(r, 0, `{} - missing`)
	for s := 0.0; s <= 600; s += 5 {
		w.add(`it_watts{row="1"}`, s, 70)
		if s >= 300 {
			w.add(`it_joules_total{row="1"}`, s, 100*s)
		}
	}
	w.want(r, 100, `{} 70.00 fresh`)
	w.want(r, 600, `{} 100.00 fresh`)
	rack := reading(t, RateCovered, rackPower, "rack")
	w.gauge(`rack_watts{rack="r1",pdu="a"}`, 40, 600, 600, 5)
	w.gauge(`rack_watts{rack="r1",pdu="b"}`, 41, 600, 600, 5)
	w.want(rack, 600, `{rack="r1"} 81.00 fresh`)
}

// S0-124: a branch that gets its node from target_info is judged like the other.
func TestJoinWithTargetInfo(t *testing.T) {
	w := newWorld(t)
	r := reading(t, RateCovered, inlet, "k8s_node_name")
	w.gauge(`ambient{k8s_node_name="a",job="j",instance="1"}`, 21, 0, 600, 5)
	for s := 0.0; s <= 600; s += 5 {
		if s <= 500 {
			w.add(`ambient{job="j",instance="2"}`, s+0.001, 25)
		}
		w.add(`target_info{job="j",instance="2",k8s_node_name="b"}`, s+0.001, 1)
	}
	w.want(r, 500, `{k8s_node_name="a"} 21.00 fresh`+"\n"+`{k8s_node_name="b"} 25.00 fresh`)
	w.want(r, 600, `{k8s_node_name="a"} 21.00 fresh`+"\n"+`{k8s_node_name="b"} 25.00 stale`)
	w.want(r, 899, `{k8s_node_name="a"} 21.00 stale`+"\n"+`{k8s_node_name="b"} - missing partial`)
}

// S0-117 inside a rate's result: the join carries ages, warming and expectation.
func TestJoinAroundARate(t *testing.T) {
	w := newWorld(t)
	expr := `sum by (k8s_node_name) (rate(joules[5m]) * on (job, instance) group_left (k8s_node_name) max by (job, instance, k8s_node_name) (target_info and on (job, instance) rate(joules[5m])))`
	r := reading(t, RateCovered, expr, "k8s_node_name")
	for s := 0.0; s <= 300; s += 5 {
		w.add(`target_info{job="j",instance="1",k8s_node_name="a"}`, s, 1)
		w.add(`joules{job="j",instance="1",zone="0"}`, s, 100*s)
		if s >= 100 && s <= 200 {
			w.add(`joules{job="j",instance="1",zone="1"}`, s, 50*s)
		}
	}
	w.want(r, 0, `{k8s_node_name="a"} - warming`)
	w.want(r, 90, `{k8s_node_name="a"} 100.00 fresh`)
	w.want(r, 100, `{k8s_node_name="a"} - warming`)
	w.want(r, 200, `{k8s_node_name="a"} 150.00 fresh`)
	w.want(r, 260, `{k8s_node_name="a"} 150.00 stale`)
}

// Kepler: an `or` of relabelled branches, one of which may die alone.
func TestRelabelledBranches(t *testing.T) {
	w := newWorld(t)
	r := reading(t, RateCovered, keplerPower, "node_name")
	for s := 0.0; s <= 900; s += 5 {
		w.add(`active{node_name="a",zone="package-0"}`, s, 100*s)
		if s <= 300 {
			w.add(`idle{node_name="a",zone="package-0"}`, s, 50*s)
		}
	}
	w.want(r, 300, `{node_name="a"} 150.00 fresh`)
	w.want(r, 331, `{node_name="a"} 150.00 stale`)
	w.want(r, 600, `{node_name="a"} 100.00 fresh partial`)
}

// The difference of two aggregations is judged on the components of both.
func TestArithmeticOfTwoReadings(t *testing.T) {
	w := newWorld(t)
	r := reading(t, RateCovered, `sum by (n) (watts) - sum by (n) (rate(joules[5m]))`, "n")
	for s := 0.0; s <= 900; s += 5 {
		w.add(`watts{n="a",id="0"}`, s, 100)
		w.add(`joules{n="a",id="0"}`, s, 10*s)
		if s <= 300 {
			w.add(`joules{n="a",id="1"}`, s, 20*s)
		}
	}
	w.want(r, 0, `{n="a"} - warming`)
	w.want(r, 300, `{n="a"} 70.00 fresh`)
	w.want(r, 331, `{n="a"} 70.00 stale`)
	w.want(r, 700, `{n="a"} 90.00 fresh partial`)
}

// A comparison in a reading leaves a key out; that is an answer, not a gap.
func TestComparisonLeavesOut(t *testing.T) {
	w := newWorld(t)
	hot := reading(t, RateCovered, `temp > 80`, "n", "gpu")
	busy := reading(t, RateCovered, `sum by (n) (temp > 80)`, "n")
	w.gauge(`temp{n="a",gpu="0"}`, 90, 0, 10, 5)
	w.gauge(`temp{n="a",gpu="1"}`, 70, 0, 10, 5)
	w.want(hot, 10, `{gpu="0", n="a"} 90.00 fresh`+"\n"+`{gpu="1", n="a"} - fresh`)
	w.want(busy, 10, `{n="a"} 90.00 fresh`)
	w.add(`temp{n="a",gpu="0"}`, 15, 75)
	w.add(`temp{n="a",gpu="1"}`, 15, 75)
	w.want(hot, 15, `{gpu="0", n="a"} - fresh`+"\n"+`{gpu="1", n="a"} - fresh`)
	w.want(busy, 15, `{n="a"} - fresh`)
	w.want(busy, 50, `{n="a"} - stale`)
	w.want(busy, 400, `{n="a"} - missing partial`)
}

// A constant behind an `or` does not turn a dead input into an all-clear.
func TestConstantDoesNotHideADeadInput(t *testing.T) {
	w := newWorld(t)
	r := reading(t, RateCovered, `sum(watts) or vector(0)`)
	w.want(r, 0, `{} - missing`)
	w.gauge(`watts{n="a"}`, 100, 0, 10, 5)
	w.want(r, 10, `{} 100.00 fresh`)
	w.want(r, 400, `{} - missing partial`)
}

// What scalar() reads stands behind every key.
func TestScalarInputIsEveryKeys(t *testing.T) {
	w := newWorld(t)
	r := reading(t, RateCovered, `watts - scalar(sum(limit))`, "n")
	for s := 0.0; s <= 100; s += 5 {
		w.add(`watts{n="a"}`, s, 100)
		w.add(`watts{n="b"}`, s, 50)
		if s <= 20 {
			w.add(`limit`, s, 10)
		}
	}
	w.want(r, 20, `{n="a"} 90.00 fresh`+"\n"+`{n="b"} 40.00 fresh`)
	w.want(r, 60, `{n="a"} 90.00 stale`+"\n"+`{n="b"} 40.00 stale`)
}

// Offsets and @ are old on purpose.
func TestOffsetIsNotAge(t *testing.T) {
	w := newWorld(t)
	w.gauge(`watts{n="a"}`, 100, 0, 900, 5)
	w.want(reading(t, RateCovered, `watts offset 10m`, "n"), 900, `{n="a"} 100.00 fresh`)
	w.want(reading(t, RateCovered, `max_over_time(watts[1m] offset 10m)`, "n"), 900, `{n="a"} 100.00 fresh`)
	w.want(reading(t, RateCovered, `watts @ 1760000100`, "n"), 900, `{n="a"} 100.00 fresh`)
	w.want(reading(t, RateCovered, `watts offset 10m`, "n"), 1540, `{n="a"} 100.00 stale`)
}

// A range of another reading is a subquery; its age is that of what is inside.
func TestSubquery(t *testing.T) {
	w := newWorld(t)
	r := reading(t, RateCovered, `max_over_time((sum by (n) (rate(joules[1m])))[5m:5s])`, "n")
	w.counter(`joules{n="a",id="0"}`, 100, 0, 300, 5)
	w.want(r, 300, `{n="a"} 100.00 fresh`)
	w.want(r, 340, `{n="a"} 100.00 stale`)
}

// Expressions whose labels cannot be followed are as old as their oldest input.
func TestCoarseAges(t *testing.T) {
	w := newWorld(t)
	for _, expr := range []string{
		`label_replace({__name__=~"watts|amps"}, "what", "$1", "__name__", "(.*)")`,
		`count_values by (n, id) ("v", watts)`,
	} {
		r := reading(t, RateCovered, expr, "n", "id")
		w.gauge(`watts{n="a",id="0"}`, 100, 0, 100, 5)
		w.want(r, 100, `{id="0", n="a"} `+map[bool]string{true: "100.00", false: "1.00"}[strings.HasPrefix(expr, "label")]+` fresh`)
		w.want(r, 140, `{id="0", n="a"} `+map[bool]string{true: "100.00", false: "1.00"}[strings.HasPrefix(expr, "label")]+` stale`)
	}
}

func TestTopkAndFriendsJudgeWhatTheyKeep(t *testing.T) {
	w := newWorld(t)
	for s := 0.0; s <= 100; s += 5 {
		if s <= 50 {
			w.add(`watts{n="a",id="0"}`, s, 100)
		}
		w.add(`watts{n="a",id="1"}`, s, 50)
	}
	w.want(reading(t, RateCovered, `sum by (n) (topk(1, watts))`, "n"), 100, `{n="a"} 100.00 stale`)
	w.want(reading(t, RateCovered, `sum by (n) (bottomk(1, watts))`, "n"), 100, `{n="a"} 50.00 fresh`)
}

// Whatever PromQL can say is judged by queries that run: for the value, for what
// is there, for the hour before, and for a part of the selectors.
func TestEveryShapeRuns(t *testing.T) {
	w := newWorld(t)
	for s := 0.0; s <= 300; s += 5 {
		w.add(`x{n="a",id="0",job="j",instance="i",le="1"}`, s, 100*s)
		w.add(`y{n="a",id="0",job="j",instance="i"}`, s, 100*s)
		w.add(`target_info{job="j",instance="i",k8s_node_name="a"}`, s, 1)
		w.add(`hw_energy_joules_total{job="j",instance="i"}`, s, 1)
	}
	for _, expr := range []string{
		hostPower, rackPower, itPower, inlet, keplerPower, joinedJoules, nodePower,
		`x`, `-x`, `(x)`, `x * 2`, `2 * x`, `x > 1`, `x > bool 1`, `1 < x`, `x + y`, `x > y`, `x > bool y`,
		`x and y`, `x unless y`, `x or y`, `x or on (n) y`, `x or ignoring (le) y`, `x and on (n) rate(y[5m])`, `rate(x[5m]) and rate(y[5m])`,
		`sum(x)`, `sum by (n) (x or on (n) rate(y[5m]))`, `sum without (id) (x)`, `sum without (id) (x) or sum without (id) (y)`,
		`sum by (n) (x) / on (n) group_left (job) max by (n, job) (y)`, `sum by (n) (x) * on (n) group_right () y`,
		`quantile by (n) (0.9, x)`, `topk(1, x)`, `count_values("v", x)`, `limitk(1, x)`,
		`rate(x[5m]) / rate(y[5m])`, `rate(x[5m]) > rate(y[5m])`, `irate(x[1m]) + ignoring (le) group_left () delta(y[1m])`,
		`increase(x[1m])`, `avg_over_time(x[1m])`, `max_over_time(rate(x[1m])[5m:1m])`, `deriv(sum by (n) (x)[5m:1m])`,
		`absent(x)`, `absent_over_time(x[5m])`, `vector(1)`, `1`, `time()`, `scalar(x)`, `x + scalar(y)`, `hour()`, `timestamp(x)`,
		`label_replace(sum by (id) (x), "n", "$1", "id", "(.*)")`, `label_join(sum by (id) (x), "n", "-", "id")`, `label_join(x, "n", "-", "id", "job")`,
		`histogram_quantile(0.9, rate(x[5m]))`, `abs(x)`, `clamp_max(sum by (n) (x), scalar(y))`, `round(x, 0.1)`, `sort_desc(x)`,
		`x offset 1m`, `rate(x[1m] offset 1m)`, `x @ 1760000100`, `rate(x[1m] @ end())`, `x @ start()`,
		`(x > 5) or y`, `(sum by (n) (x) > 5) or sum by (n) (y)`, `sum by (n) ((x > 1e9) or y)`, `x and on () vector(1)`,
		`{"x","n"="a"}`, `sum by ("n") (x)`, `x or on (__name__) y`, `x and on (__name__) x`, `first_over_time(x[5m])`, `ts_of_last_over_time(x[5m])`,
	} {
		for _, rate := range []string{RateCovered, RatePrometheus} {
			r := reading(t, rate, expr)
			if strings.Contains(w.read(r, 300), "error:") {
				t.Errorf("%s: %s", expr, w.read(r, 300))
			}
			if !r.plan.scalar {
				if got := w.one(reading(t, rate, "sum("+expr+")"), 300); got.Err != "" && !strings.HasPrefix(got.Err, "answers") {
					t.Errorf("sum(%s): %s", expr, got.Err)
				}
			}
			w.read(r, 700) // everything is gone: the lookup runs too
			c, err := r.plan.compile(nil, question{condition: true, only: "x", forget: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range []string{c.all, c.seen, c.before(time.Hour)} {
				if q == "" {
					continue
				}
				if _, err := w.eval.Query(bg, q, at(300)); err != nil {
					t.Errorf("%s: %v\n%s", expr, err, q)
				}
			}
		}
	}
}

// Of two inputs in one component the one that is nearer to being stale counts,
// whichever the expression names first.
func TestStaleOfTheFasterOfTwoInputs(t *testing.T) {
	w := newWorld(t)
	w.gauge(`fast{n="a"}`, 2, 0, 300, 5)
	w.gauge(`slow{n="a"}`, 50, 0, 300, 60)
	for _, expr := range []string{`sum by (n) (fast * on (n) slow)`, `sum by (n) (slow * on (n) fast)`} {
		r := reading(t, RateCovered, expr, "n")
		w.want(r, 330, `{n="a"} 100.00 fresh`)
		w.want(r, 331, `{n="a"} 100.00 stale`)
	}
	w.gauge(`fast{n="a"}`, 2, 305, 480, 5)
	for _, expr := range []string{`sum by (n) (fast * on (n) slow)`, `sum by (n) (slow * on (n) fast)`} {
		r := reading(t, RateCovered, expr, "n")
		w.want(r, 480, `{n="a"} 100.00 fresh`)
		w.want(r, 481, `{n="a"} 100.00 stale`)
	}
}
