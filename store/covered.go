package store

import (
	"fmt"
	"math"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/annotations"
)

const (
	coveredRateName     = "covered_rate"
	coveredIncreaseName = "covered_increase"
	coveredNewestName   = "covered_newest"
	coveredMovingName   = "covered_moving"
)

// minCovered is the least covered time that makes a rate: two flushes a few
// milliseconds apart prove nothing.
const minCovered = time.Second

// PromQL finds its functions in two maps of its own, which every engine of the
// process shares. They are written here, before main, and never again.
func init() {
	register(coveredRateName, coveredRate)
	register(coveredIncreaseName, coveredIncrease)
	register(coveredNewestName, coveredNewest, parser.ValueTypeScalar)
	register(coveredMovingName, coveredMoving, parser.ValueTypeScalar)
}

func register(name string, call promql.FunctionCall, more ...parser.ValueType) {
	if _, taken := promql.FunctionCalls[name]; taken || parser.Functions[name] != nil {
		panic("BUG: PromQL has a function " + name + " already")
	}
	parser.Functions[name] = &parser.Function{
		Name:       name,
		ArgTypes:   append([]parser.ValueType{parser.ValueTypeMatrix}, more...),
		ReturnType: parser.ValueTypeVector,
	}
	promql.FunctionCalls[name] = call
}

// coveredRate is covered_rate(v range-vector): the increases between
// neighbouring samples over the time between them, by the samples' own clocks.
// It never extrapolates, so it is not low while a series is young or late.
func coveredRate(_ []promql.Vector, m promql.Matrix, args parser.Expressions, enh *promql.EvalNodeHelper) (promql.Vector, annotations.Annotations) {
	series := m[0]
	if len(series.Histograms) > 0 {
		return enh.Out, refuseHistogram(coveredRateName, series.Metric)
	}
	c := cover(series.Floats)
	if c.time < minCovered {
		return enh.Out, nil
	}
	return append(enh.Out, promql.Sample{F: c.increase / c.time.Seconds()}), nil
}

// coveredIncrease is covered_increase(v range-vector): the increases between
// neighbouring samples, from the last sample at or before the window's start.
// The window alone does not hold that sample, so widen has put the lookback
// onto the range before this runs, and passes it as the second argument.
func coveredIncrease(vals []promql.Vector, m promql.Matrix, args parser.Expressions, enh *promql.EvalNodeHelper) (promql.Vector, annotations.Annotations) {
	series := m[0]
	if len(args) != 2 {
		return enh.Out, annotations.New().Add(fmt.Errorf("%w: %s needs an engine of this store", annotations.PromQLWarning, coveredIncreaseName))
	}
	sel := args[0].(*parser.MatrixSelector)
	lookback := time.Duration(vals[0][0].F * float64(time.Second))
	window := sel.Range - lookback
	start := enh.Ts - (window + sel.VectorSelector.(*parser.VectorSelector).Offset).Milliseconds()

	for _, h := range series.Histograms {
		if h.T > start {
			return enh.Out, refuseHistogram(coveredIncreaseName, series.Metric)
		}
	}
	points := series.Floats
	for len(points) > 1 && points[1].T <= start {
		points = points[1:]
	}
	c := cover(points)
	if c.intervals == 0 {
		return enh.Out, nil
	}
	return append(enh.Out, promql.Sample{F: c.increase}), nil
}

// coveredNewest is covered_newest(v range-vector, recent scalar): the time of the
// newest sample, Unix seconds, of a series that covered_rate answers for and whose
// newest sample is less than recent seconds old. It is -Inf for a series of which
// one of the two is true and the other is not, and nothing where neither is. Rules
// judge by it, at one reading of the window, that a rate leaves nobody out.
func coveredNewest(vals []promql.Vector, m promql.Matrix, args parser.Expressions, enh *promql.EvalNodeHelper) (promql.Vector, annotations.Annotations) {
	series := m[0]
	if len(series.Histograms) > 0 {
		return enh.Out, refuseHistogram(coveredNewestName, series.Metric)
	}
	arg, ok := unparen(args[0]).(*parser.MatrixSelector)
	if !ok {
		return enh.Out, annotations.New().Add(fmt.Errorf("%w: %s wants a selector with a range such as x[5m]", annotations.PromQLWarning, coveredNewestName))
	}
	end := enh.Ts - arg.VectorSelector.(*parser.VectorSelector).Offset.Milliseconds()
	last := series.Floats[len(series.Floats)-1].T
	recent := last > end-int64(math.Round(vals[0][0].F*1000))
	switch answers := cover(series.Floats).time >= minCovered; {
	case answers && recent:
		return append(enh.Out, promql.Sample{F: float64(last) / 1000}), nil
	case answers || recent:
		return append(enh.Out, promql.Sample{F: math.Inf(-1)}), nil
	}
	return enh.Out, nil
}

// covered is what a series of samples proves about a counter.
type covered struct {
	increase  float64
	time      time.Duration // of the intervals that did not go back
	intervals int           // between finite samples, those that went back included
}

// cover walks the samples, oldest first. An interval in which the counter went
// back tells neither how far it rose nor for how long, and one that ends on NaN
// or Inf tells nothing: both count in neither sum. What rises without a break
// is taken as last minus first, which is the same sum with less rounding.
func cover(points []promql.FPoint) covered {
	var c covered
	first := 0
	for i := range points {
		if i+1 < len(points) {
			from, to := points[i].F, points[i+1].F
			finite := isFinite(from) && isFinite(to)
			if finite {
				c.intervals++
			}
			if finite && to >= from {
				continue
			}
		}
		if first < i {
			c.increase += points[i].F - points[first].F
			c.time += time.Duration(points[i].T-points[first].T) * time.Millisecond
		}
		first = i + 1
	}
	return c
}

func isFinite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

func refuseHistogram(function string, metric labels.Labels) annotations.Annotations {
	return annotations.New().Add(fmt.Errorf("%w: %s takes no histograms: %s", annotations.PromQLWarning, function, metric.Get(model.MetricNameLabel)))
}
