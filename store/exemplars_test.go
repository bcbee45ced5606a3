package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
)

// exemplify appends a sample of the series and an exemplar of it.
func exemplify(t testing.TB, db *DB, series labels.Labels, v float64, at int64, of ...string) {
	t.Helper()
	app := db.Appender(context.Background())
	ref, err := app.Append(0, series, at, v)
	if err == nil {
		_, err = app.AppendExemplar(ref, series, exemplar.Exemplar{Labels: labels.FromStrings(of...), Value: v, Ts: at, HasTs: true})
	}
	if err := errors.Join(err, app.Commit()); err != nil {
		t.Fatal(err)
	}
}

// The shape is that of Prometheus's documentation of /api/v1/query_exemplars, and
// what was acked is there after a reopen.
func TestExemplars(t *testing.T) {
	db := open(t, Options{Path: t.TempDir()})
	exemplify(t, db, labels.FromStrings("__name__", "a_bucket", "le", "0.5"), 0.25, 1000, "trace_id", "ab\"c")
	exemplify(t, db, labels.FromStrings("__name__", "a_bucket", "le", "+Inf"), 6, 2500)
	exemplify(t, db, labels.FromStrings("__name__", "b"), 1, 3000)
	f := func(query string, start, end int64, want string) {
		t.Helper()
		got, err := db.ExemplarsJSON(context.Background(), query, start, end)
		if err != nil || string(got) != want {
			t.Errorf("%s from %d to %d:\n%s, %v; want\n%s", query, start, end, got, err, want)
		}
	}
	const small = `{"seriesLabels":{"__name__":"a_bucket","le":"0.5"},"exemplars":[{"labels":{"trace_id":"ab\"c"},"value":"0.25","timestamp":1}]}`
	const large = `{"seriesLabels":{"__name__":"a_bucket","le":"+Inf"},"exemplars":[{"labels":{},"value":"6","timestamp":2.500}]}`
	for range 2 {
		f("histogram_quantile(0.9, rate(a_bucket[5m]))", 0, 9999, "["+large+","+small+"]")
		f("a_bucket", 1001, 2500, "["+large+"]")
		f("a_bucket", 2501, 9999, "[]")
		f("1+1", 0, 9999, "[]")
		if err := db.Reopen(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	for _, bad := range []string{"a{", "", strings.Repeat("a", 5000), strings.Repeat("(", 60) + "a" + strings.Repeat(")", 60)} {
		_, err := db.ExemplarsJSON(context.Background(), bad, 0, 1)
		var q *QueryError
		if !errors.As(err, &q) || q.Kind != BadData {
			t.Errorf("%.20q: %v; want %s", bad, err, BadData)
		}
	}
}

// No more than so many are held, whatever is sent.
func TestExemplarsAreBounded(t *testing.T) {
	db := open(t, Options{Path: t.TempDir(), Durability: "os"})
	app := db.Appender(context.Background())
	for i := range maxExemplars + 500 {
		ls := labels.FromStrings("__name__", "a", "i", fmt.Sprint(i))
		ref, err := app.Append(0, ls, 1000, 1)
		if err == nil {
			_, err = app.AppendExemplar(ref, ls, exemplar.Exemplar{Ts: 1000, HasTs: true})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	got, err := db.ExemplarsJSON(context.Background(), "a", 0, 2000)
	if n := strings.Count(string(got), `"labels"`); err != nil || n != maxExemplars {
		t.Errorf("%d exemplars, %v; want %d", n, err, maxExemplars)
	}
}

// Native histograms are stored, late ones too, survive a reopen, and are answered
// in Prometheus's shape; a rule's query leaves them out and says so.
func TestNativeHistograms(t *testing.T) {
	db := open(t, Options{Path: t.TempDir()})
	ls := labels.FromStrings("__name__", "h")
	for _, at := range []int64{60_000, 30_000} {
		app := db.Appender(context.Background())
		_, err := app.AppendHistogram(0, ls, at, &histogram.Histogram{Count: 3, Sum: 4, ZeroThreshold: 1e-128,
			PositiveSpans: []histogram.Span{{Offset: 1, Length: 2}}, PositiveBuckets: []int64{1, 1}}, nil)
		if err := errors.Join(err, app.Commit()); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Reopen(context.Background()); err != nil {
		t.Fatal(err)
	}
	const one = `{"count":"3","sum":"4","buckets":[[0,"1","2","1"],[0,"2","4","2"]]}`
	a, err := db.QueryJSON(context.Background(), "h", 60_000, 0)
	if want := `{"resultType":"vector","result":[{"metric":{"__name__":"h"},"histogram":[60,` + one + `]}]}`; err != nil || string(a.Data) != want {
		t.Errorf("%s, %v; want\n%s", a.Data, err, want)
	}
	a, err = db.QueryRangeJSON(context.Background(), "h", 30_000, 60_000, 30e9, 0)
	if want := `{"resultType":"matrix","result":[{"metric":{"__name__":"h"},"histograms":[[30,` + one + `],[60,` + one + `]]}]}`; err != nil || string(a.Data) != want {
		t.Errorf("%s, %v; want\n%s", a.Data, err, want)
	}
	if got, err := db.Instant(context.Background(), "h", 60_000); err == nil || len(got) != 0 {
		t.Errorf("%v, %v; want an error", got, err)
	}
	if got, err := db.Instant(context.Background(), "histogram_count(h)", 60_000); err != nil || len(got) != 1 || got[0].V != 3 {
		t.Errorf("%v, %v; want 3", got, err)
	}
}
