package rules

import (
	"errors"
	"strings"
	"testing"
	"time"
)

const (
	cpu0 = `hw_energy_joules_total{hw_type="cpu",hw_id="cpu0",k8s_node_name="a"}`
	cpu1 = `hw_energy_joules_total{hw_type="cpu",hw_id="cpu1",k8s_node_name="a"}`
	gpu0 = `hw_power_watts{hw_type="gpu",hw_id="gpu0",k8s_node_name="a"}`
)

// nodeWorld is the subject of most cases: two CPU packages with counters of 100 W and
// 80 W and one GPU with a gauge of 250 W, every 5 s, each up to its own end.
func nodeWorld(t *testing.T, cpu0Until, cpu1Until, gpu0Until float64) (*world, *Reading) {
	w := newWorld(t)
	for s := 0.0; s <= max(cpu0Until, cpu1Until, gpu0Until); s += 5 {
		if s <= cpu0Until {
			w.counter(cpu0, 100, s, s, 5)
		}
		if s <= cpu1Until {
			w.counter(cpu1, 80, s, s, 5)
		}
		if s <= gpu0Until {
			w.gauge(gpu0, 250, s, s, 5)
		}
	}
	return w, reading(t, RateCovered, nodePower, "k8s_node_name")
}

func TestFresh(t *testing.T) {
	w, r := nodeWorld(t, 600, 600, 600)
	w.want(r, 600, `{k8s_node_name="a"} 430.00 fresh`)
	k := w.one(r, 612)
	if k.Age != 12*time.Second || k.Newest != at(600) || k.Why != "" || k.Err != "" {
		t.Errorf("age %s, newest %d, why %q, err %q; want 12s, %d, nothing", k.Age, k.Newest, k.Why, k.Err, at(600))
	}
}

// A counter with one sample so far, then a second one; covered_rate answers at
// once, and the two flushes a few milliseconds apart prove nothing (X25).
func TestWarming(t *testing.T) {
	w := newWorld(t)
	r := reading(t, RateCovered, nodePower, "k8s_node_name")
	w.add(cpu0, 0, 1000)
	w.want(r, 0, `{k8s_node_name="a"} - warming`)
	w.add(cpu0, 0.02, 1002)
	w.want(r, 1, `{k8s_node_name="a"} - warming`)
	w.add(cpu0, 5, 1500)
	w.want(r, 5, `{k8s_node_name="a"} 100.00 fresh`)
}

// One warming component makes the whole key warming, whatever the others say.
func TestWarmingComponentBesideFreshOnes(t *testing.T) {
	w, r := nodeWorld(t, 600, -1, 600)
	w.counter(cpu1, 80, 600, 600, 5)
	w.want(r, 600, `{k8s_node_name="a"} - warming`)
	if got, want := w.one(r, 600).Why, "cpu1"; !strings.Contains(got, want) {
		t.Errorf("why = %q; want it to name %s", got, want)
	}
}

// A series that has a sample and no rate does not matter where the nearest
// enclosing `or` answered for the same matching labels: the gauge does.
func TestWarmingCounterBehindAGauge(t *testing.T) {
	w := newWorld(t)
	r := reading(t, RateCovered, nodePower, "k8s_node_name")
	w.gauge(`hw_power_watts{hw_type="cpu",hw_id="cpu0",k8s_node_name="a"}`, 99, 0, 5, 5)
	w.add(cpu0, 5, 1000)
	w.want(r, 5, `{k8s_node_name="a"} 99.00 fresh`)
	w.add(cpu0, 10, 1500)
	w.want(r, 10, `{k8s_node_name="a"} 100.00 fresh`)
}

// S0-157 holds under rate: prometheus (X25): a reading is not trusted until the
// series spans one window.
func TestWarmingUnderPrometheusLastsAWindow(t *testing.T) {
	w := newWorld(t)
	r := reading(t, RatePrometheus, nodePower, "k8s_node_name")
	w.counter(cpu0, 100, 0, 600, 5)
	w.want(r, 0, `{k8s_node_name="a"} - warming`)
	w.want(r, 60, `{k8s_node_name="a"} - warming`)
	w.want(r, 299, `{k8s_node_name="a"} - warming`)
	w.want(r, 300, `{k8s_node_name="a"} 100.00 fresh`)
	w.want(r, 600, `{k8s_node_name="a"} 100.00 fresh`)
}

