package store

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"pgregory.net/rapid"
)

// every lists the times from, from+5, ... to.
func every(from, to float64) []float64 {
	var out []float64
	for t := from; t <= to; t += 5 {
		out = append(out, t)
	}
	return out
}

// The table of decisions.md, "How a rate is read": 350 W every 5 s, read over
// [5m] at t = 600 s. X18 is the row with the reset, X25 the young ones.
func TestCoveredRateTable(t *testing.T) {
	db := open(t, Options{Durability: "os"})
	const none = -1
	n := 0
	f := func(name string, times []float64, reset, rate, covered float64) {
		t.Helper()
		n++
		ls := labels.FromStrings("__name__", "energy", "row", fmt.Sprint(n))
		for _, s := range times {
			v := 350 * s
			if s >= reset {
				v = 350 * (s - reset)
			}
			write(t, db, ls, point{second(s), v})
		}
		read := func(function string) float64 {
			v, ok := valueOf(t, db, fmt.Sprintf(`%s(energy{row="%d"}[5m])`, function, n), second(600))
			if !ok {
				return none
			}
			return v
		}
		if got := read("rate"); math.Abs(got-rate) > 0.005 {
			t.Errorf("%s: rate = %.4f; want %.2f", name, got, rate)
		}
		if got := read("covered_rate"); got != covered {
			t.Errorf("%s: covered_rate = %.17g; want %.2f", name, got, covered)
		}
	}
	never := math.Inf(1)
	f("full window", every(305, 600), never, 350, 350)
	f("240 s old", every(360, 600), never, 282.92, 350)
	f("60 s late", every(305, 540), never, 282.92, 350)
	f("7 s late", every(303, 593), never, 344.75, 350)
	f("two samples", []float64{595, 600}, never, 8.75, 350)
	f("one sample", []float64{600}, never, none, none)
	f("a gap", append([]float64{300}, every(545, 600)...), never, 67.08, 350)
	f("a reset", every(305, 600), 450, 344.07, 350)
}

func TestCoveredRateEdges(t *testing.T) {
	db := open(t, Options{Durability: "os"})
	nan, inf := math.NaN(), math.Inf(1)
	n := 0
	const none = -1
	f := func(name string, want float64, points ...point) {
		t.Helper()
		n++
		ls := labels.FromStrings("__name__", "c", "row", fmt.Sprint(n))
		for i := range points {
			points[i].t = epoch + points[i].t
		}
		write(t, db, ls, points...)
		got, ok := valueOf(t, db, fmt.Sprintf(`covered_rate(c{row="%d"}[1m])`, n), second(60))
		if !ok {
			got = none
		}
		if got != want {
			t.Errorf("%s: covered_rate = %g; want %g", name, got, want)
		}
	}
	f("0.999 s", none, point{50_000, 0}, point{50_999, 7})
	f("1 s", 7, point{50_000, 0}, point{51_000, 7})
	f("flat", 0, point{50_000, 5}, point{55_000, 5})
	f("only down", none, point{50_000, 9}, point{55_000, 8}, point{60_000, 7})
	f("1 s left by a reset", none, point{50_000, 9}, point{55_000, 0}, point{55_500, 4})
	f("NaN between", 2, point{40_000, 0}, point{45_000, 10}, point{50_000, nan}, point{55_000, 100}, point{60_000, 110})
	f("NaN first and last", 2, point{40_000, nan}, point{45_000, 0}, point{55_000, 20}, point{60_000, nan})
	f("only NaN", none, point{50_000, nan}, point{55_000, nan})
	f("Inf", 2, point{40_000, 0}, point{45_000, 10}, point{50_000, inf}, point{55_000, inf}, point{60_000, 3})
	f("negative", 2, point{40_000, -30}, point{55_000, 0})
}

