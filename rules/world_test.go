package rules

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	promvalue "github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/wattloop/wattloop/store"
)

// base is the time that the cases count from, T0.
const base = 1_760_000_000

// world is a real store and an evaluator over it. Times are seconds after base.
type world struct {
	t       testing.TB
	db      *store.DB
	eval    *Evaluator
	queries int
	fail    error // what every query answers, if set
	widened []string
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, db: openStore(t)}
	w.restart()
	return w
}

func openStore(t testing.TB) *store.DB {
	t.Helper()
	db, err := store.Open(store.Options{Path: t.TempDir(), Durability: "os"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// restart forgets all that the evaluator knows, as a new process would.
func (w *world) restart() {
	w.eval = &Evaluator{
		Query: func(ctx context.Context, expr string, ts int64) ([]Sample, error) {
			w.queries++
			if w.fail != nil {
				return nil, w.fail
			}
			got, err := w.db.Instant(ctx, expr, ts)
			out := make([]Sample, len(got))
			for i, s := range got {
				out[i] = Sample(s)
			}
			return out, err
		},
		Interval: w.db.Interval,
		Widened: func(rule, selector string, from, to time.Duration) {
			w.widened = append(w.widened, fmt.Sprintf("%s: %s[%s] read over %s", rule, selector, from, to))
		},
	}
}

func at(seconds float64) int64 { return int64(math.Round((base + seconds) * 1000)) }

var seriesParser = parser.NewParser(parser.Options{})

// add appends one sample.
func (w *world) add(series string, seconds, v float64) {
	w.t.Helper()
	ls, err := seriesParser.ParseMetric(series)
	if err != nil {
		w.t.Fatal(err)
	}
	app := w.db.Appender(context.Background())
	if _, err := app.Append(0, ls, at(seconds), v); err != nil {
		app.Rollback()
		w.t.Fatalf("append %s at %g: %v", series, seconds, err)
	}
	if err := app.Commit(); err != nil {
		w.t.Fatal(err)
	}
}

// end appends a stale marker.
func (w *world) end(series string, seconds float64) {
	w.t.Helper()
	w.add(series, seconds, math.Float64frombits(promvalue.StaleNaN))
}

// counter appends a counter of constant power, from first to last inclusive.
func (w *world) counter(series string, watts, first, last, step float64) {
	w.t.Helper()
	for s := first; s <= last; s += step {
		w.add(series, s, watts*s+1000)
	}
}

// gauge appends a constant gauge, from first to last inclusive.
func (w *world) gauge(series string, v, first, last, step float64) {
	w.t.Helper()
	for s := first; s <= last; s += step {
		w.add(series, s, v)
	}
}

// reading makes a reading of an expression, read as rate says.
func reading(t testing.TB, rate, expr string, key ...string) *Reading {
	t.Helper()
	p := mustPlan(t, rate, expr, key...)
	return &Reading{Name: "r", Key: key, Expr: expr, Query: p.query, Rate: rate, plan: p}
}

func mustPlan(t testing.TB, rate, expr string, key ...string) *plan {
	t.Helper()
	tree, err := dialect.ParseExpr(expr)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	p, err := newPlan(tree, key, rate == RateCovered)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// read evaluates a reading and prints what it says, one key a line.
func (w *world) read(r *Reading, seconds float64) string {
	w.t.Helper()
	got, err := w.eval.Reading(context.Background(), r, at(seconds))
	if err != nil {
		return "error: " + err.Error()
	}
	lines := make([]string, len(got))
	for i, k := range got {
		lines[i] = say(k)
	}
	return strings.Join(lines, "\n")
}

// say is a reading in short: key, value or -, quality, marks.
func say(k KeyReading) string {
	out := k.Key.String() + " -"
	if k.Valid {
		out = fmt.Sprintf("%s %.2f", k.Key, k.Value)
	}
	out += " " + string(k.Quality)
	if k.Partial {
		out += " partial"
	}
	if k.Err != "" {
		out += " error"
	}
	return out
}

// one evaluates a reading that has one key.
func (w *world) one(r *Reading, seconds float64) KeyReading {
	w.t.Helper()
	got, err := w.eval.Reading(context.Background(), r, at(seconds))
	if err != nil {
		w.t.Fatal(err)
	}
	if len(got) != 1 {
		w.t.Fatalf("at %g: %d keys: %v; want 1", seconds, len(got), got)
	}
	return got[0]
}

// want compares what a reading says at an instant.
func (w *world) want(r *Reading, seconds float64, want string) {
	w.t.Helper()
	if got := w.read(r, seconds); got != want {
		w.t.Errorf("at %g s:\ngot  %s\nwant %s", seconds, got, want)
		if ks, err := w.eval.Reading(context.Background(), r, at(seconds)); err == nil {
			for _, k := range ks {
				w.t.Logf("%s: why %q, err %q, age %s", k.Key, k.Why, k.Err, k.Age)
			}
		}
	}
}

const nodePower = `sum by (k8s_node_name) (max by (k8s_node_name, hw_type, hw_id) (rate(hw_energy_joules_total{hw_type=~"cpu|gpu"}[5m])) or on (k8s_node_name, hw_type, hw_id) max by (k8s_node_name, hw_type, hw_id) (hw_power_watts{hw_type=~"cpu|gpu"}))`

var (
	nanValue = math.NaN()
	infValue = math.Inf(1)
)

type ctx = context.Context

var bg = context.Background()

func withCancel() (context.Context, context.CancelFunc) { return context.WithCancel(bg) }