// Under rate: prometheus a young counter taints only what is read of it: the
// gauge of another component beside it does not make it old.
func TestYoungCounterUnderPrometheusTaintsItsKey(t *testing.T) {
	w := newWorld(t)
	r := reading(t, RatePrometheus, nodePower, "k8s_node_name")
	w.counter(cpu0, 100, 400, 600, 5)
	w.gauge(gpu0, 250, 0, 600, 5)
	w.gauge(`hw_power_watts{hw_type="gpu",hw_id="gpu0",k8s_node_name="b"}`, 50, 0, 600, 5)
	w.want(r, 600, `{k8s_node_name="a"} - warming`+"\n"+`{k8s_node_name="b"} 50.00 fresh`)
}

// Stale is judged on the oldest component: one live source does not hide a dead
// one. The default is max(3 x the measured interval, 30 s).
func TestStaleOnTheOldestComponent(t *testing.T) {
	w, r := nodeWorld(t, 600, 560, 600)
	w.want(r, 590, `{k8s_node_name="a"} 430.00 fresh`)
	w.want(r, 591, `{k8s_node_name="a"} 430.00 stale`)
	w.want(r, 600, `{k8s_node_name="a"} 430.00 stale`)
	if k := w.one(r, 600); k.Age != 40*time.Second || k.Newest != at(600) {
		t.Errorf("age %s, newest %d; want the oldest component's age, 40s, and the newest input, %d", k.Age, k.Newest, at(600))
	}
}

func TestStaleGauge(t *testing.T) {
	w, r := nodeWorld(t, 600, 600, 560)
	w.want(r, 600, `{k8s_node_name="a"} 430.00 stale`)
}

func TestStaleAfterOfTheRule(t *testing.T) {
	w, r := nodeWorld(t, 600, 600, 600)
	r.StaleAfter = 10 * time.Second
	w.want(r, 610, `{k8s_node_name="a"} 430.00 fresh`)
	w.want(r, 611, `{k8s_node_name="a"} 430.00 stale`)
	r.StaleAfter = time.Minute
	w.want(r, 660, `{k8s_node_name="a"} 430.00 fresh`)
}

// One slow component, on another node or the same, does not let fast ones of the
// same selector be as old as itself.
func TestStaleByEachComponentsOwnPace(t *testing.T) {
	f := func(read, kind string) {
		t.Helper()
		w := newWorld(t)
		r := reading(t, RateCovered, `sum by (n) (max by (n, id) (`+read+`))`, "n")
		add := func(series string, until, step float64) {
			for s := 0.0; s <= until; s += step {
				w.add(kind+series, s, 100*s+1000)
			}
		}
		add(`{n="fast",id="0"}`, 700, 5)
		add(`{n="fast",id="1"}`, 600, 5)
		add(`{n="slow",id="0"}`, 660, 60)
		add(`{n="both",id="0"}`, 700, 5)
		add(`{n="both",id="1"}`, 660, 60)
		quality := func(now float64) string {
			t.Helper()
			all, err := w.eval.Reading(t.Context(), r, at(now))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, k := range all {
				got = append(got, string(k.Quality))
			}
			return strings.Join(got, " ")
		}
		// Keys in order: both, fast, slow.
		if got := quality(630); got != "fresh fresh fresh" {
			t.Errorf("%s at 630: %s", read, got)
		}
		if got := quality(635); got != "fresh stale fresh" {
			t.Errorf("%s at 635: %s", read, got)
		}
		if got := quality(735); got != "stale stale fresh" {
			t.Errorf("%s at 735: %s", read, got)
		}
		if got := quality(845); !strings.HasSuffix(got, "stale") {
			t.Errorf("%s at 845: %s", read, got)
		}
	}
	f(`rate(c[5m])`, "c")
	f(`g`, "g")
	f(`rate(c[5m]) or on (n, id) g`, "g")
	f(`rate(c[5m]) or on (n, id) g`, "c")
}