func TestCoveredIncrease(t *testing.T) {
	db := open(t, Options{Durability: "os"})
	const none = -1
	n := 0
	f := func(name, window string, want float64, at []float64, values []float64) {
		t.Helper()
		n++
		ls := labels.FromStrings("__name__", "c", "row", fmt.Sprint(n))
		for i := range at {
			write(t, db, ls, point{second(at[i]), values[i]})
		}
		got, ok := valueOf(t, db, fmt.Sprintf(`covered_increase(c{row="%d"}[%s])`, n, window), second(600))
		if !ok {
			got = none
		}
		if got != want {
			t.Errorf("%s: covered_increase = %g; want %g", name, got, want)
		}
	}
	f("one sample in the window, one before", "30s", 4, []float64{560, 590}, []float64{1, 5})
	f("the sample at the window's start", "30s", 4, []float64{540, 570, 600}, []float64{0, 1, 5})
	f("before it nothing counts", "30s", 4, []float64{500, 530, 560, 590}, []float64{7, 0, 1, 5})
	f("a base within the lookback", "30s", 4, []float64{270.001, 600}, []float64{1, 5})
	f("a base older than the lookback", "30s", none, []float64{270, 600}, []float64{1, 5})
	f("no sample in the window", "30s", none, []float64{500, 560}, []float64{1, 5})
	f("one sample at all", "30s", none, []float64{600}, []float64{5})
	f("young", "5m", 9, []float64{590, 595, 600}, []float64{1, 5, 10})
	f("a reset", "1m", 7, []float64{530, 560, 580, 600}, []float64{10, 14, 2, 5})
	f("only a reset", "1m", 0, []float64{530, 600}, []float64{10, 2})
	f("NaN as the base", "1m", 3, []float64{530, 560, 600}, []float64{math.NaN(), 2, 5})
	f("flat", "1m", 0, []float64{530, 560, 600}, []float64{2, 2, 2})
}

// C40 (S1-62): a counter of throttled nanoseconds with a sample each 30 s; the
// window's first sample lies on its open side, and all 90 s are there.
func TestCoveredIncreaseC40(t *testing.T) {
	db := open(t, Options{Durability: "os"})
	ls := labels.FromStrings("__name__", "DCGM_FI_DEV_POWER_VIOLATION")
	for s := 0; s <= 3600; s += 30 {
		v := 5e9
		if s > 1500 {
			v += 30e9 * math.Min(3, float64(s-1500)/30)
		}
		write(t, db, ls, point{second(float64(s)), v})
	}
	if got, _ := valueOf(t, db, `covered_increase(DCGM_FI_DEV_POWER_VIOLATION[1h]) / 1e9`, second(3600)); got != 90 {
		t.Errorf("power throttle = %.17g s; want 90", got)
	}
	if got, _ := valueOf(t, db, `increase(DCGM_FI_DEV_POWER_VIOLATION[1h]) / 1e9`, second(3600)); math.Abs(got-90.76) > 0.005 {
		t.Errorf("plain increase = %.4f s; want 90.76", got)
	}
}

// offset, @, brackets, computed ranges, subqueries and ranges of time all give
// what the plain words give at the instant that they mean.
func TestCoveredIncreaseForms(t *testing.T) {
	db := open(t, Options{Durability: "os"})
	ls := labels.FromStrings("__name__", "c")
	for s := 0.0; s <= 1800; s += 30 {
		write(t, db, ls, point{second(s), s * s})
	}
	want := func(at float64) float64 { return at*at - (at-60)*(at-60) }
	f := func(expr string, want float64) {
		t.Helper()
		if got, ok := valueOf(t, db, expr, second(1200)); !ok || got != want {
			t.Errorf("%s = %g, %v; want %g", expr, got, ok, want)
		}
	}
	f("covered_increase(c[1m])", want(1200))
	f("covered_increase(((c[1m])))", want(1200))
	f("covered_increase(c[1m] offset 5m)", want(900))
	f("covered_increase(c[1m] offset -5m)", want(1500))
	f(fmt.Sprintf("covered_increase(c[1m] @ %d)", epoch/1000+600), want(600))
	f(fmt.Sprintf("covered_increase(c[1m] @ %d offset 1m)", epoch/1000+600), want(540))
	f("covered_increase(c[1m] @ end())", want(1200))
	f("covered_increase(c[30s * 2])", want(1200))
	f("covered_increase(c[1m:30s])", want(1200))
	f("covered_increase(c[(30s * 2):30s])", want(1200))
	f("covered_increase(c[1m:30s] offset 5m)", want(900))
	f(fmt.Sprintf("covered_increase(c[1m:30s] @ %d)", epoch/1000+600), want(600))
	f("max_over_time(covered_increase(c[1m])[10m:30s] offset 1m)", want(1140))
	f(fmt.Sprintf("max_over_time(covered_increase(c[1m] @ %d)[2m:30s])", epoch/1000+600), want(600))
	f("sum(covered_increase(c[1m])) + 0 * covered_increase(c[5m])", want(1200))

	step := 7 * time.Second
	a, err := db.QueryRangeJSON(context.Background(), "covered_increase(c[1m])", second(900), second(1200), step, 0)
	if err != nil {
		t.Fatal(err)
	}
	points := decodeMatrix(t, a.Data)
	if len(points) != 43 {
		t.Fatalf("%d points; want 43", len(points))
	}
	for _, p := range points {
		if v, ok := valueOf(t, db, "covered_increase(c[1m])", p.t); !ok || v != p.v {
			t.Errorf("at %d the range query reads %g, the instant query %g", p.t, p.v, v)
		}
	}
}

