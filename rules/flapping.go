package rules

import (
	"math"

	"github.com/prometheus/prometheus/promql/parser"
)

// threshold is a condition that compares something with a number.
type threshold struct {
	of string // what is compared, as PromQL prints it
	op parser.ItemType
	at float64
}

func (t threshold) upward() bool { return t.op == parser.GTR || t.op == parser.GTE }

func (t threshold) inclusive() bool { return t.op == parser.GTE || t.op == parser.LTE }

// mirrored is a comparison seen from its other side.
var mirrored = map[parser.ItemType]parser.ItemType{
	parser.GTR: parser.LSS, parser.LSS: parser.GTR, parser.GTE: parser.LTE, parser.LTE: parser.GTE,
}

func thresholdOf(e parser.Expr) (threshold, bool) {
	switch e := e.(type) {
	case *parser.ParenExpr:
		return thresholdOf(e.Expr)
	case *parser.BinaryExpr:
		if _, ok := mirrored[e.Op]; !ok || e.ReturnBool {
			return threshold{}, false
		}
		if at, ok := constant(e.RHS); ok {
			return threshold{e.LHS.String(), e.Op, at}, true
		}
		if at, ok := constant(e.LHS); ok {
			return threshold{e.RHS.String(), mirrored[e.Op], at}, true
		}
	}
	return threshold{}, false
}

// checkFlapping warns where the release condition can hold while the engage
// condition does, and where noise alone leads from one to the other. Only two
// thresholds of one thing can be told apart before anything runs.
func (l *loader) checkFlapping(engage, release *tree) {
	in, okIn := thresholdOf(engage.root)
	out, okOut := thresholdOf(release.root)
	if !okIn || !okOut || in.of != out.of {
		return
	}
	at := release.place(release.root.PositionRange())
	if l.order[engage.at.file.name] > l.order[release.at.file.name] {
		at = engage.place(engage.root.PositionRange())
	}
	gap := in.at - out.at
	if !in.upward() {
		gap = -gap
	}
	switch {
	case in.upward() == out.upward(), gap < 0, gap == 0 && in.inclusive() && out.inclusive():
		l.warnf(release.rule, at, "release can hold while engage does (%s), so the cap comes and goes",
			engage.root.String())
	case in.at != 0 && gap < minHysteresis*math.Abs(in.at):
		l.warnf(release.rule, at, "release is %.3g from engage (%.3g %% of %g): under %g %% noise alone makes the cap come and go",
			gap, 100*gap/math.Abs(in.at), in.at, 100*minHysteresis)
	}
}
