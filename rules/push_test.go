package rules

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// Which queries are proven to make the elements of a key of that key's series
// alone, and how they are asked of one.
func TestPerKey(t *testing.T) {
	f := func(query, want string) {
		t.Helper()
		q := perKey(query, []string{"n"})
		if got := q.of(labels.FromStrings("n", `a"b`, "other", "x"), []string{"n"}); got != want {
			t.Errorf("%s of one key: %q; want %q", query, got, want)
		}
	}
	f(`sum by (n) (rate(x{a="b"}[5m]))`, `sum by (n) (rate(x{a="b",n="a\"b"}[5m]))`)
	f(`sum by (n) (x) - on (n) max by (n) (y)`, `sum by (n) (x{n="a\"b"}) - on (n) max by (n) (y{n="a\"b"})`)
	f(`x or y`, `x{n="a\"b"} or y{n="a\"b"}`)
	f(`x * on (n, id) group_left (name) y`, `x{n="a\"b"} * on (n, id) group_left (name) y{n="a\"b"}`)
	f(`label_replace(x, "c", "$1", "n", "(.*)")`, `label_replace(x{n="a\"b"}, "c", "$1", "n", "(.*)")`)
	f(`max_over_time(sum by (n) (x)[5m:1m])`, `max_over_time(sum by (n) (x{n="a\"b"})[5m:1m])`)
	f(`topk by (n) (1, x)`, `topk by (n) (1, x{n="a\"b"})`)
	f(`x > time() - 5`, `x{n="a\"b"} > time() - 5`)
	for _, unproven := range []string{
		`sum(x)`, `sum by (id) (x)`, `sum without (n) (x)`, `topk(1, x)`, `topk by (n) (scalar(y), x)`,
		`x * on (id) y`, `x * ignoring (n) y`, `x or on (id) y`, `x unless on () y`,
		`x * on (job) group_left (n) max by (job, n) (target_info)`,
		`label_replace(x, "n", "$1", "id", "(.*)")`, `label_join(x, "n", "-", "id")`,
		`absent(x)`, `vector(1)`, `x > scalar(y)`, `count_values by (n) ("v", x)`, `time()`, `x + vector(1)`,
	} {
		f(unproven, "")
	}
	if got := perKey("x", nil); got != "" {
		t.Errorf("without a key: %q; want none", got)
	}
}

// shapesOfPower are readings of the shapes that presets have, over the histories
// of a batch.
func shapesOfPower(id int, window time.Duration) []string {
	of := func(expr string) string {
		return strings.NewReplacer("BATCH", fmt.Sprintf(`batch="%d"`, id), "WINDOW", window.String()).Replace(expr)
	}
	return []string{
		of(`sum by (k8s_node_name) (max by (k8s_node_name, hw_type, hw_id) (rate(hw_energy_joules_total{BATCH}[WINDOW])) or on (k8s_node_name, hw_type, hw_id) max by (k8s_node_name, hw_type, hw_id) (hw_power_watts{BATCH}))`),
		of(`sum by (k8s_node_name) (label_replace(rate(hw_energy_joules_total{BATCH,hw_type="cpu"}[WINDOW]), "c", "cpu", "", "") or label_replace(rate(hw_energy_joules_total{BATCH,hw_type="gpu"}[WINDOW]), "c", "gpu", "", ""))`),
		of(`max by (k8s_node_name) (rate(hw_energy_joules_total{BATCH}[WINDOW])) or on (k8s_node_name) max by (k8s_node_name) (hw_power_watts{BATCH})`),
		of(`count by (k8s_node_name) (max by (k8s_node_name, hw_id) (hw_energy_joules_total{BATCH}) or on (k8s_node_name, hw_id) max by (k8s_node_name, hw_id) (hw_power_watts{BATCH}))`),
		of(`(sum by (k8s_node_name) (rate(hw_energy_joules_total{BATCH}[WINDOW])) > 200) / 2`),
	}
}

