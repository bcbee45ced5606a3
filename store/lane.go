package store

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

const (
	rulesTimeout = 30 * time.Second
	// rulesMaxSamples and peopleMaxSamples bound what one query holds in
	// memory, at 16 bytes a sample: 320 MB and 80 MB.
	rulesMaxSamples  = 20_000_000
	peopleMaxSamples = 5_000_000
	// peopleTimeout is what a query gets that names no timeout, and the most
	// that one can ask for is peopleTimeoutMax.
	peopleTimeout    = 30 * time.Second
	peopleTimeoutMax = 2 * time.Minute
	peopleAtOnce     = 4
	// subqueryStep is the step of a subquery that names none, as in x[1h:]:
	// the interval at which rules run by default.
	subqueryStep = 5 * time.Second
)

// lanes keep rules apart from people: a flood of dashboards waits for its four
// slots and never for a rule's, nor a rule for theirs.
type lanes struct {
	rules  *promql.Engine
	people *promql.Engine
	slots  chan struct{}
}

func newLanes(logger *slog.Logger, reg prometheus.Registerer) lanes {
	engine := func(lane string, timeout time.Duration, maxSamples int, check func(parser.Expr) error) *promql.Engine {
		return promql.NewEngine(promql.EngineOpts{
			Logger:                   logger,
			Reg:                      prometheus.WrapRegistererWith(prometheus.Labels{"lane": lane}, reg),
			MaxSamples:               maxSamples,
			Timeout:                  timeout,
			LookbackDelta:            lookback,
			NoStepSubqueryIntervalFn: func(int64) int64 { return subqueryStep.Milliseconds() },
			EnableAtModifier:         true,
			EnableNegativeOffset:     true,
			Parser: treeParser{
				// ts_of_last_over_time, which rules judge staleness by, is
				// among the functions that Prometheus calls experimental.
				Parser: parser.NewParser(parser.Options{EnableExperimentalFunctions: true}),
				check:  check,
			},
		})
	}
	return lanes{
		rules:  engine("rules", rulesTimeout, rulesMaxSamples, nil),
		people: engine("people", peopleTimeoutMax, peopleMaxSamples, guard),
		slots:  make(chan struct{}, peopleAtOnce),
	}
}

// enter waits for one of the people's slots and returns what gives it back.
func (l lanes) enter(ctx context.Context) (func(), error) {
	select {
	case l.slots <- struct{}{}:
		return func() { <-l.slots }, nil
	case <-ctx.Done():
		if ctx.Err() == context.DeadlineExceeded {
			return nil, promql.ErrQueryTimeout("query queue")
		}
		return nil, promql.ErrQueryCanceled("query queue")
	}
}

// treeParser is PromQL's parser and what this store does to a tree before an
// engine sees it: the check of the lane, then widen.
type treeParser struct {
	parser.Parser
	check func(parser.Expr) error
}

func (p treeParser) ParseExpr(query string) (parser.Expr, error) {
	expr, err := p.Parser.ParseExpr(query)
	if err != nil {
		return expr, err
	}
	if p.check != nil {
		if err := p.check(expr); err != nil {
			return nil, err
		}
	}
	return expr, widen(expr)
}