func TestCoveredRefuses(t *testing.T) {
	db := open(t, Options{Durability: "os"})
	f := func(expr, want string) {
		t.Helper()
		_, err := db.Instant(context.Background(), expr, epoch)
		wantQueryError(t, expr, err, BadData, want)
	}
	f("covered_rate(x)", "expected type range vector")
	f("covered_increase(x)", "expected type range vector")
	f("covered_increase(x[5m], 3)", "expected 1 argument(s)")
	f("covered_increase(x[5m] anchored)", "takes neither anchored nor smoothed")
}

func TestCoveredRefusesHistograms(t *testing.T) {
	db := open(t, Options{Durability: "os"})
	app := db.Appender(context.Background())
	for i := range int64(3) {
		h := &histogram.FloatHistogram{Count: float64(i), Sum: float64(i)}
		if _, err := app.AppendHistogram(0, labels.FromStrings("__name__", "h"), epoch+i*5000, nil, h); err != nil {
			t.Fatal(err)
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	for _, function := range []string{"covered_rate", "covered_increase"} {
		expr := function + "(h[1m])"
		got, err := db.Instant(context.Background(), expr, second(10))
		wantQueryError(t, expr, err, Execution, function+" takes no histograms: h")
		if len(got) != 0 {
			t.Errorf("%s = %v; want nothing", expr, got)
		}
		a, err := db.QueryJSON(context.Background(), expr, second(10), 0)
		if err != nil || len(a.Warnings) != 1 {
			t.Errorf("QueryJSON(%s) = %v, %v; want one warning", expr, a.Warnings, err)
		}
	}
	if v, ok := valueOf(t, db, "covered_increase(h[1m])", second(71)); ok {
		t.Errorf("covered_increase = %g from histograms before the window; want nothing", v)
	}
}

// A counter of constant rate reads that rate, whatever the times of its
// samples, the gaps between them, how late the newest is, and where it resets.
func TestCoveredRateReadsTheTrueRate(t *testing.T) {
	db := open(t, Options{Durability: "os"})
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		ls := labels.FromStrings("__name__", "energy", "case", fmt.Sprint(n))
		rate := rapid.Float64Range(0.01, 5000).Draw(t, "rate")
		start := rapid.Float64Range(0, 1e6).Draw(t, "start")
		gaps := rapid.SliceOfN(rapid.Int64Range(1, 20_000), 1, 80).Draw(t, "gaps")
		late := rapid.Int64Range(0, 60_000).Draw(t, "late")
		resets := rapid.SliceOfN(rapid.IntRange(0, 12), len(gaps), len(gaps)).Draw(t, "resets")

		ts, counter := epoch, start
		points := []point{{ts, counter}}
		var covered int64 // ms that the newest 5 minutes prove
		var spans [][3]int64
		for i, gap := range gaps {
			ts += gap
			grown := counter + rate*float64(gap)/1000
			fell := resets[i] == 0 && rate*float64(gap)/2000 < counter // one in 13
			if fell {
				grown = rate * float64(gap) / 2000 // it reset halfway
			}
			counter = grown
			points = append(points, point{ts, counter})
			if !fell {
				spans = append(spans, [3]int64{ts - gap, ts, gap})
			}
		}
		now := ts + late
		for _, s := range spans {
			if s[0] > now-300_000 {
				covered += s[2]
			}
		}
		if err := tryWrite(db, ls, points...); err != nil {
			t.Fatal(err)
		}
		got, err := db.Instant(context.Background(), fmt.Sprintf(`covered_rate(energy{case="%d"}[5m])`, n), now)
		if err != nil {
			t.Fatal(err)
		}
		if covered < 1000 {
			if len(got) != 0 {
				t.Fatalf("covered_rate = %v from %d ms; want none", got, covered)
			}
			return
		}
		// Each sample is rounded to a double, twice at most.
		tolerance := 4 * float64(len(points)) * (start + rate*float64(now-epoch)/1000) * 0x1p-52 / (float64(covered) / 1000)
		if len(got) != 1 || math.Abs(got[0].V-rate) > tolerance {
			t.Fatalf("covered_rate = %v; want %g within %g", got, rate, tolerance)
		}
	})
}

