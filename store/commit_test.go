package store

import (
	"context"
	"fmt"
	"testing"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
)

// Who listens is told of all that a commit stored, of what was rolled back or
// refused nothing, and of a series under one reference.
func TestOnCommit(t *testing.T) {
	db := open(t, Options{})
	ls := labels.FromStrings("__name__", "x")
	write(t, db, ls, point{second(0), 1}) // before anybody listens
	var got []string
	refs := map[storage.SeriesRef]bool{}
	db.OnCommit(func(b Batch) {
		line := ""
		for _, s := range b {
			switch {
			case s.Exemplar != nil:
				line += fmt.Sprintf(" exemplar %g", s.Exemplar.Value)
			case s.H != nil:
				line += fmt.Sprintf(" %d histogram %d", s.T-epoch, s.H.Count)
			default:
				line += fmt.Sprintf(" %d %g", s.T-epoch, s.V)
				refs[s.Ref] = true
			}
		}
		got = append(got, line)
	})
	app := db.Appender(context.Background())
	ref, err := app.Append(0, ls, second(1), 2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := app.Append(ref, ls, second(2), 3); err != nil {
		t.Fatal(err)
	}
	if _, err := app.AppendExemplar(ref, ls, exemplar.Exemplar{Value: 0.5, Ts: second(2), HasTs: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := app.Append(ref, ls, second(-7200), 3); err == nil {
		t.Fatal("a sample that is far too old is taken")
	}
	h := &histogram.Histogram{Count: 3, ZeroCount: 3}
	if _, err := app.AppendHistogram(0, labels.FromStrings("__name__", "h"), second(2), h, nil); err != nil {
		t.Fatal(err)
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	app = db.Appender(context.Background())
	if _, err := app.Append(0, ls, second(3), 4); err != nil {
		t.Fatal(err)
	}
	if err := app.Rollback(); err != nil {
		t.Fatal(err)
	}
	write(t, db, ls, point{second(4), 5})
	db.OnCommit(nil)
	write(t, db, ls, point{second(5), 6})
	want := []string{" 1000 2 2000 3 exemplar 0.5 2000 histogram 3", " 4000 5"}
	if fmt.Sprint(got) != fmt.Sprint(want) || len(refs) != 1 {
		t.Errorf("told %q, %d references; want %q, one", got, len(refs), want)
	}
}
