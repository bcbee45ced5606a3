package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"

	"github.com/wattloop/wattloop/twin"
)

// targetSeries tells the target of this node to the rules: a sample when it
// changes and every few seconds while it stands, and a staleness marker when it
// ends, so that its end is no 0 and no old value goes on.
type targetSeries struct {
	p        *parts
	standing map[string]standingTarget // by path
}

type standingTarget struct {
	watts float64
	at    time.Time
	ref   storage.SeriesRef
}

// tell appends what is new at now. What could not be stored is tried again with the
// next call.
func (s *targetSeries) tell(ctx context.Context, now time.Time, targets map[string]twin.Target) error {
	for _, path := range []string{twin.PathCPU, twin.PathGPU} {
		was, stood := s.standing[path]
		want := targets[path].Watts
		age := now.Sub(was.at)
		switch {
		case want == 0 && !stood, stood && want == was.watts && age >= 0 && age < targetEvery:
			continue
		case want == 0:
			if err := s.append(ctx, path, now, &was, math.Float64frombits(value.StaleNaN)); err != nil {
				return err
			}
			delete(s.standing, path)
		default:
			if err := s.append(ctx, path, now, &was, want); err != nil {
				return err
			}
			s.standing[path] = was
		}
	}
	return nil
}

// append stores one sample and has the engine evaluate what reads it.
func (s *targetSeries) append(ctx context.Context, path string, now time.Time, to *standingTarget, v float64) error {
	ls := targetLabels(path, s.p.c.Node)
	app := s.p.db.Appender(ctx)
	ref, err := app.Append(to.ref, ls, now.UnixMilli(), v)
	if err == nil {
		err = app.Commit()
	} else {
		app.Rollback()
	}
	if err != nil {
		return fmt.Errorf("twin: store the target: %w", err)
	}
	to.watts, to.at, to.ref = v, now, ref
	s.p.eng.Grew(s.p.eng.Touched(ls), now.UnixMilli())
	return nil
}