// A key evaluated alone says what the whole reading says of it, quality, age and
// reasons included, whatever was evaluated whole or alone before; and it is never
// trusted where the whole is not.
func TestPropertyOneKeyIsTheWhole(t *testing.T) {
	db := openStore(t)
	alone, compared, differ := 0, 0, 0
	for id := range 30 {
		r := rand.New(rand.NewPCG(0xa10e, uint64(id)))
		b := drawBatch(r, 1000+id)
		b.db, b.nodes = db, b.nodes[:8]
		now := b.at[0]
		shapes := shapesOfPower(b.id, b.window)
		rd := reading(t, RateCovered, shapes[id%len(shapes)], "k8s_node_name")
		rd.ForgetAfter = 20 * time.Minute
		whole, near := (&play{db: db}).evaluator(false), (&play{db: db}).evaluator(false)
		interval := time.Duration(r.IntN(60_000)) * time.Millisecond // each would measure it at an instant of its own
		whole.Interval = func(context.Context, string, int64) (time.Duration, error) { return interval, nil }
		near.Interval = whole.Interval
		for range 25 {
			b.feed(t, now)
			want, err := whole.Reading(bg, rd, at(now))
			if err != nil {
				t.Fatal(err)
			}
			if r.IntN(4) == 0 {
				if _, err := near.Reading(bg, rd, at(now)); err != nil {
					t.Fatal(err)
				}
			}
			near.Begin()
			first := map[string]string{} // what was said of a key that was evaluated alone
			for _, w := range want {
				compared++
				got, ok, err := near.ReadingOf(bg, rd, w.Key, at(now))
				if err != nil {
					t.Fatal(err)
				}
				if ok {
					alone++
					first[w.Key.String()] = fmt.Sprintf("%+v", got)
				} else {
					clear(first)
					// as the engine does
					all, err := near.Reading(bg, rd, at(now))
					if err != nil {
						t.Fatal(err)
					}
					got = all[slices.IndexFunc(all, func(k KeyReading) bool { return labels.Equal(k.Key, w.Key) })]
				}
				switch trusted := func(k KeyReading) bool { return k.Quality == Fresh && !k.Partial }; {
				case told(got) == told(w):
				case !trusted(got) && !trusted(w):
					// A component that was away and comes back with a sample that is old
					// already is found at the next whole query, by either.
					differ++
				default:
					t.Fatalf("batch %d at %g, %s:\nalone %+v\nwhole %+v", b.id, now, rd.Expr, got, w)
				}
			}
			// Another rule that reads the same is told the same in this step.
			for _, w := range want {
				got, ok, err := near.ReadingOf(bg, rd, w.Key, at(now))
				if was := first[w.Key.String()]; was != "" && (!ok || err != nil || fmt.Sprintf("%+v", got) != was) {
					t.Fatalf("batch %d at %g, %s:\nfirst %s\nagain %+v, %v, %v", b.id, now, rd.Expr, was, got, ok, err)
				}
			}
			now = seconds(now + []float64{0.2, 1, 1, 5, 5, 13, 40}[r.IntN(7)])
		}
	}
	t.Logf("%d of %d keys were evaluated alone, %d differ in why they are not trusted", alone, compared, differ)
	if alone < compared/2 || differ > compared/200 {
		t.Error("want half of them alone at least, and one in 200 to differ at most")
	}
}

// told is all that a reading says, but which of several components is to blame.
func told(k KeyReading) string {
	if _, rest, ok := strings.Cut(k.Why, "} "); ok {
		k.Why = rest
	}
	return fmt.Sprintf("%+v", k)
}

// A control evaluated for one key says what the whole control says of it.
func TestControlOfOneKeyIsTheWhole(t *testing.T) {
	w := newWorld(t)
	c := budget(t, 400)
	for i := range 5 {
		node := func(series string) string { return strings.ReplaceAll(series, `"a"`, fmt.Sprintf(`"n%d"`, i)) }
		for s := 400.0; s <= 700; s += 5 {
			if i != 3 || s < 560 {
				w.counter(node(cpu0), 100+60*float64(i), s, s, 5)
			}
			w.gauge(node(gpu0), 150, s, s, 5)
		}
	}
	near := &Evaluator{Query: w.eval.Query, Interval: w.eval.Interval}
	alone := 0
	for s := 590.0; s <= 640; s++ {
		want, err := w.eval.Control(bg, c, at(s))
		if err != nil {
			t.Fatal(err)
		}
		if int(s)%10 == 0 {
			if _, err := near.Control(bg, c, at(s)); err != nil {
				t.Fatal(err)
			}
		}
		for _, k := range want {
			got, ok, err := near.ControlOf(bg, c, k.Key, at(s))
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				continue
			}
			alone++
			if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", k) {
				t.Fatalf("at %g:\nalone %+v\nwhole %+v", s, got, k)
			}
		}
	}
	if alone < 200 {
		t.Errorf("%d keys were evaluated alone; want 200", alone)
	}
}

// BenchmarkArrival is what an arrival costs among 1,000 nodes of ten components,
// five minutes at 5 s: its node evaluated alone.
func BenchmarkArrival(b *testing.B) {
	w := newWorld(b)
	app := w.db.Appender(bg)
	for n := range 1000 {
		for i := range 10 {
			ls := labels.FromStrings("__name__", "hw_energy_joules_total", "hw_type", "cpu", "hw_id", fmt.Sprint("cpu", i), "k8s_node_name", fmt.Sprint("n", n))
			for s := 0; s <= 300; s += 5 {
				if _, err := app.Append(0, ls, at(float64(s)), float64(100*s)); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	if err := app.Commit(); err != nil {
		b.Fatal(err)
	}
	r := reading(b, RateCovered, nodePower, "k8s_node_name")
	key := labels.FromStrings("k8s_node_name", "n500")
	if _, err := w.eval.Reading(bg, r, at(300)); err != nil {
		b.Fatal(err)
	}
	b.Run("near", func(b *testing.B) {
		for b.Loop() {
			if k, ok, err := w.eval.ReadingOf(bg, r, key, at(300)); !ok || err != nil || k.Value != 1000 {
				b.Fatal(k, ok, err)
			}
		}
	})
	b.Run("whole", func(b *testing.B) {
		for b.Loop() {
			if _, err := w.eval.Reading(bg, r, at(300)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
