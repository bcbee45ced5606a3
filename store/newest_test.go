package store

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
)

func TestNewest(t *testing.T) {
	db, err := Open(Options{Path: t.TempDir(), Durability: DurabilityOS, RetentionTime: 100 * 365 * 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	const base = 1760000000_000
	app := db.Appender(t.Context())
	add := func(name string, samples ...[2]float64) {
		for _, s := range samples {
			if _, err := app.Append(0, labels.FromStrings("__name__", "m", "n", name), base+int64(s[0]), s[1]); err != nil {
				t.Fatal(err)
			}
		}
	}
	end := math.Float64frombits(value.StaleNaN)
	add("two", [2]float64{0, 1}, [2]float64{5000, 2})
	add("one", [2]float64{5000, 3})
	add("ended", [2]float64{0, 1}, [2]float64{5000, end})
	add("again", [2]float64{0, 1}, [2]float64{2000, end}, [2]float64{6000, 4})
	add("before", [2]float64{-1, 1})
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	got, err := db.Newest(t.Context(), base, base+6000, labels.MustNewMatcher(labels.MatchEqual, "__name__", "m"))
	if err != nil {
		t.Fatal(err)
	}
	of := func(name string, t int64, v float64, interval int64) Last {
		return Last{labels.FromStrings("__name__", "m", "n", name), base + t, v, interval}
	}
	want := []Last{of("again", 6000, 4, 6000), of("one", 5000, 3, 0), of("two", 5000, 2, 5000)}
	slices.SortFunc(got, func(a, b Last) int { return labels.Compare(a.Metric, b.Metric) })
	if !slices.EqualFunc(got, want, func(a, b Last) bool {
		return labels.Equal(a.Metric, b.Metric) && a.T == b.T && a.V == b.V && a.Interval == b.Interval
	}) {
		t.Errorf("%v; want %v", got, want)
	}
}