// A slow source may be three of its own intervals old, and that does not let a
// fast one beside it be as old.
func TestStaleByEachSelectorsOwnInterval(t *testing.T) {
	w := newWorld(t)
	r := reading(t, RateCovered, nodePower, "k8s_node_name")
	w.gauge(gpu0, 250, 0, 600, 60)
	w.counter(cpu0, 100, 0, 700, 5)
	w.want(r, 700, `{k8s_node_name="a"} 350.00 fresh`)
	w.want(r, 731, `{k8s_node_name="a"} 350.00 stale`)
	w.counter(cpu0, 100, 705, 790, 5)
	w.want(r, 780, `{k8s_node_name="a"} 350.00 fresh`)
	w.want(r, 781, `{k8s_node_name="a"} 350.00 stale`)
}

// No answer is missing. A key that nothing was ever seen of is not there; a
// reading without key labels has its one key always.
func TestMissing(t *testing.T) {
	w := newWorld(t)
	w.want(reading(t, RateCovered, nodePower, "k8s_node_name"), 0, "")
	w.want(reading(t, RateCovered, "avg(ambient)"), 0, "{} - missing")
}

// A key that was there and is absent stays missing until forget_after: it never
// goes in silence.
func TestMissingUntilForgotten(t *testing.T) {
	w, r := nodeWorld(t, 600, 600, 600)
	w.want(r, 600, `{k8s_node_name="a"} 430.00 fresh`)
	w.want(r, 700, `{k8s_node_name="a"} 430.00 stale`)
	w.want(r, 900, `{k8s_node_name="a"} - missing partial`)
	w.want(r, 4200, `{k8s_node_name="a"} - missing partial`)
	w.want(r, 4201, ``)
}

// P14: a clock that jumps far ahead does not take a key away unsaid.
func TestMissingAfterAClockJump(t *testing.T) {
	w, r := nodeWorld(t, 600, 600, 600)
	w.want(r, 600, `{k8s_node_name="a"} 430.00 fresh`)
	const tenYears = 10 * 365 * 24 * 3600
	w.want(r, tenYears, `{k8s_node_name="a"} - missing`)
	w.want(r, tenYears+60, `{k8s_node_name="a"} - missing`)
	w.want(r, 605, `{k8s_node_name="a"} 430.00 fresh`)
	w.want(r, -7200, `{k8s_node_name="a"} - missing partial`)
	w.want(r, 610, `{k8s_node_name="a"} 430.00 fresh`)
}

// One absent component makes the key partial, beside its quality, until it is
// forgotten an hour after its last sample.
func TestPartial(t *testing.T) {
	w, r := nodeWorld(t, 5000, 600, 5000)
	w.want(r, 600, `{k8s_node_name="a"} 430.00 fresh`)
	w.want(r, 700, `{k8s_node_name="a"} 430.00 stale`)
	w.want(r, 900, `{k8s_node_name="a"} 350.00 fresh partial`)
	if got := w.one(r, 900).Why; !strings.Contains(got, "cpu1") {
		t.Errorf("why = %q; want it to name cpu1", got)
	}
	w.want(r, 4200, `{k8s_node_name="a"} 350.00 fresh partial`)
	w.want(r, 4201, `{k8s_node_name="a"} 350.00 fresh`)
}

func TestPartialEndsWhenTheComponentIsBack(t *testing.T) {
	w, r := nodeWorld(t, 1300, 600, 1300)
	w.want(r, 600, `{k8s_node_name="a"} 430.00 fresh`)
	w.want(r, 1000, `{k8s_node_name="a"} 350.00 fresh partial`)
	w.counter(cpu1, 80, 1200, 1200, 5)
	w.want(r, 1200, `{k8s_node_name="a"} - warming`)
	w.counter(cpu1, 80, 1205, 1205, 5)
	w.want(r, 1205, `{k8s_node_name="a"} 430.00 fresh`)
}

func TestForgetAfterOfTheRule(t *testing.T) {
	w, r := nodeWorld(t, 2000, 600, 2000)
	r.ForgetAfter = 10 * time.Minute
	w.want(r, 600, `{k8s_node_name="a"} 430.00 fresh`)
	w.want(r, 1200, `{k8s_node_name="a"} 350.00 fresh partial`)
	w.want(r, 1201, `{k8s_node_name="a"} 350.00 fresh`)
}

