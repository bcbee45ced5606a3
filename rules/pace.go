package rules

import (
	"fmt"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
)

// minPaced is how many samples must lie in a window before they say how far
// apart they are: one gap may be a sample that was lost.
const minPaced = 3

// pace is the query of how far apart the samples of an expression's components
// are, in seconds; of several series the slowest. The interval that the store measures
// is that of the slowest series of a selector, on whatever node: by it alone one
// slow exporter would let the dead components of every other node pass for alive.
// It is asked only where that makes a difference.
func pace(e parser.Expr, pick func(leaf) bool) string {
	return deriver{aspect: used, pick: pick, op: parser.MAX, followed: true, text: func(l leaf) string {
		if pick != nil && !pick(l) || l.matrix != nil && l.matrix.RangeExpr != nil || pinned(l.vs) {
			return ""
		}
		// Longer than anything answers: what is about to go out of sight still has its pace.
		m := parser.MatrixSelector{VectorSelector: timeOnly(l.vs), Range: 2 * lookback}
		if l.matrix != nil {
			m.Range = max(m.Range, 2*l.matrix.Range)
		}
		return fmt.Sprintf("((ts_of_last_over_time(%[1]s) - ts_of_first_over_time(%[1]s)) / ((count_over_time(%[1]s) >= %[2]d) - 1))", &m, minPaced)
	}}.derive(e)
}

// paceOf is a pace as it is compared; what is none, or no finite number, is 0.
func paceOf(v float64) time.Duration {
	const most = 24 * 3600
	if v > 0 && v < most {
		return time.Duration(v * float64(time.Second))
	}
	return 0
}
