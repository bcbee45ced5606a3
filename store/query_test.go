package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	promvalue "github.com/prometheus/prometheus/model/value"
)

func wantQueryError(t *testing.T, call string, err error, kind, text string) {
	t.Helper()
	var q *QueryError
	if !errors.As(err, &q) || q.Kind != kind || !strings.Contains(q.Error(), text) {
		t.Errorf("%s = %v; want %s: %s", call, err, kind, text)
	}
}

func decodeMatrix(t *testing.T, data []byte) []point {
	t.Helper()
	var m struct {
		Result []struct{ Values [][2]any }
	}
	if err := json.Unmarshal(data, &m); err != nil || len(m.Result) != 1 {
		t.Fatalf("%s: %v; want one series", data, err)
	}
	var out []point
	for _, v := range m.Result[0].Values {
		f, err := strconv.ParseFloat(v[1].(string), 64)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, point{int64(math.Round(v[0].(float64) * 1000)), f})
	}
	return out
}

func TestInstant(t *testing.T) {
	db := open(t, Options{Durability: "os"})
	write(t, db, labels.FromStrings("__name__", "x", "k", "a"), point{epoch, 1})
	write(t, db, labels.FromStrings("__name__", "x", "k", "b"), point{epoch, 2})
	f := func(expr string, want ...Sample) {
		t.Helper()
		got := instant(t, db, expr, epoch+1)
		if diff := cmp.Diff(want, got, cmp.Comparer(labels.Equal)); diff != "" && len(want)+len(got) > 0 {
			t.Errorf("Instant(%s): -want +got\n%s", expr, diff)
		}
	}
	f("1 + 1", Sample{labels.EmptyLabels(), epoch + 1, 2})
	f("sum(x)", Sample{labels.EmptyLabels(), epoch + 1, 3})
	f(`x{k="b"}`, Sample{labels.FromStrings("__name__", "x", "k", "b"), epoch + 1, 2})
	f("absent(x)")
	f(`ts_of_last_over_time(x{k="a"}[5m])`, Sample{labels.FromStrings("k", "a"), epoch + 1, float64(epoch) / 1000})
	f("sum(x @ 0)")
	f(`sum(x offset -1s)`, Sample{labels.EmptyLabels(), epoch + 1, 3})

	bad := func(expr, kind, want string) {
		t.Helper()
		_, err := db.Instant(context.Background(), expr, epoch)
		wantQueryError(t, "Instant("+expr+")", err, kind, want)
	}
	bad("x[5m]", BadData, "expression gives a matrix")
	bad(`"x"`, BadData, "expression gives a string")
	bad("x +", BadData, "unexpected end of input")
	bad("x / on () x", Execution, "many-to-many")
	bad("quantile(2, x)", Execution, "quantile value should be between 0 and 1")
}