// A stale marker ends the expectation: a gauge is gone at once, a counter when
// no window holds it any more.
func TestMarkerForgetsTheComponent(t *testing.T) {
	w, r := nodeWorld(t, 1000, 600, 600)
	w.want(r, 600, `{k8s_node_name="a"} 430.00 fresh`)
	w.end(gpu0, 605)
	w.want(r, 605, `{k8s_node_name="a"} 180.00 fresh`)
	w.end(cpu1, 605)
	w.want(r, 620, `{k8s_node_name="a"} 180.00 fresh`)
	w.want(r, 640, `{k8s_node_name="a"} 180.00 stale`) // the window still counts it
	w.want(r, 894, `{k8s_node_name="a"} 180.00 stale`)
	w.want(r, 896, `{k8s_node_name="a"} 100.00 fresh`) // one sample, and no rate: it is not about to have one
}

// The marker may be looked up after its five minutes of sight.
func TestMarkerForgetsTheComponentLate(t *testing.T) {
	w, r := nodeWorld(t, 2000, 2000, 600)
	w.want(r, 600, `{k8s_node_name="a"} 430.00 fresh`)
	w.end(gpu0, 605)
	w.want(r, 2000, `{k8s_node_name="a"} 180.00 fresh`)
}

// C06: a point flagged as no recorded value is a marker. The reading is none, at
// once, and never 0; the engine learns of it, since the key stays as missing.
func TestC06NoRecordedValue(t *testing.T) {
	w := newWorld(t)
	r := reading(t, RateCovered, nodePower, "k8s_node_name")
	w.gauge(gpu0, 250, 60, 60, 5)
	w.want(r, 119, `{k8s_node_name="a"} 250.00 stale`)
	w.end(gpu0, 120)
	w.want(r, 120, `{k8s_node_name="a"} - missing`)
	w.want(r, 180, `{k8s_node_name="a"} - missing`)
	w.restart()
	w.want(r, 180, `{k8s_node_name="a"} - missing`)
	w.want(r, 3661, ``)
}

// C05: a point that was refused as too old leaves its component where it was.
func TestC05TooOldPoint(t *testing.T) {
	w := newWorld(t)
	r := reading(t, RateCovered, nodePower, "k8s_node_name")
	for _, s := range []struct {
		id string
		v  float64
	}{{"cpu0", 200}, {"cpu1", 180}} {
		w.add(`hw_power_watts{hw_type="cpu",hw_id="`+s.id+`",k8s_node_name="a"}`, 3600, s.v)
	}
	w.add(`hw_power_watts{hw_type="cpu",hw_id="cpu0",k8s_node_name="a"}`, 3660, 210)
	w.add(gpu0, 3660, 300)
	// cpu1 was sent for 660 and refused: its last sample is a minute old, and at
	// the measured interval of 60 s that is not stale.
	w.want(r, 3660, `{k8s_node_name="a"} 690.00 fresh`)
}

// C10: NaN and Inf are no value, never 0 and never 300; the third in a row makes
// the key stale. Another key is not touched.
func TestC10NaNAndInfinity(t *testing.T) {
	w := newWorld(t)
	r := reading(t, RateCovered, nodePower, "k8s_node_name")
	nan := `hw_power_watts{hw_type="cpu",hw_id="cpu0",k8s_node_name="edge-a"}`
	for s := 60.0; s <= 75; s += 5 {
		w.add(nan, s, nanValue)
		w.add(`hw_power_watts{hw_type="gpu",hw_id="gpu0",k8s_node_name="edge-a"}`, s, 300)
		w.add(`hw_power_watts{hw_type="cpu",hw_id="cpu0",k8s_node_name="edge-b"}`, s, 250.5)
	}
	w.want(r, 60, `{k8s_node_name="edge-a"} - fresh error`+"\n"+`{k8s_node_name="edge-b"} 250.50 fresh`)
	w.want(r, 65, `{k8s_node_name="edge-a"} - fresh error`+"\n"+`{k8s_node_name="edge-b"} 250.50 fresh`)
	w.want(r, 70, `{k8s_node_name="edge-a"} - stale error`+"\n"+`{k8s_node_name="edge-b"} 250.50 fresh`)
	w.add(nan, 80, 100)
	w.want(r, 80, `{k8s_node_name="edge-a"} 400.00 fresh`+"\n"+`{k8s_node_name="edge-b"} 250.50 fresh`)

	ambient := reading(t, RateCovered, "avg(ambient_celsius)")
	w.add("ambient_celsius", 80, infValue)
	w.want(ambient, 80, `{} - fresh error`)
	if k := w.one(ambient, 80); k.Err != "answers +Inf" {
		t.Errorf("err = %q; want it to say +Inf", k.Err)
	}
}

