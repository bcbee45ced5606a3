package store

import (
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/annotations"
)

// How a counter is told to have stopped while it still has samples.
const (
	minMoves    = 3 // before these nobody knows its pace
	stillFactor = 3 // times the longest rest before, as a series is stale after three of its intervals
)

// coveredMoving is covered_moving(v range-vector, least scalar): 0 for a series whose
// last samples are all the same for longer than least seconds and than three times
// the longest that it rested before, 1 for any other. A meter that measures more
// slowly than it is read rests between its measurements; one that hangs rests for
// longer, and its rate falls until the window has forgotten the last rise.
func coveredMoving(vals []promql.Vector, m promql.Matrix, _ parser.Expressions, enh *promql.EvalNodeHelper) (promql.Vector, annotations.Annotations) {
	series := m[0]
	if len(series.Histograms) > 0 {
		return enh.Out, refuseHistogram(coveredMovingName, series.Metric)
	}
	least := time.Duration(vals[0][0].F * float64(time.Second))
	moving := 1.0
	if r := restsOf(series.Floats); r.moves >= minMoves && r.now > max(least, stillFactor*r.longest) {
		moving = 0
	}
	return append(enh.Out, promql.Sample{F: moving}), nil
}

// rests are the times during which a series of samples stayed the same.
type rests struct {
	moves        int
	longest, now time.Duration // between two moves, or before the first; since the last
}

func restsOf(points []promql.FPoint) rests {
	var r rests
	since := 0
	for i := 1; i < len(points); i++ {
		if points[i].F == points[since].F || !isFinite(points[i].F) {
			continue
		}
		r.moves++
		r.longest = max(r.longest, elapsed(points[since], points[i]))
		since = i
	}
	if n := len(points); n > 0 {
		r.now = elapsed(points[since], points[n-1])
	}
	return r
}

func elapsed(from, to promql.FPoint) time.Duration {
	return time.Duration(to.T-from.T) * time.Millisecond
}
