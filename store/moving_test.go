package store

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
)

// A counter has stopped when it rests for longer than three times its longest rest,
// and than the least that is allowed to anybody.
func TestCoveredMoving(t *testing.T) {
	db := open(t, Options{Durability: "os"})
	row := 0
	f := func(name string, want float64, seconds int64, values ...float64) {
		t.Helper()
		row++
		ls := labels.FromStrings("__name__", "moving", "row", fmt.Sprint(row))
		var points []point
		for i, v := range values {
			points = append(points, point{epoch + int64(i)*seconds*1000, v})
		}
		write(t, db, ls, points...)
		got, err := db.Instant(context.Background(), fmt.Sprintf(`covered_moving(moving{row="%d"}[30m], 30)`, row), epoch+int64(len(values)-1)*seconds*1000)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 1 || got[0].V != want {
			t.Errorf("%s: %v; want %v", name, got, want)
		}
	}
	nan := math.NaN()
	f("one sample", 1, 10, 5)
	f("rises", 1, 10, 1, 2, 3, 4)
	f("rests for as long as anybody may", 1, 10, 1, 2, 3, 4, 4, 4, 4)
	f("rests for longer", 0, 10, 1, 2, 3, 4, 4, 4, 4, 4)
	f("its pace is not known", 1, 10, 1, 2, 3, 3, 3, 3, 3, 3, 3, 3)
	f("a slow meter", 1, 10, 1, 1, 2, 2, 3, 3, 4, 4, 4, 4, 4, 4, 4)
	f("a slow meter that stops", 0, 10, 1, 1, 2, 2, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4)
	f("a rest at the begin counts", 1, 10, 1, 1, 1, 1, 2, 3, 4, 4, 4, 4, 4, 4)
	f("a reset is a move", 1, 10, 7, 8, 9, 10, 10, 10, 10, 0)
	f("what is no number is none", 0, 10, 1, 2, 3, 4, nan, 4, nan, 4, 4)
}

func TestRests(t *testing.T) {
	if got := restsOf(nil); got != (rests{}) {
		t.Errorf("of nothing: %+v", got)
	}
	if got, want := restsOf([]promql.FPoint{{T: 0, F: 0}, {T: 1000, F: 1}, {T: 2000, F: 1}, {T: 3000, F: 2}, {T: 4000, F: 2}, {T: 5000, F: 2}}), (rests{2, 2 * time.Second, 2 * time.Second}); got != want {
		t.Errorf("%+v; want %+v", got, want)
	}
}