// A key that comes back twice is an error of that key.
func TestKeyTwice(t *testing.T) {
	w, _ := nodeWorld(t, 600, 600, 600)
	r := reading(t, RateCovered, `hw_power_watts or hw_energy_joules_total`, "k8s_node_name", "hw_type")
	w.want(r, 600, `{hw_type="cpu", k8s_node_name="a"} - fresh error`+"\n"+`{hw_type="gpu", k8s_node_name="a"} 250.00 fresh`)
	w.want(r, 601, `{hw_type="cpu", k8s_node_name="a"} - fresh error`+"\n"+`{hw_type="gpu", k8s_node_name="a"} 250.00 fresh`)
	w.want(r, 602, `{hw_type="cpu", k8s_node_name="a"} - stale error`+"\n"+`{hw_type="gpu", k8s_node_name="a"} 250.00 fresh`)
	if k := w.read(r, 603); !strings.Contains(k, "stale error") {
		t.Error(k)
	}
}

// A query error gives no value for any key that is known; the third in a row
// makes each stale, and one good answer ends the row.
func TestQueryError(t *testing.T) {
	w, r := nodeWorld(t, 630, 630, 630)
	w.fail = errors.New("disk on fire")
	w.want(r, 595, `error: disk on fire`)
	w.fail = nil
	w.want(r, 600, `{k8s_node_name="a"} 430.00 fresh`)
	w.fail = errors.New("disk on fire")
	w.want(r, 605, `{k8s_node_name="a"} - fresh error`)
	w.want(r, 605, `{k8s_node_name="a"} - fresh error`) // the same instant counts once
	w.want(r, 610, `{k8s_node_name="a"} - fresh error`)
	w.want(r, 615, `{k8s_node_name="a"} - stale error`)
	w.fail = nil
	w.want(r, 620, `{k8s_node_name="a"} 430.00 fresh`)
	w.fail = errors.New("disk on fire")
	w.want(r, 625, `{k8s_node_name="a"} - fresh error`)
	w.want(r, 660, `{k8s_node_name="a"} - stale error`) // by its age: the last known sample is 40 s old
}

// The set of expected components survives a restart: it is found in the hour
// before the first evaluation.
func TestSeedingAfterARestart(t *testing.T) {
	w, r := nodeWorld(t, 2000, 600, 2000)
	w.gauge(`hw_power_watts{hw_type="gpu",hw_id="gpu1",k8s_node_name="a"}`, 250, 0, 600, 5)
	w.end(`hw_power_watts{hw_type="gpu",hw_id="gpu1",k8s_node_name="a"}`, 605)
	w.gauge(`hw_power_watts{hw_type="gpu",hw_id="gpu0",k8s_node_name="b"}`, 50, 0, 600, 5)
	w.want(r, 1900, `{k8s_node_name="a"} 350.00 fresh partial`+"\n"+`{k8s_node_name="b"} - missing partial`)
	w.restart()
	w.want(r, 1950, `{k8s_node_name="a"} 350.00 fresh partial`+"\n"+`{k8s_node_name="b"} - missing partial`)
}

// A young component that died before it ever answered is expected all the same.
func TestSeedingFindsWhatOnlyWarmed(t *testing.T) {
	w, r := nodeWorld(t, 2000, 0, 2000)
	w.restart()
	w.want(r, 2000, `{k8s_node_name="a"} 350.00 fresh partial`)
}

func TestSeedingForgetsAfterAnHour(t *testing.T) {
	w, r := nodeWorld(t, 5000, 600, 5000)
	w.want(r, 4300, `{k8s_node_name="a"} 350.00 fresh`)
}