func TestInstantReportsHistograms(t *testing.T) {
	db := open(t, Options{Durability: "os"})
	write(t, db, labels.FromStrings("__name__", "m", "k", "float"), point{epoch, 1})
	app := db.Appender(context.Background())
	if _, err := app.AppendHistogram(0, labels.FromStrings("__name__", "m", "k", "h"), epoch, nil, &histogram.FloatHistogram{Count: 1}); err != nil {
		t.Fatal(err)
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	got, err := db.Instant(context.Background(), "m", epoch)
	wantQueryError(t, "Instant(m)", err, Execution, "1 of 2 results are histograms")
	if len(got) != 1 || got[0].V != 1 {
		t.Errorf("Instant(m) = %v; want the float beside the error", got)
	}
}

func TestInstantCanceled(t *testing.T) {
	db := open(t, Options{Durability: "os"})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := db.Instant(ctx, "1", epoch)
	wantQueryError(t, "Instant", err, Canceled, "canceled")
	ctx, cancel = context.WithTimeout(context.Background(), 0)
	defer cancel()
	_, err = db.Instant(ctx, "1", epoch)
	wantQueryError(t, "Instant", err, Timeout, "timed out")
}

func TestInterval(t *testing.T) {
	db := open(t, Options{Durability: "os"})
	series := func(k string, at ...float64) {
		for _, s := range at {
			write(t, db, labels.FromStrings("__name__", "x", "k", k), point{second(s), 1})
		}
	}
	var long []float64
	for s := 0.0; s < 1000; s += 60 {
		long = append(long, s) // slow once
	}
	for s := 1000.0; s < 1100; s += 5 {
		long = append(long, s) // its newest 20
	}
	series("old", -4000, -3990)
	series("newest", long...)
	series("gap", 1100, 1105, 1110, 3590, 3595) // gaps 5, 5, 2480, 5
	series("fast", 3590, 3591, 3592, 3593)
	series("slow", 3500, 3530, 3560, 3590)
	series("even", 3580, 3590, 3596) // gaps 10 and 6
	series("one", 3600)
	series("back", 2990, 3590) // came back after ten minutes
	series("pair", 3300, 3600) // five minutes, the longest that counts
	write(t, db, labels.FromStrings("__name__", "x", "k", "stale"), point{second(3000), 1}, point{second(3010), 1}, point{second(3500), math.Float64frombits(promvalue.StaleNaN)})

	f := func(selector string, want time.Duration) {
		t.Helper()
		got, err := db.Interval(context.Background(), selector, second(3600))
		if err != nil || got != want {
			t.Errorf("Interval(%s) = %s, %v; want %s", selector, got, err, want)
		}
	}
	f(`x{k="one"}`, 0)
	f(`x{k="none"}`, 0)
	f(`x{k="back"}`, 0)
	f(`x{k="pair"}`, 5*time.Minute)
	f(`x{k="fast"}`, time.Second)
	f(`x{k="slow"}`, 30*time.Second)
	f(`x{k="gap"}`, 5*time.Second)
	f(`x{k="even"}`, 8*time.Second)
	f(`x{k="newest"}`, 5*time.Second)
	f(`x{k="old"}`, 0)
	f(`x{k="stale"}`, 10*time.Second)
	f(`x{k=~"fast|slow"}`, 30*time.Second)
	f(`x{k=~"pair|fast"}`, time.Second) // a lone gap makes no slow exporter
	_, err := db.Interval(context.Background(), "rate(x[5m])", second(3600))
	wantQueryError(t, "Interval", err, BadData, "unexpected")
}

// C69 (api-nonfinite-json): numbers that JSON has no word for are strings.
func TestQueryJSON(t *testing.T) {
	db := open(t, Options{Durability: "os"})
	x := func(k string, v float64) {
		write(t, db, labels.FromStrings("__name__", "x", "k", k), point{epoch, v})
	}
	x("inf", math.Inf(1))
	x("ninf", math.Inf(-1))
	x("nan", math.NaN())
	x("one", 1)
	write(t, db, labels.FromStrings("__name__", "odd", "k", "a\"\\\n\x00\xff<é>\u2028"), point{epoch, 1e-7})
	f := func(expr string, ts int64, want string) {
		t.Helper()
		a, err := db.QueryJSON(context.Background(), expr, ts, 0)
		if err != nil {
			t.Errorf("QueryJSON(%s): %v", expr, err)
		} else if string(a.Data) != want {
			t.Errorf("QueryJSON(%s) = %s; want %s", expr, a.Data, want)
		}
		if !json.Valid(a.Data) {
			t.Errorf("QueryJSON(%s) = %s: no JSON", expr, a.Data)
		}
	}
	f(`x{k="nan"}`, epoch, `{"resultType":"vector","result":[{"metric":{"__name__":"x","k":"nan"},"value":[1760000400,"NaN"]}]}`)
	f(`x{k="inf"}`, epoch+7, `{"resultType":"vector","result":[{"metric":{"__name__":"x","k":"inf"},"value":[1760000400.007,"+Inf"]}]}`)
	f(`-x{k="inf"}`, epoch+70, `{"resultType":"vector","result":[{"metric":{"k":"inf"},"value":[1760000400.070,"-Inf"]}]}`)
	f(`sum(x)`, epoch, `{"resultType":"vector","result":[{"metric":{},"value":[1760000400,"NaN"]}]}`)
	f(`x{k="none"}`, epoch, `{"resultType":"vector","result":[]}`)
	f(`x{k="one"}[1m]`, epoch+700, `{"resultType":"matrix","result":[{"metric":{"__name__":"x","k":"one"},"values":[[1760000400,"1"]]}]}`)
	f(`1e21`, epoch, `{"resultType":"scalar","result":[1760000400,"1e+21"]}`)
	f(`1e20 + 0`, -1500, `{"resultType":"scalar","result":[-1.500,"100000000000000000000"]}`)
	f(`"a\tb"`, epoch, `{"resultType":"string","result":[1760000400,"a\u0009b"]}`)
	f(`odd`, epoch, `{"resultType":"vector","result":[{"metric":{"__name__":"odd","k":"a\"\\\u000a\u0000�<é>\u2028"},"value":[1760000400,"1e-07"]}]}`)
}

func TestQueryRangeJSON(t *testing.T) {
	db := open(t, Options{Durability: "os"})
	write(t, db, labels.FromStrings("__name__", "x"), point{epoch, 1}, point{epoch + 5000, math.NaN()})
	a, err := db.QueryRangeJSON(context.Background(), "x", epoch, epoch+12_000, 5*time.Second, time.Minute)
	want := `{"resultType":"matrix","result":[{"metric":{"__name__":"x"},"values":[[1760000400,"1"],[1760000405,"NaN"],[1760000410,"NaN"]]}]}`
	if err != nil || string(a.Data) != want {
		t.Errorf("QueryRangeJSON = %s, %v; want %s", a.Data, err, want)
	}
	bad := func(expr string, start, end int64, step time.Duration, want string) {
		t.Helper()
		_, err := db.QueryRangeJSON(context.Background(), expr, start, end, step, 0)
		wantQueryError(t, "QueryRangeJSON("+expr+")", err, BadData, want)
	}
	bad("x", epoch, epoch-1, time.Second, "end is before start")
	bad("x", epoch, epoch, 0, "the least is 1ms")
	bad("x", epoch, epoch+11_000_000, time.Second, "11001 points a series, the most is 11000")
	bad("x[5m]", epoch, epoch, time.Second, "must be Scalar or instant Vector")
	if _, err := db.QueryRangeJSON(context.Background(), "x", epoch, epoch+10_999_000, time.Second, 0); err != nil {
		t.Errorf("11,000 points: %v", err)
	}
}

func TestQueryJSONHistograms(t *testing.T) {
	db := open(t, Options{Durability: "os"})
	app := db.Appender(context.Background())
	h := &histogram.FloatHistogram{
		Count: 7, Sum: 18.5, ZeroThreshold: 0.5, ZeroCount: 2,
		PositiveSpans: []histogram.Span{{Offset: 1, Length: 2}}, PositiveBuckets: []float64{3, 1},
		NegativeSpans: []histogram.Span{{Offset: 0, Length: 1}}, NegativeBuckets: []float64{1},
	}
	if _, err := app.AppendHistogram(0, labels.FromStrings("__name__", "h"), epoch, nil, h); err != nil {
		t.Fatal(err)
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	const inside = `[1760000400,{"count":"7","sum":"18.5","buckets":[[1,"-1","-0.5","1"],[3,"-0.5","0.5","2"],[0,"1","2","3"],[0,"2","4","1"]]}]`
	a, err := db.QueryJSON(context.Background(), "h", epoch, 0)
	if want := `{"resultType":"vector","result":[{"metric":{"__name__":"h"},"histogram":` + inside + `}]}`; err != nil || string(a.Data) != want {
		t.Errorf("QueryJSON(h) = %s, %v; want %s", a.Data, err, want)
	}
	a, err = db.QueryJSON(context.Background(), "h[1m]", epoch, 0)
	if want := `{"resultType":"matrix","result":[{"metric":{"__name__":"h"},"histograms":[` + inside + `]}]}`; err != nil || string(a.Data) != want {
		t.Errorf("QueryJSON(h[1m]) = %s, %v; want %s", a.Data, err, want)
	}
}

func TestQueryJSONNotes(t *testing.T) {
	db := open(t, Options{Durability: "os"})
	write(t, db, labels.FromStrings("__name__", "x"), point{epoch, 1}, point{epoch + 5000, 2})
	a, err := db.QueryJSON(context.Background(), "quantile(2, x) or rate(x[1m])", epoch+5000, 0)
	if err != nil || len(a.Warnings) != 1 || len(a.Infos) != 1 || !strings.Contains(a.Infos[0], "might not be a counter") {
		t.Errorf("notes = %q, %q, %v; want one warning and one info", a.Warnings, a.Infos, err)
	}
}

func TestAnswerIsBounded(t *testing.T) {
	db := open(t, Options{Durability: "os"})
	app := db.Appender(context.Background())
	for i := range 700 {
		if _, err := app.Append(0, labels.FromStrings("__name__", "long", "i", strconv.Itoa(i), "v", strings.Repeat("x", 16_000)), epoch, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	_, err := db.QueryJSON(context.Background(), "long", epoch, 0)
	wantQueryError(t, "QueryJSON(long)", err, Execution, "longer than 10 MiB")
	_, err = db.QueryRangeJSON(context.Background(), "long", epoch, epoch, time.Second, 0)
	wantQueryError(t, "QueryRangeJSON(long)", err, Execution, "longer than 10 MiB")
}

// The people's lane is bounded; the rules' lane runs an administrator's words.
func TestGuard(t *testing.T) {
	db := open(t, Options{Durability: "os"})
	nested := func(open, inner, close string, n int) string {
		return strings.Repeat(open, n) + inner + strings.Repeat(close, n)
	}
	f := func(name, expr, want string) {
		t.Helper()
		_, err := db.QueryJSON(context.Background(), expr, epoch, time.Second)
		if want == "" {
			if err != nil {
				t.Errorf("%s: %v; want it answered", name, err)
			}
			return
		}
		wantQueryError(t, name, err, BadData, want)
		if _, err := db.Instant(context.Background(), expr, epoch); err != nil {
			t.Errorf("%s: as a rule: %v; want it answered", name, err)
		}
	}
	// S1-143 sets the length.
	f("4,000 characters", `vector(1) # `+strings.Repeat("é", 3988), "")
	f("4,001 characters", `vector(1) # `+strings.Repeat("é", 3989), "4001 characters, the most is 4000")
	f("382 parts", balanced(128), "")
	f("766 parts", balanced(256), "more than 500 parts")
	f("50 or", "x"+strings.Repeat(" or x", 49), "")
	f("51 or", "x"+strings.Repeat(" or x", 50), "nested deeper than 50")
	f("49 brackets", nested("abs(", "x", ")", 49), "")
	f("50 brackets", nested("abs(", "x", ")", 50), "nested deeper than 50")
	f("a long regex", `x{k=~"`+strings.Repeat("a", 513)+`"}`, "has 513 bytes")
	f("100 alternatives", `x{k=~"`+strings.Repeat("a|", 99)+`a"}`, "")
	f("101 alternatives", `x{k!~"`+strings.Repeat("a|", 100)+`a"}`, "has 101 alternatives")
	f("10,000 steps", "max_over_time(x[10000s:1s])", "")
	f("10,001 steps", "max_over_time(x[10001s:1s])", "has 10001 steps")
	f("the default step", "max_over_time(x[14h:])", "has 10080 steps of 5s")
	replace := func(inner string) string { return `label_replace(` + inner + `, "a", "$1", "b", "(.*)")` }
	f("label_replace", replace("x")+" or "+replace("x"), "")
	f("label_replace twice", replace("abs("+replace("x")+")"), "label_replace inside label_replace")
	f("label_join inside", replace(`label_join(x, "a", "", "b")`), "label_join inside label_replace")
	f("5 references", `label_replace(x, "a", "$1$1$1$1$1", "b", "(.*)")`, "more than 4 references")
	f("a long separator", `label_join(x, "a", "`+strings.Repeat("-", 257)+`", "b")`, "literal has 257 bytes")
}

// balanced is a sum of n names, as shallow as can be.
func balanced(n int) string {
	if n == 1 {
		return "x"
	}
	return "(" + balanced(n/2) + "+" + balanced(n-n/2) + ")"
}

// S1-145 and the four slots: the fifth query waits, and gives up at its own
// timeout; a rule does not wait.
func TestPeopleWaitForASlot(t *testing.T) {
	db := open(t, Options{Durability: "os"})
	var leave []func()
	for range peopleAtOnce {
		l, err := db.lanes.enter(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, l)
	}
	_, err := db.QueryJSON(context.Background(), "1", epoch, time.Nanosecond)
	wantQueryError(t, "QueryJSON", err, Timeout, "query timed out in query queue")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = db.QueryJSON(ctx, "1", epoch, 0)
	wantQueryError(t, "QueryJSON", err, Canceled, "query was canceled in query queue")
	instant(t, db, "1", epoch)
	leave[0]()
	if _, err := db.QueryJSON(context.Background(), "1", epoch, 0); err != nil {
		t.Errorf("with a slot free: %v", err)
	}
}

// The query of the node power preset (S0-116), 10 components each 5 s.
const nodePower = `sum by (k8s_node_name) (max by (k8s_node_name, hw_type, hw_id) (rate(hw_energy_joules_total{hw_type=~"cpu|gpu"}[5m])) or on (k8s_node_name, hw_type, hw_id) max by (k8s_node_name, hw_type, hw_id) (hw_power_watts{hw_type=~"cpu|gpu"}))`

func fillNodes(b testing.TB, db *DB, nodes int) (end int64) {
	app := db.Appender(context.Background())
	end = second(600)
	for n := range nodes {
		for c := range 10 {
			hw := "cpu"
			if c > 1 {
				hw = "gpu"
			}
			ls := labels.FromStrings("__name__", "hw_energy_joules_total", "k8s_node_name", fmt.Sprint("node-", n), "hw_type", hw, "hw_id", fmt.Sprint(c), "job", "otel", "instance", fmt.Sprint("i-", n))
			for t := epoch; t <= end; t += 5000 {
				if _, err := app.Append(0, ls, t, float64(t-epoch)/1000*100); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	if err := app.Commit(); err != nil {
		b.Fatal(err)
	}
	return end
}

func BenchmarkInstant(b *testing.B) {
	run := func(name string, nodes int, expr string) {
		b.Run(name, func(b *testing.B) {
			db := open(b, Options{Durability: "os"})
			end := fillNodes(b, db, nodes)
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				got, err := db.Instant(ctx, expr, end)
				if err != nil || len(got) == 0 {
					b.Fatal(got, err)
				}
			}
		})
	}
	covered := strings.ReplaceAll(nodePower, "rate(", "covered_rate(")
	run("number", 1, "1")
	run("selector", 1, `hw_energy_joules_total{hw_id="0"}`)
	run("node_power/nodes=1", 1, covered)
	run("node_power/nodes=100", 100, covered)
	run("node_power/one_of_100", 100, strings.ReplaceAll(covered, `{hw_type`, `{k8s_node_name="node-7",hw_type`))
	run("rate/nodes=1", 1, nodePower)
	run("increase/nodes=1", 1, "covered_increase(hw_energy_joules_total[5m])")
}

func BenchmarkInterval(b *testing.B) {
	db := open(b, Options{Durability: "os"})
	end := fillNodes(b, db, 1)
	for b.Loop() {
		if got, err := db.Interval(context.Background(), "hw_energy_joules_total", end); got != 5*time.Second || err != nil {
			b.Fatal(got, err)
		}
	}
}