// covered_increase is the plain sum of the rises since the last sample at or
// before the window's start.
func TestCoveredIncreaseCountsEveryRise(t *testing.T) {
	db := open(t, Options{Durability: "os"})
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		ls := labels.FromStrings("__name__", "errors", "case", fmt.Sprint(n))
		steps := rapid.SliceOfN(rapid.Int64Range(1, 60_000), 1, 40).Draw(t, "gaps")
		values := rapid.SliceOfN(rapid.IntRange(0, 1000), len(steps), len(steps)).Draw(t, "values")
		window := rapid.Int64Range(1, 600).Draw(t, "window")
		now := epoch + rapid.Int64Range(0, 1_800_000).Draw(t, "now")
		var points []point
		ts := epoch
		for i, gap := range steps {
			ts += gap
			points = append(points, point{ts, float64(values[i])})
		}
		if err := tryWrite(db, ls, points...); err != nil {
			t.Fatal(err)
		}

		start := now - window*1000
		var base *point
		want, pairs, inside := 0.0, 0, 0
		for i := range points {
			p := &points[i]
			switch {
			case p.t > now:
				continue
			case p.t <= start:
				if p.t > start-lookback.Milliseconds() {
					base = p
				}
				continue
			}
			inside++
			if base != nil {
				pairs++
				want += max(0, p.v-base.v)
			}
			base = p
		}
		got, err := db.Instant(context.Background(), fmt.Sprintf(`covered_increase(errors{case="%d"}[%ds])`, n, window), now)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case inside == 0 || pairs == 0:
			if len(got) != 0 {
				t.Fatalf("covered_increase = %v; want none", got)
			}
		case len(got) != 1 || got[0].V != want:
			t.Fatalf("covered_increase = %v; want %g", got, want)
		}
	})
}

// covered_newest says what three expressions of other functions say: the time of
// the last sample of who answers and is recent, -Inf of who is only one of both.
func TestPropertyCoveredNewest(t *testing.T) {
	db := open(t, Options{Durability: "os"})
	n, finite, infinite := 0, 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		row, newest := fmt.Sprint(n), int64(0)
		for i := range rapid.IntRange(1, 4).Draw(rt, "series") {
			ls := labels.FromStrings("__name__", "newest", "row", row, "hw_id", fmt.Sprint(i))
			var points []point
			at, v := rapid.Int64Range(0, 400_000).Draw(rt, "start"), 0.0
			for range rapid.IntRange(1, 40).Draw(rt, "samples") {
				points = append(points, point{epoch + at, v})
				newest = max(newest, at)
				at += rapid.SampledFrom([]int64{1, 900, 5000, 29_000, 61_000}).Draw(rt, "step")
				v = rapid.SampledFrom([]float64{v, v + 10, v + 10, v + 10, v + 10, 0, math.NaN(), math.Float64frombits(value.StaleNaN)}).Draw(rt, "value")
			}
			write(t, db, ls, points...)
		}
		window, recent := rapid.IntRange(1, 300).Draw(rt, "window"), rapid.IntRange(1, 300).Draw(rt, "recent")
		recent = min(window, recent)
		offset := rapid.SampledFrom([]string{"", " offset 7s", " offset -3s"}).Draw(rt, "offset")
		sel := func(seconds int) string { return fmt.Sprintf(`newest{row="%s"}[%ds]%s`, row, seconds, offset) }
		last, rate := "ts_of_last_over_time("+sel(recent)+")", "covered_rate("+sel(window)+")"
		want := fmt.Sprintf("(%s and %s) or (0 * %s - Inf) or (0 * %s - Inf)", last, rate, last, rate)
		for range 4 {
			ts := epoch + newest + rapid.Int64Range(-60_000, 60_000).Draw(rt, "ts")
			read := func(expr string) string {
				got, err := db.Instant(context.Background(), expr, ts)
				if err != nil {
					rt.Fatal(err)
				}
				var lines []string
				for _, s := range got {
					lines = append(lines, fmt.Sprint(s.Metric, s.V))
					if math.IsInf(s.V, -1) {
						infinite++
					} else {
						finite++
					}
				}
				slices.Sort(lines)
				return strings.Join(lines, "\n")
			}
			if got, want := read(fmt.Sprintf("covered_newest(%s, %d)", sel(window), recent)), read(want); got != want {
				rt.Fatalf("at %d:\ncovered_newest\n%s\nthree expressions\n%s", ts, got, want)
			}
		}
	})
	t.Logf("%d times and %d -Inf were compared", finite, infinite)
	if finite == 0 || infinite == 0 {
		t.Error("want some of each")
	}
}
